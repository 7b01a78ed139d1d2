//! The size of every node from step to step: the bytes that each pass removed.

use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR};
use kcfg::graph::{Graph, Provenance, Section};
use kcfg::index::{NodeId, NodeMap};
use kcfg::lower::PlacedCode;
use kopt::freeze::{BOOT_RODATA, BOOT_TEXT, RODATA, TEXT};
use kplan::MemoryClass;

/// The step that encodes branches again.
const RELINK: &str = "relink";
/// The step that adds objects to those of the kernel.
const ADDED: &str = "added objects";

/// The size of one node.
#[derive(Clone, Debug, Default)]
pub struct NodeSize {
    /// The memory that held it in the original; `None` if it took none.
    pub class_before: Option<MemoryClass>,
    /// Bytes in the original; 0 if a pass made it.
    pub before: u64,
    /// Bytes now; 0 if it was removed.
    pub after: u64,
    /// Bytes removed by steps, which are indices into [`Sizes::steps`]; negative for added bytes.
    pub removed: Vec<(usize, i64)>,
}

/// The sizes of all nodes, without padding.
#[derive(Default)]
pub struct Sizes {
    /// By node.
    pub nodes: NodeMap<NodeSize>,
    /// The steps that changed a size.
    pub steps: Vec<&'static str>,
}

impl Sizes {
    /// Records the sizes after a step. The first step is `graph`; `refine` splits nodes without removing any.
    pub fn record(&mut self, step: &'static str, graph: &Graph) {
        let cuts = matches!(step, "graph" | "refine");
        for id in graph.node_ids() {
            let node = graph.node(id);
            let now = if node.live { u64::from(graph.size_with_branch(id)) } else { 0 };
            let is_input = cuts && matches!(node.provenance, Provenance::Input(_));
            let is_added = is_added(graph, id);
            if id == self.nodes.next_key() {
                let class_before = class(graph, graph.section_of(id)).filter(|_| is_input && !is_added);
                self.nodes.push(NodeSize { class_before, ..NodeSize::default() });
            }
            if is_input && !is_added {
                let size = &mut self.nodes[id];
                // The rest of it is in other nodes now.
                size.before = (size.before + now).saturating_sub(size.after);
                size.after = now;
            } else {
                self.change(id, if is_input { ADDED } else { step }, now);
            }
        }
    }

    /// Records the sizes of code as it was emitted.
    pub fn place(&mut self, code: &[PlacedCode]) {
        for placed in code {
            self.change(placed.node, RELINK, placed.size.into());
        }
    }

    fn change(&mut self, id: NodeId, step: &'static str, now: u64) {
        let size = &mut self.nodes[id];
        let change = size.after as i64 - now as i64;
        size.after = now;
        if change == 0 {
            return;
        }
        let known = self.steps.iter().position(|&known| known == step);
        let number = known.unwrap_or_else(|| {
            self.steps.push(step);
            self.steps.len() - 1
        });
        match size.removed.iter_mut().find(|(of, _)| *of == number) {
            Some((_, bytes)) => *bytes += change,
            None => size.removed.push((number, change)),
        }
    }
}

/// Returns whether a node belongs to an object that kshrink adds to the kernel.
fn is_added(graph: &Graph, id: NodeId) -> bool {
    graph.input_of(id).is_some_and(|input| input.object.starts_with("kshrink"))
}

/// Returns the class of memory that holds a section; `None` if the section is not loaded.
pub fn class(graph: &Graph, section: &Section) -> Option<MemoryClass> {
    let has = |flag: u32| section.flags & u64::from(flag) != 0;
    let name = &*section.name;
    let (is_code, is_init) = (has(SHF_EXECINSTR), is_freed_after_boot(graph.world().output_name(name)));
    if !has(SHF_ALLOC) || ksize::is_given_back(name) {
        return None;
    }
    Some(match (is_code, is_init) {
        _ if matches!(name, TEXT | BOOT_TEXT) => MemoryClass::FrozenText,
        _ if matches!(name, RODATA | BOOT_RODATA) => MemoryClass::FrozenData,
        (true, false) => MemoryClass::Text,
        (false, false) => MemoryClass::Data,
        (true, true) => MemoryClass::InitText,
        (false, true) => MemoryClass::InitData,
    })
}

/// Returns whether a kernel's linker script puts input sections of this name between `__init_begin` and `__init_end`
/// (include/asm-generic/vmlinux.lds.h: `INIT_TEXT_SECTION`, `INIT_DATA_SECTION`, `PERCPU_SECTION`).
fn is_freed_after_boot(name: &str) -> bool {
    [".init", ".exit", ".altinstr", ".con_initcall", ".data..percpu"]
        .iter()
        .any(|start| name.starts_with(start))
        || name.ends_with(".init")
}

/*!
Grouping of functions with the same unwind information.

On ARM, the kernel has an index of unwind tables (`.ARM.exidx`; IHI 0038, section 5). It has an entry of two words for
each function: its address, and how it has saved registers. An entry covers all code up to the next one, so the linker
drops an entry that equals the one before it (GNU ld, option `--no-merge-exidx-entries`). The functions of `.text` are
therefore sorted by the second word. Other code keeps its place, and the order of hot code by pass `layout` comes after
this step.
*/

use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_PROGBITS};
use kcfg::graph::{Editor, Graph, Section};
use kcfg::index::{FunctionId, FunctionMap, FunctionSet, NodeId, NodeSet, SectionId};
use kcfg::special::Rule;
use typed_index_collections::{TiVec, ti_vec};

use crate::near;
use crate::pass::{Context, Facts, Pass, Phase, Runs};
use crate::report::PassReport;

/// The class of code that is sorted: the kernel does not test whether an address is in it.
const CLASS: &str = ".text";
/// The byte offset of the unwind word in an entry, unless it holds the address of a table.
const WORD: u32 = 4;

/// Pass `unwinding`: places functions with the same unwind information next to each other.
pub struct Unwinding;

impl Pass for Unwinding {
    fn facts(&self) -> Facts {
        Facts {
            name: "unwinding",
            summary: "places functions with the same unwind information next to each other",
            phase: Phase::AfterRounds,
            runs: Runs::Always,
            on_64_bits: true,
        }
    }

    fn run(&self, graph: &mut Graph, _: &mut Context<'_>) -> PassReport {
        let report = PassReport::new(self.name());
        let mut functions = unwound_in_a_word(graph);
        let fixed = fixed_in_place(graph);
        let owned = graph.owned();
        let is_text: TiVec<SectionId, bool> =
            graph.sections().iter().map(|section| is_text(graph, section)).collect();
        functions.retain(|&(_, function)| {
            let nodes = &owned[function];
            let may_move = |&node: &NodeId| !fixed.contains(node) && is_text[graph.node(node).section];
            let alive = nodes.iter().any(|&node| graph.node(node).live);
            alive && nodes.iter().all(may_move)
        });
        if functions.is_empty() {
            return report;
        }
        // The sort is stable: functions with equal words keep their order.
        functions.sort_by_key(|&(word, _)| word);
        let nodes: Vec<NodeId> =
            functions.iter().flat_map(|&(_, function)| &owned[function]).copied().collect();
        let mut editor = Editor::new(graph, self.name());
        let flags = u64::from(SHF_ALLOC | SHF_EXECINSTR);
        let section = editor.add_section(Section { flags, ..Section::writable(CLASS, SHT_PROGBITS) });
        editor.place(&nodes, section);
        editor.finish();
        report
    }
}

/// For each function, its unwind word; `None` if it has none, or has an unwind table.
pub(crate) fn words(graph: &Graph) -> FunctionMap<Option<u32>> {
    let mut words: FunctionMap<Option<u32>> = ti_vec![None; graph.functions().len()];
    for (function, entry) in graph.unwind_entries() {
        let is_inline = graph.refs_of(entry).iter().all(|reference| reference.offset != WORD);
        let word = graph.bytes_of(entry).get(WORD as usize..).and_then(|word| word.first_chunk());
        if let Some(word) = word.filter(|_| is_inline) {
            words[function] = Some(u32::from_le_bytes(*word));
        }
    }
    words
}

/// The functions with an unwind word, together with that word, in the order of the sections.
fn unwound_in_a_word(graph: &Graph) -> Vec<(u32, FunctionId)> {
    let words = words(graph);
    let mut seen = FunctionSet::with_capacity(graph.functions().len());
    let nodes = graph.sections().iter().flat_map(|section| &section.nodes);
    let functions = nodes.filter_map(|&node| graph.owner(node));
    functions
        .filter(|function| !seen.put(*function))
        .filter_map(|function| Some((words[function]?, function)))
        .collect()
}

/// The nodes that are glued to a node of another function, the nodes they are glued to, and nodes bound to nearby code.
fn fixed_in_place(graph: &Graph) -> NodeSet {
    let mut fixed = near::bound(graph);
    for node in graph.node_ids() {
        if let Some(before) = graph.node(node).glued_to
            && graph.owner(before) != graph.owner(node)
        {
            fixed.extend([node, before]);
        }
    }
    fixed
}

/// Whether functions of a section are sorted.
fn is_text(graph: &Graph, section: &Section) -> bool {
    section.group.is_none()
        && graph.world().class(&section.name) == graph.world().class(CLASS)
        && graph.world().rule(&section.name, section.kind, section.flags) == Rule::Code
}

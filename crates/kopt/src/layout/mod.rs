/*!
Pass `layout`: places hot code together, in the order of the plan.

The plan's section `order` lists hot functions, or their hot blocks, in their intended order (`hot`). Each class of
code that the linker script keeps apart (`.text`, `.init.text`, `.sched.text`, …) becomes one section: first the hot
code, in the order of the plan, then all other code in its original order (`hot_cold`). With an order by block, the
cold blocks of a hot function are moved out of line (`split`), to the original place of the function, under the name
that compilers give to such a part (`name.cold`). The hot blocks are ordered to save jumps (`chain`), and conditional
branches are inverted where the hot path then falls through (`invert`).

Code that cannot be split is moved whole: hand-written sections, opaque functions, and functions with a branch or a
patch site of short range. Opaque code with a branch of short range, and the targets of such branches, stay at the
nearer end of their class (`near`). The pass removes nothing and adds only branches, so a wrong order costs speed but
not correctness.
*/

mod chain;
mod hot;
pub(crate) mod hot_cold;
pub(crate) mod invert;
pub(crate) mod split;

use std::sync::Arc;

use goblin::elf::section_header::SHF_EXECINSTR;
use goblin::elf::sym::{STB_LOCAL, STT_FUNC};
use indexmap::IndexMap;
use kcfg::graph::{Editor, Graph, Symbol, SymbolPlace};
use kcfg::index::{FunctionId, NodeId, SectionId};
use kcfg::special::{Rule, World};
use rustc_hash::FxHashMap;

use crate::pass::{Context, Facts, Pass, Phase, Runs};
use crate::report::PassReport;
use hot::Hot;
use hot_cold::HotCold;
use split::{ColdPart, Splitter};

/// The section of the kernel's entry code, nearly all of which is hand-written.
const ENTRY: &str = ".entry.text";

/// Size of a page in bytes.
const PAGE_SIZE: u32 = 4096;

/// Pass `layout`: orders the code.
pub struct Layout;

impl Pass for Layout {
    fn facts(&self) -> Facts {
        Facts {
            name: "layout",
            summary: "places code in the order that `reorder` decided",
            phase: Phase::Finishes,
            runs: Runs::WithPlan(|plan| plan.order.is_some()),
            on_64_bits: true,
        }
    }

    fn run(&self, graph: &mut Graph, context: &mut Context<'_>) -> PassReport {
        let plan = context.plan;
        let mut report = PassReport::new(self.name());
        let Some(order) = &plan.order else {
            report.keep("the order of the code", "the plan has no section `order`; make one with reorder");
            return report;
        };
        let hot = Hot::find(graph, order);
        for unknown in &hot.unknown {
            report.keep(unknown.to_string(), "the plan orders it, but this kernel has no such function");
        }
        let splitter = Splitter::new(graph, order.granularity);
        let classes: Vec<Class> = classes(graph).collect();
        let mut cold_parts = Vec::new();
        for Class { named, sections } in classes {
            let code = HotCold::divide(graph, &sections, &hot, &splitter);
            if code.hot.is_empty() {
                continue;
            }
            report.count("hot functions", code.hot.len() as u64);
            report.count("hot code bytes", code.hot_bytes(graph));
            report.count("cold bytes out of line", code.cold_parts.iter().map(|part| part.bytes).sum());
            report.count("cold bytes left in line", code.inline_bytes);
            for whole in &code.whole {
                report.keep(graph.name_of(whole.node), whole.why);
            }
            let hot_last = is_hot_last(&graph.sections()[named].name);
            let nodes = code.order(hot_last);
            let on_page = code.first_hot().filter(|_| hot_last);
            report.count(
                "branches inverted",
                invert::invert_branches(graph, &nodes, |node| hot.rank(node).is_some()),
            );
            cold_parts.extend(code.cold_parts);
            merge(graph, sections[0], named, &nodes, on_page);
        }
        report.count("functions split", cold_parts.len() as u64);
        name_parts(graph, &cold_parts, COLD);
        report
    }
}

/// Moves the nodes of a class to one section, in a new order, with the attributes of `named`. Aligns one node to a page.
fn merge(graph: &mut Graph, to: SectionId, named: SectionId, nodes: &[NodeId], on_page: Option<NodeId>) {
    let mut editor = Editor::new(graph, "layout");
    on_page.into_iter().for_each(|node| editor.align(node, PAGE_SIZE));
    editor.place(nodes, to);
    editor.set_attributes(to, named);
    editor.finish();
}

/// Sections of code that may be mixed.
struct Class {
    /// The section whose name and attributes the merged section gets.
    named: SectionId,
    sections: Vec<SectionId>,
}

/// Returns the classes. Sections of a COMDAT group belong to none; classes with only hand-written code are left out.
fn classes(graph: &Graph) -> impl Iterator<Item = Class> + use<'_> {
    let mut classes: IndexMap<&str, Vec<SectionId>> = IndexMap::new();
    for (id, section) in graph.sections().iter_enumerated() {
        let is_code = section.flags & u64::from(SHF_EXECINSTR) != 0
            && graph.world().rule(&section.name, section.kind, section.flags) == Rule::Code;
        // objtool expects that nothing follows the end of a hand-written section.
        let stays = graph.world().is_checked_by_objtool() && *section.name == *ENTRY;
        if is_code && section.group.is_none() && !stays {
            classes.entry(class(graph.world(), &section.name)).or_default().push(id);
        }
    }
    classes.into_iter().filter_map(|(class, sections)| {
        let has_name = |id: &&SectionId| graph.world().output_name(&graph.sections()[**id].name) == class;
        let named = *sections.iter().find(has_name).or(sections.first())?;
        let compiled =
            |id: &SectionId| graph.sections()[*id].nodes.iter().any(|&node| graph.block(node).is_some());
        sections.iter().any(compiled).then_some(Class { named, sections })
    })
}

/// Returns the class of a section; sections of one class may be mixed. This is [`World::class`], except that
/// `.text.hot` and `.text.unlikely` belong to `.text`: the linker script places them next to each other without a
/// symbol in between (`TEXT_TEXT` in include/asm-generic/vmlinux.lds.h). `.ref.text` is placed there too, but stays a
/// class of its own, because modpost allows references to init code by that name.
pub(crate) fn class<'n>(world: &'n World, name: &'n str) -> &'n str {
    match world.class(name) {
        name if name.starts_with(".text.hot") || name.starts_with(".text.unlikely") => ".text",
        name => name,
    }
}

/// Whether the hot code of a class is placed after the cold, next to the hot code of the following class. The linker
/// script has `.noinstr.text` before `.ref.text`, and `.sched.text` before entry code, all of them a few KB. The hot
/// code is then aligned to a page: the pair fits on one or two pages, and without alignment would often extend over one
/// more.
fn is_hot_last(class: &str) -> bool {
    matches!(class, ".noinstr.text" | ".sched.text")
}

/// The suffix of the names of parts of functions that are out of line, as compilers give it.
pub(crate) const COLD: &str = "cold";

/// The suffix of such a part without its function.
const PART: &str = "part";

/// Returns the source files of local functions. objtool of Linux 7.2 looks for the function of a part among the symbols of
/// its file, and then among global ones.
fn files_of_functions(graph: &Graph) -> FxHashMap<FunctionId, Arc<str>> {
    let named = graph.symbols().iter().filter_map(|symbol| {
        let SymbolPlace::Node(node, 0) = symbol.place else { return None };
        let id = graph.function_of(node)?;
        let function = graph.function(id);
        let is_name = symbol.name == function.name && node == function.entry();
        Some((id, symbol.file.clone().filter(|_| is_name)?))
    });
    named.collect()
}

/// Gives each moved part of a function a symbol for backtraces and profilers: the name of the function, a dot and a
/// suffix.
pub(crate) fn name_parts(graph: &mut Graph, parts: &[ColdPart], suffix: &str) {
    // objtool recognizes parts by this word (tools/objtool/elf.c, `read_symbols`).
    let is_checked = graph.world().is_checked_by_objtool();
    let files = files_of_functions(graph);
    let mut editor = Editor::new(graph, "layout");
    for part in parts {
        let graph = editor.graph();
        let function = graph.function(part.function);
        // It looks for the function then, which may have lost its entry to another pass.
        let suffix = match graph.node(function.entry()).live {
            true if is_checked && suffix != COLD => format!("{COLD}.{suffix}"),
            false if is_checked && suffix == COLD => PART.to_owned(),
            _ => suffix.to_owned(),
        };
        let symbol = Symbol {
            name: format!("{}.{suffix}", function.name),
            file: files.get(&part.function).cloned(),
            binding: STB_LOCAL,
            kind: STT_FUNC,
            other: 0,
            size: 0,
            thumb: graph.encoding(part.first) == kisa::Encoding::Thumb,
            place: SymbolPlace::Node(part.first, 0),
            unlinked: false,
        };
        editor.add_symbol(symbol);
    }
    editor.finish();
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use kcfg::script::LinkerScript;
    use kcfg::special::World;
    use kelf::Machine;

    use super::class;

    #[test]
    fn only_neighbours_are_mixed() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/cfg/kernel.lds");
        let script = LinkerScript::read(&path).unwrap();
        let kernel = World::kernel(script, Machine::I386, None);
        for world in [&kernel, &World::Program] {
            for name in [".text", ".text.vfs_read", ".text.unlikely", ".text.unlikely.f", ".text.hot"] {
                assert_eq!(class(world, name), ".text", "{name}");
            }
            for name in [".init.text", ".ref.text", ".sched.text", ".noinstr.text", ".text.startup"] {
                assert_ne!(class(world, name), ".text", "{name}");
            }
        }
        assert_ne!(class(&kernel, ".text..refcount"), ".text");
        assert_eq!(class(&kernel, ".init.text.early"), ".init.text");
    }
}

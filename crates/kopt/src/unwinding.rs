/*!
Functions that are unwound in the same way lie together.

On ARM, the kernel has an index of unwind tables (`.ARM.exidx`; IHI 0038, section 5) with an entry of two words for
each function: its address, and the way it has saved registers. The linker drops an entry with the content of the entry
before it (GNU ld, option `--no-merge-exidx-entries`), because an entry is about all code up to the next one. So the
functions of `.text` are put in the order of these words. What the kernel was linked with keeps its place otherwise:
hot code, which pass `layout` puts in an order, comes after this.
*/

use fixedbitset::FixedBitSet;
use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_PROGBITS};
use kcfg::graph::{Editor, Graph, Section};
use kcfg::index::{FunctionId, NodeId};
use kcfg::special::Rule;

use crate::near;

/// The class of code that is put in order: the kernel asks of no address in it what lies there.
const CLASS: &str = ".text";
/// Where in an entry the word is, in bytes, unless the address of a table is there.
const WORD: u32 = 4;

/// Puts functions that are unwound in the same way behind one another.
pub fn gather(graph: &mut Graph) {
    let mut functions = unwound_in_a_word(graph);
    let fixed = fixed_in_place(graph);
    let owned = graph.owned();
    let is_text: Vec<bool> = graph.sections.iter().map(|section| is_text(graph, section)).collect();
    functions.retain(|&(_, function)| {
        let nodes = &owned[function.get()];
        let may_move =
            |&node: &NodeId| !fixed.contains(node.get()) && is_text[graph.node(node).section.get()];
        let alive = nodes.iter().any(|&node| graph.node(node).live);
        alive && nodes.iter().all(may_move)
    });
    if functions.is_empty() {
        return;
    }
    // Those of one word keep their order.
    functions.sort_by_key(|&(word, _)| word);
    let nodes: Vec<NodeId> =
        functions.iter().flat_map(|&(_, function)| &owned[function.get()]).copied().collect();
    let mut editor = Editor::new(graph, "unwinding");
    let flags = u64::from(SHF_ALLOC | SHF_EXECINSTR);
    let section = editor.add_section(Section { flags, ..Section::writable(CLASS, SHT_PROGBITS) });
    editor.place(&nodes, section);
    editor.finish();
}

/// For each function, the word that says how it is unwound; `None` if there is none, or a table says it.
pub(crate) fn words(graph: &Graph) -> Vec<Option<u32>> {
    let mut words: Vec<Option<u32>> = vec![None; graph.functions.len()];
    for (function, entry) in graph.unwind_entries() {
        let is_inline = graph.refs_of(entry).iter().all(|reference| reference.offset != WORD);
        let word = graph.bytes_of(entry).get(WORD as usize..).and_then(|word| word.first_chunk());
        if let Some(word) = word.filter(|_| is_inline) {
            words[function.get()] = Some(u32::from_le_bytes(*word));
        }
    }
    words
}

/// The functions that are alive of which one word says how they are unwound, with that word, in the order of the sections.
fn unwound_in_a_word(graph: &Graph) -> Vec<(u32, FunctionId)> {
    let words = words(graph);
    let mut seen = FixedBitSet::with_capacity(graph.functions.len());
    let nodes = graph.sections.iter().flat_map(|section| &section.nodes);
    let functions = nodes.filter_map(|&node| graph.owner(node));
    functions
        .filter(|function| !seen.put(function.get()))
        .filter_map(|function| Some((words[function.get()]?, function)))
        .collect()
}

/// The nodes that are glued to a node of another function, those, and what has to stay near other code.
fn fixed_in_place(graph: &Graph) -> FixedBitSet {
    let mut fixed = near::bound(graph);
    for node in graph.node_ids() {
        if let Some(before) = graph.node(node).glued_to
            && graph.owner(before) != graph.owner(node)
        {
            fixed.extend([node.get(), before.get()]);
        }
    }
    fixed
}

/// Whether functions of a section are put in order.
fn is_text(graph: &Graph, section: &Section) -> bool {
    section.group.is_none()
        && graph.world.class(&section.name) == graph.world.class(CLASS)
        && graph.world.rule(&section.name, section.kind, section.flags) == Rule::Code
}

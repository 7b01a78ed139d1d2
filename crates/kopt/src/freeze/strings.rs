//! Merging equal strings among frozen data, which the linker does in sections that it may merge (SHF_MERGE).

use std::collections::hash_map::Entry;

use goblin::elf::section_header::{SHF_MERGE, SHF_STRINGS};
use kcfg::graph::{Editor, Graph, SymbolPlace};
use kcfg::index::NodeId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::report::PassReport;

/// Keeps the first of equal strings among these nodes and redirects the references to the others. Returns the remaining
/// nodes.
pub fn merge(graph: &mut Graph, nodes: &[NodeId], report: &mut PassReport) -> Vec<NodeId> {
    // A string with a name may be compared by its address.
    let named = graph.symbols().iter().filter_map(|symbol| match symbol.place {
        SymbolPlace::Node(node, _) => Some(node),
        _ => None,
    });
    let glued = graph.nodes().iter().filter_map(|node| node.glued_to);
    let apart: FxHashSet<NodeId> =
        named.chain(glued).chain(graph.roots().iter().map(|root| root.node)).collect();
    let mut first: FxHashMap<(u64, u32, &[u8]), NodeId> = FxHashMap::default();
    let mut same: FxHashMap<NodeId, NodeId> = FxHashMap::default();
    let strings = u64::from(SHF_MERGE | SHF_STRINGS);
    for &node in nodes {
        let section = graph.section_of(node);
        let is_string = section.flags & strings == strings && graph.refs_of(node).is_empty();
        if !is_string || apart.contains(&node) || graph.node(node).glued_to.is_some() {
            continue;
        }
        match first.entry((section.entsize, graph.node(node).align, graph.bytes_of(node))) {
            Entry::Occupied(kept) => drop(same.insert(node, *kept.get())),
            Entry::Vacant(entry) => drop(entry.insert(node)),
        }
    }
    let mut editor = Editor::new(graph, "freeze");
    same.iter().for_each(|(&node, &kept)| editor.merge(node, kept));
    editor.finish();
    for &node in same.keys() {
        report.removed.remove(graph, node);
    }
    nodes.iter().copied().filter(|node| !same.contains_key(node)).collect()
}

//! The blocks that may be moved elsewhere, the uses that restrict this, and cutting blocks into movable parts.

use kcfg::edges::Edges;
use kcfg::graph::{Editor, Graph, Life, Ref, Role, SymbolPlace, Terminator};
use kcfg::index::{FunctionSet, NodeId, NodeSet};
use kcfg::special::TableKind;
use kelf::RelocClass;
use rustc_hash::FxHashMap;

use crate::identical::{End, entries};
use crate::instrument;
use crate::layout;

/// The blocks whose contents may be moved elsewhere, in order.
pub(super) fn movable(graph: &Graph, edges: &Edges<'_>) -> Vec<NodeId> {
    let relative = instrument::position_independent(graph);
    let listed = listed(graph);
    // Lowering rebuilds the index of unwind tables for the new layout.
    let is_remade = |&entry: &NodeId| graph.is_unwind_entry(entry);
    let may_move = |&id: &NodeId| {
        let Some(block) = graph.block(id).filter(|_| graph.node(id).live) else { return false };
        let section = graph.section_of(id);
        layout::class(graph.world(), &section.name) == ".text"
            && section.group.is_none()
            && !block.is_fixed()
            && !graph.is_outlined(id)
            && !relative.contains(block.function)
            && !listed.contains(block.function)
            && entries(edges, id).iter().all(is_remade)
    };
    graph.node_ids().filter(may_move).collect()
}

/// The functions in a list of functions (`_kprobe_blacklist`), as a set of bits. To the kernel, such an entry covers
/// the code from the entry of the function to the next symbol. A block that moves elsewhere would no longer be listed.
fn listed(graph: &Graph) -> FunctionSet {
    let mut listed = FunctionSet::with_capacity(graph.functions().len());
    for entry in graph.node_ids().filter(|&id| graph.node(id).live) {
        if graph.chunk(entry).is_some_and(|chunk| chunk.life == Life::Site(TableKind::FunctionList)) {
            let site = graph.site(entry).and_then(|site| graph.resolve_node(site.target));
            listed.extend(site.and_then(|site| graph.function_of(site)));
        }
    }
    listed
}

/// The uses of blocks that restrict merging, as sets of bits.
pub(super) struct Uses {
    /// The blocks that must be found in their place: entries of functions, blocks that are glued to others, and blocks
    /// with a reference, except by branches of full range and jump tables of addresses. (Tables of distances reach
    /// forward only.)
    pub(super) named: NodeSet,
    /// The blocks that must not be cut: roots, and blocks with a reference into their middle or a node glued to their
    /// end.
    pub(super) inside: NodeSet,
}

impl Uses {
    pub(super) fn of(graph: &Graph) -> Uses {
        let mut named = NodeSet::with_capacity(graph.nodes().len());
        let mut inside = NodeSet::with_capacity(graph.nodes().len());
        for function in graph.functions() {
            let blocks = function.blocks.iter();
            named.extend(blocks.copied().find(|&block| graph.node(block).live));
        }
        for id in graph.node_ids().filter(|&id| graph.node(id).live) {
            if let Some(before) = graph.node(id).glued_to {
                named.extend([id, before]);
                inside.insert(before);
            }
            if let Some(Terminator::Branch { branch, taken, .. }) = graph.block(id).map(|block| &block.end)
                && !graph.isa().reaches_everywhere(*branch)
            {
                named.extend(graph.resolve_node(taken.target));
            }
            let reaches_far =
                |slot: &Ref| matches!(slot.role, Role::Slot(_)) && slot.class != RelocClass::Literal;
            for reference in graph.refs_of(id) {
                let Some((to, offset)) = graph.resolve(reference.target) else { continue };
                if !reaches_far(reference) {
                    named.insert(to);
                }
                if i64::from(offset) + reference.addend != 0 {
                    inside.insert(to);
                }
            }
        }
        for symbol in graph.symbols() {
            if let SymbolPlace::Node(node, offset) = symbol.place {
                named.insert(node);
                inside.set(node, offset > 0 || inside.contains(node));
            }
        }
        let roots = graph.roots().iter().map(|root| root.node);
        named.extend(roots.clone());
        inside.extend(roots);
        Uses { named, inside }
    }
}

/// Cuts blocks at places, which may be listed several times. Returns the block that begins at each place.
pub(super) fn cut(graph: &mut Graph, mut places: Vec<End>) -> FxHashMap<End, NodeId> {
    places.sort_unstable();
    places.dedup();
    let mut parts: FxHashMap<End, NodeId> = FxHashMap::default();
    let mut editor = Editor::new(graph, "merge");
    // From the end of a block backwards, so that a part is not cut again.
    for &(block, start) in places.iter().rev() {
        let part = if start > 0 { editor.split_block(block, start) } else { block };
        parts.insert((block, start), part);
    }
    editor.finish();
    parts
}

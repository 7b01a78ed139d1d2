//! Code that is bound to nearby code.
//!
//! A branch in opaque code keeps its encoding. A conditional branch in Thumb code reaches 1 MiB, less than the size of
//! a large kernel. So neither the code with such a branch nor the target may move further away.

use kcfg::graph::Graph;
use kcfg::index::{NodeId, NodeSet, SectionId};
use kelf::RelocClass;
use kelf::reloc::reaches_everywhere;
use rustc_hash::FxHashMap;

/// An end of some sections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Before all other code.
    Front,
    /// After all other code.
    Back,
}

/// Pairs of opaque code with a short-range reference to another node, and that node.
fn pairs(graph: &Graph) -> impl Iterator<Item = (NodeId, NodeId)> + use<'_> {
    let opaque = graph.node_ids().filter(|&id| graph.node(id).live && graph.block(id).is_none());
    opaque.flat_map(move |id| {
        let is_short = |class: RelocClass, r_type: u32| {
            class != RelocClass::Literal && !reaches_everywhere(graph.machine(), r_type)
        };
        let short =
            graph.refs_of(id).iter().filter(move |reference| is_short(reference.class, reference.r_type));
        let targets = short.filter_map(|reference| graph.resolve_node(reference.target));
        targets.filter(move |&to| to != id).map(move |to| (id, to))
    })
}

/// The nodes with a short-range reference, and the targets of such references, as a set of bits.
pub(crate) fn bound(graph: &Graph) -> NodeSet {
    let mut bound = NodeSet::with_capacity(graph.nodes().len());
    bound.extend(pairs(graph).flat_map(|(from, to)| [from, to]));
    bound
}

/// Returns the nearer end of some sections for each of their nodes with a bond. Nodes bound to one another get the same
/// end.
pub(crate) fn sides(graph: &Graph, sections: &[SectionId]) -> FxHashMap<NodeId, Side> {
    let nodes = || sections.iter().flat_map(|section| &graph.sections()[*section].nodes).copied();
    let mut places: FxHashMap<NodeId, u64> = FxHashMap::default();
    let mut at = 0;
    for node in nodes() {
        places.insert(node, at);
        at += u64::from(graph.input_size(node));
    }
    // For each node, the first place among the nodes that it is bound to.
    let mut first: FxHashMap<NodeId, u64> = FxHashMap::default();
    let pairs: Vec<(NodeId, NodeId)> = pairs(graph).collect();
    for node in pairs.iter().flat_map(|&(from, to)| [from, to]) {
        first.extend(places.get(&node).map(|&place| (node, place)));
    }
    let mut changed = true;
    while changed {
        changed = false;
        for (one, other) in &pairs {
            let (Some(&before), Some(&after)) = (first.get(one), first.get(other)) else { continue };
            let both = before.min(after);
            changed |= before != after;
            first.extend([(*one, both), (*other, both)]);
        }
    }
    let side = |place: u64| if place < at / 2 { Side::Front } else { Side::Back };
    first.into_iter().map(|(node, place)| (node, side(place))).collect()
}

//! A region: code that freezes as one unit, and the sizes of nodes and of the literals that they read.

use kcfg::graph::Graph;
use kcfg::index::{FunctionId, NodeId};
use kelf::RelocClass;

/// A part of the code that freezes as one unit.
pub struct Region {
    /// Its blocks in their final order, the entry first, with the data that is glued to them and the literals that only
    /// they read.
    pub nodes: Vec<NodeId>,
    /// Their size in bytes, with the long form of branches that leave it, and with the literals that they read.
    pub bytes: u64,
}

impl Region {
    /// The function of its last node.
    pub(super) fn last_owner(&self, graph: &Graph) -> Option<FunctionId> {
        self.nodes.last().and_then(|&last| graph.owner(last))
    }
}

/// Size of a node in bytes, with the branch that ends it.
pub fn size(graph: &Graph, node: NodeId) -> u64 {
    u64::from(graph.size_with_branch(node))
}

/// Whether a node is data that instructions read by its distance, and that need not follow a particular instruction.
pub(super) fn is_literal(graph: &Graph, node: NodeId) -> bool {
    graph.is_among_code(node) && graph.node(node).glued_to.is_none()
}

/// Size in bytes of the literals that nodes read, each counted once.
pub(super) fn literals(graph: &Graph, nodes: &[NodeId]) -> u64 {
    let refs = nodes.iter().flat_map(|&node| graph.refs_of(node));
    let near = refs.filter(|reference| reference.class == RelocClass::Literal);
    let mut read: Vec<NodeId> = near
        .filter_map(|reference| graph.resolve_node(reference.target))
        .filter(|&to| is_literal(graph, to))
        .collect();
    read.sort_unstable();
    read.dedup();
    read.into_iter().map(|literal| size(graph, literal)).sum()
}

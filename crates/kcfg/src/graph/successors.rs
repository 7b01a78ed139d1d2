//! The successors and the predecessors of blocks.

use super::{Graph, Role, SymbolPlace, Terminator};
use crate::index::{NodeId, NodeSet};

/// The live blocks whose terminators lead to each block.
pub(crate) struct Predecessors {
    /// Start of the predecessors of each node in `blocks`, and the end of the last.
    starts: Vec<u32>,
    blocks: Vec<NodeId>,
    /// Nodes with unknown predecessors, because a reference or a symbol names their first byte.
    named: NodeSet,
}

impl Predecessors {
    pub(crate) fn of(graph: &Graph) -> Predecessors {
        let mut named = NodeSet::with_capacity(graph.nodes.len());
        let mut starts = vec![0u32; graph.nodes.len() + 1];
        for node in graph.node_ids().filter(|&node| graph.node(node).live) {
            if let Some(block) = graph.block(node) {
                for_each_successor(graph, &block.end, |to| starts[to.get()] += 1);
            }
            let others =
                graph.refs_of(node).iter().filter(|reference| !matches!(reference.role, Role::Slot(_)));
            named.extend(others.filter_map(|reference| graph.resolve_node(reference.target)));
        }
        // A symbol may be referenced from anywhere.
        for symbol in &graph.symbols {
            if let SymbolPlace::Node(node, 0) = symbol.place {
                named.insert(node);
            }
        }
        // First the end of each list, which filling it from behind turns into its start.
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut blocks = vec![NodeId(0); sum as usize];
        for node in graph.node_ids().filter(|&node| graph.node(node).live) {
            if let Some(block) = graph.block(node) {
                for_each_successor(graph, &block.end, |to| {
                    starts[to.get()] -= 1;
                    blocks[starts[to.get()] as usize] = node;
                });
            }
        }
        Predecessors { starts, blocks, named }
    }

    /// Returns all predecessors of a block, one several times if several of its edges lead there; `None` if it may have
    /// others, or has none.
    pub(crate) fn all(&self, node: NodeId) -> Option<&[NodeId]> {
        let range = self.starts[node.get()] as usize..self.starts[node.get() + 1] as usize;
        (!range.is_empty() && !self.named.contains(node)).then(|| &self.blocks[range])
    }

    /// Returns the predecessor of a block with one edge to it; `None` if there may be others.
    pub(crate) fn only(&self, node: NodeId) -> Option<NodeId> {
        match self.all(node)? {
            &[from] => Some(from),
            _ => None,
        }
    }
}

/// Calls `f` with the successors of a block, from its terminator. Callees, and targets of patched branches, are
/// references instead.
pub fn for_each_successor(graph: &Graph, end: &Terminator, mut f: impl FnMut(NodeId)) {
    match end {
        Terminator::Jump(dest) | Terminator::Branch { taken: dest, .. } => {
            graph.resolve_node(dest.target).into_iter().for_each(&mut f);
        }
        Terminator::Switch(table) => {
            for slot in graph.slots(*table) {
                graph.resolve_node(slot.target).into_iter().for_each(&mut f);
            }
        }
        _ => {}
    }
    end.next().into_iter().for_each(f);
}

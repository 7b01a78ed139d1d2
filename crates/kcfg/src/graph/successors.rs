//! The successors of blocks, and the only predecessors of nodes.

use typed_index_collections::ti_vec;

use super::{Graph, SymbolPlace, Terminator};
use crate::index::{NodeId, NodeMap};

/// The unique predecessor of each node, if exactly one other node refers or branches to it.
pub(crate) struct Predecessors {
    only: NodeMap<Incoming>,
}

#[derive(Clone, Copy)]
enum Incoming {
    None,
    One(NodeId),
    Many,
}

impl Predecessors {
    pub(crate) fn of(graph: &Graph) -> Predecessors {
        let mut only = ti_vec![Incoming::None; graph.nodes.len()];
        let mut add = |from: NodeId, to: NodeId| {
            only[to] = match only[to] {
                Incoming::None => Incoming::One(from),
                _ => Incoming::Many,
            };
        };
        for node in graph.node_ids() {
            if let Some(block) = graph.block(node) {
                for_each_successor(graph, &block.end, |to| add(node, to));
            }
            for reference in graph.refs_of(node) {
                if let Some(to) = graph.resolve_node(reference.target) {
                    add(node, to);
                }
            }
        }
        // A symbol may be referenced from anywhere.
        for symbol in &graph.symbols {
            if let SymbolPlace::Node(node, 0) = symbol.place {
                only[node] = Incoming::Many;
            }
        }
        Predecessors { only }
    }

    /// Returns the only predecessor of a node; `None` if there may be others.
    pub(crate) fn only(&self, node: NodeId) -> Option<NodeId> {
        match self.only[node] {
            Incoming::One(from) => Some(from),
            Incoming::None | Incoming::Many => None,
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

//! Finding the code in the graph that the plan lists as hot.

use kcfg::graph::{Graph, NodeKind};
use kcfg::index::{NodeId, NodeMap};
use kplan::{FunctionName, HotFunction, Order};
use typed_index_collections::ti_vec;

use crate::names::CodeNames;
use crate::ran::blocks_behind;

/// The rank of nodes that are not hot.
const COLD: u32 = u32::MAX;

/// The hot nodes, and their order.
pub struct Hot<'o> {
    /// For each node the position of its function in the order of the plan, or [`COLD`].
    ranks: NodeMap<u32>,
    /// Functions in the plan that the graph does not have.
    pub unknown: Vec<&'o FunctionName>,
}

impl<'o> Hot<'o> {
    /// Finds the functions of an order in a graph.
    pub fn find(graph: &Graph, order: &'o Order) -> Hot<'o> {
        let names = CodeNames::of(graph);
        let mut hot = Hot { ranks: ti_vec![COLD; graph.nodes().len()], unknown: Vec::new() };
        for (rank, function) in order.functions.iter().enumerate() {
            match names.find(&function.function) {
                Some(named) => hot.mark(graph, function, rank as u32, named.node, named.offset),
                None => hot.unknown.push(&function.function),
            }
        }
        hot
    }

    /// The position of a node's function in the order of the plan, if the node is hot.
    pub fn rank(&self, node: NodeId) -> Option<u32> {
        Some(self.ranks[node]).filter(|&rank| rank != COLD)
    }

    /// Marks the hot blocks of the function whose symbol is `inside` bytes into a node.
    fn mark(&mut self, graph: &Graph, function: &HotFunction, rank: u32, node: NodeId, inside: u32) {
        let NodeKind::Block(block) = &graph.node(node).kind else {
            self.lower(node, rank);
            return;
        };
        // The entry is hot even if the trace began inside of the function.
        self.lower(node, rank);
        for (id, offset, size) in blocks_behind(graph, block.function, node, inside) {
            if function.is_hot(offset.into(), size.into()) {
                self.lower(id, rank);
            }
        }
    }

    fn lower(&mut self, node: NodeId, rank: u32) {
        let ranks = &mut self.ranks[node];
        *ranks = rank.min(*ranks);
    }
}

//! Predecessors and dominators of basic blocks, computed backwards from one block at a time.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::{Graph, Role, SymbolPlace, for_each_successor};
use crate::index::{NodeId, NodeSet};

/// Maximum number of blocks that one query visits; beyond it, nothing dominates.
const MAX_BLOCKS: usize = 200;

/// The data about live blocks that queries for dominators need.
pub(super) struct Dominators {
    /// For each block, the blocks whose terminators lead to it.
    predecessors: FxHashMap<NodeId, Vec<NodeId>>,
    /// Nodes with unknown predecessors, because a reference or a symbol names their first byte.
    named: NodeSet,
}

impl Dominators {
    /// Collects the predecessors of all blocks of a graph.
    pub fn of(graph: &Graph) -> Dominators {
        let mut dominators = Dominators {
            predecessors: FxHashMap::default(),
            named: NodeSet::with_capacity(graph.nodes.len()),
        };
        for node in graph.node_ids().filter(|&node| graph.node(node).live) {
            if let Some(block) = graph.block(node) {
                for_each_successor(graph, &block.end, |to| {
                    dominators.predecessors.entry(to).or_default().push(node);
                });
            }
            for reference in
                graph.refs_of(node).iter().filter(|reference| !matches!(reference.role, Role::Slot(_)))
            {
                dominators.named.extend(graph.resolve_node(reference.target));
            }
        }
        for symbol in &graph.symbols {
            if let SymbolPlace::Node(node, 0) = symbol.place {
                dominators.named.insert(node);
            }
        }
        dominators
    }

    /// Returns all predecessors of a block; `None` if it may have others, or has none.
    pub fn predecessors(&self, node: NodeId) -> Option<&[NodeId]> {
        let predecessors = self.predecessors.get(&node)?;
        (!self.named.contains(node)).then_some(predecessors)
    }

    /// Whether `node` dominates `later`: every path to `later` contains `node`. Also `false` if a search of
    /// [`MAX_BLOCKS`] does not prove it.
    pub fn dominates(&self, node: NodeId, later: NodeId) -> bool {
        let (mut seen, mut worklist) = (FxHashSet::default(), vec![later]);
        while let Some(block) = worklist.pop() {
            if block == node || !seen.insert(block) {
                continue;
            }
            let Some(predecessors) = self.predecessors(block).filter(|_| seen.len() <= MAX_BLOCKS) else {
                return false;
            };
            worklist.extend(predecessors);
        }
        true
    }
}

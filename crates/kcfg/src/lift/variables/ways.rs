//! How control comes into blocks: which blocks lead to one, and which can only come after it.

use fixedbitset::FixedBitSet;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::edges::for_each_successor;
use crate::graph::{Graph, Role, SymbolPlace};
use crate::index::NodeId;

/// How many blocks to look at before giving up.
const MAX_BLOCKS: usize = 200;

/// The ways into the blocks that are alive.
pub(super) struct Ways {
    /// For each block, those that lead to it by the way they end.
    from: FxHashMap<NodeId, Vec<NodeId>>,
    /// Nodes that control may come to in other ways: something names them.
    named: FixedBitSet,
}

impl Ways {
    /// Looks at how the blocks of a graph end, and at what they and the data name.
    pub fn of(graph: &Graph) -> Ways {
        let mut ways =
            Ways { from: FxHashMap::default(), named: FixedBitSet::with_capacity(graph.nodes.len()) };
        for node in graph.node_ids().filter(|&node| graph.node(node).live) {
            if let Some(block) = graph.block(node) {
                for_each_successor(graph, &block.end, |to| ways.from.entry(to).or_default().push(node));
            }
            for reference in
                graph.refs_of(node).iter().filter(|reference| !matches!(reference.role, Role::Slot(_)))
            {
                ways.named.extend(graph.resolve_node(reference.target).map(NodeId::get));
            }
        }
        for symbol in &graph.symbols {
            if let SymbolPlace::Node(node, 0) = symbol.place {
                ways.named.insert(node.get());
            }
        }
        ways
    }

    /// The blocks that lead to a block; `None` if control may come to it in another way, too.
    pub fn leading_to(&self, node: NodeId) -> Option<&[NodeId]> {
        let from = self.from.get(&node)?;
        (!self.named.contains(node.get())).then_some(from)
    }

    /// Whether `node` dominates `later`: whatever way control takes to `later`, it has come through `node` before.
    pub fn dominates(&self, node: NodeId, later: NodeId) -> bool {
        let (mut seen, mut pending) = (FxHashSet::default(), vec![later]);
        while let Some(block) = pending.pop() {
            if block == node || !seen.insert(block) {
                continue;
            }
            let Some(from) = self.leading_to(block).filter(|_| seen.len() <= MAX_BLOCKS) else {
                return false;
            };
            pending.extend(from);
        }
        true
    }
}

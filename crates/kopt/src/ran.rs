//! The blocks that ran, by the plan's section `coverage`.

use kcfg::graph::{Graph, NodeKind};
use kcfg::index::{FunctionId, NodeId, NodeSet};
use kplan::Plan;

use crate::names::CodeNames;

/// The blocks of a graph that ran, or may have run.
pub struct Ran {
    /// `None` if there are no traces, so that any block may have run.
    nodes: Option<NodeSet>,
}

impl Ran {
    /// Finds the blocks.
    pub fn of(graph: &Graph, plan: &Plan) -> Ran {
        let Some(coverage) = &plan.coverage else { return Ran { nodes: None } };
        let names = CodeNames::of(graph);
        let mut nodes = NodeSet::with_capacity(graph.nodes().len());
        for covered in &coverage.functions {
            let Some(named) = names.find(&covered.function) else { continue };
            nodes.insert(named.node);
            let NodeKind::Block(block) = &graph.node(named.node).kind else { continue };
            for (id, offset, size) in blocks_behind(graph, block.function, named.node, named.offset) {
                let (start, end) = (u64::from(offset), u64::from(offset) + u64::from(size));
                let ran = covered.ran.as_ref();
                if ran.is_none_or(|ran| ran.iter().any(|r| r.offset < end && start < r.offset + r.size)) {
                    nodes.insert(id);
                }
            }
        }
        // A trace cannot contain code that a pass made.
        nodes.extend(graph.node_ids().filter(|&id| graph.node(id).origin().is_none()));
        Ran { nodes: Some(nodes) }
    }

    /// Whether a block may have run.
    pub fn may_have(&self, node: NodeId) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.contains(node))
    }
}

/// Iterates over the blocks of a function from a symbol on, which is `inside` bytes into a node. Each block has its
/// offset in bytes from the symbol and its size in bytes in the input, as in plans. If a pass put a block before the
/// function, offsets are relative to the first original block. Blocks that a pass put into the function are excluded,
/// or all others, if the symbol is one of these.
pub fn blocks_behind(
    graph: &Graph,
    function: FunctionId,
    node: NodeId,
    inside: u32,
) -> impl Iterator<Item = (NodeId, u32, u32)> {
    let origin = graph.node(node).origin().or_else(|| graph.start_of(function));
    let start = origin.map(|origin| origin.offset + inside);
    let blocks = graph.function(function).blocks.iter();
    blocks.filter(move |&&id| graph.home_of(id) == graph.home_of(node)).filter_map(move |&id| {
        let origin = graph.node(id).origin()?;
        Some((id, origin.offset.checked_sub(start?)?, origin.size))
    })
}

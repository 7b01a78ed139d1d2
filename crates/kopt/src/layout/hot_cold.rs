//! Partitioning the code of sections into hot code, in the order of the plan, and cold code, in its original order.

use kcfg::graph::Graph;
use kcfg::index::{NodeId, SectionId};

use crate::near::{self, Side};

use super::hot::Hot;
use super::split::{ColdPart, Splitter};

/// The code of one class of sections, as hot and cold code.
#[derive(Default)]
pub struct HotCold {
    /// The hot code, function by function.
    pub hot: Vec<HotPart>,
    /// All other code.
    cold: Vec<NodeId>,
    /// Code that is bound to nearby code ([`near`]): it is placed before or after all other code, whichever is nearer
    /// to its old place.
    front: Vec<NodeId>,
    back: Vec<NodeId>,
    /// The cold parts of hot functions, which are moved out of line.
    pub cold_parts: Vec<ColdPart>,
    /// Size in bytes of the cold blocks that are kept in line because longer branches would take more.
    pub inline_bytes: u64,
    /// Hot functions with cold blocks that cannot be split.
    pub whole: Vec<Whole>,
}

/// A hot function, or the hot part of a function.
pub struct HotPart {
    rank: u32,
    nodes: Vec<NodeId>,
}

/// A hot function that is not split.
pub struct Whole {
    /// Its first node.
    pub node: NodeId,
    /// The reason.
    pub why: &'static str,
}

impl HotCold {
    /// Partitions the nodes of some sections.
    pub fn divide(graph: &Graph, sections: &[SectionId], hot: &Hot<'_>, splitter: &Splitter) -> HotCold {
        let mut code = HotCold::default();
        let near = near::sides(graph, sections);
        for section in sections {
            let nodes = &graph.sections()[*section].nodes;
            for function in nodes.chunk_by(|&one, &other| move_together(graph, one, other)) {
                if let Some(side) = function.iter().find_map(|node| near.get(node)) {
                    match side {
                        Side::Front => &mut code.front,
                        Side::Back => &mut code.back,
                    }
                    .extend(function);
                    continue;
                }
                let Some(rank) = function.iter().filter_map(|&node| hot.rank(node)).min() else {
                    code.cold.extend(function);
                    continue;
                };
                let nodes = match splitter.split(graph, function, hot) {
                    Ok(split) => {
                        code.inline_bytes += split.inline_bytes;
                        code.cold.extend(&split.cold);
                        code.cold_parts.extend(split.part);
                        split.hot
                    }
                    Err(why) => {
                        code.whole.extend(why.map(|why| Whole { node: function[0], why }));
                        function.to_vec()
                    }
                };
                code.hot.push(HotPart { rank, nodes });
            }
        }
        code.hot.sort_by_key(|part| part.rank);
        code
    }

    /// All nodes in their new order.
    pub fn order(&self, hot_last: bool) -> Vec<NodeId> {
        let hot: Vec<NodeId> = self.hot.iter().flat_map(|part| &part.nodes).copied().collect();
        let (first, last) = if hot_last { (&self.cold, &hot) } else { (&hot, &self.cold) };
        [&self.front, first, last, &self.back].map(Vec::as_slice).concat()
    }

    /// The first hot node.
    pub fn first_hot(&self) -> Option<NodeId> {
        self.hot.first()?.nodes.first().copied()
    }

    /// Size in bytes in the input of the hot code.
    pub fn hot_bytes(&self, graph: &Graph) -> u64 {
        let hot = self.hot.iter().flat_map(|part| &part.nodes);
        hot.map(|&node| u64::from(graph.input_size(node))).sum()
    }
}

/// Whether two neighbours move together: blocks of one function, with the data among them, and nodes that are glued
/// together.
pub(crate) fn move_together(graph: &Graph, one: NodeId, other: NodeId) -> bool {
    let function = graph.owner(one);
    graph.node(other).glued_to == Some(one) || function.is_some() && function == graph.owner(other)
}

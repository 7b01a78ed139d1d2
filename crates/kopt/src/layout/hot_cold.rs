//! Code in code: what is hot in the order of the plan, everything else in the order that it had.

use kcfg::graph::Graph;
use kcfg::index::{NodeId, SectionId};

use super::hot::Hot;
use super::split::{ColdPart, Splitter};

/// The code of one class of sections.
#[derive(Default)]
pub struct HotCold {
    /// What is hot, function by function.
    pub hot: Vec<HotPart>,
    /// All the rest.
    cold: Vec<NodeId>,
    /// What is out of line, of functions that are hot.
    pub cold_parts: Vec<ColdPart>,
    /// Bytes that did not run and stay in line, because taking them out would cost more.
    pub inline_bytes: u64,
    /// Hot functions that would have been split but for something.
    pub whole: Vec<Whole>,
}

/// A hot function, or the hot part of one.
pub struct HotPart {
    rank: u32,
    nodes: Vec<NodeId>,
}

/// A hot function that is not split.
pub struct Whole {
    /// Its first node.
    pub node: NodeId,
    /// Why.
    pub why: &'static str,
}

impl HotCold {
    /// Cuts up the nodes of some sections.
    pub fn divide(graph: &Graph, sections: &[SectionId], hot: &Hot<'_>, splitter: &Splitter) -> HotCold {
        let mut code = HotCold::default();
        for section in sections {
            let nodes = &graph.sections[section.get()].nodes;
            for function in nodes.chunk_by(|&one, &other| move_together(graph, one, other)) {
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
        [first.as_slice(), last].concat()
    }

    /// Where what is hot begins.
    pub fn first_hot(&self) -> Option<NodeId> {
        self.hot.first()?.nodes.first().copied()
    }

    /// Size in bytes in the input of what is hot.
    pub fn hot_bytes(&self, graph: &Graph) -> u64 {
        let hot = self.hot.iter().flat_map(|part| &part.nodes);
        hot.map(|&node| u64::from(graph.input_size(node))).sum()
    }
}

/// Whether two neighbours move together: blocks of one function, and what has to stay beside one another.
fn move_together(graph: &Graph, one: NodeId, other: NodeId) -> bool {
    let function = graph.function_of(one);
    graph.node(other).glued_to == Some(one) || function.is_some() && function == graph.function_of(other)
}

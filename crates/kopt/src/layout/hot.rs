//! What the plan calls hot, in terms of the graph.

use goblin::elf::section_header::SHF_EXECINSTR;
use kcfg::graph::{Graph, NodeKind, SymbolPlace};
use kcfg::index::NodeId;
use kplan::{FunctionName, HotFunction, Order};
use rustc_hash::FxHashMap;

/// The rank of what is not hot.
const COLD: u32 = u32::MAX;

/// Which nodes are hot, and in which order.
pub struct Hot<'o> {
    /// For each node its place in the order of the plan, or [`COLD`].
    ranks: Vec<u32>,
    /// Functions that the plan names and the graph does not have.
    pub unknown: Vec<&'o FunctionName>,
}

impl<'o> Hot<'o> {
    /// Looks the functions of an order up.
    pub fn find(graph: &Graph, order: &'o Order) -> Hot<'o> {
        let names = names(graph);
        let mut hot = Hot { ranks: vec![COLD; graph.nodes.len()], unknown: Vec::new() };
        for (rank, function) in order.functions.iter().enumerate() {
            let FunctionName { name, file, nth } = &function.function;
            let places = names.get(&(name.as_str(), file.as_deref()));
            match places.and_then(|places| places.get(*nth as usize)) {
                Some(&(node, inside)) => hot.mark(graph, function, rank as u32, node, inside),
                None => hot.unknown.push(&function.function),
            }
        }
        hot
    }

    /// Where in the order of the plan a node is, if it is hot.
    pub fn rank(&self, node: NodeId) -> Option<u32> {
        Some(self.ranks[node.get()]).filter(|&rank| rank != COLD)
    }

    /// Marks what is hot of the function that begins `inside` bytes into a node.
    fn mark(&mut self, graph: &Graph, function: &HotFunction, rank: u32, node: NodeId, inside: u32) {
        let NodeKind::Block(block) = &graph.node(node).kind else {
            self.lower(node, rank);
            return;
        };
        // The entry is hot even where the trace began inside of the function.
        self.lower(node, rank);
        let start = graph.node(node).offset + inside;
        for id in graph.functions[block.function.get()].blocks.clone().map(NodeId) {
            let offset = graph.node(id).offset;
            let Some(offset) = offset.checked_sub(start) else { continue };
            if function.is_hot(offset.into(), graph.input_size(id).into()) {
                self.lower(id, rank);
            }
        }
    }

    fn lower(&mut self, node: NodeId, rank: u32) {
        let ranks = &mut self.ranks[node.get()];
        *ranks = rank.min(*ranks);
    }
}

/// Places of code, as node and offset in bytes, by the name and file of their symbols.
type Names<'g> = FxHashMap<(&'g str, Option<&'g str>), Vec<(NodeId, u32)>>;

/// The places of all code that has a name, those of one name in the order of the link.
fn names(graph: &Graph) -> Names<'_> {
    let mut names = Names::default();
    for symbol in &graph.symbols {
        let SymbolPlace::Node(node, inside) = symbol.place else { continue };
        if graph.section_of(node).flags & u64::from(SHF_EXECINSTR) != 0 {
            names.entry((symbol.name.as_str(), symbol.file.as_deref())).or_default().push((node, inside));
        }
    }
    names
}

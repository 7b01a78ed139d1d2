//! The nodes of a selection, and the nodes and symbols outside of it that they refer to.

use super::{Printer, Selection};
use crate::edges::Destination;
use crate::graph::{SymbolPlace, Target, Terminator};
use crate::index::{FunctionId, NodeId, NodeSet, SymbolId, TableId};

/// The content of a selection, in the graph's order.
pub(super) struct Scope {
    /// Functions.
    pub functions: Vec<FunctionId>,
    /// Chunks.
    pub chunks: Vec<NodeId>,
    /// Jump tables that a node of the selection jumps through.
    pub tables: Vec<TableId>,
    /// Referenced symbols that the graph does not define.
    pub outside: Vec<SymbolId>,
    /// Nodes outside of the selection to which an edge, a reference or a table leads.
    pub elsewhere: Vec<NodeId>,
    nodes: NodeSet,
}

impl Scope {
    /// Collects the content.
    pub fn of(printer: &Printer<'_>, selection: &Selection) -> Scope {
        let graph = printer.graph;
        match selection {
            Selection::All => {
                let is_outside = |id: &SymbolId| !matches!(graph.symbols[*id].place, SymbolPlace::Node(..));
                Scope {
                    functions: graph.functions.keys().collect(),
                    chunks: graph.node_ids().filter(|&node| graph.chunk(node).is_some()).collect(),
                    tables: graph.tables.keys().collect(),
                    outside: graph.symbols.keys().filter(is_outside).collect(),
                    elsewhere: Vec::new(),
                    nodes: graph.node_ids().collect(),
                }
            }
            Selection::Functions { functions, chunks } => Scope::of_some(printer, functions, chunks),
        }
    }

    fn of_some(printer: &Printer<'_>, functions: &[FunctionId], chunks: &[NodeId]) -> Scope {
        let graph = printer.graph;
        let blocks = functions.iter().flat_map(|&id| graph.function(id).blocks.iter().copied());
        let inside: Vec<NodeId> = blocks.chain(chunks.iter().copied()).collect();
        let mut scope = Scope {
            functions: functions.to_vec(),
            chunks: chunks.to_vec(),
            tables: Vec::new(),
            outside: Vec::new(),
            elsewhere: Vec::new(),
            nodes: NodeSet::with_capacity(graph.nodes.len()),
        };
        scope.nodes.extend(inside.iter().copied());
        for &node in &inside {
            printer.edges.for_each(node, |edge| match edge.to {
                Destination::Node(to) => scope.elsewhere.push(to),
                Destination::Outside(symbol) => scope.outside.push(symbol),
                Destination::Unknown => {}
            });
            for reference in graph.refs_of(node) {
                match (graph.resolve_node(reference.target), reference.target) {
                    (Some(to), _) | (None, Target::Node(to)) => scope.elsewhere.push(to),
                    (None, Target::Symbol(symbol)) => scope.outside.push(symbol),
                }
            }
            if let Some(Terminator::Switch(table)) = graph.block(node).map(|block| &block.end) {
                scope.tables.push(*table);
                scope.elsewhere.push(graph.tables[*table].chunk);
            }
        }
        let nodes = &scope.nodes;
        scope.elsewhere.retain(|node| !nodes.contains(*node));
        sort(&mut scope.elsewhere);
        sort(&mut scope.tables);
        sort(&mut scope.outside);
        scope
    }

    /// Whether the selection contains the node.
    pub fn has(&self, node: NodeId) -> bool {
        self.nodes.contains(node)
    }
}

fn sort<T: Ord>(items: &mut Vec<T>) {
    items.sort_unstable();
    items.dedup();
}

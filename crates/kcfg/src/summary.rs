/*!
Counts over a graph.

A serialized [`Summary`] is the output of `kcfg --summary --json`; [`Summary::groups`] is the table of `kcfg
--summary`.
*/

use std::collections::BTreeMap;

use serde::Serialize;
use typed_index_collections::ti_vec;

use crate::edges::{Destination, Edge, EdgeKind, Edges};
use crate::graph::{Graph, NodeKind, Terminator};
use crate::index::NodeId;
use crate::print::spelling;
use crate::special::RootReason;

/// Counts of the contents of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Input sections.
    pub sections: usize,
    /// Functions of compiler-made code.
    pub functions: usize,
    /// Functions among them whose entry is referred to by something other than a direct branch of a block: by data, an
    /// instruction that takes the address, or opaque code.
    pub address_taken: usize,
    /// Basic blocks.
    pub blocks: usize,
    /// Blocks among them that are patch sites ([`Block::is_fixed`](crate::graph::Block::is_fixed)).
    pub fixed_blocks: usize,
    /// Instructions in blocks, including final branches.
    pub instructions: usize,
    /// Bytes of code in blocks, without the branches that lowering encodes.
    pub block_bytes: u64,
    /// Chunks of data.
    pub data_chunks: usize,
    /// Bytes of data in chunks, including zero-initialised ones.
    pub data_bytes: u64,
    /// Chunks of opaque code.
    pub code_chunks: usize,
    /// Bytes of code in chunks.
    pub code_chunk_bytes: u64,
    /// Resolved jump tables.
    pub jump_tables: usize,
    /// Edges, by kind.
    pub edges: BTreeMap<EdgeKind, usize>,
    /// Edges among them that lead to the unknown node.
    pub edges_to_unknown: usize,
    /// Edges among them that lead to symbols that no object of the graph defines.
    pub edges_to_outside: usize,
    /// Roots, by reason.
    pub roots: BTreeMap<RootReason, usize>,
    /// Opaque functions and sections, by reason.
    pub opaque: BTreeMap<&'static str, usize>,
}

impl Summary {
    /// Counts the contents of a graph.
    pub fn of(graph: &Graph) -> Summary {
        let edges = Edges::of(graph);
        let mut summary = Summary {
            sections: graph.sections.len(),
            functions: graph.functions.len(),
            jump_tables: graph.tables.len(),
            ..Summary::default()
        };
        let mut taken = ti_vec![false; graph.nodes.len()];
        for node in graph.node_ids() {
            summary.count_node(graph, node);
            edges.for_each(node, |Edge { kind, to }| {
                *summary.edges.entry(kind).or_default() += 1;
                match to {
                    Destination::Unknown => summary.edges_to_unknown += 1,
                    Destination::Outside(_) => summary.edges_to_outside += 1,
                    Destination::Node(to) if kind == EdgeKind::Data => taken[to] = true,
                    Destination::Node(_) => {}
                }
            });
        }
        let entries = graph.functions.iter().map(|function| function.entry());
        summary.address_taken = entries.filter(|entry| taken[*entry]).count();
        for root in &graph.roots {
            *summary.roots.entry(root.reason).or_default() += 1;
        }
        for opaque in &graph.opaque {
            *summary.opaque.entry(opaque.reason).or_default() += 1;
        }
        summary
    }

    fn count_node(&mut self, graph: &Graph, id: NodeId) {
        let node = graph.node(id);
        let size = u64::from(node.size);
        match &node.kind {
            NodeKind::Block(block) => {
                self.blocks += 1;
                self.fixed_blocks += usize::from(block.is_fixed());
                self.block_bytes += size;
                self.instructions += count_instructions(graph, id);
            }
            NodeKind::Chunk(chunk) if chunk.code => {
                self.code_chunks += 1;
                self.code_chunk_bytes += size;
            }
            NodeKind::Chunk(_) => {
                self.data_chunks += 1;
                self.data_bytes += size;
            }
        }
    }
}

/// Returns the number of instructions of a block, including its final branch.
pub(crate) fn count_instructions(graph: &Graph, id: NodeId) -> usize {
    let ends_apart = |end: &Terminator| matches!(end, Terminator::Jump(_) | Terminator::Branch { .. });
    let apart = usize::from(graph.block(id).is_some_and(|block| ends_apart(&block.end)));
    apart + graph.decode(id).flatten().count()
}

impl Summary {
    /// Returns the counts in groups, each with a heading, and each count with its label.
    pub fn groups(&self) -> Vec<(&'static str, Vec<(String, u64)>)> {
        let count = |label: &str, count: usize| (label.to_owned(), count as u64);
        let mut edges: Vec<(String, u64)> =
            self.edges.iter().map(|(kind, &number)| count(&spelling(kind), number)).collect();
        edges.push(count("to the unknown node", self.edges_to_unknown));
        edges.push(count("to symbols outside", self.edges_to_outside));
        vec![
            (
                "code",
                vec![
                    count("functions", self.functions),
                    count("address taken", self.address_taken),
                    count("blocks", self.blocks),
                    count("fixed blocks", self.fixed_blocks),
                    count("instructions", self.instructions),
                    ("bytes in blocks".to_owned(), self.block_bytes),
                    count("jump tables resolved", self.jump_tables),
                ],
            ),
            (
                "chunks",
                vec![
                    count("input sections", self.sections),
                    count("data chunks", self.data_chunks),
                    ("bytes of data".to_owned(), self.data_bytes),
                    count("code chunks", self.code_chunks),
                    ("bytes of code in chunks".to_owned(), self.code_chunk_bytes),
                ],
            ),
            ("edges", edges),
            (
                "roots",
                self.roots.iter().map(|(reason, &number)| count(&reason.to_string(), number)).collect(),
            ),
            ("opaque", self.opaque.iter().map(|(reason, &number)| count(reason, number)).collect()),
        ]
    }
}

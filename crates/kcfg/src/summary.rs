//! Counts over a graph, for people and for comparing kernels.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::edges::{Destination, Edge, EdgeKind, Edges};
use crate::graph::{Graph, NodeKind, Terminator};

/// What is in a graph.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Functions of compiler-made code.
    pub functions: usize,
    /// Functions among them whose address something other than a direct branch names.
    pub address_taken: usize,
    /// Basic blocks.
    pub blocks: usize,
    /// Instructions in blocks, the branches that end them included.
    pub instructions: usize,
    /// Bytes of code in blocks, without the branches that lowering encodes.
    pub block_bytes: u64,
    /// Data chunks.
    pub data_chunks: usize,
    /// Chunks of code that is carried as it is.
    pub code_chunks: usize,
    /// Jump tables that are resolved.
    pub jump_tables: usize,
    /// Computed jumps through a table that could not be bounded.
    pub unresolved_switches: usize,
    /// Nodes that are alive by themselves, by reason.
    pub roots: BTreeMap<String, usize>,
    /// Edges, by kind.
    pub edges: BTreeMap<EdgeKind, usize>,
    /// Edges to the unknown node.
    pub edges_to_unknown: usize,
    /// Opaque functions and sections, by reason.
    pub opaque: BTreeMap<&'static str, usize>,
}

impl Summary {
    /// Counts.
    pub fn of(graph: &Graph) -> Summary {
        let edges = Edges::of(graph);
        let isa = graph.isa();
        let mut summary = Summary {
            functions: graph.functions.len(),
            jump_tables: graph.tables.len(),
            unresolved_switches: graph.unresolved_switches.len(),
            ..Summary::default()
        };
        let mut taken = vec![false; graph.nodes.len()];
        for node in graph.node_ids() {
            match &graph.node(node).kind {
                NodeKind::Block(block) => {
                    summary.blocks += 1;
                    let mut bytes = graph.bytes_of(node);
                    summary.block_bytes += bytes.len() as u64;
                    while let Some(insn) = isa.decode(bytes, 0) {
                        summary.instructions += 1;
                        bytes = &bytes[usize::from(insn.len)..];
                    }
                    let branches = matches!(block.end, Terminator::Jump(_) | Terminator::Branch { .. });
                    summary.instructions += usize::from(branches);
                }
                NodeKind::Chunk(chunk) if chunk.code => summary.code_chunks += 1,
                NodeKind::Chunk(_) => summary.data_chunks += 1,
            }
            edges.for_each(node, |Edge { kind, to }| {
                *summary.edges.entry(kind).or_default() += 1;
                match to {
                    Destination::Unknown => summary.edges_to_unknown += 1,
                    Destination::Node(to) if kind == EdgeKind::Data => taken[to.get()] = true,
                    _ => {}
                }
            });
        }
        summary.address_taken =
            graph.functions.iter().filter(|function| taken[function.blocks.start as usize]).count();
        for root in &graph.roots {
            *summary.roots.entry(root.reason.to_string()).or_default() += 1;
        }
        for opaque in &graph.opaque {
            *summary.opaque.entry(opaque.reason).or_default() += 1;
        }
        summary
    }
}

//! Cold nodes: code that ran in no trace, and read-only data that was read in none. Without a trace of reads, data
//! counts as cold if only cold nodes use it.

use kcfg::graph::{Graph, Life, Role};
use kcfg::index::{NodeId, NodeSet};
use kcfg::special::TableKind;
use kopt::freeze::select::holds_frozen_data;
use kopt::names::CodeNames;
use kplan::{Coverage, CoveredFunction};
use thiserror::Error;

use super::reads::ReadData;

/// One in this many functions of a coverage may differ in the kernel: the names of copies that compilers make change
/// with the compiler's version, and code outside of functions may have a symbol in one link and none in the next.
const TOLERANCE: usize = 100;

/// The cold nodes.
pub struct Cold {
    /// The nodes, as a set of bits.
    pub nodes: NodeSet,
    /// The data that a trace saw being read, as a set of bits.
    pub read: NodeSet,
    /// Number of functions of the coverage that the kernel lacks, or has with another size.
    pub unmatched: usize,
}

/// The coverage belongs to another kernel.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{unmatched} of the {all} functions of the coverage are not in the kernel, or of another size, such as {example}; \
     trace this kernel, or name the one that was traced"
)]
pub struct OtherKernel {
    /// Number of functions that do not match.
    pub unmatched: usize,
    /// Number of all functions.
    pub all: usize,
    /// The name of one that does not match.
    pub example: String,
}

impl Cold {
    /// Treats every live node as cold.
    pub fn everything(graph: &Graph) -> Cold {
        let mut nodes = NodeSet::with_capacity(graph.nodes().len());
        nodes.extend(graph.node_ids().filter(|&node| graph.node(node).live));
        Cold { nodes, read: NodeSet::default(), unmatched: 0 }
    }

    /// Finds the nodes that did not run according to a coverage. A function counts as run completely if its size there
    /// differs, or if a trace does not distinguish its bytes. Functions in `assume_cold` count as not run. If it is not
    /// known whether data was read, the data is cold if only cold nodes use it.
    ///
    /// # Errors
    /// If the coverage is of another kernel.
    pub fn by_coverage(
        graph: &Graph,
        coverage: &Coverage,
        data: &ReadData,
        assume_cold: &NodeSet,
    ) -> Result<Cold, OtherKernel> {
        let names = CodeNames::of(graph);
        let mut ran = NodeSet::with_capacity(graph.nodes().len());
        let (mut unmatched, mut example) = (0, None);
        for function in &coverage.functions {
            let named = names.find(&function.function);
            let same = named.as_ref().is_some_and(|named| has_size(named.symbol.size, function.size));
            if !same {
                unmatched += 1;
                example.get_or_insert_with(|| function.function.to_string());
            }
            if let Some(named) = named {
                add_run(graph, function, same, named.node, named.offset, &mut ran);
            }
        }
        if unmatched * TOLERANCE > coverage.functions.len() {
            let example = example.unwrap_or_default();
            return Err(OtherKernel { unmatched, all: coverage.functions.len(), example });
        }
        ran.difference_with(assume_cold);
        let mut used = used(graph, &ran);
        used.difference_with(&data.unread);
        used.union_with(&data.read);
        let mut cold = Cold::everything(graph);
        cold.nodes.difference_with(&ran);
        cold.nodes.difference_with(&used);
        cold.read = data.read.clone();
        cold.unmatched = unmatched;
        Ok(cold)
    }
}

/// Whether a function of the coverage has the size of a symbol; symbols of hand-written code may have none.
fn has_size(symbol: u64, covered: u64) -> bool {
    symbol == 0 || symbol == covered
}

/// Adds the parts of a function that ran, given the node of its symbol and the byte offset in it.
fn add_run(
    graph: &Graph,
    function: &CoveredFunction,
    same: bool,
    node: NodeId,
    inside: u32,
    ran: &mut NodeSet,
) {
    // The entered block ran, even if the trace began later.
    ran.insert(node);
    let Some(id) = graph.function_of(node) else { return };
    let ranges = function.ran.as_ref().filter(|_| same);
    let start = graph.node(node).origin().or_else(|| graph.start_of(id)).map(|origin| origin.offset + inside);
    let blocks = graph.function(id).blocks.iter().copied();
    for block in blocks.filter(|&block| graph.home_of(block) == graph.home_of(node)) {
        let overlaps = match (ranges, start, graph.node(block).origin()) {
            (Some(ranges), Some(start), Some(origin)) => {
                let offset = u64::from(origin.offset.wrapping_sub(start));
                let end = offset + u64::from(origin.size);
                ranges.iter().any(|range| range.offset < end && offset < range.offsets().end)
            }
            _ => true,
        };
        if overlaps {
            ran.insert(block);
        }
    }
}

/// The read-only data that may be in use: data that is named by code that ran, by writable data, or by such read-only
/// data.
fn used(graph: &Graph, ran: &NodeSet) -> NodeSet {
    let mut used = NodeSet::with_capacity(graph.nodes().len());
    let is_constant = |node: NodeId| holds_frozen_data(graph, graph.section_of(node));
    let is_source = |&node: &NodeId| {
        graph.node(node).live
            && match graph.chunk(node) {
                None => ran.contains(node),
                Some(chunk) if chunk.code => ran.contains(node),
                // Only code of its function reads it.
                Some(_) if graph.is_among_code(node) => false,
                // Only read if the code that it describes has a defect.
                Some(chunk) if chunk.life == Life::Site(TableKind::Bug) => false,
                Some(_) => !is_constant(node),
            }
    };
    let mut worklist: Vec<NodeId> = graph.node_ids().filter(is_source).collect();
    while let Some(node) = worklist.pop() {
        for reference in graph.refs_of(node).iter().filter(|reference| reference.role != Role::Site) {
            if let Some(to) = graph.resolve_node(reference.target)
                && (is_constant(to) || graph.is_among_code(to))
                && !used.put(to)
            {
                worklist.push(to);
            }
        }
    }
    used
}

//! Cold parts: code that ran in no trace, and read-only data that was read in none. Without a trace of reads, data
//! counts as cold if only cold parts use it.

use fixedbitset::FixedBitSet;
use kcfg::graph::{Graph, Life, Role};
use kcfg::index::NodeId;
use kcfg::special::TableKind;
use kopt::freeze::select::holds_frozen_data;
use kopt::names::CodeNames;
use kplan::{Coverage, CoveredFunction};
use thiserror::Error;

use super::reads::ReadData;

/// Of how many functions of a coverage one may be another in the kernel: the names of copies that compilers make change
/// with their version, and code that is no function has a symbol in one link and none in the next.
const TOLERANCE: usize = 100;

/// What is cold.
pub struct Cold {
    /// The nodes, as a set of bits.
    pub nodes: FixedBitSet,
    /// The data that was seen being read, as a set of bits.
    pub read: FixedBitSet,
    /// How many functions of the coverage the kernel does not have, or has with another size.
    pub unmatched: usize,
}

/// A coverage that is not of this kernel.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{unmatched} of the {all} functions of the coverage are not in the kernel, or of another size, such as {example}; \
     trace this kernel, or name the one that was traced"
)]
pub struct OtherKernel {
    /// How many.
    pub unmatched: usize,
    /// Of how many.
    pub all: usize,
    /// One of them.
    pub example: String,
}

impl Cold {
    /// Everything that is alive.
    pub fn everything(graph: &Graph) -> Cold {
        let mut nodes = FixedBitSet::with_capacity(graph.nodes.len());
        nodes.extend(graph.node_ids().filter(|&node| graph.node(node).live).map(NodeId::get));
        Cold { nodes, read: FixedBitSet::new(), unmatched: 0 }
    }

    /// What did not run by a coverage. A function of another size there, or whose bytes a trace does not distinguish,
    /// counts as run completely. Functions in `assume_cold` count as not run. Data of which it is not known whether it
    /// was read is cold if nothing uses it that is not.
    ///
    /// # Errors
    /// If the coverage is of another kernel.
    pub fn by_coverage(
        graph: &Graph,
        coverage: &Coverage,
        data: &ReadData,
        assume_cold: &FixedBitSet,
    ) -> Result<Cold, OtherKernel> {
        let names = CodeNames::of(graph);
        let mut ran = FixedBitSet::with_capacity(graph.nodes.len());
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

/// Whether a function of the coverage has the size of a symbol; that of hand-written code may have none.
fn has_size(symbol: u64, covered: u64) -> bool {
    symbol == 0 || symbol == covered
}

/// Adds what ran of a function, given the node and the offset in bytes there of its symbol.
fn add_run(
    graph: &Graph,
    function: &CoveredFunction,
    same: bool,
    node: NodeId,
    inside: u32,
    ran: &mut FixedBitSet,
) {
    // Where it was entered, it ran, even if the trace began later.
    ran.insert(node.get());
    let Some(id) = graph.function_of(node) else { return };
    let ranges = function.ran.as_ref().filter(|_| same);
    let start = graph.node(node).origin().or_else(|| graph.start_of(id)).map(|origin| origin.offset + inside);
    for &block in &graph.function(id).blocks {
        let overlaps = match (ranges, start, graph.node(block).origin()) {
            (Some(ranges), Some(start), Some(origin)) => {
                let offset = u64::from(origin.offset.wrapping_sub(start));
                let end = offset + u64::from(origin.size);
                ranges.iter().any(|range| range.offset < end && offset < range.offsets().end)
            }
            _ => true,
        };
        if overlaps {
            ran.insert(block.get());
        }
    }
}

/// The read-only data that may be in use: what code that ran names, what data that can be written names, and what such
/// read-only data names in turn.
fn used(graph: &Graph, ran: &FixedBitSet) -> FixedBitSet {
    let mut used = FixedBitSet::with_capacity(graph.nodes.len());
    let is_constant = |node: NodeId| holds_frozen_data(graph, graph.section_of(node));
    let is_source = |&node: &NodeId| {
        graph.node(node).live
            && match graph.chunk(node) {
                None => ran.contains(node.get()),
                Some(chunk) if chunk.code => ran.contains(node.get()),
                // Read by code of its function.
                Some(_) if graph.is_among_code(node) => false,
                // Read when the code that it is about has a defect.
                Some(chunk) if chunk.life == Life::Site(TableKind::Bug) => false,
                Some(_) => !is_constant(node),
            }
    };
    let mut worklist: Vec<NodeId> = graph.node_ids().filter(is_source).collect();
    while let Some(node) = worklist.pop() {
        for reference in graph.refs_of(node).iter().filter(|reference| reference.role != Role::Site) {
            if let Some(to) = graph.resolve_node(reference.target)
                && (is_constant(to) || graph.is_among_code(to))
                && !used.put(to.get())
            {
                worklist.push(to);
            }
        }
    }
    used
}

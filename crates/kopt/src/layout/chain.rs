//! Ordering the hot blocks of a function to save jumps.
//!
//! Once cold blocks are moved out of line, some hot blocks have no fall-through predecessor. Such a block begins a
//! chain of blocks that fall through into one another. The chain is placed after a block that jumps to it, which saves
//! the jump (a simple form of Pettis and Hansen, "Profile guided code positioning", 1990).

use kcfg::graph::{Dest, Graph, Terminator};
use kcfg::index::NodeId;
use rustc_hash::FxHashMap;

/// Blocks that can each fall through into the next.
type Chain = Vec<NodeId>;

/// Orders the hot blocks of a function; the first block stays first.
pub fn chain(graph: &Graph, blocks: &[NodeId]) -> Vec<NodeId> {
    let mut chains: Vec<Chain> = blocks
        .chunk_by(|&one, &other| successors(graph, one).contains(&Some(other)))
        .map(Vec::from)
        .collect();
    let heads: FxHashMap<NodeId, usize> =
        chains.iter().enumerate().skip(1).map(|(i, chain)| (chain[0], i)).collect();
    for i in 0..chains.len() {
        // A chain that was appended elsewhere is empty. The end of an appended chain may allow another to be appended.
        while let Some(&last) = chains[i].last() {
            let free = |head: &NodeId| heads.get(head).is_some_and(|&j| j != i && !chains[j].is_empty());
            let next = successors(graph, last).into_iter().flatten().find(free);
            let Some(next) = next else { break };
            let mut next = std::mem::take(&mut chains[heads[&next]]);
            chains[i].append(&mut next);
        }
    }
    chains.concat()
}

/// The successors that save a jump if they are placed directly after a block. A jump to the next instruction in the
/// input is kept for its effect on the processor.
fn successors(graph: &Graph, node: NodeId) -> [Option<NodeId>; 2] {
    let to = |dest: &Dest| graph.resolve(dest.target).filter(|&(_, inside)| inside == 0 && dest.offset == 0);
    let to = |dest: &Dest| to(dest).map(|(node, _)| node);
    match graph.block(node).map(|block| &block.end) {
        Some(Terminator::Jump(dest)) => {
            [to(dest).filter(|&to| !graph.are_neighbours_in_input(node, to)), None]
        }
        Some(Terminator::Branch { branch, taken, next }) => {
            let inverted = graph.isa().inverse(*branch).and_then(|_| to(taken));
            [Some(*next), inverted]
        }
        end => [end.and_then(Terminator::next), None],
    }
}

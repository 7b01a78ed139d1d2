//! The hot blocks of a function, in an order that needs fewer jumps.
//!
//! Once cold blocks are out of the way, some hot blocks that begin behind one of them have nothing in front that
//! runs into them. Such a block, with all that runs on from it, goes behind a block that jumps to it (a plain
//! form of Pettis and Hansen, "Profile guided code positioning", 1990), and the jump is gone.

use kcfg::graph::{Dest, Graph, Terminator};
use kcfg::index::NodeId;
use rustc_hash::FxHashMap;

/// Blocks that run one into the other.
type Chain = Vec<NodeId>;

/// Orders the hot blocks of a function, the first of which stays the first.
pub fn chain(graph: &Graph, blocks: &[NodeId]) -> Vec<NodeId> {
    let mut chains: Vec<Chain> = blocks
        .chunk_by(|&one, &other| successors(graph, one).contains(&Some(other)))
        .map(Vec::from)
        .collect();
    let heads: FxHashMap<NodeId, usize> =
        chains.iter().enumerate().skip(1).map(|(i, chain)| (chain[0], i)).collect();
    for i in 0..chains.len() {
        // A chain that was appended elsewhere is empty, and what is appended to one may go on in the next.
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

/// The blocks that can lie behind a block in place of a jump. A jump to the next instruction of the input is there
/// for its effect on the processor, and stays.
fn successors(graph: &Graph, node: NodeId) -> [Option<NodeId>; 2] {
    let to = |dest: &Dest| graph.resolve(dest.target).filter(|&(_, inside)| inside == 0 && dest.offset == 0);
    let to = |dest: &Dest| to(dest).map(|(node, _)| node);
    match graph.block(node).map(|block| &block.end) {
        Some(Terminator::FallThrough(next)) => [Some(*next), None],
        Some(Terminator::Jump(dest)) => {
            [to(dest).filter(|&to| !graph.are_neighbours_in_input(node, to)), None]
        }
        Some(Terminator::Branch { branch, taken, next }) => {
            let inverted = graph.isa().inverse(*branch).and_then(|_| to(taken));
            [Some(*next), inverted]
        }
        Some(
            Terminator::Call { next }
            | Terminator::IndirectCall { next }
            | Terminator::Trap { next }
            | Terminator::Patched { next },
        ) => [*next, None],
        _ => [None, None],
    }
}

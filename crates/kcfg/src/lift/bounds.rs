/*!
Bounds of registers: the largest index at a given place.

Values are followed ([`kflow::values`]) through the blocks before the place, back as long as the predecessor is unique,
so every comparison in them must have had the known outcome. An index is bounded by such a comparison, by a mask, or by
a load of a narrow field. Compilers also compare a field of memory and only then load it (`cmpl $4, 8(%esi); ja …; mov
8(%esi), %eax`), and compare the low byte of an index that a narrow load has zero-extended before; both are known to be
the same value.
*/

use crate::graph::{Graph, Predecessors, Terminator};
use crate::index::NodeId;
use kflow::values::{Names, Site, State};
use kisa::{Condition, Reg, low_mask};

/// Maximum number of blocks to walk back in search of a bound.
const MAX_BLOCKS: usize = 8;

/// Returns the largest possible value of `reg` before instruction `before` of a block (`usize::MAX`: at its end), if
/// the code up to there bounds it.
pub(super) fn upper_bound(
    graph: &Graph,
    predecessors: &Predecessors,
    node: NodeId,
    before: usize,
    reg: Reg,
) -> Option<u64> {
    let chain = chain_to(graph, predecessors, node);
    let mut names = Names::new(
        graph.machine.word_size(),
        graph.isa().registers(),
        graph.isa().convention().stack_pointer,
    );
    let mut state = State::begin(&mut names, false);
    for (place, &(node, condition)) in chain.iter().enumerate().rev() {
        if let Some(condition) = condition {
            state.assume(condition, &names);
        }
        let count = if place == 0 { before } else { usize::MAX };
        for (number, effects) in graph.effects(node).iter().take(count).enumerate() {
            let at = Site { block: node.0, number: number as u32 };
            state.apply(&mut names, at, effects);
        }
    }
    let high = state.range(reg, &names).high;
    (high < low_mask(graph.machine.word_size())).then_some(high)
}

/// Returns the single-predecessor chain that leads to a block, innermost first, with the branch condition of each edge.
fn chain_to(
    graph: &Graph,
    predecessors: &Predecessors,
    mut node: NodeId,
) -> Vec<(NodeId, Option<Condition>)> {
    let mut chain = Vec::new();
    while chain.len() < MAX_BLOCKS {
        let before = predecessors.only(node).and_then(|previous| {
            let condition = match &graph.block(previous)?.end {
                Terminator::FallThrough(_) | Terminator::Jump(_) => None,
                Terminator::Branch { branch, taken, next } => {
                    let taken = graph.resolve_node(taken.target) == Some(node);
                    match (taken, *next == node) {
                        (true, false) => Some(graph.isa().condition(*branch)),
                        (false, true) => Some(graph.isa().condition(*branch).inverse()),
                        _ => return None,
                    }
                }
                _ => return None,
            };
            Some((previous, condition))
        });
        chain.push((node, before.and_then(|(_, condition)| condition)));
        match before {
            // A loop without an entry.
            Some((previous, _)) if chain.iter().any(|&(known, _)| known == previous) => break,
            Some((previous, _)) => node = previous,
            None => break,
        }
    }
    chain
}

/*!
Bounds of registers: the largest index at a given place.

Values are followed ([`kflow::values`]) through the blocks before the place, back as long as the predecessor is unique,
so every comparison in them must have had the known outcome. An index is bounded by such a comparison, by a mask, or by
a load of a narrow field. Compilers also compare a field of memory and only then load it (`cmpl $4, 8(%esi); ja …; mov
8(%esi), %eax`), and compare the low byte of an index that a narrow load has zero-extended before; both are known to be
the same value.

On 64-bit machines, compilers also compare the low half of an index whose upper half is 0: every write of half a
register clears the rest, often long before, where several paths lead to the comparison. Such writes are searched
backwards on all paths ([`has_clear_upper_half`]).
*/

use crate::graph::{Graph, Predecessors, Terminator};
use crate::index::NodeId;
use kflow::values::{Names, Site, Span, State};
use kisa::{Condition, Reg, low_mask};
use rustc_hash::FxHashSet;

/// Maximum number of blocks to walk back in search of a bound.
const MAX_BLOCKS: usize = 8;

/// Maximum number of blocks in the search for writes of half a register.
const MAX_SEARCHED: usize = 200;

/// Returns the largest possible value of `reg` before instruction `before` of a block (`usize::MAX`: at its end), if
/// the code up to there bounds it.
pub(super) fn upper_bound(
    graph: &Graph,
    predecessors: &Predecessors,
    node: NodeId,
    before: usize,
    reg: Reg,
) -> Option<u64> {
    bound_along(graph, &chain_to(graph, predecessors, node), before, reg, &[])
}

/// Returns the largest possible index of a jump table at the end of a block, if the code up to there bounds it.
pub(super) fn index_bound(graph: &Graph, predecessors: &Predecessors, node: NodeId, reg: Reg) -> Option<u64> {
    let chain = chain_to(graph, predecessors, node);
    bound_along(graph, &chain, usize::MAX, reg, &[]).or_else(|| {
        let &(head, _) = chain.last().filter(|_| graph.machine.word_size() == 8)?;
        let registers = (0..graph.isa().registers()).map(|number| Reg(number as u8));
        let clear: Vec<Reg> =
            registers.filter(|&reg| has_clear_upper_half(graph, predecessors, head, reg)).collect();
        bound_along(graph, &chain, usize::MAX, reg, &clear)
    })
}

/// Returns the largest possible value of a register at the end of a chain, before instruction `before` of its last
/// block. The upper halves of the registers in `clear` are 0 at its start.
fn bound_along(
    graph: &Graph,
    chain: &[(NodeId, Option<Condition>)],
    before: usize,
    reg: Reg,
    clear: &[Reg],
) -> Option<u64> {
    let mut names = names(graph);
    let mut state = State::begin(&mut names, false);
    for &reg in clear {
        state.limit(reg, Span::new(0, HALF), &names);
    }
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

/// The largest number in half a register of 64 bits.
const HALF: u64 = u32::MAX as u64;

fn names(graph: &Graph) -> Names {
    let isa = graph.isa();
    Names::new(graph.machine.word_size(), isa.registers(), isa.convention().stack_pointer)
}

/// Whether the upper half of a register is 0 at the start of a block: on every path to it, the last write to the register
/// clears that half. Compiled code relies on the registers that calls keep, as it does here.
fn has_clear_upper_half(graph: &Graph, predecessors: &Predecessors, node: NodeId, reg: Reg) -> bool {
    let (mut seen, mut worklist) = (FxHashSet::default(), vec![node]);
    while let Some(node) = worklist.pop() {
        if !seen.insert(node) {
            continue;
        }
        let Some(before) = predecessors.all(node).filter(|_| seen.len() <= MAX_SEARCHED) else {
            return false;
        };
        for &block in before {
            let keeps = match graph.block(block).map(|block| &block.end) {
                Some(Terminator::Call { .. } | Terminator::IndirectCall { .. }) => {
                    !graph.isa().convention().clobbers(reg)
                }
                Some(
                    Terminator::FallThrough(_)
                    | Terminator::Jump(_)
                    | Terminator::Branch { .. }
                    | Terminator::Switch(_),
                ) => true,
                _ => false,
            };
            if !keeps {
                return false;
            }
            let mut names = names(graph);
            let mut state = State::begin(&mut names, false);
            for (number, effects) in graph.effects(block).iter().enumerate() {
                let at = Site { block: block.0, number: number as u32 };
                state.apply(&mut names, at, effects);
            }
            let is_untouched = state.register(reg).single() == Some(names.entry(reg));
            if is_untouched {
                worklist.push(block);
            } else if state.range(reg, &names).high > HALF {
                return false;
            }
        }
    }
    true
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

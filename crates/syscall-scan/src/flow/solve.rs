//! The states of all blocks of a function: the least that agrees with every way to get there, where that
//! can be found in a few rounds.
//!
//! Blocks are visited in reverse postorder, so that a block without loops around it is visited once. The
//! state in front of a block is made anew from the states behind its predecessors at each visit; only at the
//! head of a loop does it also keep what it was, and give up what changes after a few rounds. Nothing that
//! an early round took for a value in a loop is left in the end.

use std::collections::BTreeSet;

use super::{Flows, State};
use crate::code::{BlockIndex, Function};

/// How often the head of a loop is visited before what still changes is unknown. Variables that the loop
/// sets to a few numbers have settled by then; counters never do.
const MAX_ROUNDS: u32 = 3;

/// How often a block is visited at all. Loops within loops multiply; nothing compiled comes near.
const MAX_VISITS: u32 = 300;

impl Flows<'_> {
    /// Computes the state in front of each block; `None` where control does not get. Also returns whether
    /// every return was reached with the stack pointer at the return address, so that what was read from
    /// the frame can be believed.
    pub(super) fn solve(&mut self, function: &Function, trust_frame: bool) -> (Vec<Option<State>>, bool) {
        let order = Order::of(function);
        let count = function.blocks.len();
        let mut front: Vec<Option<State>> = vec![None; count];
        let mut behind: Vec<Vec<(BlockIndex, State)>> = vec![Vec::new(); count];
        let mut visits = vec![0u32; count];
        let mut pending = BTreeSet::from([0u32]);
        let mut unbalanced = BTreeSet::new();
        while let Some(rank) = pending.pop_first() {
            let block = order.blocks[rank as usize];
            visits[block.get()] += 1;
            if visits[block.get()] > MAX_VISITS {
                let nothing = State::nothing_known();
                return (vec![Some(nothing); count], false);
            }
            let mut state = (rank == 0).then(|| State::at_entry(&mut self.domain));
            for predecessor in &order.predecessors[block.get()] {
                let arriving = behind[predecessor.get()].iter();
                for (_, arriving) in arriving.filter(|(successor, _)| *successor == block) {
                    match &mut state {
                        Some(state) => _ = state.join(arriving, None, &mut self.domain),
                        None => state = Some(arriving.clone()),
                    }
                }
            }
            if let (true, Some(state), Some(before)) =
                (order.is_head[block.get()], &mut state, &front[block.get()])
            {
                let mut kept = before.clone();
                let late = visits[block.get()] > MAX_ROUNDS;
                let widen = late.then_some(function.blocks[block.get()].start);
                kept.join(state, widen, &mut self.domain);
                *state = kept;
            }
            if state == front[block.get()] {
                continue;
            }
            front[block.get()] = state.clone();
            let (after, balanced) = match state {
                Some(state) => self.block(function, block, state, trust_frame),
                None => (Vec::new(), true),
            };
            if balanced {
                unbalanced.remove(&block);
            } else {
                unbalanced.insert(block);
            }
            pending.extend(function.blocks[block.get()].successors.iter().map(|next| order.rank[next.get()]));
            behind[block.get()] = after;
        }
        (front, unbalanced.is_empty())
    }
}

/// The order in which blocks are visited.
struct Order {
    /// Blocks by rank: a block comes after those that lead to it, loops aside.
    blocks: Vec<BlockIndex>,
    /// Ranks by block.
    rank: Vec<u32>,
    predecessors: Vec<Vec<BlockIndex>>,
    /// Whether a block of the same or a higher rank leads here.
    is_head: Vec<bool>,
}

impl Order {
    fn of(function: &Function) -> Order {
        let count = function.blocks.len();
        let mut seen = vec![false; count];
        let mut postorder = Vec::with_capacity(count);
        // Blocks with the number of their successors that have been visited.
        let mut stack = vec![(BlockIndex(0), 0usize)];
        seen[0] = true;
        while let Some((block, visited)) = stack.last_mut() {
            match function.blocks[block.get()].successors.get(*visited) {
                Some(&successor) => {
                    *visited += 1;
                    if !std::mem::replace(&mut seen[successor.get()], true) {
                        stack.push((successor, 0));
                    }
                }
                None => {
                    postorder.push(*block);
                    stack.pop();
                }
            }
        }
        let blocks: Vec<BlockIndex> = postorder.into_iter().rev().collect();
        let mut rank = vec![0; count];
        for (position, block) in blocks.iter().enumerate() {
            rank[block.get()] = position as u32;
        }
        let mut predecessors = vec![Vec::new(); count];
        let mut is_head = vec![false; count];
        for &block in &blocks {
            for successor in &function.blocks[block.get()].successors {
                predecessors[successor.get()].push(block);
                is_head[successor.get()] |= rank[successor.get()] <= rank[block.get()];
            }
        }
        Order { blocks, rank, predecessors, is_head }
    }
}

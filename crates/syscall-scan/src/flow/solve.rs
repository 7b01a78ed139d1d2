//! The states of all blocks of a function: the least that agrees with every way to get there, where that
//! can be found in a few rounds.
//!
//! Blocks are visited in reverse postorder, so that a block without loops around it is visited once. The
//! state in front of a block is made anew from the states behind its predecessors at each visit; only at the
//! head of a loop does it also keep what it was, and give up what changes after a few rounds. Nothing that
//! an early round took for a value in a loop is left in the end.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Range;
use std::rc::Rc;

use kcfg::isa::Effect;

use super::{Flows, State};
use crate::code::{Block, BlockIndex, Code, ExitKind, Function};
use crate::image::Addr;

/// How often the head of a loop is visited before what still changes is unknown. Variables that the loop
/// sets to a few numbers have settled by then; counters never do.
const MAX_ROUNDS: u32 = 3;

/// How often one block is visited, and how often all are on average, before the function is given up. Loops
/// within loops multiply; nothing compiled comes near.
const MAX_VISITS: u32 = 300;
const MAX_AVERAGE: usize = 40;

/// How many blocks a function may have. The largest interpreters have a tenth of it.
const MAX_BLOCKS: usize = 50_000;

/// The states in front of the blocks, and whether every return was reached as it should be.
type Solution = (Vec<Option<Rc<State>>>, bool);

impl Flows<'_> {
    /// Computes the state in front of each block; `None` where control does not get. Also returns whether
    /// every return was reached with the stack pointer at the return address, so that what was read from
    /// the frame can be believed.
    pub(super) fn solve(&mut self, function: &Function, trust_frame: bool) -> Solution {
        let count = function.blocks.len();
        let registers = self.domain.registers;
        let nothing = || (vec![Some(Rc::new(State::nothing_known(registers))); count], false);
        if count > MAX_BLOCKS {
            return nothing();
        }
        // Where loops within loops multiply, the first change at the head of one has to do.
        let solution = self.solve_within(function, trust_frame, MAX_ROUNDS);
        solution.or_else(|| self.solve_within(function, trust_frame, 0)).unwrap_or_else(nothing)
    }

    /// The same, `rounds` being how often the head of a loop may change. `None` if it takes too long.
    fn solve_within(&mut self, function: &Function, trust_frame: bool, rounds: u32) -> Option<Solution> {
        let count = function.blocks.len();
        let order = Order::of(function);
        let mut budget = 1000 + MAX_AVERAGE * count;
        let mut decoded = Decoded::new(count);
        let mut front: Vec<Option<Rc<State>>> = vec![None; count];
        let mut behind: Vec<Option<Rc<State>>> = vec![None; order.edges];
        let mut visits = vec![0u32; count];
        let mut pending = BinaryHeap::from([Reverse(0u32)]);
        let mut is_pending = vec![false; count];
        let mut unbalanced = BTreeSet::new();
        while let Some(Reverse(rank)) = pending.pop() {
            let block = order.blocks[rank as usize];
            is_pending[block.get()] = false;
            visits[block.get()] += 1;
            budget = budget.saturating_sub(1);
            if visits[block.get()] > MAX_VISITS || budget == 0 {
                return None;
            }
            let mut state = (rank == 0).then(|| Rc::new(State::at_entry(&mut self.domain)));
            for arriving in order.edges_to(block).iter().filter_map(|edge| behind[edge.get()].as_ref()) {
                match &mut state {
                    Some(state) if Rc::ptr_eq(state, arriving) => {}
                    Some(state) => Rc::make_mut(state).join(arriving, None, &mut self.domain),
                    None => state = Some(Rc::clone(arriving)),
                }
            }
            if let (true, Some(state), Some(before)) =
                (order.is_head[block.get()], &mut state, &front[block.get()])
            {
                let late = visits[block.get()] > rounds;
                let widen = late.then_some(function.blocks[block.get()].start);
                let arriving = std::mem::replace(state, Rc::clone(before));
                Rc::make_mut(state).join(&arriving, widen, &mut self.domain);
            }
            if state == front[block.get()] {
                continue;
            }
            front[block.get()] = state.clone();
            let behind = &mut behind[order.edges_from(block)];
            behind.fill(None);
            let balanced = match state {
                Some(state) => {
                    let state = Rc::unwrap_or_clone(state);
                    decoded.decode(self.code, block, &function.blocks[block.get()]);
                    self.block(function, block, decoded.instructions(block), state, trust_frame, behind)
                }
                None => true,
            };
            if balanced {
                unbalanced.remove(&block);
            } else {
                unbalanced.insert(block);
            }
            for next in &function.blocks[block.get()].successors {
                if !std::mem::replace(&mut is_pending[next.get()], true) {
                    pending.push(Reverse(order.rank[next.get()]));
                }
            }
        }
        Some((front, unbalanced.is_empty()))
    }

    /// Applies a block, and leaves the states behind it in `behind`, one for each successor that control can go
    /// to. Returns whether the stack pointer is where it should be, if the block returns.
    fn block<'d>(
        &mut self,
        function: &Function,
        index: BlockIndex,
        instructions: impl Iterator<Item = (Addr, u64, &'d [Effect])>,
        mut state: State,
        trust_frame: bool,
        behind: &mut [Option<Rc<State>>],
    ) -> bool {
        let block = &function.blocks[index.get()];
        let exit = block.exit.map(|id| self.code.exit(id));
        let (mut branch, mut balanced) = (None, true);
        // The state where the exit is one on a condition that does not hold.
        let mut skipped = None;
        for (at, reads, effects) in instructions {
            let kind = exit.filter(|exit| exit.at == at).map(|exit| exit.kind);
            match kind {
                Some(ExitKind::Return) => {
                    if self.convention.link.is_some() {
                        self.apply(&mut state, at, effects, reads, trust_frame);
                    }
                    balanced = self.is_at_return(&state);
                    match state.skipped() {
                        Some(skipped) => state = skipped,
                        None => return balanced,
                    }
                }
                Some(ExitKind::Call(callee)) => {
                    self.call(&mut state, (at, reads, effects), Some(callee), trust_frame);
                }
                Some(ExitKind::IndirectCall) => {
                    self.call(&mut state, (at, reads, effects), None, trust_frame);
                }
                Some(ExitKind::Stop) => return true,
                _ => {
                    let outcome = self.apply(&mut state, at, effects, reads, trust_frame);
                    if outcome.ends {
                        return true;
                    }
                    branch = outcome.branch;
                    if kind == Some(ExitKind::IndirectJump) {
                        skipped = state.skipped();
                    }
                }
            }
        }
        let taken = exit.and_then(|exit| {
            // A conditional jump goes to the next instruction first, see exploration.
            (exit.successors.len() == 2 && exit.successors[0] != exit.successors[1])
                .then(|| exit.successors[1])
        });
        state.settle(&mut self.domain);
        let state = Rc::new(state);
        for (&successor, behind) in block.successors.iter().zip(behind) {
            let mut state = Rc::clone(&state);
            let start = function.blocks[successor.get()].start;
            if let (Some((compared, condition)), Some(taken)) = (branch, taken) {
                let condition = if start == taken { condition } else { condition.inverse() };
                let ranges = &mut Rc::make_mut(&mut state).ranges;
                if !ranges.assume(compared, condition, &self.domain) {
                    continue;
                }
            }
            if let (Some(skipped), Some(exit)) = (&skipped, exit) {
                // The jump may lead there as well.
                if start == exit.next {
                    Rc::make_mut(&mut state).join(skipped, None, &mut self.domain);
                }
            }
            *behind = Some(state);
        }
        balanced
    }
}

/// The instructions of a function and their effects, decoded once for all visits of a block.
struct Decoded {
    instructions: Vec<Instruction>,
    effects: Vec<Effect>,
    /// By block, where its instructions are and where their effects begin.
    blocks: Vec<Option<(Range<usize>, usize)>>,
}

struct Instruction {
    at: Addr,
    /// See [`Code::unfollowed_reads`].
    reads: u64,
    /// Where its effects end.
    end: usize,
}

impl Decoded {
    /// Nothing of so many blocks.
    fn new(blocks: usize) -> Decoded {
        Decoded { instructions: Vec::new(), effects: Vec::new(), blocks: vec![None; blocks] }
    }

    fn decode(&mut self, code: &Code, index: BlockIndex, block: &Block) {
        if self.blocks[index.get()].is_some() {
            return;
        }
        let (first, effects) = (self.instructions.len(), self.effects.len());
        let mut at = block.start;
        while at < block.end {
            let start = self.effects.len();
            code.effects(at, &mut self.effects);
            let reads = code.unfollowed_reads(at, &self.effects[start..]);
            self.instructions.push(Instruction { at, reads, end: self.effects.len() });
            // What is no instruction ends the block.
            at = at.plus(code.length(at).unwrap_or(u64::from(u32::MAX)));
        }
        self.blocks[index.get()] = Some((first..self.instructions.len(), effects));
    }

    /// The instructions of a block that has been decoded.
    fn instructions(&self, block: BlockIndex) -> impl Iterator<Item = (Addr, u64, &[Effect])> {
        let (range, start) = self.blocks[block.get()].clone().unwrap_or_default();
        let instructions = &self.instructions[range];
        let ends = instructions.iter().map(|instruction| instruction.end);
        let starts = std::iter::once(start).chain(ends);
        instructions
            .iter()
            .zip(starts)
            .map(|(insn, start)| (insn.at, insn.reads, &self.effects[start..insn.end]))
    }
}

/// The order in which blocks are visited.
struct Order {
    /// Blocks by rank: a block comes after those that lead to it, loops aside.
    blocks: Vec<BlockIndex>,
    /// Ranks by block.
    rank: Vec<u32>,
    /// By block, the number of the first of the edges that begin there; and how many there are of all.
    first: Vec<EdgeIndex>,
    edges: usize,
    /// The edges by the block where they end, those of lower rank first; and, by block, where its own begin.
    arriving: Vec<EdgeIndex>,
    own: Vec<usize>,
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
        let mut first = Vec::with_capacity(count + 1);
        let mut own = vec![0; count + 1];
        let mut edges = 0;
        for block in &function.blocks {
            first.push(EdgeIndex(edges as u32));
            edges += block.successors.len();
            block.successors.iter().for_each(|next| own[next.get() + 1] += 1);
        }
        first.push(EdgeIndex(edges as u32));
        for block in 0..count {
            own[block + 1] += own[block];
        }
        let mut arriving = vec![EdgeIndex(0); edges];
        let mut free = own.clone();
        let mut is_head = vec![false; count];
        for &block in &blocks {
            for (place, next) in function.blocks[block.get()].successors.iter().enumerate() {
                arriving[free[next.get()]] = EdgeIndex((first[block.get()].get() + place) as u32);
                free[next.get()] += 1;
                is_head[next.get()] |= rank[next.get()] <= rank[block.get()];
            }
        }
        Order { blocks, rank, first, edges, arriving, own, is_head }
    }

    /// The edges that begin at a block, in the order of its successors.
    fn edges_from(&self, block: BlockIndex) -> Range<usize> {
        self.first[block.get()].get()..self.first[block.get() + 1].get()
    }

    /// The edges that end at a block.
    fn edges_to(&self, block: BlockIndex) -> &[EdgeIndex] {
        &self.arriving[self.own[block.get()]..self.own[block.get() + 1]]
    }
}

/// The number of an edge between two blocks.
#[derive(Clone, Copy, Debug)]
struct EdgeIndex(u32);

impl EdgeIndex {
    fn get(self) -> usize {
        self.0 as usize
    }
}

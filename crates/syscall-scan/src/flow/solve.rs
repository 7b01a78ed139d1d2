//! The states of all blocks of a function: the least that agrees with every way to get there, where that
//! can be found in a few rounds.
//!
//! A block without loops around it is visited once, after all that lead to it, and a loop until it has settled, before
//! what follows it ([`super::order`]). The state in front of a block is made anew from the states behind its
//! predecessors at each visit; only at the head of a loop does it also keep what it was, and give up what changes
//! after a few rounds. Nothing that an early round took for a value in a loop is left in the end.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::ops::Range;
use std::rc::Rc;

use kisa::Effect;

use super::order::Order;
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

/// The states in front of the blocks, and whether every return was reached with the stack pointer at the return address.
type Solution = (Vec<Option<Rc<State>>>, bool);

impl Flows<'_> {
    /// Computes the state in front of each block, `begin` being that in front of the first; `None` where control does
    /// not get. Also returns whether every return was reached with the stack pointer at the return address, so that
    /// what was read from the frame can be believed.
    pub(super) fn solve(&mut self, function: &Function, begin: &Rc<State>, trust_frame: bool) -> Solution {
        let count = function.blocks.len();
        let registers = self.domain.registers;
        let nothing = || (vec![Some(Rc::new(State::nothing_known(registers))); count], false);
        if count > MAX_BLOCKS {
            return nothing();
        }
        let mut decoded = std::mem::take(&mut self.decoded);
        decoded.begin(count);
        let mut solve = |rounds| self.solve_within(function, begin, &mut decoded, trust_frame, rounds);
        // Where loops within loops multiply, the first change at the head of one has to do.
        let solution = solve(MAX_ROUNDS).or_else(|| solve(0)).unwrap_or_else(nothing);
        self.decoded = decoded;
        solution
    }

    /// The same, `rounds` being how often the head of a loop may change. `None` if it takes too long.
    fn solve_within(
        &mut self,
        function: &Function,
        begin: &Rc<State>,
        decoded: &mut Decoded,
        trust_frame: bool,
        rounds: u32,
    ) -> Option<Solution> {
        let count = function.blocks.len();
        let order = Order::of(self.code, function);
        let mut budget = 1000 + MAX_AVERAGE * count;
        let mut front: Vec<Option<Rc<State>>> = vec![None; order.nodes()];
        let mut behind: Vec<Option<Rc<State>>> = vec![None; order.edges()];
        let mut visits = vec![0u32; order.nodes()];
        let mut pending = BinaryHeap::from([Reverse(order.first())]);
        // The priorities of the nodes on the worklist.
        let mut turns = vec![None; order.nodes()];
        turns[order.first().node.get()] = Some(order.first());
        let mut unbalanced = BTreeSet::new();
        while let Some(Reverse(turn)) = pending.pop() {
            let node = turn.node;
            if turns[node.get()] != Some(turn) {
                continue; // it was visited with a higher priority since
            }
            turns[node.get()] = None;
            visits[node.get()] += 1;
            budget = budget.saturating_sub(1);
            if visits[node.get()] > MAX_VISITS || budget == 0 {
                return None;
            }
            let is_first = node == order.first().node;
            let mut state = is_first.then(|| Rc::clone(begin));
            for arriving in order.edges_to(node).iter().filter_map(|edge| behind[edge.get()].as_ref()) {
                match &mut state {
                    Some(state) if Rc::ptr_eq(state, arriving) => {}
                    Some(state) => Rc::make_mut(state).join(arriving, None, &mut self.domain),
                    None => state = Some(Rc::clone(arriving)),
                }
            }
            let block = order.block(node);
            if let (true, Some(state), Some(before)) = (order.is_head(node), &mut state, &front[node.get()]) {
                let late = visits[node.get()] > rounds;
                let at =
                    || block.map_or_else(|| order.jump(node), |block| function.blocks[block.get()].start);
                let arriving = std::mem::replace(state, Rc::clone(before));
                Rc::make_mut(state).join(&arriving, late.then(at), &mut self.domain);
            }
            if state == front[node.get()] {
                continue;
            }
            front[node.get()] = state.clone();
            let behind = &mut behind[order.edges_from(node)];
            behind.fill(None);
            let balanced = match (state, block) {
                (Some(state), Some(block)) => {
                    let state = Rc::unwrap_or_clone(state);
                    decoded.decode(self.code, block, &function.blocks[block.get()]);
                    self.block(function, block, decoded.instructions(block), state, trust_frame, behind)
                }
                (state, _) => {
                    behind.fill(state);
                    true
                }
            };
            if balanced {
                unbalanced.remove(&node);
            } else {
                unbalanced.insert(node);
            }
            for turn in order.next(node) {
                let known = &mut turns[turn.node.get()];
                if known.is_none_or(|known| turn < known) {
                    *known = Some(turn);
                    pending.push(Reverse(turn));
                }
            }
        }
        front.truncate(count);
        Some((front, unbalanced.is_empty()))
    }

    /// Applies a block, and leaves the states behind it in `behind`, one for each successor that control can go
    /// to; one for all if it leads to a hub. Returns whether the stack pointer is where it should be, if the block returns.
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
        // The state where the exit is one on a condition that does not hold; and whether it is a direct one.
        let (mut skipped, mut direct) = (None, false);
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
                    direct = matches!(effects.first(), Some(Effect::BranchIf(_)));
                    if kind == Some(ExitKind::IndirectJump) || direct {
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
        if let (Some(skipped), true, None) = (&skipped, direct, taken) {
            state.join(skipped, None, &mut self.domain);
        }
        let state = Rc::new(state);
        for (&successor, behind) in block.successors.iter().zip(behind) {
            let start = function.blocks[successor.get()].start;
            let mut state = match &skipped {
                Some(skipped) if direct && taken.is_some_and(|taken| taken != start) => {
                    Rc::new(skipped.clone())
                }
                _ => Rc::clone(&state),
            };
            if let (Some((compared, condition)), Some(taken)) = (branch, taken) {
                let condition = if start == taken { condition } else { condition.inverse() };
                let ranges = &mut Rc::make_mut(&mut state).ranges;
                if !ranges.assume(compared, condition, &self.domain) {
                    continue;
                }
            }
            if let (Some(skipped), Some(exit), false) = (&skipped, exit, direct) {
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
#[derive(Default)]
pub(super) struct Decoded {
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
    /// Goes over to a function of so many blocks, none of them decoded.
    fn begin(&mut self, blocks: usize) {
        self.instructions.clear();
        self.effects.clear();
        self.blocks.clear();
        self.blocks.resize(blocks, None);
    }

    fn decode(&mut self, code: &Code, index: BlockIndex, block: &Block) {
        if self.blocks[index.get()].is_some() {
            return;
        }
        let (first, effects) = (self.instructions.len(), self.effects.len());
        let mut at = block.start;
        let mut reader = code.reader(at);
        while at < block.end {
            let start = self.effects.len();
            code.read_effects(&mut reader, at, &mut self.effects);
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

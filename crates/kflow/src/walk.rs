//! The values of one function, computed block by block.

use std::rc::Rc;

use kisa::{Effect, Reg, Value};

use crate::facts::{Entry, Facts, Recorder};
use crate::program::{Callee, FunctionCfg, Instruction, Program, Then, Way};
use crate::solve::States;
use crate::values::{Names, Site, State};
use crate::{Analysis, BlockIndex, Head, Summaries, solve};

/// The number of the last instruction's effects that happen on one edge only.
const EXIT: u32 = u32::MAX;

/// One function, with the facts about its callees.
pub(crate) struct Walk<'p, P> {
    pub(crate) program: &'p P,
    pub(crate) summaries: &'p Summaries,
    pub(crate) cfg: &'p FunctionCfg<'p>,
    pub(crate) names: Names,
}

impl<P: Program> Analysis for Walk<'_, P> {
    type State = State;

    fn join(&mut self, state: &mut State, other: &State, widen: Option<Head>) {
        let at = widen.map(|head| match head {
            Head::Block(block) | Head::Jumps(block) => Site { block: block.0, number: 0 },
        });
        state.join(other, at, &mut self.names);
    }

    fn block(&mut self, block: BlockIndex, mut state: State, behind: &mut [Option<Rc<State>>]) {
        self.run(block, &mut state, |_, _, _| {});
        let index = self.switch_index(block);
        let mut left = Some(state);
        let cfg = self.cfg;
        let ways = cfg.ways[block.get()];
        for (place, way) in ways.iter().enumerate() {
            let Then::Block(to) = way.then else { continue };
            // The last edge needs no copy.
            let state = match left.take() {
                Some(state) if place + 1 == ways.len() => state,
                Some(state) => left.insert(state).clone(),
                None => break,
            };
            let may = index.is_none_or(|index| state.may_be(index, place as u64, &self.names));
            let left = self.leave(block, place, state, |_, _, _| {}).filter(|_| may);
            let Some(arriving) = left.and_then(|state| self.call(way, state)) else { continue };
            let Some(behind) = self.cfg.successor(block, to).and_then(|place| behind.get_mut(place)) else {
                continue;
            };
            match behind {
                Some(known) => Rc::make_mut(known).join(&arriving, None, &mut self.names),
                None => *behind = Some(Rc::new(arriving)),
            }
        }
    }
}

impl<'p, P: Program> Walk<'p, P> {
    pub(crate) fn new(program: &'p P, summaries: &'p Summaries, cfg: &'p FunctionCfg<'p>) -> Walk<'p, P> {
        Walk { program, summaries, cfg, names: summaries.machine.names(&summaries.memory) }
    }

    /// Returns the state on entry to the function, if nothing is known of its callers.
    pub(crate) fn enter(&mut self) -> State {
        State::enter(&mut self.names)
    }

    /// Returns the states before all blocks.
    pub(crate) fn solve(&mut self, begin: State) -> Option<States<State>> {
        let cfg = self.cfg;
        solve(self, cfg, &Rc::new(begin))
    }

    /// Applies the instructions of a block, and shows each with the state before it. Then the last comparison decides
    /// the successor.
    pub(crate) fn run(
        &mut self,
        block: BlockIndex,
        state: &mut State,
        mut see: impl FnMut(&Instruction<'_>, &mut State, &mut Names),
    ) {
        let (program, names) = (self.program, &mut self.names);
        let mut number = 0;
        let own = self.cfg.blocks[block.get()];
        program.for_each_instruction(own, &mut |instruction| {
            see(&instruction, state, names);
            // The first number belongs to joins.
            number += 1;
            state.apply(names, Site { block: block.0, number }, instruction.effects);
        });
        if let Some(reg) = program.compared_register(own) {
            let width = self.summaries.machine.word;
            let compare = Effect::Compare { left: Value::Reg { reg, width }, right: Value::Const(0), width };
            state.apply(names, Site { block: block.0, number: number + 1 }, &[compare]);
        }
    }

    /// Returns the register that selects the edge out of a block that ends with a switch. Other edges have conditions
    /// ([`Walk::leave`]).
    pub(crate) fn switch_index(&self, block: BlockIndex) -> Option<Reg> {
        self.program.switch_index(self.cfg.blocks[block.get()])
    }

    /// Applies the instructions of a block, shows each with the state before it, and records the facts about the block
    /// and the arguments of its calls. Returns the state after the instructions.
    pub(crate) fn record(
        &mut self,
        block: BlockIndex,
        mut state: State,
        facts: &mut Facts,
        mut see: impl FnMut(&Instruction<'_>, &mut State, &mut Names),
    ) -> State {
        let mut recorder = Recorder::default();
        self.run(block, &mut state, |instruction, state, names| {
            recorder.see(instruction, state, names);
            see(instruction, state, names);
        });
        let mut reached = recorder.finish(block, &state, &self.names);
        let index = self.switch_index(block);
        for (place, way) in self.cfg.ways[block.get()].iter().enumerate() {
            let may = index.is_none_or(|index| state.may_be(index, place as u64, &self.names))
                && way.condition.is_none_or(|condition| state.may_hold(condition, &self.names));
            reached.taken.push(may);
            if may && matches!(way.callee, Some(Callee::Function(_))) {
                let passed = Entry::passed(&state, self.summaries.machine, &self.names);
                facts.passed.push((block, place, passed));
            }
        }
        facts.reached.push(reached);
        state
    }

    /// Returns the effects of the last instruction of a block that happen on one edge only.
    pub(crate) fn exit_effects(&self, block: BlockIndex, place: usize) -> &'p [Effect] {
        if place == 0 { self.program.exit_effects(self.cfg.blocks[block.get()]) } else { &[] }
    }

    /// Returns the state on one edge out of a block, given the state after the instructions; `None` if control does not
    /// take the edge. Shows the effects of the last instruction that are only on this edge, with the state before them.
    pub(crate) fn leave(
        &mut self,
        block: BlockIndex,
        place: usize,
        mut state: State,
        mut see: impl FnMut(&Instruction<'_>, &mut State, &mut Names),
    ) -> Option<State> {
        let (own, way) = (self.cfg.blocks[block.get()], &self.cfg.ways[block.get()][place]);
        if way.condition.is_some_and(|condition| !state.assume(condition, &self.names)) {
            return None;
        }
        if self.program.compared_register(own).is_some() {
            // The flags hold another comparison.
            state.forget_comparison();
        }
        let effects = self.exit_effects(block, place);
        if !effects.is_empty() {
            let instruction = Instruction { effects, reads: 0, reads_unseen: false };
            see(&instruction, &mut state, &mut self.names);
            state.apply(&mut self.names, Site { block: block.0, number: EXIT }, effects);
        }
        Some(state)
    }

    /// Returns the state after the call on an edge, if there is one; `None` if the call does not return.
    pub(crate) fn call(&mut self, way: &Way, mut state: State) -> Option<State> {
        if let Some(callee) = way.callee {
            if !self.summaries.returns(callee) {
                return None;
            }
            let summary = self.summaries.get(callee);
            state.call(summary.reads, summary.changes, summary.writes_frame, &self.names);
            for (reg, results) in self.summaries.results(callee) {
                if summary.changes >> reg.0 & 1 != 0 {
                    let value = results.value(&mut self.names);
                    state.set_register(reg, value);
                }
            }
        }
        Some(state)
    }
}

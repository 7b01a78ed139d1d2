//! Summarises one function.

use std::rc::Rc;

use super::call::{Results, Summary};
use super::known::{Found, Summaries};
use super::touched::Touched;
use super::uses::Uses;
use crate::constants::Asked;
use crate::facts::Facts;
use crate::machine::Machine;
use crate::program::{EVERYTHING, FLAGS, FunctionCfg, FunctionIndex, Instruction, Program, Then, bit};
use crate::values::{Names, State};
use crate::walk::Walk;
use crate::{BlockIndex, Cfg};

/// Computes the behaviour and results of a function from the facts about its callees; also returns the requests for
/// constant memory on the way.
pub(super) fn summarise(
    program: &impl Program,
    summaries: &Summaries,
    function: FunctionIndex,
    cfg: &FunctionCfg,
) -> (Found, Asked) {
    let lost = |returns_elsewhere| Found {
        summary: summaries.conventional(),
        results: Some(Results::default()),
        takes: 0,
        returns_elsewhere,
        facts: None,
    };
    if !summaries.can_follow(program, function, cfg) {
        return (lost(false), Asked::default());
    }
    let walk = Walk::new(program, summaries, cfg);
    let mut summariser = Summariser {
        walk,
        machine: summaries.machine,
        cfg,
        facts: Facts::default(),
        returns_elsewhere: false,
    };
    let found = summariser.summarise().unwrap_or_else(|| lost(summariser.returns_elsewhere));
    (found, summariser.walk.names.into_asked())
}

/// One function that is being summarised.
struct Summariser<'p, P> {
    walk: Walk<'p, P>,
    machine: Machine,
    cfg: &'p FunctionCfg<'p>,
    facts: Facts,
    returns_elsewhere: bool,
}

impl<P: Program> Summariser<'_, P> {
    /// Summarises the function; `None` if its behaviour is unknown.
    fn summarise(&mut self) -> Option<Found> {
        let begin = self.walk.enter();
        let states = self.walk.solve(begin)?;
        let mut does = Does {
            uses: Uses::default(),
            changes: FLAGS,
            writes_frame: false,
            results: None,
            touched: vec![Touched::UNREACHED; self.cfg.blocks.len()],
        };
        for (index, state) in states.into_iter().enumerate() {
            let Some(state) = state else { continue };
            self.block_does(index.into(), Rc::unwrap_or_clone(state), &mut does)?;
        }
        let Does { uses, changes, writes_frame, results, touched } = does;
        let all = &self.walk.summaries.touched;
        let (read, overwrites) = self.read_and_overwritten(|index| &all[self.cfg.blocks[index].get()]);
        let (certain, _) = self.read_and_overwritten(|index| &touched[index]);
        // Every function uses the stack pointer.
        let used = uses.used(&self.walk.names) | bit(self.machine.stack_pointer);
        let summary = Summary {
            reads: read & used | certain,
            changes,
            overwrites: overwrites & changes,
            writes_frame,
            reads_stack: uses.reads_stack,
        };
        let takes = match (self.machine.convention, &results) {
            (Some(convention), Some(_)) => uses.changed_for_good(changes) & !(convention.changed | FLAGS),
            _ => 0,
        };
        let facts = Some(std::mem::take(&mut self.facts));
        // A function that may return again does so with other results, and with registers that other code has left.
        let returns_again = results.is_some() && uses.gives_away_return;
        let (summary, results) = if returns_again {
            (summary.join(self.walk.summaries.conventional()), Some(Results::default()))
        } else {
            (summary, results)
        };
        Some(Found { summary, results, takes, returns_elsewhere: false, facts })
    }

    /// Finds the behaviour of a block, given the state before it. Returns `None` if it returns to a place other than
    /// the caller.
    fn block_does(&mut self, block: BlockIndex, state: State, found: &mut Does) -> Option<()> {
        let machine = self.machine;
        let mut touched = Touched::NOTHING;
        let state = self.walk.record(block, state, &mut self.facts, |instruction, state, names| {
            let saved = found.see(instruction, state, names, &machine);
            touched.add(instruction.reads & !saved, instruction.overwrites());
        });
        let summaries = self.walk.summaries;
        let read_by_exit = self.walk.program.read_by_exit(self.cfg.blocks[block.get()]);
        touched.add(read_by_exit, 0);
        found.touched[block.get()] = touched;
        found.uses.used_by_exit(read_by_exit, &state, &self.walk.names);
        let cfg = self.cfg;
        for (place, way) in cfg.ways[block.get()].iter().enumerate() {
            let does_more = !self.walk.exit_effects(block, place).is_empty();
            // Without a call, nothing escapes.
            if !does_more && way.then != Then::Caller && way.callee.is_none() {
                if state.is_frame_known_to_others() {
                    found.frame_is_known(&machine);
                }
                continue;
            }
            let left = self.walk.leave(block, place, state.clone(), |instruction, state, names| {
                found.see(instruction, state, names, &machine);
            });
            let Some(left) = left else { continue };
            if let Some(callee) = way.callee {
                let summary = summaries.get(callee);
                found.uses.call(&summary, &left, &self.walk.names, &machine);
                // A callee that does not return may still read the frame.
                if left.may_reach_frame(summary.reads & !bit(machine.stack_pointer), &self.walk.names) {
                    found.frame_is_known(&machine);
                }
            }
            let goes_back =
                way.then != Then::Caller || left.goes_back(way.callee.is_some(), &mut self.walk.names);
            let Some(state) = self.walk.call(way, left) else { continue };
            if state.is_frame_known_to_others() {
                found.frame_is_known(&machine);
            }
            found.writes_frame |= way
                .callee
                .is_some_and(|callee| way.then == Then::Caller && summaries.get(callee).writes_frame);
            if way.then == Then::Caller {
                if !goes_back || !state.is_back_at_caller(&mut self.walk.names) {
                    self.returns_elsewhere = true;
                    return None;
                }
                found.changes |= state.changed(&mut self.walk.names);
                let results = Results::in_state(&state, self.machine, &self.walk.names);
                match &mut found.results {
                    Some(known) => known.join(&results),
                    None => found.results = Some(results),
                }
            }
        }
        Some(())
    }

    /// Returns the registers that the function may read with their contents on entry, and the registers that it
    /// overwrites before it returns, given those of each block.
    fn read_and_overwritten<'t>(&self, touched: impl Fn(usize) -> &'t Touched) -> (u64, u64) {
        let cfg = self.cfg;
        let mut read = vec![0u64; cfg.blocks.len()];
        let mut overwritten = vec![EVERYTHING; cfg.blocks.len()];
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for index in (0..cfg.blocks.len()).rev() {
                let (mut live, mut certain) = (0, EVERYTHING);
                for way in cfg.ways[index] {
                    let next = match way.then {
                        Then::Block(to) => {
                            let place = cfg
                                .successor(index.into(), to)
                                .map(|place| cfg.successors(index.into())[place].get());
                            place.map_or((EVERYTHING, 0), |next| (read[next], overwritten[next]))
                        }
                        Then::Caller => (0, 0),
                        Then::Nowhere => (0, EVERYTHING),
                        Then::Anywhere => (EVERYTHING, 0),
                    };
                    live |= self.walk.summaries.live_before(way, next.0);
                    certain &=
                        next.1 | way.callee.map_or(0, |callee| self.walk.summaries.get(callee).overwrites);
                }
                let here = (touched(index).live_before(live), certain | touched(index).overwrites);
                changed |= here != (read[index], overwritten[index]);
                (read[index], overwritten[index]) = here;
            }
        }
        (read[0], overwritten[0])
    }
}

/// The behaviour of a function's blocks, as found so far.
struct Does {
    uses: Uses,
    changes: u64,
    writes_frame: bool,
    results: Option<Results>,
    /// For each block, the registers that it overwrites and those that it reads, except reads that only save a
    /// register.
    touched: Vec<Touched>,
}

impl Does {
    /// Records an instruction, given the state before it. Returns the registers that it reads only to save them.
    fn see(
        &mut self,
        instruction: &Instruction<'_>,
        state: &mut State,
        names: &mut Names,
        machine: &Machine,
    ) -> u64 {
        for effect in instruction.effects {
            self.writes_frame |= state.may_write_above(effect, names);
        }
        self.uses.see(instruction, state, names, machine)
    }

    /// Records that others may have the address of the frame, and read or write its content.
    fn frame_is_known(&mut self, machine: &Machine) {
        self.uses.frame_is_known(machine);
        self.writes_frame = true;
    }
}

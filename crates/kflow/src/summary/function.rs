//! One function being summarised.

use std::rc::Rc;

use kisa::{Effect, Value};

use super::{Machine, Results, Summaries, Summary};
use crate::constants::Asked;
use crate::facts::Facts;
use crate::program::{EVERYTHING, FLAGS, FunctionCfg, FunctionIndex, Instruction, Program, Then, bit};
use crate::values::{Names, State};
use crate::walk::Walk;
use crate::{BlockIndex, Cfg};

/// What a function does and returns, as far as is known of those that it calls; and what was asked of memory to find it.
pub(super) fn summarise(
    program: &impl Program,
    summaries: &Summaries,
    function: FunctionIndex,
    cfg: &FunctionCfg,
) -> (Found, Asked) {
    let lost = Found { summary: summaries.conventional(), results: Some(Results::default()), facts: None };
    if !summaries.can_follow(program, function, cfg) {
        return (lost, Asked::default());
    }
    let walk = Walk::new(program, summaries, cfg);
    let mut summariser = Summariser { walk, machine: summaries.machine, cfg, facts: Facts::default() };
    let found = summariser.summarise();
    (found.unwrap_or(lost), summariser.walk.names.into_asked())
}

/// What has been found out about a function.
pub(crate) struct Found {
    pub(super) summary: Summary,
    /// `None` if it does not return.
    pub(super) results: Option<Results>,
    /// What is known of it whoever calls it; `None` if it could not be followed.
    pub(super) facts: Option<Facts>,
}

/// One function being summarised.
struct Summariser<'p, P> {
    walk: Walk<'p, P>,
    machine: Machine,
    cfg: &'p FunctionCfg<'p>,
    facts: Facts,
}

impl<P: Program> Summariser<'_, P> {
    /// What the function does; `None` if that is not known.
    fn summarise(&mut self) -> Option<Found> {
        let begin = self.walk.enter();
        let states = self.walk.solve(begin)?;
        let mut does = Does { used: 0, changes: FLAGS, writes_frame: false, results: None };
        for (index, state) in states.into_iter().enumerate() {
            let Some(state) = state else { continue };
            self.block_does(index.into(), Rc::unwrap_or_clone(state), &mut does)?;
        }
        let Does { used, changes, writes_frame, results } = does;
        let (reads, overwrites) = self.read_and_overwritten();
        // Everybody makes use of the stack pointer.
        let used = used | bit(self.machine.stack_pointer);
        let summary = Summary {
            reads: reads & (changes | used),
            changes,
            overwrites: overwrites & changes,
            writes_frame,
        };
        Some(Found { summary, results, facts: Some(std::mem::take(&mut self.facts)) })
    }

    /// Finds what a block does, given the state in front of it. `None` if it returns to somewhere else than to the
    /// caller.
    fn block_does(&mut self, block: BlockIndex, state: State, found: &mut Does) -> Option<()> {
        let word = self.machine.word;
        let state = self.walk.record(block, state, &mut self.facts, |instruction, state, names| {
            found.see(instruction, state, names, word);
        });
        let summaries = self.walk.summaries;
        let read_by_exit = self.walk.program.read_by_exit(self.cfg.blocks[block.get()]);
        found.used |= state.entries_in(read_by_exit, &self.walk.names);
        let cfg = self.cfg;
        for (place, way) in cfg.ways[block.get()].iter().enumerate() {
            let reads = way.callee.map_or(0, |callee| summaries.get(callee).reads);
            found.used |= state.entries_in(reads, &self.walk.names);
            let does_more = !self.walk.exit_effects(block, place).is_empty();
            // Where nothing is called, nothing becomes known to others.
            if !does_more
                && way.then != Then::Caller
                && (way.callee.is_none() || state.is_frame_known_to_others())
            {
                if state.is_frame_known_to_others() {
                    self.frame_is_known(found);
                }
                continue;
            }
            let left = self.walk.leave(block, place, state.clone(), |instruction, state, names| {
                found.see(instruction, state, names, word);
            });
            let Some(left) = left else { continue };
            let goes_back =
                way.then != Then::Caller || left.goes_back(way.callee.is_some(), &mut self.walk.names);
            let Some(state) = self.walk.call(way, left) else { continue };
            if state.is_frame_known_to_others() {
                self.frame_is_known(found);
            }
            found.writes_frame |= way
                .callee
                .is_some_and(|callee| way.then == Then::Caller && summaries.get(callee).writes_frame);
            if way.then == Then::Caller {
                if !goes_back || !state.is_back_at_caller(&mut self.walk.names) {
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

    /// What is stored in the frame may be read or written by others. Where a convention rules, they do not read what is saved
    /// there of registers that a function gives back; the others have arguments.
    fn frame_is_known(&self, found: &mut Does) {
        let link = self.machine.link.map_or(0, bit);
        found.used |= self.machine.convention.map_or(EVERYTHING, |convention| convention.changed & !link);
        found.writes_frame = true;
    }

    /// The registers that the function may read as they are on entry, and those that it overwrites before it returns.
    fn read_and_overwritten(&self) -> (u64, u64) {
        let cfg = self.cfg;
        let touched = |index: usize| &self.walk.summaries.touched[cfg.blocks[index].get()];
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

/// What the blocks of a function have been found to do.
struct Does {
    /// The registers whose contents on entry are used for more than to be saved and restored.
    used: u64,
    changes: u64,
    writes_frame: bool,
    results: Option<Results>,
}

impl Does {
    /// Takes note of an instruction, given the state in front of it.
    fn see(&mut self, instruction: &Instruction<'_>, state: &mut State, names: &mut Names, word: u8) {
        self.used |= used(instruction, state, names, word);
        for effect in instruction.effects {
            self.writes_frame |= state.may_write_above(effect, names);
        }
    }
}

/// The registers whose contents on entry an instruction uses for more than to save or restore them.
fn used(instruction: &Instruction, state: &mut State, names: &mut Names, word: u8) -> u64 {
    // Nothing in the frame is read through what has nothing to do with it.
    if instruction.reads_unseen && state.may_reach_frame(instruction.reads, names) {
        return EVERYTHING;
    }
    let mut used = 0;
    let mut saved = 0;
    for effect in instruction.effects {
        match *effect {
            // The one operand of the instruction that is this register, and nothing else reads it.
            Effect::Store { to, value: Value::Reg { reg, width }, .. } if width == word => {
                let elsewhere = instruction.effects.iter().filter(|other| *other != effect);
                let others =
                    elsewhere.flat_map(Effect::operands).fold(0, |set, value| set | value.registers());
                if (others | to.registers()) & bit(reg) == 0 && state.is_in_frame(&to, names) {
                    saved |= bit(reg);
                }
            }
            _ => {}
        }
        for operand in effect.operands() {
            let Value::Load { from, width } = operand else { continue };
            let loaded = state.entries_at(&from, width, names);
            let restored = match *effect {
                Effect::Set { dst, width, .. } if width == word => bit(dst),
                _ => 0,
            };
            used |= loaded & !restored;
        }
    }
    used | state.entries_in(instruction.reads & !saved, names)
}

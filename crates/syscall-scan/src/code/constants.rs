//! The branches that constants decide: conditional constant propagation (Wegman and Zadeck 1991) over the whole
//! program, during exploration.
//!
//! Callers' arguments decide branches in a function: the name given to `sysconf`, flags, a null pointer for an optional
//! argument. The known contents of registers and frame words ([`Facts`]) are therefore propagated from run to run: into
//! callees as arguments, and past calls as far as calls preserve them. A path that no known constant leads to is not
//! explored until other facts arrive. Code that is entered other than by a modelled call or jump (its address is taken,
//! it is looked up by name, the unwinder jumps there) begins without facts. Facts only become weaker, so that in the
//! end they hold for every path to a place.
//!
//! The assumptions about compiled code are the same as in [`crate::flow`]: calls preserve the registers that the ABI
//! preserves, and other functions write to a frame only above an escaped address. Addresses are not numbers: an address
//! in a position-independent object is only known to differ from 0.

pub(super) mod places;

use std::sync::Arc;

use kisa::Effect;

use self::places::Behind;
use super::known::Facts;
use super::reachable::Code;
use super::run::{Exit, ExitId, ExitKind, Returns, RunId};
use super::walk::RunWalk;
use crate::image::Addr;

impl<'a> Code<'a> {
    /// Discards all facts after exploration.
    pub fn forget_constants(&mut self) {
        self.constants = None;
    }

    /// Returns whether constants decide a computed jump.
    pub fn is_decided(&self, jump: ExitId) -> bool {
        self.constants.as_ref().is_some_and(|constants| constants.decided.contains(&jump))
    }

    /// Returns whether a function may be called with an argument for which `holds` is true, as far as is known so far.
    pub(super) fn may_be_called_with(
        &self,
        function: Addr,
        index: usize,
        holds: impl Fn(u64) -> bool,
    ) -> bool {
        let Some(constants) = &self.constants else { return self.entry(function).is_some() };
        // A caller that is found later brings its own arguments.
        let run = self.marks.run_at(function);
        let Some(start) = run.and_then(|run| constants.start(run)) else { return false };
        let in_registers = !constants.convention.passes_on_stack;
        let register = constants.convention.arguments.get(index).filter(|_| in_registers);
        let numbers = register.and_then(|&register| start.known.numbers_in(register));
        numbers.is_none_or(|numbers| numbers.iter().any(holds))
    }

    /// Makes the beginning of a run reachable from anywhere.
    pub(super) fn arrive_from_anywhere(&mut self, run: RunId) {
        if let Some(constants) = &mut self.constants {
            let nothing = Arc::clone(&constants.nothing);
            constants.arrive(run, &nothing);
        }
    }

    /// Propagates an exit's facts to the run at one of its successors.
    pub(super) fn arrive_from(&mut self, exit: ExitId, run: RunId) {
        let Exit { next, successors, .. } = self.exit(exit);
        let (next, is_two_ways) =
            (*next, successors.first() != Some(next) || successors.get(1) != Some(next));
        let callee = match self.exit(exit).kind {
            ExitKind::Call(callee) => Some(Some(callee)),
            ExitKind::IndirectCall => Some(None),
            _ => None,
        };
        let Some(constants) = &mut self.constants else { return };
        let Some(behind) = constants.behind(exit) else {
            let nothing = Arc::clone(&constants.nothing);
            return constants.arrive(run, &nothing);
        };
        match callee {
            None => {
                let mut known = Arc::clone(&behind.known);
                if let Some(learnt) = behind.learnt.as_ref().filter(|_| is_two_ways) {
                    Arc::make_mut(&mut known).learn(learnt, self.marks.run(run).start != next);
                }
                constants.arrive(run, &known);
            }
            Some(callee) => {
                let mut behind = behind.known.behind_call(constants.convention);
                // At the second return, the frame is in its state after the first.
                if behind.has_frame() && callee.is_some_and(|callee| self.returns_twice(callee)) {
                    behind.forget_frame();
                }
                if let (true, Some(callee)) = (behind.has_numbers(), callee) {
                    behind.forget(self.written_by_leaf(callee));
                }
                if let Some(constants) = &mut self.constants {
                    let behind = constants.shared(behind);
                    constants.arrive(run, &behind);
                }
            }
        }
    }

    /// Propagates a call's facts into a function.
    pub(super) fn arrive_by_call(&mut self, call: ExitId, callee: RunId) {
        let is_direct = matches!(self.exit(call).kind, ExitKind::Call(_));
        let Some(constants) = &mut self.constants else { return };
        if constants.is_nothing(callee) {
            return;
        }
        let behind = constants.behind(call).filter(|_| is_direct);
        let known = behind.map(|behind| behind.known.in_callee(constants.convention, constants.frame));
        let known = match known {
            Some(known) => constants.shared(known),
            None => Arc::clone(&constants.nothing),
        };
        constants.arrive(callee, &known);
    }

    /// Begins a walk over a run.
    pub(super) fn walk_from(&self, run: RunId) -> Option<RunWalk<'a>> {
        let constants = self.constants.as_ref()?;
        let known = constants.start(run).map_or(&constants.nothing, |start| &start.known);
        Some(RunWalk::new(self.image, Facts::clone(known), constants.convention.stack_pointer))
    }

    /// Records a successor of a conditional branch that is not yet feasible.
    pub(super) fn close(&mut self, branch: ExitId, way: Addr) {
        self.constants.iter_mut().for_each(|constants| {
            constants.closed.insert(branch, way);
        });
    }

    /// Returns the targets of a computed jump, if they are constants.
    pub(super) fn constant_targets(&self, walk: &RunWalk, effects: &[Effect]) -> Option<Vec<Addr>> {
        let targets = walk.targets(effects)?;
        targets.iter().all(|&target| self.image.is_code(target)).then_some(targets)
    }

    /// Records that constants decide a jump.
    pub(super) fn decide(&mut self, jump: ExitId) {
        self.constants.iter_mut().for_each(|constants| {
            constants.decided.insert(jump);
        });
    }

    /// Records the facts at the end of a run.
    pub(super) fn leave_knowing(&mut self, exit: ExitId, walk: Option<RunWalk<'_>>, effects: &[Effect]) {
        let Some(mut walk) = walk else { return };
        self.open_more(exit, &walk, effects);
        let is_call = matches!(self.exit(exit).kind, ExitKind::Call(_) | ExitKind::IndirectCall);
        let learnt = walk.learnt(effects);
        if !is_call {
            walk.apply(effects);
        }
        let is_tail_call = !is_call && self.leaves_function(exit);
        let Some(constants) = &mut self.constants else { return };
        match is_call {
            true => {}
            false if is_tail_call => walk.known.enter_by_jump(constants.convention),
            false => walk.known.keep_from_caller(),
        }
        let index = exit.0 as usize;
        if constants.exits.len() <= index {
            constants.exits.resize_with(index + 1, || None);
        }
        let Some(behind) = &mut constants.exits[index] else {
            // Successors are visited later and read the facts then.
            let known = constants.shared(walk.known);
            constants.exits[index] = Some(Behind { known, learnt });
            return;
        };
        let learns_less = behind.learnt.is_some() && behind.learnt != learnt;
        if learns_less {
            behind.learnt = None;
        }
        if learns_less || !behind.known.covers(&walk.known) {
            Arc::make_mut(&mut behind.known).join(&walk.known, false);
            self.pass_on(exit);
        }
    }

    /// Returns whether an exit is a jump to another function.
    fn leaves_function(&self, exit: ExitId) -> bool {
        let Exit { at, kind, successors, .. } = self.exit(exit);
        let &[target] = &successors[..] else { return false };
        let own = self.image.extent_around(*at);
        let is_elsewhere =
            own.map_or(self.entry(target).is_some(), |own| !(own.start..own.end).contains(&target));
        *kind == ExitKind::Jump && is_elsewhere
    }

    /// Propagates changed facts after an exit.
    fn pass_on(&mut self, exit: ExitId) {
        if let ExitKind::Call(callee) = self.exit(exit).kind {
            let callee = self.marks.run_from(callee);
            self.arrive_by_call(exit, callee);
        }
        for next in self.exit(exit).successors.clone() {
            let next = self.marks.run_from(next);
            self.arrive_from(exit, next);
        }
    }

    /// Adds the successors of a branch that have become feasible.
    fn open_more(&mut self, exit: ExitId, walk: &RunWalk, effects: &[Effect]) {
        let Some(constants) = &mut self.constants else { return };
        if let Some(&closed) = constants.closed.get(&exit) {
            let is_next = self.exits[exit.0 as usize].next == closed;
            let open = walk.ways(effects);
            if open[usize::from(!is_next)] {
                constants.closed.remove(&exit);
                self.go_also(exit, closed);
            }
        } else if constants.decided.contains(&exit) {
            match self.constant_targets(walk, effects) {
                Some(targets) => drop(self.add_targets(exit, &targets)),
                None => {
                    self.constants.iter_mut().for_each(|constants| {
                        constants.decided.remove(&exit);
                    });
                    self.changes.exit(exit);
                    self.set_returns(exit, Returns::Somehow);
                }
            }
        }
    }

    /// Returns whether facts have changed before any run.
    pub(super) fn is_to_revisit(&self) -> bool {
        self.constants.as_ref().is_some_and(|constants| !constants.changed.is_empty())
    }

    /// Visits the runs with changed facts before them again. Returns whether there are any.
    pub(super) fn revisit(&mut self) -> bool {
        let Some(constants) = &mut self.constants else { return false };
        let mut changed = std::mem::take(&mut constants.changed);
        changed.sort_unstable_by_key(|&run| self.marks.run(run).start);
        for &run in &changed {
            if let Some(Some(start)) = self.constants.as_mut().map(|c| &mut c.starts[run.get()]) {
                start.is_changed = false;
                start.visits = start.visits.saturating_add(1);
            }
            self.walk_again(run);
        }
        !changed.is_empty()
    }

    fn walk_again(&mut self, run: RunId) {
        let Some(mut walk) = self.walk_from(run) else { return };
        let mut effects = Vec::new();
        let mut at = self.marks.run(run).start;
        loop {
            effects.clear();
            let length = self.length(at);
            if length.is_some() {
                self.effects(at, &mut effects);
            }
            if let Some(exit) = self.exit_at(at) {
                return self.leave_knowing(exit, Some(walk), &effects);
            }
            let Some(length) = length else { return };
            walk.apply(&effects);
            at = at.plus(length);
        }
    }
}

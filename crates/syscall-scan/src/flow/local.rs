//! Facts from the straight-line code before an exit: most callers pass constants that they load just before the call,
//! and need no analysis of the whole function.

use std::rc::Rc;

use kisa::{Effect, Reg};

use super::{Flows, State};
use crate::code::ExitId;
use crate::values::{Atom, ValueSet};

impl Flows<'_> {
    /// Returns the state after an exit, including its own effects, as determined by the last run that ends there.
    /// Places in the frame are relative to the stack pointer at the start of the run, and everything earlier is
    /// unknown. Also returns whether the values that the run stored in the frame are still there. `None` if
    /// [`Code::last_run`] finds no run.
    ///
    /// [`Code::last_run`]: crate::code::Code::last_run
    pub fn after_run(&mut self, exit: ExitId) -> Option<(State, bool)> {
        let mut at = self.code.last_run(exit)?;
        let end = self.code.exit(exit).at;
        let stack_pointer = self.convention.stack_pointer;
        let mut state = State::nothing_known(self.domain.registers);
        state.set_register(stack_pointer, ValueSet::One(Atom::of(self.domain.frame)));
        let mut keeps_frame = true;
        let mut effects = Vec::new();
        while at <= end {
            effects.clear();
            self.code.effects(at, &mut effects);
            let is_known =
                state.register(stack_pointer).single().is_some_and(|top| top.origin == self.domain.frame);
            let keeps = |effect| keeps_frame_alone(effect, stack_pointer, is_known);
            keeps_frame &= effects.iter().all(keeps);
            // Any other register may point to the same place.
            state.loaded = Rc::default();
            if at == end && state.is_split() {
                self.arrive(&mut state, &effects);
            }
            at = self.instruction(&mut state, at, keeps_frame)?.0;
        }
        state.skipped();
        Some((state, keeps_frame))
    }
}

/// Returns whether an effect writes to the frame only relative to the stack pointer, which has to be known.
fn keeps_frame_alone(effect: &Effect, stack_pointer: Reg, is_known: bool) -> bool {
    match effect {
        Effect::Store { to, .. } => {
            to.index.is_none() && to.base.is_none_or(|base| base == stack_pointer && is_known)
        }
        Effect::ClobberMemory | Effect::ClobberRange(_) | Effect::SystemCall { .. } => false,
        _ => true,
    }
}

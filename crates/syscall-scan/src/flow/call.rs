//! Calls: what is left of a state when the callee has returned.

use kcfg::isa::Effect;

use super::step::Step;
use super::{Flows, State};
use crate::code::ExitKind;
use crate::image::Addr;

/// The most instructions that a callee may have to be followed rather than assumed about.
const MAX_LEAF: usize = 8;

impl Flows<'_> {
    /// Applies a call: the callee itself if it is a few straight instructions (which is how
    /// position-independent code reads the program counter), what the ABI says otherwise.
    pub(super) fn call(
        &mut self,
        state: &mut State,
        at: Addr,
        effects: &[Effect],
        callee: Option<Addr>,
        trust_frame: bool,
    ) {
        let stack_pointer = self.convention.stack_pointer;
        let before = state.register(stack_pointer).clone();
        self.apply(state, at, effects, trust_frame);
        if let Some(leaf) = callee.and_then(|callee| self.leaf(callee)) {
            for (at, effects) in leaf {
                let image = self.code.image;
                let domain = &mut self.domain;
                // The return address was pushed a moment ago.
                let mut step = Step::new(image, domain, state, at, stack_pointer, true);
                effects.iter().for_each(|effect| step.apply(effect));
            }
            return;
        }
        for (number, value) in state.registers.iter().enumerate() {
            if number != usize::from(stack_pointer.0) {
                state.frame.expose_value(value, &self.domain);
            }
        }
        state.frame.expose_contents(&self.domain);
        if let Some(place) = before.single().and_then(|atom| self.domain.place(atom)) {
            state.frame.forget_below(place);
        }
        state.written_by_others(&self.domain);
        // Which callee does not matter to the stack pointer, unless it takes its arguments along.
        let popped = callee.map_or(Some(0), |callee| self.code.popped(callee));
        let image = self.code.image;
        let mut step = Step::new(image, &mut self.domain, state, at, stack_pointer, trust_frame);
        for &reg in self.convention.scratch {
            step.forget(reg);
        }
        step.apply(&Effect::ClobberFlags);
        let after = match popped {
            Some(popped) => before.map(|atom| Some(step.domain.plus(atom, popped.into()))),
            None => crate::values::Value::Any,
        };
        state.set_register(stack_pointer, after);
    }

    /// The effects of a function that is a few straight instructions and a return.
    fn leaf(&self, callee: Addr) -> Option<Vec<(Addr, Vec<Effect>)>> {
        let mut at = callee;
        let mut leaf = Vec::new();
        while leaf.len() < MAX_LEAF {
            let mut effects = Vec::new();
            self.code.isa.effects(self.code.image.bytes(at), at.0, &mut effects);
            if matches!(effects.first(), Some(Effect::SystemCall { .. })) {
                return None;
            }
            leaf.push((at, effects));
            if let Some(exit) = self.code.exit_at(at) {
                let returns = self.code.exit(exit).kind == ExitKind::Return;
                return returns.then_some(leaf);
            }
            at = at.plus(self.code.length(at)?);
        }
        None
    }
}

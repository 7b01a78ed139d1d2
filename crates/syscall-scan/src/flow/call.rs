//! Calls: what is left of a state when the callee has returned.

use std::rc::Rc;

use kcfg::isa::Effect;

use super::step::Step;
use super::{Flows, State};
use crate::code::StraightInstructions;
use crate::image::Addr;
use crate::values::Value;

impl Flows<'_> {
    /// Applies a call: the callee itself if it is a few straight instructions (which is how
    /// position-independent code reads the program counter), what the ABI says otherwise.
    pub(super) fn call(
        &mut self,
        state: &mut State,
        (at, reads, effects): (Addr, u64, &[Effect]),
        callee: Option<Addr>,
        trust_frame: bool,
    ) {
        let stack_pointer = self.convention.stack_pointer;
        let before = state.register(stack_pointer).clone();
        self.apply(state, at, effects, reads, trust_frame);
        if let Some(leaf) = callee.and_then(|callee| self.leaf(callee)) {
            for (at, effects) in leaf.iter() {
                let image = self.code.image;
                let domain = &mut self.domain;
                // The return address was pushed a moment ago.
                let mut step = Step::new(image, domain, state, *at, stack_pointer, true);
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
        if callee.is_some_and(|callee| self.returns_twice(callee)) {
            state.frame.forget_all(&self.domain);
        }
        let kept = callee.map_or(0, |callee| self.kept_by_gate(callee));
        // Which callee does not matter to the stack pointer, unless it takes its arguments along.
        let popped = callee.map_or(Some(0), |callee| self.code.popped(callee));
        let image = self.code.image;
        let mut step = Step::new(image, &mut self.domain, state, at, stack_pointer, trust_frame);
        let lost = self.convention.scratch.iter().filter(|reg| kept >> reg.0 & 1 == 0);
        for &reg in lost {
            // Nobody asks what is left in the others, which have a name if they are read all the same.
            match reg == self.convention.result {
                true => step.forget(reg),
                false => step.state.set_register(reg, Value::Any),
            }
        }
        step.apply(&Effect::ClobberFlags);
        let after = match popped {
            Some(popped) => before.map(|atom| Some(step.domain.plus(atom, popped.into()))),
            None => Value::Any,
        };
        state.set_register(stack_pointer, after);
    }

    /// See [`Code::returns_twice`].
    fn returns_twice(&mut self, callee: Addr) -> bool {
        if let Some(&known) = self.returns_twice.get(&callee) {
            return known;
        }
        let found = self.code.returns_twice(callee);
        self.returns_twice.insert(callee, found);
        found
    }

    /// The registers, as bits, that a function leaves alone which is a few straight instructions around a system
    /// call. Compilers know of such functions of the C library (`__libc_do_syscall` of Thumb code) what they change.
    fn kept_by_gate(&self, callee: Addr) -> u64 {
        if self.convention.link.is_none() {
            return 0; // They are no functions there.
        }
        let gate = self.code.straight_instructions(callee).unwrap_or_default();
        let effects = || gate.iter().flat_map(|(_, effects)| effects);
        if !effects().any(|effect| matches!(effect, Effect::SystemCall { .. })) {
            return 0;
        }
        effects().fold(u64::MAX, |kept, effect| kept & !effect.registers_written())
    }

    /// The effects of a function that is a few straight instructions and a return.
    fn leaf(&mut self, callee: Addr) -> Option<Rc<StraightInstructions>> {
        if let Some(known) = self.leaves.get(&callee) {
            return known.clone();
        }
        let found = self.code.straight_instructions(callee);
        let found = found.filter(|leaf| self.is_leaf(callee, leaf)).map(Rc::new);
        self.leaves.insert(callee, found.clone());
        found
    }

    fn is_leaf(&mut self, callee: Addr, instructions: &[(Addr, Vec<Effect>)]) -> bool {
        let any = |is: fn(&Effect) -> bool| instructions.iter().flat_map(|(_, effects)| effects).any(is);
        let suitable = !any(|effect| matches!(effect, Effect::SystemCall { .. } | Effect::OnlyIf(_)));
        // What it stores may be the way back to its caller.
        suitable && !(any(|effect| matches!(effect, Effect::Store { .. })) && self.returns_twice(callee))
    }
}

//! Calls: the state after the callee returns.

use std::rc::Rc;

use kflow::{Transfer, apply};
use kisa::Effect;

use super::Flows;
use super::callee::Callee;
use super::state::State;
use super::step::Step;
use crate::image::Addr;
use crate::values::ValueSet;

impl Flows<'_> {
    /// Applies a call: the callee's own instructions if they are a few straight-line ones (position-independent code
    /// reads the program counter in this way), the rules of the ABI otherwise.
    pub(super) fn call(
        &mut self,
        state: &mut State,
        (at, effects): (Addr, &[Effect]),
        callee: Option<Addr>,
        trust_frame: bool,
    ) {
        let stack_pointer = self.convention.stack_pointer;
        let before = state.register(stack_pointer).clone();
        self.apply(state, at, effects, trust_frame);
        let (kept, returns_twice) = match callee.map(|callee| self.callee(callee)) {
            Some(Callee::Leaf(leaf)) => {
                for (at, effects) in leaf.iter() {
                    let image = self.code.image;
                    let domain = &mut self.domain;
                    // The return address has just been pushed.
                    let mut step = Step::new(image, domain, state, *at, stack_pointer, true);
                    effects.iter().for_each(|effect| apply(&mut step, effect));
                }
                return;
            }
            Some(Callee::Function { kept, returns_twice }) => (kept, returns_twice),
            None => (0, false),
        };
        state.expose_registers(stack_pointer, &self.domain);
        state.frame.expose_contents(&self.domain);
        if let Some(place) = before.single().and_then(|atom| self.domain.place(atom)) {
            state.frame.forget_below(place);
        }
        state.written_by_others(&self.domain);
        if returns_twice {
            state.frame.forget_all(&self.domain);
        }
        // The stack pointer does not depend on the callee, unless the callee pops its arguments.
        let popped = callee.map_or(Some(0), |callee| self.code.popped(callee));
        let image = self.code.image;
        let mut step = Step::new(image, &mut self.domain, state, at, stack_pointer, trust_frame);
        for reg in self.convention.clobbered().filter(|reg| kept >> reg.0 & 1 == 0) {
            // Nothing reads the leftovers in other registers, which get a value id if something does.
            match reg == self.convention.results[0] {
                true => step.clobber(reg),
                false => step.state.set_register(reg, ValueSet::Any),
            }
        }
        step.clobber_flags();
        let after = match popped {
            Some(popped) => before.map(|atom| Some(step.domain.plus(atom, popped.into()))),
            None => ValueSet::Any,
        };
        state.set_register(stack_pointer, after);
    }

    /// Returns the summary of a function.
    fn callee(&mut self, entry: Addr) -> Callee {
        if let Some(known) = self.callees.get(&entry) {
            return known.clone();
        }
        let straight = self.code.straight_instructions(entry);
        let known = match straight.filter(|instructions| self.is_leaf(entry, instructions)) {
            Some(leaf) => Callee::Leaf(Rc::new(leaf)),
            None => {
                let returns_twice = self.code.returns_twice(entry);
                Callee::Function { kept: self.kept_by_gate(entry), returns_twice }
            }
        };
        self.callees.insert(entry, known.clone());
        known
    }

    /// Returns the registers, as bits, that a function of a few straight-line instructions around a system call
    /// preserves. Compilers rely on the registers that such functions of the C library preserve (`__libc_do_syscall` of
    /// Thumb code).
    fn kept_by_gate(&self, callee: Addr) -> u64 {
        if self.convention.link_register.is_none() {
            return 0; // Not functions on this machine.
        }
        let gate = self.code.straight_instructions(callee).unwrap_or_default();
        let effects = || gate.iter().flat_map(|(_, effects)| effects);
        if !effects().any(|effect| matches!(effect, Effect::SystemCall { .. })) {
            return 0;
        }
        effects().fold(u64::MAX, |kept, effect| kept & !effect.registers_written())
    }

    fn is_leaf(&self, callee: Addr, instructions: &[(Addr, Vec<Effect>)]) -> bool {
        let any = |is: fn(&Effect) -> bool| instructions.iter().flat_map(|(_, effects)| effects).any(is);
        let suitable = !any(|effect| matches!(effect, Effect::SystemCall { .. } | Effect::OnlyIf(_)));
        // It may store the return address to its caller.
        suitable && !(any(|effect| matches!(effect, Effect::Store { .. })) && self.code.returns_twice(callee))
    }
}

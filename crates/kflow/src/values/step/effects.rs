//! The meaning of each part of the language of effects.

use kisa::{Address, BinaryOp, Condition, Reg, TEMPORARY, Value, low_bytes, low_mask, sign_extend};

use super::Step;
use crate::Transfer;
use crate::values::names::{Term, TermSet};
use crate::values::ranges::{Comparison, Span};
use crate::values::set::Element;
use crate::values::state::Partial;

impl Transfer for Step<'_> {
    type Known = TermSet;

    fn operand(&mut self, operand: Value) -> TermSet {
        let value = match operand {
            Value::Const(number) => TermSet::number(number & self.names.mask),
            Value::Symbol { symbol, addend } => TermSet::One(self.names.symbol(symbol, addend)),
            Value::Reg { reg, width } => {
                if let Some(partial) = &self.state.partial
                    && (partial.reg, partial.width) == (reg, width)
                {
                    return partial.value.clone();
                }
                let value = self.read(reg);
                self.low(value, width)
            }
            Value::Load { from, width } => self.load(&from, width),
            Value::Address(address) => self.address(&address),
            Value::Unknown => TermSet::Any,
        };
        // Branches may have left only one number.
        value.map(|term| match self.range(term) {
            Span { low, high, .. } if low == high => Some(Term::number(low)),
            _ => Some(term),
        })
    }

    fn sign_extended(&mut self, value: TermSet, from: u8, width: u8) -> TermSet {
        let extended = value.map(|term| match term.as_number() {
            Some(number) => Some(Term::number(low_bytes(sign_extend(number, from), width) & self.names.mask)),
            None => (self.range(term).high <= low_mask(from) / 2).then_some(term),
        });
        if extended.is_any() {
            self.lose(&value);
        }
        extended
    }

    fn write(&mut self, dst: Reg, value: TermSet, width: u8) {
        if self.maybe {
            return self.write_maybe(dst, value, width);
        }
        let mut value = self.low(value, width);
        if value.is_any() && width < self.names.word {
            let made = self.make(dst.0);
            self.state.ranges.limit(made, Span::new(0, low_mask(width)), self.names);
            value = TermSet::One(made);
        }
        // Every machine here zero-extends writes to the low 4 bytes.
        if width >= 4 {
            return self.state.set_register(dst, value);
        }
        let keep = !low_mask(width) & self.names.mask;
        let old = self.state.register(dst).clone();
        let whole =
            old.zip(&value, |old, new| Some(Term::number(old.as_number()? & keep | new.as_number()?)));
        if whole.is_any() {
            self.lose(&old);
            self.lose(&value);
        }
        self.state.set_register(dst, whole);
        self.state.partial = Some(Partial { reg: dst, width, value });
    }

    fn write_maybe(&mut self, dst: Reg, value: TermSet, width: u8) {
        let old = self.state.register(dst).clone();
        let (low_old, value) = (self.low(old.clone(), width), self.low(value, width));
        let joined = low_old.join(&value);
        if width < 4 || joined.is_any() || low_old != old {
            self.lose(&old);
            self.lose(&value);
            return self.state.set_register(dst, TermSet::Any);
        }
        self.state.set_register(dst, joined);
    }

    fn binary(&mut self, op: BinaryOp, dst: Reg, operands: (Value, Value), width: u8) {
        let left = self.operand(operands.0);
        let right = self.operand(operands.1);
        let result = self.computed(op, dst, (left, right), width);
        self.write(dst, result, width);
    }

    fn clobber(&mut self, reg: Reg) {
        let old = self.state.register(reg).clone();
        self.lose(&old);
        self.state.set_register(reg, TermSet::Any);
    }

    fn swap(&mut self, a: Reg, b: Reg) {
        if self.maybe {
            self.clobber(a);
            return self.clobber(b);
        }
        let (left, right) = (self.state.register(a).clone(), self.state.register(b).clone());
        self.state.set_register(a, right);
        self.state.set_register(b, left);
    }

    fn escape(&mut self, value: Value) {
        match value {
            Value::Reg { reg, .. } => {
                let value = self.read(reg);
                self.lose(&value);
            }
            Value::Address(address) => self.lose_address(&address),
            // A frame address in memory escaped when it was stored.
            Value::Const(_) | Value::Symbol { .. } | Value::Load { .. } | Value::Unknown => {}
        }
    }

    fn store(&mut self, to: &Address, value: TermSet, width: u8) {
        self.lose(&value);
        let value = self.low(value, width);
        let Some(place) = self.place(to) else {
            self.lose_address(to);
            return self.state.memory.write_anywhere(self.names);
        };
        self.state.memory.write(&place, Some(width), self.names);
        if !self.maybe && !value.is_any() && width <= self.names.word {
            self.state.memory.note(place, width, value, self.names);
        }
    }

    fn clobber_memory(&mut self, from: Option<&Address>) {
        let place = from.and_then(|from| {
            let place = self.place(from);
            if place.is_none() {
                self.lose_address(from);
            }
            place
        });
        match place {
            Some(place) => {
                self.state.memory.write(&place, None, self.names);
                if !place.is_framed(self.names) {
                    self.state.memory.write_anywhere(self.names);
                }
            }
            // This includes the frame.
            None => {
                self.state.memory.is_exposed = true;
                self.state.memory.write_anywhere(self.names);
            }
        }
    }

    fn compare(&mut self, left: Value, right: Value, width: u8, equality: bool) {
        let (left, right) = (self.operand(left), self.operand(right));
        self.state.compared = (!self.maybe).then_some(Comparison { left, right, width, equality });
    }

    fn clobber_flags(&mut self) {
        self.state.compared = None;
    }

    fn system_call(&mut self, _compat: bool, _number: Option<u32>) {
        // The kernel may read and write memory through any register.
        self.state.memory.is_exposed = true;
        self.state.memory.write_anywhere(self.names);
    }

    fn transfer(&mut self, target: Value) {
        // For callers that read the branch target after the instruction.
        if self.names.link.is_some() {
            let target = self.operand(target);
            self.state.set_register(TEMPORARY, target);
        }
    }

    fn branch(&mut self, _condition: Condition) {}

    fn branch_compared(&mut self, _left: Value, _right: Value, _width: u8, _condition: Condition) {}

    fn only_if(&mut self, _condition: Condition) {
        self.maybe = true;
    }
}

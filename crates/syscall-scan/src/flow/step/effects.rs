//! The meaning of each part of the language of effects.

use kflow::Transfer;
use kflow::values::{Element, Partial, Span};
use kisa::{Address, BinaryOp, Condition, Reg, Value, low_mask};

use super::{Step, constant_address};
use crate::values::{Atom, ValueSet};

impl Transfer for Step<'_> {
    type Known = ValueSet;

    fn operand(&mut self, operand: Value) -> ValueSet {
        if let Some((at, address, made)) = self.domain.address_made {
            if at == self.at && constant_address(operand) == Some(address) {
                return ValueSet::One(Atom::of(made));
            }
        }
        match operand {
            Value::Const(number) => ValueSet::number(number & self.domain.mask),
            Value::Reg { reg, width } => {
                let partial = self.state.partial.as_ref();
                if let Some(partial) = partial.filter(|known| (known.reg, known.width) == (reg, width)) {
                    return partial.value.clone();
                }
                let value = self.read(reg);
                self.low(value, width)
            }
            Value::Load { from, width } => self.load(&from, width),
            Value::Address(address) => self.address_of(&address),
            Value::Symbol { .. } | Value::Unknown => ValueSet::Any,
        }
    }

    fn sign_extended(&mut self, value: ValueSet, from: u8, width: u8) -> ValueSet {
        value.map(|atom| {
            let range = self.state.ranges.get(atom, self.domain);
            self.domain.sign_extend(atom, from, width, range)
        })
    }

    fn set(&mut self, dst: Reg, operand: Value, width: u8) {
        let value = self.operand(operand);
        self.write(dst, value, width);
    }

    fn write(&mut self, dst: Reg, value: ValueSet, width: u8) {
        let value = self.low(value, width);
        if width >= 4 {
            // A 32-bit result is zero-extended on a 64-bit machine.
            let value = match value {
                ValueSet::Any => {
                    let made = self.make(dst.0);
                    self.low(made, width)
                }
                value => value,
            };
            return self.state.set_register(dst, value);
        }
        let keep = !low_mask(width) & self.domain.mask;
        let old = self.state.register(dst).clone();
        let whole =
            old.zip(&value, |old, new| Some(Atom::number(old.as_number()? & keep | new.as_number()?)));
        let whole = if whole == ValueSet::Any { self.make(dst.0) } else { whole };
        self.state.set_register(dst, whole);
        self.state.partial = Some(Partial { reg: dst, width, value });
    }

    fn write_maybe(&mut self, dst: Reg, value: ValueSet, width: u8) {
        let old = self.operand(Value::Reg { reg: dst, width });
        let joined = old.join(&value);
        if joined.is_any() {
            self.state.frame.lose(&old, self.domain);
            self.state.frame.lose(&value, self.domain);
        }
        self.write(dst, joined, width);
    }

    fn binary(&mut self, op: BinaryOp, dst: Reg, (left, right): (Value, Value), width: u8) {
        if op == BinaryOp::Add {
            self.unite_index(left, right);
            self.unite_index(right, left);
        }
        let (left, right) = (self.operand(left), self.operand(right));
        let mut result = match op {
            BinaryOp::Add => left.sum(&right, self.domain.mask),
            BinaryOp::Sub => self.difference(&left, &right),
            _ => left.zip(&right, |a, b| {
                let number = op.compute(a.as_number()?, b.as_number()?, width)?;
                Some(Atom::number(number & self.domain.mask))
            }),
        };
        let mut range = None;
        if let (ValueSet::Any, Some(mask)) = (&result, right.as_number()) {
            match op {
                BinaryOp::And if dst == self.stack_pointer => {
                    result = self.align(&left);
                }
                BinaryOp::And if matches!(mask, 0xff | 0xffff | 0xffff_ffff) => {
                    result = self.low(left.clone(), (mask.count_ones() / 8) as u8);
                }
                BinaryOp::And if mask != 0 => {
                    range = Some(Span { low: 0, high: mask, step: 1 << mask.trailing_zeros() });
                }
                BinaryOp::Or if mask == 1 => result = self.make_odd(&left),
                BinaryOp::Shl | BinaryOp::Shr if mask < 64 => {
                    range = self.shifted(op, &left, mask, width);
                }
                _ => {}
            }
        }
        if result == ValueSet::Any {
            if dst == self.stack_pointer {
                result = self.align(&left);
            } else {
                // The result may still be an address in the frame.
                self.state.frame.lose(&left, self.domain);
                self.state.frame.lose(&right, self.domain);
            }
        }
        self.write(dst, result, width);
        if let (Some(range), true) = (range, width >= 4) {
            if let Some(atom) = self.state.register(dst).single() {
                self.state.ranges.limit(atom, range, self.domain);
            }
        }
    }

    fn clobber(&mut self, reg: Reg) {
        let value = self.make(reg.0);
        self.state.set_register(reg, value);
    }

    fn swap(&mut self, a: Reg, b: Reg) {
        let (left, right) = (self.state.register(a).clone(), self.state.register(b).clone());
        self.state.set_register(a, right);
        self.state.set_register(b, left);
    }

    /// Records that a register becomes part of an unknown value. Frame cells need no record: their contents stay known.
    fn escape(&mut self, value: Value) {
        if let Value::Reg { reg, .. } = value
            && reg != self.stack_pointer
        {
            let value = self.state.register(reg).clone();
            self.state.frame.lose(&value, self.domain);
        }
    }

    fn store(&mut self, to: &Address, value: ValueSet, width: u8) {
        self.store_to(to, value, width);
    }

    fn clobber_memory(&mut self, from: Option<&Address>) {
        self.clobber_from(from);
    }

    fn compare(&mut self, left: Value, right: Value, width: u8, equality: bool) {
        let compared = self.comparison(left, right, width, equality);
        self.set_flags(compared);
    }

    fn clobber_flags(&mut self) {
        self.set_flags(None);
    }

    /// Exposes the arguments: the kernel may write to the memory that they point to.
    fn system_call(&mut self, _compat: bool, _number: Option<u32>) {
        self.state.expose_registers(self.stack_pointer, self.domain);
    }

    fn transfer(&mut self, target: Value) {
        self.target = Some(self.operand(target));
    }

    fn branch(&mut self, condition: Condition) {
        self.branch = self.state.compared.clone().map(|compared| (compared, condition));
    }

    fn branch_compared(&mut self, left: Value, right: Value, width: u8, condition: Condition) {
        let compared = self.comparison(left, right, width, false);
        self.branch = compared.map(|compared| (compared, condition));
    }

    fn only_if(&mut self, condition: Condition) {
        self.state.split_on(condition, self.domain);
    }
}

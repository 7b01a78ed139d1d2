//! Arithmetic: results and flags.

use iced_x86::OpKind;

use super::Model;
use crate::semantics::{Address, BinaryOp, Effect, Reg, Value, low_bytes};

impl Model<'_> {
    pub(super) fn binary(&mut self, op: BinaryOp) {
        let right = self.operand(1);
        self.arithmetic(op, right);
        self.out.push(Effect::ClobberFlags);
    }

    /// Applies a shift. The processor takes the count modulo 32, or 64 for operands of 8 bytes (Intel SDM, volume 2,
    /// SAL/SHR). The language lacks this operation, so a shift by a register has no model.
    pub(super) fn shift(&mut self, op: BinaryOp) {
        let count_mask = if self.width(0) == 8 { 63 } else { 31 };
        match self.operand(1) {
            Value::Const(count) => self.arithmetic(op, Value::Const(count & count_mask)),
            _ => {
                self.escape();
                self.assign(0, Value::Unknown);
            }
        }
        self.out.push(Effect::ClobberFlags);
    }

    pub(super) fn step(&mut self, op: BinaryOp) {
        self.arithmetic(op, Value::Const(1));
        self.out.push(Effect::ClobberFlags);
    }

    /// `destination = destination op right`, without the flags.
    pub(super) fn arithmetic(&mut self, op: BinaryOp, right: Value) {
        let width = self.width(0);
        match (self.destination(), self.instruction.op0_kind()) {
            (Some(dst), _) => {
                let left = self.operand(0);
                self.out.push(Effect::Binary { op, dst, left, right, width });
            }
            (None, OpKind::Memory) => {
                self.escape();
                self.store(Value::Unknown, width);
            }
            _ => self.forget(),
        }
    }

    /// Applies an operation whose result does not depend on its operands (`xor %eax,%eax`).
    fn constant(&mut self, value: u64) {
        let width = self.width(0);
        self.assign(0, Value::Const(low_bytes(value, width)));
        self.out.push(Effect::ClobberFlags);
    }

    pub(super) fn same_register(&self) -> bool {
        self.instruction.op0_kind() == OpKind::Register
            && self.instruction.op1_kind() == OpKind::Register
            && self.instruction.op0_register() == self.instruction.op1_register()
    }

    pub(super) fn sub(&mut self) {
        if self.same_register() {
            return self.constant(0);
        }
        let (left, right, width) = (self.operand(0), self.operand(1), self.width(0));
        self.out.push(Effect::Compare { left, right, width });
        self.arithmetic(BinaryOp::Sub, right);
    }

    /// `and`, `or` and `xor` set the flags like a comparison of their result with 0.
    fn bitwise(&mut self, op: BinaryOp) {
        let right = self.operand(1);
        self.arithmetic(op, right);
        let width = self.width(0);
        self.out.push(match self.destination() {
            Some(reg) => {
                let left = Value::Reg { reg, width };
                Effect::Compare { left, right: Value::Const(0), width }
            }
            None => Effect::ClobberFlags,
        });
    }

    pub(super) fn xor(&mut self) {
        if self.same_register() { self.constant(0) } else { self.bitwise(BinaryOp::Xor) }
    }

    pub(super) fn and(&mut self) {
        match self.operand(1) {
            // `andl $0, …` is the shortest way to store 0.
            Value::Const(0) => self.constant(0),
            _ => self.bitwise(BinaryOp::And),
        }
    }

    pub(super) fn or(&mut self) {
        match self.operand(1) {
            Value::Const(ones) if ones == low_bytes(u64::MAX, self.width(0)) => self.constant(ones),
            _ => self.bitwise(BinaryOp::Or),
        }
    }

    /// `adc` and `sbb`: adds `step` if the carry is set.
    pub(super) fn with_carry(&mut self, op: BinaryOp, step: i64) {
        let (right, width) = (self.operand(1), self.width(0));
        self.arithmetic(op, right);
        if let (Some(dst), true) = (self.destination(), width >= 4) {
            let next = Address { base: Some(dst), displacement: step, ..Address::default() };
            self.out.push(Effect::MaybeSet { dst, value: Value::Address(next), width });
        } else {
            self.forget();
        }
        self.out.push(Effect::ClobberFlags);
    }

    /// `sbb %eax,%eax` spreads the carry over the register: 0 or all ones.
    pub(super) fn subtract_with_borrow(&mut self) {
        match (self.destination(), self.same_register()) {
            (Some(dst), true) => {
                self.choose(dst, 0, u64::MAX, self.width(0));
                self.out.push(Effect::ClobberFlags);
            }
            _ => self.with_carry(BinaryOp::Sub, -1),
        }
    }

    /// Sets the destination to one of two numbers.
    pub(super) fn choose(&mut self, dst: Reg, one: u64, other: u64, width: u8) {
        let number = |number| Value::Const(low_bytes(number, width));
        self.out.push(Effect::Set { dst, value: number(one), width });
        self.out.push(Effect::MaybeSet { dst, value: number(other), width });
    }

    /// Whether `sar $31,%eax` leaves only the sign: 0 or all ones.
    pub(super) fn spreads_sign(&self) -> bool {
        let bits = 8 * u64::from(self.width(0));
        self.destination().is_some() && self.operand(1) == Value::Const(bits - 1)
    }

    pub(super) fn spread_sign(&mut self) {
        if let Some(dst) = self.destination() {
            self.choose(dst, 0, u64::MAX, self.width(0));
        }
        self.out.push(Effect::ClobberFlags);
    }

    /// `neg` subtracts from 0, and sets the flags as that subtraction does.
    pub(super) fn negate(&mut self) {
        let (value, width) = (self.operand(0), self.width(0));
        let zero = Value::Const(0);
        match self.destination() {
            Some(dst) => {
                self.out.push(Effect::Compare { left: zero, right: value, width });
                self.out.push(Effect::Binary { op: BinaryOp::Sub, dst, left: zero, right: value, width });
            }
            None => self.forget(),
        }
    }
}

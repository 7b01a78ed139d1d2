//! The effect of an instruction's effects on a state of any kind.
//!
//! [`apply`] is the only place that distinguishes effects for evaluation. A new effect therefore needs a meaning in
//! every analysis before anything compiles.

use kisa::{Address, BinaryOp, Condition, Effect, Reg, Value};

/// A state that effects are applied to. The knowledge of an analysis about a number is its [`Transfer::Known`].
pub trait Transfer {
    /// The knowledge about a number.
    type Known;

    /// Evaluates an operand.
    fn operand(&mut self, operand: Value) -> Self::Known;

    /// Returns the low `from` bytes of a value, sign-extended to `width` bytes.
    fn sign_extended(&mut self, value: Self::Known, from: u8, width: u8) -> Self::Known;

    /// Writes the low `width` bytes of a register.
    fn write(&mut self, dst: Reg, value: Self::Known, width: u8);

    /// Writes them, or keeps them as they are.
    fn write_maybe(&mut self, dst: Reg, value: Self::Known, width: u8);

    /// Writes the result of an operation to the low `width` bytes of a register.
    fn binary(&mut self, op: BinaryOp, dst: Reg, operands: (Value, Value), width: u8);

    /// Makes a register unknown.
    fn clobber(&mut self, reg: Reg);

    /// Exchanges two registers.
    fn swap(&mut self, a: Reg, b: Reg);

    /// Reads an operand without a defined use, see [`Effect::Escape`].
    fn escape(&mut self, value: Value);

    /// Stores the low `width` bytes of a value in memory.
    fn store(&mut self, to: &Address, value: Self::Known, width: u8);

    /// Changes memory: an unknown number of bytes from an address on, or anywhere.
    fn clobber_memory(&mut self, from: Option<&Address>);

    /// Sets the flags to those of a comparison. With `equality`, they only tell whether the operands are equal.
    fn compare(&mut self, left: Value, right: Value, width: u8, equality: bool);

    /// Makes the flags unknown.
    fn clobber_flags(&mut self);

    /// Enters the kernel, see [`Effect::SystemCall`].
    fn system_call(&mut self, compat: bool, number: Option<u32>);

    /// Makes the instruction a computed branch to this target.
    fn transfer(&mut self, target: Value);

    /// Makes the instruction a branch that is taken if this condition holds for the last comparison.
    fn branch(&mut self, condition: Condition);

    /// Makes the instruction a branch that is taken if this condition holds for two operands.
    fn branch_compared(&mut self, left: Value, right: Value, width: u8, condition: Condition);

    /// Makes the rest of the instruction conditional on the last comparison.
    fn only_if(&mut self, condition: Condition);

    /// Copies an operand to a register, for implementations that need the operand itself.
    fn set(&mut self, dst: Reg, operand: Value, width: u8) {
        let value = self.operand(operand);
        self.write(dst, value, width);
    }
}

/// Applies an effect to a state.
pub fn apply<T: Transfer + ?Sized>(state: &mut T, effect: &Effect) {
    match *effect {
        Effect::Set { dst, value, width } => state.set(dst, value, width),
        Effect::MaybeSet { dst, value, width } => {
            let value = state.operand(value);
            state.write_maybe(dst, value, width);
        }
        Effect::SetSigned { dst, value, from, width } => {
            let value = state.operand(value);
            let value = state.sign_extended(value, from, width);
            state.write(dst, value, width);
        }
        Effect::Binary { op, dst, left, right, width } => state.binary(op, dst, (left, right), width),
        Effect::Store { to, value, width } => {
            let value = state.operand(value);
            state.store(&to, value, width);
        }
        Effect::Compare { left, right, width } => state.compare(left, right, width, false),
        Effect::CompareZero { value, width } => state.compare(value, Value::Const(0), width, true),
        Effect::ClobberFlags => state.clobber_flags(),
        Effect::Clobber(reg) => state.clobber(reg),
        Effect::ClobberMemory => state.clobber_memory(None),
        Effect::ClobberRange(from) => state.clobber_memory(Some(&from)),
        Effect::Swap(a, b) => state.swap(a, b),
        Effect::Escape(value) => state.escape(value),
        Effect::SystemCall { compat, number } => state.system_call(compat, number),
        Effect::Transfer(target) => state.transfer(target),
        Effect::BranchIf(condition) => state.branch(condition),
        Effect::BranchIfCompared { left, right, width, condition } => {
            state.branch_compared(left, right, width, condition);
        }
        Effect::OnlyIf(condition) => state.only_if(condition),
    }
}

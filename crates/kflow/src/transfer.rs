//! What an effect does to a state, for any kind of state.
//!
//! [`apply`] is the only place that distinguishes effects for evaluation. A new effect therefore needs a meaning in
//! every analysis before anything compiles.

use kisa::{Address, BinaryOp, Condition, Effect, Reg, Value};

/// A state that effects are applied to. The knowledge of an analysis about a number is its [`Transfer::Known`].
pub trait Transfer {
    /// What is known of a number.
    type Known;

    /// What an operand is.
    fn operand(&mut self, operand: Value) -> Self::Known;

    /// The low `from` bytes of a value, sign-extended to `width` bytes.
    fn sign_extended(&mut self, value: Self::Known, from: u8, width: u8) -> Self::Known;

    /// The low `width` bytes of a register become this.
    fn write(&mut self, dst: Reg, value: Self::Known, width: u8);

    /// They become this, or stay as they are.
    fn write_maybe(&mut self, dst: Reg, value: Self::Known, width: u8);

    /// The low `width` bytes of a register become the result of an operation.
    fn binary(&mut self, op: BinaryOp, dst: Reg, operands: (Value, Value), width: u8);

    /// A register becomes something else.
    fn clobber(&mut self, reg: Reg);

    /// Two registers exchange their contents.
    fn swap(&mut self, a: Reg, b: Reg);

    /// An operand is read, and it is not told what becomes of it, see [`Effect::Escape`].
    fn escape(&mut self, value: Value);

    /// The low `width` bytes of a value go to memory.
    fn store(&mut self, to: &Address, value: Self::Known, width: u8);

    /// Memory changes: an unknown number of bytes from an address on, or somewhere.
    fn clobber_memory(&mut self, from: Option<&Address>);

    /// The flags become those of a comparison. If it is one for `equality`, they tell no more than whether the two are
    /// equal.
    fn compare(&mut self, left: Value, right: Value, width: u8, equality: bool);

    /// The flags become something else.
    fn clobber_flags(&mut self);

    /// The instruction enters the kernel, see [`Effect::SystemCall`].
    fn system_call(&mut self, compat: bool, number: Option<u32>);

    /// The instruction is a computed branch to this.
    fn transfer(&mut self, target: Value);

    /// The instruction is a branch that is taken if this holds of the last comparison.
    fn branch(&mut self, condition: Condition);

    /// The instruction is a branch that is taken if this holds of two operands.
    fn branch_compared(&mut self, left: Value, right: Value, width: u8, condition: Condition);

    /// All that follows in the instruction happens only if this holds of the last comparison.
    fn only_if(&mut self, condition: Condition);

    /// A register becomes an operand. For who has to look at the operand itself.
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

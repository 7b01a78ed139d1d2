//! What an effect reads and writes. A new effect has to be entered into each of these functions: none has an arm for
//! all others.

use super::{Address, Effect, Reg, Value};

/// Memory that an effect writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// So many bytes there.
    At(Address, u8),
    /// An unknown number of bytes from there on.
    From(Address),
    /// Not known where.
    Any,
}

/// What an effect does to the flags that conditions ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flags {
    /// All are as they were.
    Kept,
    /// Some may be as they were.
    Changed,
    /// None is left as it was.
    Overwritten,
}

fn bit(reg: Reg) -> u64 {
    1 << reg.0
}

impl Address {
    /// The registers that it is computed from, as a set of bits by [`Reg`].
    pub fn registers(&self) -> u64 {
        self.base.map_or(0, bit) | self.index.map_or(0, |(index, _)| bit(index))
    }
}

impl Value {
    /// The registers that it is computed from, as a set of bits by [`Reg`].
    pub fn registers(self) -> u64 {
        match self {
            Value::Reg { reg, .. } => bit(reg),
            Value::Load { from, .. } => from.registers(),
            Value::Address(address) => address.registers(),
            Value::Const(_) | Value::Symbol { .. } | Value::Unknown => 0,
        }
    }
}

impl Effect {
    /// The values that it reads. The addresses that it writes to are not among them.
    pub fn operands(&self) -> impl Iterator<Item = Value> + use<> {
        let (one, other) = match *self {
            Effect::Set { value, .. }
            | Effect::MaybeSet { value, .. }
            | Effect::SetSigned { value, .. }
            | Effect::Store { value, .. }
            | Effect::CompareZero { value, .. }
            | Effect::Transfer(value) => (Some(value), None),
            Effect::Binary { left, right, .. }
            | Effect::Compare { left, right, .. }
            | Effect::BranchIfCompared { left, right, .. } => (Some(left), Some(right)),
            Effect::ClobberFlags
            | Effect::Clobber(_)
            | Effect::ClobberMemory
            | Effect::ClobberRange(_)
            | Effect::Swap(..)
            | Effect::SystemCall { .. }
            | Effect::BranchIf(_)
            | Effect::OnlyIf(_) => (None, None),
        };
        one.into_iter().chain(other)
    }

    /// The registers that it writes, as a set of bits by [`Reg`].
    pub fn registers_written(&self) -> u64 {
        match *self {
            Effect::Set { dst, .. }
            | Effect::MaybeSet { dst, .. }
            | Effect::SetSigned { dst, .. }
            | Effect::Binary { dst, .. }
            | Effect::Clobber(dst) => bit(dst),
            Effect::Swap(a, b) => bit(a) | bit(b),
            Effect::Store { .. }
            | Effect::Compare { .. }
            | Effect::CompareZero { .. }
            | Effect::ClobberFlags
            | Effect::ClobberMemory
            | Effect::ClobberRange(_)
            | Effect::SystemCall { .. }
            | Effect::Transfer(_)
            | Effect::BranchIf(_)
            | Effect::BranchIfCompared { .. }
            | Effect::OnlyIf(_) => 0,
        }
    }

    /// The registers of which it leaves nothing as it was, as a set of bits by [`Reg`]. Not those that it clobbers: an
    /// instruction that the model does not know may write to a part, or on a condition. (What follows
    /// [`Effect::OnlyIf`] may not happen at all.)
    pub fn registers_overwritten(&self) -> u64 {
        match *self {
            // Every machine here zero-extends what it writes into the low 4 bytes.
            Effect::Set { dst, width, .. }
            | Effect::SetSigned { dst, width, .. }
            | Effect::Binary { dst, width, .. } => bit(dst) & if width >= 4 { u64::MAX } else { 0 },
            Effect::Swap(a, b) => bit(a) | bit(b),
            Effect::MaybeSet { .. }
            | Effect::Clobber(_)
            | Effect::Store { .. }
            | Effect::Compare { .. }
            | Effect::CompareZero { .. }
            | Effect::ClobberFlags
            | Effect::ClobberMemory
            | Effect::ClobberRange(_)
            | Effect::SystemCall { .. }
            | Effect::Transfer(_)
            | Effect::BranchIf(_)
            | Effect::BranchIfCompared { .. }
            | Effect::OnlyIf(_) => 0,
        }
    }

    /// Whether it asks for the flags. Instructions also read them where no effect says so
    /// ([`crate::Rewritable::reads_flags`]).
    pub fn reads_flags(&self) -> bool {
        match self {
            Effect::BranchIf(_) | Effect::OnlyIf(_) => true,
            Effect::Set { .. }
            | Effect::MaybeSet { .. }
            | Effect::SetSigned { .. }
            | Effect::Binary { .. }
            | Effect::Store { .. }
            | Effect::Compare { .. }
            | Effect::CompareZero { .. }
            | Effect::ClobberFlags
            | Effect::Clobber(_)
            | Effect::ClobberMemory
            | Effect::ClobberRange(_)
            | Effect::Swap(..)
            | Effect::SystemCall { .. }
            | Effect::Transfer(_)
            | Effect::BranchIfCompared { .. } => false,
        }
    }

    /// What it does to the flags.
    pub fn flags(&self) -> Flags {
        match self {
            Effect::Compare { .. } => Flags::Overwritten,
            // The one leaves the overflow of ARM as it was, the other the carry where an instruction does (`inc`).
            Effect::CompareZero { .. } | Effect::ClobberFlags => Flags::Changed,
            Effect::Set { .. }
            | Effect::MaybeSet { .. }
            | Effect::SetSigned { .. }
            | Effect::Binary { .. }
            | Effect::Store { .. }
            | Effect::Clobber(_)
            | Effect::ClobberMemory
            | Effect::ClobberRange(_)
            | Effect::Swap(..)
            | Effect::SystemCall { .. }
            | Effect::Transfer(_)
            | Effect::BranchIf(_)
            | Effect::BranchIfCompared { .. }
            | Effect::OnlyIf(_) => Flags::Kept,
        }
    }

    /// The memory that it writes.
    pub fn memory_written(&self) -> Option<Memory> {
        match *self {
            Effect::Store { to, width, .. } => Some(Memory::At(to, width)),
            Effect::ClobberRange(to) => Some(Memory::From(to)),
            Effect::ClobberMemory | Effect::SystemCall { .. } => Some(Memory::Any),
            Effect::Set { .. }
            | Effect::MaybeSet { .. }
            | Effect::SetSigned { .. }
            | Effect::Binary { .. }
            | Effect::Compare { .. }
            | Effect::CompareZero { .. }
            | Effect::ClobberFlags
            | Effect::Clobber(_)
            | Effect::Swap(..)
            | Effect::Transfer(_)
            | Effect::BranchIf(_)
            | Effect::BranchIfCompared { .. }
            | Effect::OnlyIf(_) => None,
        }
    }

    /// The memory that its operands are read from: addresses, and how many bytes there.
    pub fn memory_read(&self) -> impl Iterator<Item = (Address, u8)> + use<> {
        self.operands().filter_map(|value| match value {
            Value::Load { from, width } => Some((from, width)),
            Value::Const(_)
            | Value::Symbol { .. }
            | Value::Reg { .. }
            | Value::Address(_)
            | Value::Unknown => None,
        })
    }

    /// Whether it does no more than to change registers and flags: it neither writes to memory, nor enters the kernel,
    /// nor says where control goes or what happens at all. Of an instruction that the model does not know, other
    /// things may be changed as well.
    pub fn only_computes(&self) -> bool {
        match self {
            Effect::Set { .. }
            | Effect::MaybeSet { .. }
            | Effect::SetSigned { .. }
            | Effect::Binary { .. }
            | Effect::Compare { .. }
            | Effect::CompareZero { .. }
            | Effect::ClobberFlags
            | Effect::Clobber(_)
            | Effect::Swap(..) => true,
            Effect::Store { .. }
            | Effect::ClobberMemory
            | Effect::ClobberRange(_)
            | Effect::SystemCall { .. }
            | Effect::Transfer(_)
            | Effect::BranchIf(_)
            | Effect::BranchIfCompared { .. }
            | Effect::OnlyIf(_) => false,
        }
    }
}

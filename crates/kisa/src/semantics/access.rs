//! What an effect reads and writes. No `match` here has a wildcard arm, so that the compiler asks for a new effect in
//! each of these functions.

use super::{Address, Effect, Reg, Value};

/// Memory that an effect writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Memory {
    /// This number of bytes from this address on.
    At(Address, u8),
    /// An unknown number of bytes from this address on.
    From(Address),
    /// At an unknown address.
    Any,
}

/// What an effect does to the flags that conditions are about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flags {
    /// It changes none.
    Kept,
    /// It may change some and keep others.
    Changed,
    /// It writes all.
    Overwritten,
}

fn bit(reg: Reg) -> u64 {
    1 << reg.0
}

/// Tells of the registers (a set of bits by [`Reg`]) of `width` bytes that an instruction reads, where none of its effects,
/// which are those from `start` on, does.
pub(crate) fn let_escape(out: &mut Vec<Effect>, start: usize, read: u64, width: u8) {
    let told = |effect: &Effect| {
        let operands = effect.operands().fold(0, |set, value| set | value.registers());
        let address = match effect.memory_written() {
            Some(Memory::At(to, _) | Memory::From(to)) => to.registers(),
            Some(Memory::Any) | None => 0,
        };
        operands | address
    };
    let read = read & !out[start..].iter().fold(0, |set, effect| set | told(effect));
    if read == 0 {
        return;
    }
    let registers = (0..64).map(Reg).filter(|&reg| read & bit(reg) != 0);
    // Behind the condition on which all of it happens.
    let first = start + usize::from(matches!(out.get(start), Some(Effect::OnlyIf(_))));
    out.splice(first..first, registers.map(|reg| Effect::Escape(Value::Reg { reg, width })));
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
    #[inline]
    pub fn operands(&self) -> impl Iterator<Item = Value> + use<> {
        let (one, other) = match *self {
            Effect::Set { value, .. }
            | Effect::MaybeSet { value, .. }
            | Effect::SetSigned { value, .. }
            | Effect::Store { value, .. }
            | Effect::CompareZero { value, .. }
            | Effect::Escape(value)
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
    #[inline]
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
            | Effect::Escape(_)
            | Effect::SystemCall { .. }
            | Effect::Transfer(_)
            | Effect::BranchIf(_)
            | Effect::BranchIfCompared { .. }
            | Effect::OnlyIf(_) => 0,
        }
    }

    /// The registers that it overwrites as a whole, as a set of bits by [`Reg`]. A clobbered register is not among them: an
    /// instruction that the model does not know may write only a part of it, or only on a condition. (The effects that
    /// follow an [`Effect::OnlyIf`] may not happen at all.)
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
            | Effect::Escape(_)
            | Effect::SystemCall { .. }
            | Effect::Transfer(_)
            | Effect::BranchIf(_)
            | Effect::BranchIfCompared { .. }
            | Effect::OnlyIf(_) => 0,
        }
    }

    /// Whether it reads the flags. Instructions also read them where no effect says so
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
            | Effect::Escape(_)
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
            // `CompareZero` leaves the overflow flag of ARM as it was; `ClobberFlags` the carry, for `inc`.
            Effect::CompareZero { .. } | Effect::ClobberFlags => Flags::Changed,
            Effect::Set { .. }
            | Effect::MaybeSet { .. }
            | Effect::SetSigned { .. }
            | Effect::Binary { .. }
            | Effect::Store { .. }
            | Effect::Clobber(_)
            | Effect::ClobberMemory
            | Effect::ClobberRange(_)
            | Effect::Escape(_)
            | Effect::Swap(..)
            | Effect::SystemCall { .. }
            | Effect::Transfer(_)
            | Effect::BranchIf(_)
            | Effect::BranchIfCompared { .. }
            | Effect::OnlyIf(_) => Flags::Kept,
        }
    }

    /// The memory that it writes.
    #[inline]
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
            | Effect::Escape(_)
            | Effect::Swap(..)
            | Effect::Transfer(_)
            | Effect::BranchIf(_)
            | Effect::BranchIfCompared { .. }
            | Effect::OnlyIf(_) => None,
        }
    }

    /// The memory that its operands are read from: addresses, and how many bytes there.
    #[inline]
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

    /// Whether it changes registers and flags only: it writes no memory, makes no system call, transfers no control, and
    /// makes no other effect conditional. An instruction that the model does not know may change more than its effects
    /// say.
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
            | Effect::Escape(_)
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

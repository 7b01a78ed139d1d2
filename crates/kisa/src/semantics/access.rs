//! The reads and writes of effects. No `match` here has a wildcard arm, so a new effect does not compile until each of
//! these functions handles it.

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

/// The change of the flags that conditions test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flags {
    /// It changes no flags.
    Kept,
    /// It may change some flags and keep others.
    Changed,
    /// It writes all flags.
    Overwritten,
}

fn bit(reg: Reg) -> u64 {
    1 << reg.0
}

/// Adds an [`Effect::Escape`] of `width` bytes for each register in `read`, a set of bits by [`Reg`], that the
/// instruction reads although none of its effects, from `start` on, mentions it.
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
    // After the condition of the whole instruction.
    let first = start + usize::from(matches!(out.get(start), Some(Effect::OnlyIf(_))));
    out.splice(first..first, registers.map(|reg| Effect::Escape(Value::Reg { reg, width })));
}

impl Address {
    /// Returns the registers in the expression, as a set of bits by [`Reg`].
    pub fn registers(&self) -> u64 {
        self.base.map_or(0, bit) | self.index.map_or(0, |(index, _)| bit(index))
    }
}

impl Value {
    /// Returns the registers in the expression, as a set of bits by [`Reg`].
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
    /// Returns the target of the instruction with these effects, if it is a computed branch.
    pub fn target(effects: &[Effect]) -> Option<Value> {
        effects.iter().find_map(|effect| if let Effect::Transfer(to) = *effect { Some(to) } else { None })
    }

    /// Returns the values that it reads, without the addresses that it writes to.
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

    /// Returns the registers that it writes, as a set of bits by [`Reg`].
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

    /// Returns the registers that it overwrites completely, as a set of bits by [`Reg`]. This excludes clobbered
    /// registers: an unsupported instruction may write only a part of a register, or only on a condition. (The effects
    /// that follow an [`Effect::OnlyIf`] may not happen at all.)
    pub fn registers_overwritten(&self) -> u64 {
        match *self {
            // Every machine here zero-extends writes to the low 4 bytes.
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

    /// Whether it reads the flags. Instructions may read them without an effect that shows it
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

    /// Returns its change of the flags.
    pub fn flags(&self) -> Flags {
        match self {
            Effect::Compare { .. } => Flags::Overwritten,
            // `CompareZero` keeps the overflow flag of ARM; `ClobberFlags` keeps the carry, for `inc`.
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

    /// Returns the memory that it writes.
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

    /// Returns the memory that its operands are read from: addresses and numbers of bytes.
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

    /// Whether it changes only registers and flags: it writes no memory, makes no system call, transfers no control,
    /// and makes no other effect conditional. An unsupported instruction may change more than its effects show.
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

//! Results of instructions, in a language just large enough to follow constants.
//!
//! An instruction becomes a few [`Effect`]s, to be applied in order. The language has registers by number, memory by
//! address expression, and the few operations that compilers use on system-call numbers and switch indices. Every
//! other write is a clobber, after which the value is unknown. That is always safe.

use std::num::NonZeroU32;

mod access;
mod numbers;

pub(crate) use access::let_escape;
pub use access::{Flags, Memory};
pub use numbers::{low_bytes, low_mask, sign_extend};

/// A register of the machine, as its widest part (`%eax` and `%al` are one register): the machine's own number, 0 to
/// 63.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Reg(pub u8);

/// A temporary of the model: not a register of the machine, but a place for intermediate results of one instruction.
/// Its value is undefined at the next instruction.
pub const TEMPORARY: Reg = Reg(32);

/// A number that the linker computes, such as the address of a symbol. The caller of
/// [`crate::Rewritable::relocated_effects`] assigns these; the model only relies on equal symbols being equal numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Symbol(pub NonZeroU32);

/// An address expression: `base + index * scale + symbol + displacement`, relative to the thread if `segment` is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct Address {
    /// Base register.
    pub base: Option<Reg>,
    /// Index register and its factor in bytes.
    pub index: Option<(Reg, u8)>,
    /// The linker's part, if the displacement is a relocated field.
    pub symbol: Option<Symbol>,
    /// Displacement in bytes, sign-extended: addresses wrap around at the machine's word. Absolute if there is neither
    /// base nor index nor symbol; program-counter-relative addresses are already absolute here.
    pub displacement: i64,
    /// Relative to the base of this segment, which the model does not know.
    pub segment: Option<Segment>,
}

/// A segment register of x86 whose base is not 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Segment {
    /// `%fs`
    Fs,
    /// `%gs`
    Gs,
}

/// A value that an instruction reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// A number.
    Const(u64),
    /// The number that the linker writes into a relocated field: `symbol + addend`.
    Symbol {
        /// The number that the linker computes.
        symbol: Symbol,
        /// The number added to it.
        addend: i64,
    },
    /// A register's content, zero-extended from `width` bytes.
    Reg {
        /// The register.
        reg: Reg,
        /// The number of low bytes.
        width: u8,
    },
    /// Memory, zero-extended from `width` bytes.
    Load {
        /// The address.
        from: Address,
        /// The number of bytes.
        width: u8,
    },
    /// The address itself (`lea`).
    Address(Address),
    /// A number that the model does not know.
    Unknown,
}

/// The operations that the model follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BinaryOp {
    /// Sum.
    Add,
    /// Difference.
    Sub,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// Left shift.
    Shl,
    /// Logical right shift.
    Shr,
}

/// One effect of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// `dst = value`, zero-extended from `width` bytes if the machine zero-extends writes of that width, else written
    /// into the low `width` bytes only.
    Set {
        /// Destination.
        dst: Reg,
        /// Source.
        value: Value,
        /// Width of the write in bytes.
        width: u8,
    },
    /// `dst = value` on a condition (conditional moves).
    MaybeSet {
        /// Destination.
        dst: Reg,
        /// Source.
        value: Value,
        /// Width of the write in bytes.
        width: u8,
    },
    /// `dst = sign-extended value`.
    SetSigned {
        /// Destination.
        dst: Reg,
        /// Source.
        value: Value,
        /// Width of the source in bytes.
        from: u8,
        /// Width of the write in bytes.
        width: u8,
    },
    /// `dst = left op right`.
    Binary {
        /// The operation.
        op: BinaryOp,
        /// Destination.
        dst: Reg,
        /// Left operand.
        left: Value,
        /// Right operand.
        right: Value,
        /// Width in bytes.
        width: u8,
    },
    /// Stores the low `width` bytes of the value in memory. A value wider than 8 bytes (vector stores) is
    /// [`Value::Unknown`].
    Store {
        /// The address.
        to: Address,
        /// The value.
        value: Value,
        /// The number of bytes.
        width: u8,
    },
    /// The flags now hold the comparison of `left` with `right` (as after `cmp left, right` in Intel order).
    Compare {
        /// Left operand.
        left: Value,
        /// Right operand.
        right: Value,
        /// Width in bytes.
        width: u8,
    },
    /// The flags show whether the value is 0; the result of other conditions is unknown.
    CompareZero {
        /// The value.
        value: Value,
        /// Width in bytes.
        width: u8,
    },
    /// The flags are clobbered.
    ClobberFlags,
    /// The register is clobbered.
    Clobber(Reg),
    /// Unknown memory changed.
    ClobberMemory,
    /// Memory changed, an unknown number of bytes beginning at this address (`rep stos`).
    ClobberRange(Address),
    /// Two registers exchanged their contents.
    Swap(Reg, Reg),
    /// The instruction reads this operand before the effects that follow, and they do not define the use of the value:
    /// a vector register or any memory may hold it afterwards. [`Value::Unknown`] is memory at a place, or of a size,
    /// that the language cannot name. Operands that only decide flags may be omitted.
    Escape(Value),
    /// The instruction enters the kernel for a system call.
    SystemCall {
        /// Through the gate of the 32-bit machine, in code of the 64-bit one (`int $0x80` in x86-64
        /// code).
        compat: bool,
        /// The number, if the instruction contains it (`swi` of ARM's old ABI).
        number: Option<u32>,
    },
    /// The instruction is a computed branch to this value, which is read before the effects that follow (a call's push
    /// of the return address).
    Transfer(Value),
    /// The instruction is a conditional branch, taken if this condition holds for the last [`Effect::Compare`].
    BranchIf(Condition),
    /// The instruction is a conditional branch, taken if this condition holds for `left` and `right`. It keeps the
    /// flags.
    BranchIfCompared {
        /// Left operand.
        left: Value,
        /// Right operand.
        right: Value,
        /// Width in bytes.
        width: u8,
        /// The condition.
        condition: Condition,
    },
    /// The effects that follow, and the instruction's transfer of control, happen only if this condition holds for the
    /// last comparison.
    OnlyIf(Condition),
}

/// The condition of a conditional branch, on the comparison of `left` with `right`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Condition {
    /// `left == right`
    Equal,
    /// `left != right`
    NotEqual,
    /// `left < right`, unsigned
    Below,
    /// `left <= right`, unsigned
    BelowOrEqual,
    /// `left > right`, unsigned
    Above,
    /// `left >= right`, unsigned
    AboveOrEqual,
    /// `left < right`, signed
    Less,
    /// `left <= right`, signed
    LessOrEqual,
    /// `left > right`, signed
    Greater,
    /// `left >= right`, signed
    GreaterOrEqual,
    /// Something else (parity, overflow, sign alone).
    Other,
}

impl Condition {
    /// Returns the negation: the condition that holds if the branch is not taken.
    pub fn inverse(self) -> Condition {
        match self {
            Condition::Equal => Condition::NotEqual,
            Condition::NotEqual => Condition::Equal,
            Condition::Below => Condition::AboveOrEqual,
            Condition::BelowOrEqual => Condition::Above,
            Condition::Above => Condition::BelowOrEqual,
            Condition::AboveOrEqual => Condition::Below,
            Condition::Less => Condition::GreaterOrEqual,
            Condition::LessOrEqual => Condition::Greater,
            Condition::Greater => Condition::LessOrEqual,
            Condition::GreaterOrEqual => Condition::Less,
            Condition::Other => Condition::Other,
        }
    }

    /// Whether the condition holds for two numbers of `width` bytes; `None` for [`Condition::Other`].
    pub fn holds(self, left: u64, right: u64, width: u8) -> Option<bool> {
        let shift = 64 - 8 * u32::from(width);
        let (left, right) = (left << shift, right << shift);
        let (signed_left, signed_right) = (left as i64, right as i64);
        Some(match self {
            Condition::Equal => left == right,
            Condition::NotEqual => left != right,
            Condition::Below => left < right,
            Condition::BelowOrEqual => left <= right,
            Condition::Above => left > right,
            Condition::AboveOrEqual => left >= right,
            Condition::Less => signed_left < signed_right,
            Condition::LessOrEqual => signed_left <= signed_right,
            Condition::Greater => signed_left > signed_right,
            Condition::GreaterOrEqual => signed_left >= signed_right,
            Condition::Other => return None,
        })
    }
}

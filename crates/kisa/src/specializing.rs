//! Partly known values, and encodings of a few operations, for copies of code with known inputs.

use crate::inst::Inst;
use crate::semantics::{Reg, low_bytes};

/// A number of 32 bits with known and unknown bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Bits {
    /// The known bits.
    pub known: u32,
    /// Their values; 0 in unknown bits.
    pub value: u32,
}

impl Bits {
    /// A number of which nothing is known.
    pub const UNKNOWN: Bits = Bits { known: 0, value: 0 };

    /// Creates a number of which everything is known.
    pub fn number(value: u32) -> Bits {
        Bits { known: u32::MAX, value }
    }

    /// Creates a number from its known bits and their values.
    pub fn of(known: u32, value: u32) -> Bits {
        Bits { known, value: value & known }
    }

    /// Returns the number, if all of its bits are known.
    pub fn get(self) -> Option<u32> {
        (self.known == u32::MAX).then_some(self.value)
    }

    /// Returns the low `width` bytes, zero-extended.
    pub fn low(self, width: u8) -> Bits {
        let mask = low_bytes(u64::MAX, width) as u32;
        Bits { known: self.known | !mask, value: self.value & mask }
    }

    /// Returns the number with `width` bytes, from bit `shift` on, replaced by those of another one.
    pub fn with(self, low: Bits, width: u8, shift: u32) -> Bits {
        let mask = (low_bytes(u64::MAX, width) as u32) << shift;
        Bits {
            known: self.known & !mask | low.known << shift & mask,
            value: self.value & !mask | low.value << shift & mask,
        }
    }

    /// Returns the number shifted to the right, zero-extended.
    pub fn shifted(self, by: u32) -> Bits {
        Bits { known: self.known >> by | !(u32::MAX >> by), value: self.value >> by }
    }

    /// Returns the bits that are known, and the same, in both numbers.
    pub fn join(self, other: Bits) -> Bits {
        let known = self.known & other.known & !(self.value ^ other.value);
        Bits { known, value: self.value & known }
    }
}

/// The known inputs of an instruction.
pub struct Inputs<'a> {
    /// The contents of registers.
    pub register: &'a dyn Fn(Reg) -> Bits,
    /// The content of its memory operand, zero-extended.
    pub memory: Bits,
    /// The flags, at their places in the machine's register of flags.
    pub flags: Bits,
    /// Whether the linker fills its immediate operand in.
    pub relocated_immediate: bool,
}

/// The place that an instruction writes its result to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// `width` bytes of a register, from bit `shift` on; all of a register that the machine zero-extends.
    Register {
        /// The register.
        reg: Reg,
        /// Number of bytes.
        width: u8,
        /// Number of bits below them.
        shift: u32,
    },
    /// Its memory operand.
    Memory {
        /// Number of bytes.
        width: u8,
    },
}

/// The known results of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The place of the result and its known bits, zero-extended, if the instruction is supported and has one.
    pub result: Option<(Written, Bits)>,
    /// The flags after the instruction.
    pub flags: Bits,
    /// Whether the condition of a conditional move or set holds, if known.
    pub condition: Option<bool>,
}

/// The flags of a comparison as far as equality of its operands decides them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Equality {
    /// The operands are equal.
    Equal,
    /// The operands differ.
    Different,
}

/// A place in memory: a number of bytes after the address in a register; absolute without one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The register.
    pub base: Option<Reg>,
    /// In bytes.
    pub displacement: i32,
}

/// An operation that has an encoding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Simple {
    /// Copies a register.
    Copy(Reg, Reg),
    /// Puts a number into a register; keeps the flags.
    Number(Reg, u32),
    /// Puts an address into a register; keeps the flags.
    Address(Reg, Place),
    /// Loads 4 bytes.
    Load(Reg, Place),
    /// Stores the low bytes of a register.
    Store(Place, Reg, u8),
    /// Stores a number of this width in bytes.
    StoreNumber(Place, u32, u8),
    /// Compares memory of this width in bytes with a number.
    Compare(Place, u32, u8),
    /// Tests whether any of these bits of memory, of this width in bytes, is set.
    Test(Place, u32, u8),
    /// Adds the set bits of 4 bytes of memory to a register.
    Or(Reg, Place),
    /// Compares a register with a number.
    CompareRegister(Reg, u32),
    /// Compares a register with 0.
    TestRegister(Reg),
    /// Pushes a register.
    Push(Reg),
    /// Pops a register.
    Pop(Reg),
    /// Adds a number to the stack pointer, and keeps the flags.
    MoveStack(i32),
    /// Adds 1 to 4 bytes of memory.
    Count(Place),
    /// Jumps to the address in memory.
    JumpThrough(Place),
}

/// The encoding of a [`Simple`] operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Encoded {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Offset in bytes of the 4 bytes of the displacement, if they are as many.
    pub displacement: Option<u8>,
    /// Offset in bytes of the 4 bytes of the number, if they are as many.
    pub number: Option<u8>,
}

/// A repeated store of one value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fill {
    /// Number of bytes of each store.
    pub width: u8,
    /// The register with the address of the first store; afterwards, the address after the last one.
    pub to: Reg,
    /// The register with the number of stores; afterwards 0.
    pub count: Reg,
    /// The register with the value.
    pub value: Reg,
}

/// An instruction set whose code can be copied for known inputs.
pub trait Specialize: Sync {
    /// Returns the known results of an instruction.
    fn evaluate(&self, inst: &Inst<'_>, inputs: &Inputs<'_>) -> Outcome;

    /// Returns the flags after a comparison whose operands are known to be equal or different.
    fn flags_of(&self, equality: Equality, flags: Bits) -> Bits;

    /// Whether the condition of a conditional branch, by the machine's own number, holds; `None` if the known flags do
    /// not decide that.
    fn holds(&self, condition: u8, flags: Bits) -> Option<bool>;

    /// Encodes an operation; `None` if it has no encoding. With `wide`, displacements and numbers have 4 bytes.
    fn encode(&self, simple: Simple, wide: bool) -> Option<Encoded>;

    /// Returns an instruction with its memory operand at another place; `None` if it has no explicit one.
    fn with_operand(&self, inst: &Inst<'_>, place: Place) -> Option<Vec<u8>>;

    /// Returns an instruction with a number in place of its last operand, a register or memory; `None` if there is no
    /// such encoding.
    fn with_number(&self, inst: &Inst<'_>, number: u32) -> Option<Vec<u8>>;

    /// Returns the operands of a repeated string store (`rep stos`); `None` for other instructions.
    fn fill(&self, inst: &Inst<'_>) -> Option<Fill>;

    /// Whether an instruction certainly gives new values to all flags that conditions test.
    fn overwrites_flags(&self, inst: &Inst<'_>) -> bool;

    /// Whether an instruction uses the stack pointer in a way that its memory operand does not show.
    fn uses_stack_pointer(&self, inst: &Inst<'_>) -> bool;
}

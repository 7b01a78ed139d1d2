//! Instruction sets whose code can be read.

use kelf::Machine;

use crate::convention::Convention;
use crate::inst::Inst;
use crate::instruction::{At, Encoding, MemoryOperand};
use crate::semantics::{Effect, TEMPORARY};

/// An instruction set whose code can be read.
pub trait Isa: Sync {
    /// Returns the machine whose code this decodes.
    fn machine(&self) -> Machine;

    /// Decodes the instruction at the start of `bytes`. Returns `None` if the bytes are not an instruction or end within
    /// one.
    fn decode<'b>(&self, bytes: &'b [u8], at: At) -> Option<Inst<'b>>;

    /// Appends to `out` the computation of an instruction, in order. An instruction without a model clobbers every
    /// register that it writes.
    fn effects(&self, inst: &Inst<'_>, out: &mut Vec<Effect>);

    /// Returns the explicit memory operand of an instruction, if any.
    fn memory_operand(&self, inst: &Inst<'_>) -> Option<MemoryOperand>;

    /// Returns the registers that an instruction reads, as a set of bits by [`Reg`](crate::Reg).
    fn registers_read(&self, inst: &Inst<'_>) -> u64;

    /// Creates a reader of the instructions in `bytes`, for callers that read them in sequence.
    fn reader<'b>(&'b self, bytes: &'b [u8]) -> Box<dyn Reader<'b> + 'b>;

    /// Returns the calling convention of its C compilers.
    fn convention(&self) -> &'static Convention;

    /// Returns the way in which instructions make addresses.
    fn addressing(&self) -> Addressing;

    /// Whether any bytes of code may be an instruction that enters the kernel, at any place and in any encoding.
    fn may_enter_kernel(&self, code: &[u8]) -> bool;

    /// Whether the instruction at the start of `bytes` stops the processor, which only the kernel may do.
    fn is_halt(&self, bytes: &[u8]) -> bool;

    /// Returns the encoding of the code to which a pointer leads, see [`At::of_pointer`].
    fn encoding_at(&self, pointer: u64) -> Encoding {
        At::of_pointer(self.machine(), pointer).encoding
    }

    /// Returns the number of registers of the model. Every [`Reg`](crate::Reg) has a lower number.
    fn registers(&self) -> usize {
        usize::from(TEMPORARY.0) + 1
    }
}

/// The way in which instructions make the addresses of code and data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Addressing {
    /// One instruction contains the whole address, or the distance to it.
    Whole,
    /// One instruction makes the address of a page, and others add the place in the page (`adrp` of AArch64).
    Pages,
    /// Instructions read addresses and distances from literals among the code, or put them together from two halves
    /// (32-bit ARM).
    Literals,
}

/// Reads the instructions of one piece of code.
pub trait Reader<'b> {
    /// Decodes the instruction at an offset of the piece, see [`Isa::decode`].
    fn decode(&mut self, offset: usize, at: At) -> Option<Inst<'b>>;
}

/// A reader for instruction sets whose decoder keeps no state from one instruction to the next.
pub(crate) struct PlainReader<'b> {
    pub(crate) isa: &'b dyn Isa,
    pub(crate) bytes: &'b [u8],
}

impl<'b> Reader<'b> for PlainReader<'b> {
    fn decode(&mut self, offset: usize, at: At) -> Option<Inst<'b>> {
        self.isa.decode(self.bytes.get(offset..)?, at)
    }
}

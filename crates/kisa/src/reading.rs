//! Instruction sets whose code can be read.

use kelf::Machine;

use crate::instruction::{Encoding, Explained, Insn, MemoryOperand};
use crate::semantics::{Effect, Reg, TEMPORARY};

/// An instruction set whose code can be read.
pub trait Isa: Sync {
    /// Returns the machine whose code this decodes.
    fn machine(&self) -> Machine;

    /// Decodes the instruction at the start of `bytes`, which are at `address` (an address of a program, or an offset
    /// in a section). Returns `None` if the bytes are not an instruction or end within one.
    fn decode(&self, bytes: &[u8], address: u64) -> Option<Insn>;

    /// Appends to `out` the computation of the instruction at the start of `bytes`, in order. An instruction without a
    /// model clobbers every register that it writes.
    fn effects(&self, bytes: &[u8], address: u64, out: &mut Vec<Effect>);

    /// Returns the explicit memory operand of the instruction at the start of `bytes`, if any.
    fn memory_operand(&self, bytes: &[u8], address: u64) -> Option<MemoryOperand>;

    /// Returns the registers that the instruction at the start of `bytes` reads, as a set of bits by [`Reg`]. Returns
    /// all registers if the instruction is not supported.
    fn registers_read(&self, bytes: &[u8], address: u64) -> u64;

    /// Returns the results of [`Isa::decode`] and [`Isa::memory_operand`] for the instruction at the start of `bytes`,
    /// and appends its effects to `out`. Decodes the instruction once; three calls would decode it three times.
    fn explain(&self, bytes: &[u8], address: u64, out: &mut Vec<Effect>) -> Option<Explained> {
        let insn = self.decode(bytes, address)?;
        self.effects(bytes, address, out);
        Some(Explained { insn, operand: self.memory_operand(bytes, address) })
    }

    /// Creates a reader of the instructions in `bytes`, for callers that read them in sequence.
    fn reader<'b>(&'b self, bytes: &'b [u8]) -> Box<dyn Reader + 'b>;

    /// Returns the encoding of the code at a branch target, in the terms of the address given to [`Isa::decode`].
    fn encoding_at(&self, target: u64) -> Encoding {
        let has_bit = self.machine().target().has_encoding_bit;
        if has_bit && target & 1 != 0 { Encoding::Thumb } else { Encoding::Main }
    }

    /// Returns the stack pointer.
    fn stack_pointer(&self) -> Reg;

    /// Returns the number of registers of the model. Every [`Reg`] has a lower number.
    fn registers(&self) -> usize {
        usize::from(TEMPORARY.0) + 1
    }
}

/// Reads the instructions of one piece of code. `offset` is a position in it; the other parameters are as in [`Isa`].
pub trait Reader {
    /// See [`Isa::decode`].
    fn decode(&mut self, offset: usize, address: u64) -> Option<Insn>;

    /// See [`Isa::effects`].
    fn effects(&mut self, offset: usize, address: u64, out: &mut Vec<Effect>);

    /// See [`Isa::explain`].
    fn explain(&mut self, offset: usize, address: u64, out: &mut Vec<Effect>) -> Option<Explained>;
}

/// A reader for instruction sets whose decoder keeps no state from one instruction to the next.
pub(crate) struct PlainReader<'b> {
    pub(crate) isa: &'b dyn Isa,
    pub(crate) bytes: &'b [u8],
}

impl Reader for PlainReader<'_> {
    fn decode(&mut self, offset: usize, address: u64) -> Option<Insn> {
        self.isa.decode(self.bytes.get(offset..)?, address)
    }

    fn effects(&mut self, offset: usize, address: u64, out: &mut Vec<Effect>) {
        self.isa.effects(self.bytes.get(offset..).unwrap_or_default(), address, out)
    }

    fn explain(&mut self, offset: usize, address: u64, out: &mut Vec<Effect>) -> Option<Explained> {
        self.isa.explain(self.bytes.get(offset..)?, address, out)
    }
}

/*!
AArch64, decoded by hand.

A64 instructions are words with nearly all fields in fixed places, so one mask each identifies the instructions of
interest (Arm Architecture Reference Manual, DDI 0487, section C4.1). A complete disassembler such as Capstone needs
more time for one instruction than the whole analysis, and a scan reads each instruction several times. An instruction
that is not identified clobbers everything its class can write: every register that its fields can name, and memory.
`tests/semantics.rs` checks this by executing instructions of all classes, and `tests/decoders.rs` compares with
Capstone.
*/

mod decode;
mod memory;
pub mod registers;
mod semantics;
mod word;

use kelf::Machine;

use super::{Effect, Insn, Isa, MemoryOperand, Reader, Reg};
use crate::reading::PlainReader;
use word::Word;

/// A 64-bit ARM processor in its 64-bit state.
pub struct Aarch64;

impl Isa for Aarch64 {
    fn machine(&self) -> Machine {
        Machine::Aarch64
    }

    fn decode(&self, bytes: &[u8], address: u64) -> Option<Insn> {
        Word::read(bytes).map(|word| decode::decode(word, address))
    }

    fn effects(&self, bytes: &[u8], address: u64, out: &mut Vec<Effect>) {
        if let Some(word) = Word::read(bytes) {
            semantics::effects(word, address, out);
        }
    }

    fn memory_operand(&self, bytes: &[u8], address: u64) -> Option<MemoryOperand> {
        let access = memory::Access::of(Word::read(bytes)?, address)?;
        Some(MemoryOperand { address: access.address, width: access.size, displacement_offset: None })
    }

    fn registers_read(&self, bytes: &[u8], _address: u64) -> u64 {
        Word::read(bytes).map_or(u64::MAX, semantics::registers_read)
    }

    fn reader<'b>(&'b self, bytes: &'b [u8]) -> Box<dyn Reader + 'b> {
        Box::new(PlainReader { isa: self, bytes })
    }

    fn stack_pointer(&self) -> Reg {
        registers::SP
    }
}

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
pub(crate) mod word;

use kelf::Machine;

use super::{Addressing, At, Convention, Effect, Inst, Isa, MemoryOperand, Reader};
use crate::inst::Decoded;
use crate::reading::PlainReader;
use word::Word;

/// A 64-bit ARM processor in its 64-bit state.
pub struct Aarch64;

impl Isa for Aarch64 {
    fn machine(&self) -> Machine {
        Machine::Aarch64
    }

    fn decode<'b>(&self, bytes: &'b [u8], at: At) -> Option<Inst<'b>> {
        let word = Word::read(bytes)?;
        let insn = decode::decode(word, at.address);
        Some(Inst::new(bytes, at, insn, Decoded::Aarch64(word)))
    }

    fn effects(&self, inst: &Inst<'_>, out: &mut Vec<Effect>) {
        semantics::effects(inst.aarch64(), inst.at.address, out);
    }

    fn memory_operand(&self, inst: &Inst<'_>) -> Option<MemoryOperand> {
        let access = memory::Access::of(inst.aarch64(), inst.at.address)?;
        Some(MemoryOperand { address: access.address, width: access.size, displacement_offset: None })
    }

    fn registers_read(&self, inst: &Inst<'_>) -> u64 {
        semantics::registers_read(inst.aarch64())
    }

    fn reader<'b>(&'b self, bytes: &'b [u8]) -> Box<dyn Reader<'b> + 'b> {
        Box::new(PlainReader { isa: self, bytes })
    }

    fn convention(&self) -> &'static Convention {
        &registers::CONVENTION
    }

    fn addressing(&self) -> Addressing {
        Addressing::Pages
    }

    fn may_enter_kernel(&self, code: &[u8]) -> bool {
        // svc
        let words =
            code.chunks_exact(4).filter_map(|word| word.first_chunk().copied().map(u32::from_le_bytes));
        words.into_iter().any(|word| word & 0xffe0_001f == 0xd400_0001)
    }

    fn is_halt(&self, _bytes: &[u8]) -> bool {
        false
    }
}

//! Reading instructions in sequence, each with its effects and its memory operand.

use iced_x86::{Decoder, DecoderOptions};

use super::decode::Decoded;
use super::operands;
use super::semantics::effects_of;
use crate::{Effect, Explained, Insn};

impl Decoded {
    /// See [`crate::Isa::explain`].
    pub(super) fn explain(&self, out: &mut Vec<Effect>) -> Option<Explained> {
        let insn = self.insn()?;
        effects_of(self.bits, &self.instruction, out);
        Some(Explained { insn, operand: operands::memory(self) })
    }
}

/// Keeps iced's decoder between instructions: creating one takes longer than decoding an instruction.
pub(super) struct Reader<'b>(Decoder<'b>);

impl<'b> Reader<'b> {
    pub(super) fn new(bits: u32, bytes: &'b [u8]) -> Reader<'b> {
        Reader(Decoder::new(bits, bytes, DecoderOptions::NONE))
    }

    /// Moves to an instruction; returns `None` if it is outside.
    fn at(&mut self, offset: usize, address: u64) -> Option<&mut Decoder<'b>> {
        self.0.set_position(offset).ok()?;
        self.0.set_ip(address);
        Some(&mut self.0)
    }
}

impl crate::Reader for Reader<'_> {
    fn decode(&mut self, offset: usize, address: u64) -> Option<Insn> {
        Decoded::next(self.at(offset, address)?)?.insn()
    }

    fn effects(&mut self, offset: usize, address: u64, out: &mut Vec<Effect>) {
        if let Some(decoder) = self.at(offset, address) {
            effects_of(decoder.bitness(), &decoder.decode(), out);
        }
    }

    fn explain(&mut self, offset: usize, address: u64, out: &mut Vec<Effect>) -> Option<Explained> {
        Decoded::next(self.at(offset, address)?)?.explain(out)
    }
}

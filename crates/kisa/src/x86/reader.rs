//! Reading instructions in sequence.

use iced_x86::{Decoder, DecoderOptions};

use super::decode::Decoded;
use crate::At;
use crate::inst::{self, Inst};

/// Keeps iced's decoder between instructions: creating one takes longer than decoding an instruction.
pub(super) struct Reader<'b> {
    decoder: Decoder<'b>,
    bytes: &'b [u8],
}

impl<'b> Reader<'b> {
    pub(super) fn new(bits: u32, bytes: &'b [u8]) -> Reader<'b> {
        Reader { decoder: Decoder::new(bits, bytes, DecoderOptions::NONE), bytes }
    }
}

impl<'b> crate::Reader<'b> for Reader<'b> {
    fn decode(&mut self, offset: usize, at: At) -> Option<Inst<'b>> {
        self.decoder.set_position(offset).ok()?;
        self.decoder.set_ip(at.address);
        inst(Decoded::next(&mut self.decoder)?, &self.bytes[offset..], at)
    }
}

/// Returns the instruction at the start of `bytes` as a value.
pub(super) fn inst(decoded: Decoded, bytes: &[u8], at: At) -> Option<Inst<'_>> {
    Some(Inst::new(bytes, at, decoded.insn()?, inst::Decoded::X86(decoded)))
}

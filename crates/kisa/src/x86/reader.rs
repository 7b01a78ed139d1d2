//! Reading instructions in sequence.

use iced_x86::{Decoder, DecoderOptions};

use super::decode::Decoded;
use crate::{At, Inst};

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
        Decoded::next(&mut self.decoder)?.inst(&self.bytes[offset..], at)
    }
}

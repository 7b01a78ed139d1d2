//! Instructions, as they are decoded at an address.

use kisa::{Effect, Explained, Insn, MemoryOperand, arm};

use super::Code;
use crate::image::{Addr, Image};

/// Reads instructions of one piece of code, see [`Code::reader`].
pub struct Reader<'a> {
    /// The first byte of the piece.
    first: Addr,
    reader: Box<dyn kisa::Reader + 'a>,
}

impl Reader<'_> {
    fn offset(&self, image: &Image, at: Addr) -> usize {
        let offset = image.first_byte(at).0.wrapping_sub(self.first.0);
        usize::try_from(offset).unwrap_or(usize::MAX)
    }
}

impl<'a> Code<'a> {
    /// The instruction at an address; `None` if there is none.
    pub fn decode(&self, at: Addr) -> Option<Insn> {
        let is_code = self.image.is_code(at);
        let mut insn =
            is_code.then(|| self.isa.decode(self.image.code_bytes(at), self.predicated(at))).flatten()?;
        if !self.thunks.is_empty() {
            insn.flow = self.flow_through_thunk(at, insn.flow).unwrap_or(insn.flow);
        }
        Some(insn)
    }

    /// A reader of the code that an instruction is in, from the instruction on.
    pub fn reader(&self, start: Addr) -> Reader<'a> {
        let image: &'a Image = self.image;
        Reader { first: image.first_byte(start), reader: self.isa.reader(image.code_bytes(start)) }
    }

    /// The instruction with its memory operand, and with its effects appended to `out`.
    pub(super) fn explain(&self, reader: &mut Reader, at: Addr, out: &mut Vec<Effect>) -> Option<Explained> {
        let first = out.len();
        let offset = reader.offset(self.image, at);
        let is_code = self.image.is_code(at);
        let mut explained =
            is_code.then(|| reader.reader.explain(offset, self.predicated(at), out)).flatten()?;
        if !self.thunks.is_empty() {
            if let Some(flow) = self.flow_through_thunk(at, explained.insn.flow) {
                explained.insn.flow = flow;
                out.truncate(first);
                self.effects_through_thunk(at, out);
            }
        }
        Some(explained)
    }

    /// Appends the effects of the instruction at an address to `out`.
    pub fn effects(&self, at: Addr, out: &mut Vec<Effect>) {
        if self.thunks.is_empty() || !self.effects_through_thunk(at, out) {
            self.isa.effects(self.image.code_bytes(at), self.predicated(at), out);
        }
    }

    /// The effects of the instruction at an address.
    pub fn effects_at(&self, at: Addr) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.effects(at, &mut effects);
        effects
    }

    /// The same, read by a reader that began at this instruction or in front of it.
    pub fn read_effects(&self, reader: &mut Reader, at: Addr, out: &mut Vec<Effect>) {
        if self.thunks.is_empty() || !self.effects_through_thunk(at, out) {
            reader.reader.effects(reader.offset(self.image, at), self.predicated(at), out);
        }
    }

    /// The address of an instruction, and the condition that an instruction in front puts on it.
    fn predicated(&self, at: Addr) -> u64 {
        self.predicates.get(&at).map_or(at.0, |&condition| arm::predicated(at.0, condition))
    }

    /// The address that the instruction at an address reads or writes, if it says so.
    pub fn memory_operand(&self, at: Addr) -> Option<MemoryOperand> {
        self.isa.memory_operand(self.image.code_bytes(at), at.0)
    }

    /// The registers that the instruction at an address reads, as a set of bits.
    pub fn registers_read(&self, at: Addr) -> u64 {
        self.isa.registers_read(self.image.code_bytes(at), at.0)
    }
}

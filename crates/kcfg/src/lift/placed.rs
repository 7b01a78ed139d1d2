//! Instructions at their places in a section.

use kelf::{Reloc, RelocClass};
use kisa::{BranchKind, Encoding, Flow, Insn, Inst, Isa};

/// An instruction and its offset in the section.
#[derive(Clone, Copy)]
pub(super) struct PlacedInsn {
    pub offset: u32,
    pub insn: Insn,
    pub encoding: Encoding,
    /// The condition that another instruction applies to it (`it` of Thumb code), by the machine's own number.
    pub predicate: Option<u8>,
    /// The encoding of the target of a direct branch.
    pub target_encoding: Encoding,
}

impl PlacedInsn {
    pub fn end(&self) -> u32 {
        self.offset + u32::from(self.insn.len)
    }

    /// Returns the instruction as a value; `data` is the section's.
    pub fn inst<'d>(&self, isa: &dyn Isa, data: &'d [u8]) -> Inst<'d> {
        let bytes = &data[self.offset as usize..self.end() as usize];
        isa.decode(bytes, self.encoding.at(self.offset.into()).on(self.predicate)).expect("decoded before")
    }

    /// Whether another instruction makes it conditional.
    pub fn is_predicated(&self) -> bool {
        self.predicate.is_some()
    }

    /// Whether execution may continue after it although it transfers control without returning.
    pub fn is_conditional(&self) -> bool {
        let branch =
            matches!(self.insn.flow, Flow::Direct { branch, .. } if branch.kind == BranchKind::Conditional);
        branch || self.insn.conditional
    }

    /// Returns the target of a direct branch, as an offset in the section.
    pub fn target(&self) -> Option<u32> {
        match self.insn.flow {
            Flow::Direct { target, .. } => {
                // The bit gives the encoding of the target.
                Some(target as u32 & !u32::from(self.target_encoding == Encoding::Thumb))
            }
            _ => None,
        }
    }

    /// Returns the target, if the field of the branch contains it, without a relocation.
    pub fn encoded_target(&self, relocs: &[Reloc]) -> Option<u32> {
        match self.insn.flow {
            Flow::Direct { field_offset, .. }
                if reloc_at(relocs, self.offset + u32::from(field_offset)).is_none() =>
            {
                self.target()
            }
            _ => None,
        }
    }
}

/// Returns the relocation of the field at `offset`.
pub(super) fn reloc_at(relocs: &[Reloc], offset: u32) -> Option<&Reloc> {
    let i = relocs.partition_point(|reloc| reloc.offset < u64::from(offset));
    relocs[i..]
        .iter()
        .take_while(|reloc| reloc.offset == u64::from(offset))
        .find(|reloc| reloc.class != RelocClass::None)
}

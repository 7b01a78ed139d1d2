//! Instructions as values.

use crate::aarch64::word::Word;
use crate::arm::op;
use crate::instruction::{At, Insn};
use crate::x86::decode;

/// One instruction as a value, decoded once: [`crate::Isa`] and [`crate::Rewritable`] answer questions about it.
#[derive(Clone, Copy)]
pub struct Inst<'b> {
    /// Its bytes.
    pub bytes: &'b [u8],
    /// Its place.
    pub at: At,
    /// Its length and control flow.
    pub insn: Insn,
    /// It in the terms of its instruction set.
    pub(crate) decoded: Decoded,
}

/// An instruction in the terms of its instruction set.
#[derive(Clone, Copy)]
pub(crate) enum Decoded {
    X86(decode::Decoded),
    Arm(op::Decoded),
    Aarch64(Word),
}

impl<'b> Inst<'b> {
    /// Creates the instruction at the start of `bytes`.
    pub(crate) fn new(bytes: &'b [u8], at: At, insn: Insn, decoded: Decoded) -> Inst<'b> {
        Inst { bytes: &bytes[..usize::from(insn.len)], at, insn, decoded }
    }

    /// Returns the instruction of an x86 processor.
    pub(crate) fn x86(&self) -> &decode::Decoded {
        match &self.decoded {
            Decoded::X86(decoded) => decoded,
            _ => unreachable!("instructions are read by the set that decoded them"),
        }
    }

    /// Returns the instruction of a 32-bit ARM processor.
    pub(crate) fn arm(&self) -> &op::Decoded {
        match &self.decoded {
            Decoded::Arm(decoded) => decoded,
            _ => unreachable!("instructions are read by the set that decoded them"),
        }
    }

    /// Returns the instruction of a 64-bit ARM processor.
    pub(crate) fn aarch64(&self) -> Word {
        match self.decoded {
            Decoded::Aarch64(word) => word,
            _ => unreachable!("instructions are read by the set that decoded them"),
        }
    }
}

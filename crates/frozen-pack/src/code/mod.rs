//! The layouts of pages of code: which symbols an instruction consists of, and what each depends on.
//!
//! - An *opcode* symbol stands for a template: the beginning of an instruction, or instructions and the beginning of
//!   another ([`choose`]).
//! - The fields that the template leaves open follow, each as a symbol.
//! - 32-bit fields are [`values`], branches by the address that they lead to.
//! - Bytes that are no instruction are coded as they are, behind the opcode symbol 0.
//!
//! An instruction that straddles the end of the page is coded as a whole and cut off; the next page begins with how
//! many bytes of it are left, and these bytes as they are.

pub mod arm;
pub mod choose;
pub mod i386;
pub mod pages;
pub mod values;

use crate::error::Damaged;
use crate::format::parts::{FORMAT_SIZE, TEMPLATE_SIZE};
use crate::pack::Piece;
use crate::symbols::{Field, Fields, Source};

/// The opcode symbol that stands for what is no instruction.
pub const RAW_BYTE: u8 = 0;

/// The opcode symbol behind which another says which template it is of those that have no symbol of their own.
pub const MORE: u8 = 255;

/// How code is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InstructionSet {
    /// That of an i386.
    I386,
    /// Thumb-2 code of 32-bit ARM.
    Thumb,
    /// ARM code of 32-bit ARM.
    Arm,
}

impl InstructionSet {
    /// How many templates are made of others at best, before the most frequent are kept. Thumb-2 code has many opcodes,
    /// which would lose their symbols to them.
    pub fn merges(self) -> usize {
        match self {
            InstructionSet::I386 => 240,
            InstructionSet::Arm => 200,
            InstructionSet::Thumb => 120,
        }
    }

    /// The maximum size of the decoder in `kdecomp-rt/` in a kernel, in bytes: code for that machine, Thumb-2 code for
    /// 32-bit ARM, and constants, `decode.c` compiled with `-O2` and `open.c` with `-Os`. A test compiles it and
    /// compares.
    pub fn decoder_size(self) -> usize {
        match self {
            InstructionSet::I386 => 6700,
            InstructionSet::Thumb | InstructionSet::Arm => 4300,
        }
    }

    /// That of most instructions of 32-bit ARM among `bytes`. In ARM code, most words have the condition *always* (14) in
    /// their upper 4 bits; in Thumb code a sixteenth of them has, or somewhat more.
    pub fn of_arm(bytes: &[u8]) -> InstructionSet {
        let words = bytes.chunks_exact(4);
        let (all, always) = (words.len(), words.filter(|word| word[3] >> 4 == 14).count());
        if always * 2 > all { InstructionSet::Arm } else { InstructionSet::Thumb }
    }
}

/// A piece of code that is to be packed.
#[derive(Clone, Copy, Debug)]
pub struct Code<'b> {
    /// Where it lies.
    pub address: u32,
    /// Its bytes.
    pub bytes: &'b [u8],
    /// See [`Piece::leaving`].
    pub leaving: Option<&'b [u32]>,
}

impl<'b> Code<'b> {
    /// That of a piece.
    pub fn of(piece: &'b Piece) -> Code<'b> {
        Code { address: piece.address, bytes: &piece.bytes, leaving: piece.leaving.as_deref() }
    }
}

/// What all pages of code have in common besides the distributions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Model {
    /// Code of an i386.
    I386(i386::CodeModel),
    /// Code of 32-bit ARM, Thumb-2 or ARM.
    Arm(arm::ArmModel),
}

impl Model {
    /// The fields of its symbols.
    pub fn fields(&self) -> Fields {
        match self {
            Model::I386(_) => i386::field::ALL,
            Model::Arm(_) => arm::field::ALL,
        }
    }

    /// Those whose contexts are places, each like a field of its own.
    pub fn fields_by_place(&self) -> &'static [Field] {
        match self {
            Model::I386(_) => &[i386::field::IMM16, i386::field::BYTES],
            Model::Arm(_) => &[arm::field::BYTES],
        }
    }

    /// What the templates take, in bytes.
    pub fn template_size(&self) -> usize {
        match self {
            Model::I386(model) => TEMPLATE_SIZE * model.templates.len(),
            Model::Arm(model) => TEMPLATE_SIZE * model.templates.len() + FORMAT_SIZE * model.formats().len(),
        }
    }

    /// The upper byte of addresses near by, if it is not that of each page.
    pub fn high(&self) -> Option<u32> {
        match self {
            Model::I386(model) => model.high,
            Model::Arm(model) => model.high,
        }
    }

    /// Decodes a page that lies at `address` and runs at `runs_at`.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn decode<S: Source>(
        &self,
        source: &mut S,
        address: u32,
        runs_at: u32,
        out: &mut [u8],
    ) -> Result<(), Damaged> {
        match self {
            Model::I386(model) => model.decode(source, address, runs_at, out),
            Model::Arm(model) => model.decode(source, address, runs_at, out),
        }
    }
}

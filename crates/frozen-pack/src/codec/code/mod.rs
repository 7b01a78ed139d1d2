//! The layouts of pages of code: the symbols of an instruction, and their contexts.
//!
//! - An *opcode* symbol means a template: the start of an instruction, or whole instructions and the start of another
//!   ([`choose`]).
//! - The fields that the template leaves open follow, each as a symbol.
//! - 32-bit fields are [`values`]; the value of a branch is its target.
//! - Bytes that are not an instruction are literal, after the opcode symbol 0.
//!
//! An instruction across the end of a page is coded completely and then cut off. The next page begins with the number
//! of its remaining bytes, and these bytes as literals.

pub mod arm;
pub mod choose;
mod model;
pub mod pages;
pub mod values;
pub mod x86;

pub use model::Model;

/// The opcode symbol for bytes that are not an instruction.
pub const RAW_BYTE: u8 = 0;

/// The opcode symbol before the number of a template without a symbol of its own.
pub const MORE: u8 = 255;

/// The encoding of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InstructionSet {
    /// i386 code.
    I386,
    /// x86-64 code.
    X86_64,
    /// Thumb-2 code of 32-bit ARM.
    Thumb,
    /// ARM code of 32-bit ARM.
    Arm,
}

impl InstructionSet {
    /// Returns the best number of merged templates, before only the most frequent are kept. In Thumb-2 code, merged
    /// templates would take the symbols of its many opcodes.
    pub fn merges(self) -> usize {
        match self {
            InstructionSet::I386 => 240,
            InstructionSet::X86_64 | InstructionSet::Arm => 200,
            InstructionSet::Thumb => 120,
        }
    }

    /// Returns the maximum size of the decoder in `kdecomp-rt/` in a kernel, in bytes: code for the machine (Thumb-2
    /// code for 32-bit ARM) and constants, with `decode.c` compiled with `-O2` and `open.c` with `-Os`. A test compiles
    /// it and compares.
    pub fn decoder_size(self) -> usize {
        match self {
            InstructionSet::I386 => 6700,
            InstructionSet::X86_64 => 7200,
            InstructionSet::Thumb | InstructionSet::Arm => 4300,
        }
    }

    /// Returns the instruction set of most instructions of 32-bit ARM among `bytes`. In ARM code, most words have the
    /// condition *always* (14) in their upper 4 bits; in Thumb code, a sixteenth of the words or slightly more.
    pub fn of_arm(bytes: &[u8]) -> InstructionSet {
        let words = bytes.chunks_exact(4);
        let (all, always) = (words.len(), words.filter(|word| word[3] >> 4 == 14).count());
        if always * 2 > all { InstructionSet::Arm } else { InstructionSet::Thumb }
    }
}

/// A piece of code to pack.
#[derive(Clone, Copy, Debug)]
pub struct Code<'b> {
    /// Its address.
    pub address: u32,
    /// Its bytes.
    pub bytes: &'b [u8],
    /// See [`Piece::leaving`](crate::codec::pack::Piece::leaving).
    pub leaving: Option<&'b [u32]>,
}

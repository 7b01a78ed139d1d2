//! The fields of instructions of 32-bit ARM (*ARM Architecture Reference Manual, ARMv7-A and ARMv7-R edition*, chapters
//! A5 and A6).
//!
//! An instruction consists of the bits that a template contains, and of *parts*, each coded as a symbol. The choice of
//! parts affects only the packed size: any bits of an instruction decode correctly.

use super::field;
use crate::codec::code::InstructionSet;
use crate::codec::symbols::Field;

/// Maximum number of parts of an instruction.
pub const PARTS: usize = 6;

/// The context of a symbol besides the opcode symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum After {
    /// Nothing.
    Nothing = 0,
    /// The symbol of the previous part, 0 if the template contains it.
    Part = 1,
    /// The register that was written last.
    Register = 2,
    /// The opcode symbol of the previous instruction.
    Opcode = 3,
}

/// A part of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The field of its symbol, or of the form of its value.
    pub field: Field,
    /// Its lowest bit.
    pub shift: u8,
    /// Number of its bits, 1 to 8. Values have their own sizes.
    pub width: u8,
    /// Its context.
    pub after: After,
}

impl Part {
    /// Whether it is a symbol of plain bits, which a template can contain.
    pub fn is_plain(self) -> bool {
        self.field > field::LITERAL
    }

    /// Returns its bits of an instruction.
    pub fn of(self, word: u32) -> u8 {
        if self.field == field::PAIR {
            return (word & 15 | (word >> self.shift & 15) << 4) as u8;
        }
        (word >> self.shift & ((1 << self.width) - 1)) as u8
    }

    /// Returns the bits of an instruction for a symbol.
    pub fn place(self, symbol: u8) -> u32 {
        let symbol = u32::from(symbol);
        match self.field {
            field::PAIR => symbol & 15 | symbol >> 4 << self.shift,
            _ => symbol << self.shift,
        }
    }

    /// Returns its encoding in the format; not 0.
    pub fn to_bits(self) -> u16 {
        u16::from(self.shift)
            | u16::from(self.width - 1) << 5
            | (self.after as u16) << 8
            | u16::from(self.field) << 10
    }

    /// Decodes it from the format, unless the value is invalid.
    pub fn from_bits(bits: u16) -> Option<Part> {
        let after = [After::Nothing, After::Part, After::Register, After::Opcode][usize::from(bits >> 8 & 3)];
        let field = (bits >> 10) as u8;
        let is_field = field::PARTS.contains(&field);
        is_field.then_some(Part { field, shift: bits as u8 & 31, width: (bits >> 5 & 7) as u8 + 1, after })
    }
}

/// The parts of instructions of one kind. The first halfword of a Thumb-2 instruction is the lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Format {
    /// Whether it has 4 bytes rather than 2.
    pub is_wide: bool,
    /// The lowest bit of the number of the register that it writes, or else of another register that helps to predict
    /// the next symbol.
    pub register: Option<u8>,
    /// The parts, in the order in which they are coded.
    pub parts: [Option<Part>; PARTS],
}

impl Format {
    /// Its size in bytes.
    pub fn size(&self) -> usize {
        if self.is_wide { 4 } else { 2 }
    }

    /// The register that an instruction writes; otherwise the previous one.
    pub fn register_of(&self, word: u32, before: u8) -> u8 {
        let mask = if self.is_wide { 15 } else { 7 };
        self.register.map_or(before, |shift| (word >> shift) as u8 & mask)
    }

    /// The bits outside of all parts.
    pub fn opcode(&self, word: u32) -> u32 {
        let bits = |part: &Part| match part.field {
            field::WORD => u32::MAX,
            field::BRANCH if part.shift == 0 => THUMB_BRANCH,
            field::BRANCH => ARM_BRANCH,
            field::PAIR => 15 | 15 << part.shift,
            _ => ((1 << part.width) - 1) << part.shift,
        };
        word & !self.parts.iter().flatten().fold(0, |all, part| all | bits(part))
    }

    /// Returns its encoding in the file.
    pub fn to_halfwords(self) -> [u16; PARTS + 2] {
        let register = self.register.map_or(0, |shift| 0x20 | u16::from(shift));
        let mut halfwords = [0; PARTS + 2];
        halfwords[0] = register | u16::from(self.is_wide) << 6;
        for (halfword, part) in halfwords[1..].iter_mut().zip(self.parts.iter().flatten()) {
            *halfword = part.to_bits();
        }
        halfwords
    }

    /// Decodes it from the file, unless the value is invalid.
    pub fn from_halfwords(halfwords: [u16; PARTS + 2]) -> Option<Format> {
        let [head, parts @ .., end] = halfwords;
        let count = parts.iter().take_while(|bits| **bits != 0).count();
        let mut found = [None; PARTS];
        for (part, bits) in found.iter_mut().zip(&parts[..count]) {
            *part = Some(Part::from_bits(*bits)?);
        }
        let is_clean = end == 0 && head >> 7 == 0 && parts[count..].iter().all(|bits| *bits == 0);
        let register = (head & 0x20 != 0).then_some(head as u8 & 31);
        is_clean.then_some(Format { is_wide: head & 0x40 != 0, register, parts: found })
    }
}

/// The distance of `bl` and `b.w` in Thumb code.
const THUMB_BRANCH: u32 = 0x2FFF_07FF;

/// The distance of `b` and `bl` in ARM code.
const ARM_BRANCH: u32 = 0xFF_FFFF;

/// The position of the shift of a branch in ARM code, which distinguishes it from a branch in Thumb code.
pub const OF_ARM: u8 = 1;

/// Returns the distance of a branch from its end, given the instruction.
pub fn distance(part: Part, word: u32) -> u32 {
    if part.shift == OF_ARM {
        return ((word << 8) as i32 >> 6) as u32;
    }
    let sign = word >> 10 & 1;
    let bit = |at: u32| !(word >> at ^ sign) & 1;
    let high = sign << 24 | bit(29) << 23 | bit(27) << 22 | (word & 0x3FF) << 12 | (word >> 16 & 0x7FF) << 1;
    ((high << 7) as i32 >> 7) as u32
}

/// Returns the bits of a branch over a distance, in ARM or in Thumb code.
pub fn of_distance(is_arm: bool, distance: u32) -> u32 {
    if is_arm {
        return distance >> 2 & ARM_BRANCH;
    }
    let sign = distance >> 24 & 1;
    let bit = |at: u32| !(distance >> at ^ sign) & 1;
    sign << 10 | bit(23) << 29 | bit(22) << 27 | distance >> 12 & 0x3FF | (distance >> 1 & 0x7FF) << 16
}

/// Instructions with these bits under this mask, and their parts.
struct Pattern(u32, u32, Format);

const fn reg(shift: u8, width: u8, after: After) -> Part {
    Part { field: field::REGISTER, shift, width, after }
}

const fn pair(shift: u8, after: After) -> Part {
    Part { field: field::PAIR, shift, width: 8, after }
}

const fn imm(shift: u8, width: u8, after: After) -> Part {
    Part { field: field::IMMEDIATE, shift, width, after }
}

const fn dist(shift: u8, width: u8, after: After) -> Part {
    Part { field: field::DISTANCE, shift, width, after }
}

const fn list(shift: u8, width: u8, after: After) -> Part {
    Part { field: field::LIST, shift, width, after }
}

const fn special(field: Field, shift: u8) -> Part {
    Part { field, shift, width: 8, after: After::Nothing }
}

const fn format(is_wide: bool, register: Option<u8>, given: &[Part]) -> Format {
    let mut parts = [None; PARTS];
    let mut index = 0;
    while index < given.len() {
        parts[index] = Some(given[index]);
        index += 1;
    }
    Format { is_wide, register, parts }
}

const fn narrow(mask: u32, bits: u32, register: Option<u8>, parts: &[Part]) -> Pattern {
    Pattern(mask, bits, format(false, register, parts))
}

const fn wide(mask: u32, bits: u32, register: Option<u8>, parts: &[Part]) -> Pattern {
    Pattern(mask, bits, format(true, register, parts))
}

use After::{Nothing as N, Opcode as O, Part as P, Register as R};

/// Thumb instructions of 2 bytes.
const NARROW: [Pattern; 20] = [
    // add, sub: registers; immediates of 3 bits
    narrow(0xF800, 0x1800, Some(0), &[reg(0, 6, R), reg(6, 3, P)]),
    // lsl, lsr, asr
    narrow(0xE000, 0x0000, Some(0), &[reg(0, 6, R), imm(6, 5, P)]),
    // mov, cmp, add, sub
    narrow(0xE000, 0x2000, Some(8), &[reg(8, 3, R), imm(0, 8, P)]),
    // arithmetic
    narrow(0xFC00, 0x4000, Some(0), &[reg(0, 6, R)]),
    // bx, blx
    narrow(0xFF00, 0x4700, None, &[reg(3, 4, R)]),
    // add, cmp, mov
    narrow(0xFC00, 0x4400, Some(0), &[reg(0, 8, O)]),
    // ldr of a literal
    narrow(0xF800, 0x4800, Some(8), &[reg(8, 3, R), special(field::LITERAL, 0)]),
    // ldr, str: registers
    narrow(0xF000, 0x5000, Some(0), &[reg(0, 6, R), reg(6, 3, P)]),
    // str, ldr of words, bytes; of halfwords
    narrow(0xE000, 0x6000, Some(0), &[reg(0, 6, R), imm(6, 5, P)]),
    narrow(0xF000, 0x8000, Some(0), &[reg(0, 6, R), imm(6, 5, P)]),
    // str, ldr on the stack; adr, add to sp
    narrow(0xF000, 0x9000, Some(8), &[reg(8, 3, R), imm(0, 8, P)]),
    narrow(0xF000, 0xA000, Some(8), &[reg(8, 3, R), imm(0, 8, P)]),
    // cbz, cbnz
    narrow(0xF500, 0xB100, Some(0), &[reg(0, 3, R), dist(3, 5, N)]),
    // sxth and the like, rev
    narrow(0xF700, 0xB200, Some(0), &[reg(0, 6, R)]),
    // push, pop, add to sp, it
    narrow(0xF000, 0xB000, None, &[list(0, 8, O)]),
    // stm, ldm
    narrow(0xF000, 0xC000, None, &[reg(8, 3, R), list(0, 8, P)]),
    // b on a condition
    narrow(0xF000, 0xD000, None, &[dist(0, 8, N)]),
    // b, up to 512 bytes ahead; back; and others
    narrow(0xFF00, 0xE000, None, &[dist(0, 8, N)]),
    narrow(0xFF00, 0xE700, None, &[dist(0, 8, N)]),
    narrow(0xF800, 0xE000, None, &[dist(8, 3, N), dist(0, 8, P)]),
];

/// Thumb instructions of 4 bytes.
const WIDE: [Pattern; 17] = [
    // bl, b.w
    wide(0x9000_F800, 0x9000_F000, None, &[special(field::BRANCH, 0)]),
    // b.w on a condition
    wide(0xD000_F800, 0x8000_F000, None, &[dist(0, 6, N), dist(24, 3, P), dist(16, 8, N)]),
    // stm, ldm
    wide(0xFE40, 0xE800, None, &[reg(0, 4, R), list(24, 8, P), list(16, 8, P)]),
    // strd, ldrd, strex, ldrex
    wide(0xFE40, 0xE840, Some(28), &[pair(28, R), reg(24, 4, P), imm(16, 8, P)]),
    // coprocessors
    wide(0xEC00, 0xEC00, Some(28), &[imm(0, 8, N), reg(28, 4, R), imm(24, 4, N), imm(16, 8, N)]),
    // arithmetic with a register, which is not shifted
    wide(0x70F0_FE00, 0xEA00, Some(24), &[pair(24, R), reg(16, 4, P)]),
    // and with a shifted one
    wide(0xFE00, 0xEA00, Some(24), &[pair(24, R), reg(16, 8, P), imm(28, 3, N)]),
    // arithmetic with immediates of 8 bits
    wide(0xF000_F800, 0xF000, Some(24), &[pair(24, R), imm(16, 8, P)]),
    // and with others
    wide(0x8000_F800, 0xF000, Some(24), &[pair(24, R), imm(28, 3, N), imm(16, 8, P)]),
    // ldr of a literal
    wide(0xFE1F, 0xF81F, Some(28), &[reg(28, 4, R), imm(24, 4, N), imm(16, 8, N)]),
    // ldr, str of words with an offset below 1024; of others, with one below 256
    wide(0x0C03_FFE0, 0xF8C0, Some(28), &[pair(28, R), imm(18, 8, P)]),
    wide(0x0F00_FE80, 0xF880, Some(28), &[pair(28, R), imm(16, 8, P)]),
    // and with one of 12 bits
    wide(0xFE80, 0xF880, Some(28), &[pair(28, R), imm(24, 4, N), imm(16, 8, P)]),
    // and of 8 bits
    wide(0x0800_FE80, 0x0800_F800, Some(28), &[pair(28, R), imm(16, 8, N)]),
    // and with a register
    wide(0xFE80, 0xF800, Some(28), &[pair(28, R), reg(16, 6, P)]),
    // shifts, extensions
    wide(0xFF00, 0xFA00, Some(24), &[pair(24, R), reg(16, 4, P)]),
    // multiplication and rare instructions
    wide(0, 0, Some(24), &[pair(24, R), reg(16, 4, P), reg(28, 4, P)]),
];

/// ARM instructions.
const ARM: [Pattern; 10] = [
    // bl, b
    wide(0x0E00_0000, 0x0A00_0000, None, &[special(field::BRANCH, OF_ARM)]),
    // ldr of a literal behind it
    wide(0xFFFF_0000, 0xE59F_0000, Some(12), &[reg(12, 4, R), special(field::LITERAL, 2)]),
    // stm, ldm
    wide(0x0E00_0000, 0x0800_0000, None, &[reg(16, 4, R), list(8, 8, P), list(0, 8, P)]),
    // arithmetic with immediates, ldr, str: of 8 bits, and others
    wide(0xFE00_0F00, 0xE200_0000, Some(12), &[reg(12, 8, R), imm(0, 8, P)]),
    wide(0xFE00_0F00, 0xE400_0000, Some(12), &[reg(12, 8, R), imm(0, 8, P)]),
    wide(0xFE00_0000, 0xE200_0000, Some(12), &[reg(12, 8, R), imm(8, 4, N), imm(0, 8, P)]),
    wide(0xFE00_0000, 0xE400_0000, Some(12), &[reg(12, 8, R), imm(8, 4, N), imm(0, 8, P)]),
    // everything else without a condition: unshifted, and others
    wide(0xF000_0F00, 0xE000_0000, Some(12), &[reg(12, 8, R), reg(0, 4, P)]),
    wide(0xF000_0000, 0xE000_0000, Some(12), &[reg(12, 8, R), reg(0, 4, P), imm(8, 4, P)]),
    // conditions
    wide(0, 0, Some(12), &[reg(28, 4, N), reg(12, 8, R), imm(8, 4, N), imm(0, 8, P)]),
];

/// A literal.
pub const WORD: Format = format(true, None, &[special(field::WORD, 0)]);

/// Returns the instruction at the start of `bytes`, and its parts; `None` if there are too few bytes.
pub fn instruction(set: InstructionSet, bytes: &[u8]) -> Option<(u32, Format)> {
    let low = u32::from(u16::from_le_bytes(*bytes.first_chunk()?));
    let word = bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let (word, patterns): (u32, &[Pattern]) = match set {
        InstructionSet::Arm => (word?, &ARM),
        _ if low >= 0xE800 => (word?, &WIDE),
        _ => (low, &NARROW),
    };
    patterns.iter().find(|pattern| word & pattern.0 == pattern.1).map(|pattern| (word, pattern.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_parts_have_the_same_bits_and_all_bits_come_back() {
        for Pattern(mask, bits, format) in NARROW.iter().chain(&WIDE).chain(&ARM) {
            let plain = || format.parts.iter().flatten().filter(|part| part.is_plain());
            for word in [0, u32::MAX, 0x1234_5678, 0xFEDC_BA98].map(|word| word & !mask | bits) {
                let placed = plain().map(|part| part.place(part.of(word)));
                assert_eq!(
                    placed.clone().fold(0, |all, part| all | part),
                    word & plain_bits(format),
                    "{word:x}"
                );
                assert_eq!(
                    placed.map(u32::count_ones).sum::<u32>(),
                    (word & plain_bits(format)).count_ones()
                );
            }
        }
    }

    /// The bits of plain parts.
    fn plain_bits(format: &Format) -> u32 {
        let parts = format.parts.map(|part| part.filter(|part| part.is_plain()));
        !Format { parts, ..*format }.opcode(u32::MAX)
    }
}

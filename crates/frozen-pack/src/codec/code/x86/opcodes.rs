//! The fields of i386 and x86-64 instructions (Intel, *Software Developer's Manual*, volume 2, chapter 2 and appendix
//! A).

/// The operand after the opcode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operand {
    /// Nothing.
    #[default]
    None = 0,
    /// An immediate of 1 byte.
    Imm8 = 1,
    /// An immediate of 2 bytes.
    Imm16 = 2,
    /// An immediate of 4 bytes.
    Imm32 = 3,
    /// A displacement of 1 byte, of a branch.
    Rel8 = 4,
    /// A displacement of 4 bytes, of a branch.
    Rel32 = 5,
    /// An address of 4 bytes.
    Address = 6,
    /// An immediate of 8 bytes, only in x86-64 code.
    Imm64 = 7,
}

impl Operand {
    /// Returns the operand with this number.
    pub fn from_number(number: u8) -> Option<Operand> {
        use Operand::*;
        [None, Imm8, Imm16, Imm32, Rel8, Rel32, Address, Imm64].get(usize::from(number)).copied()
    }

    /// Returns its size in bytes.
    pub fn size(self) -> usize {
        [0, 1, 2, 4, 1, 4, 4, 8][self as usize]
    }
}

/// The rest of an instruction after its opcode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Format {
    /// Whether a ModRM byte follows, possibly with a SIB byte and a displacement.
    pub mod_rm: bool,
    /// The operand, at the end.
    pub operand: Operand,
    /// Whether the operand exists only if the `reg` field of ModRM is 0 or 1 (`test` in groups 3).
    pub only_test: bool,
}

/// The displacement after a ModRM byte and its SIB byte, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Displacement {
    /// None.
    #[default]
    None = 0,
    /// One byte.
    Byte = 1,
    /// Four bytes.
    Word = 2,
}

impl Displacement {
    /// Returns the displacement with this number.
    pub fn from_number(number: u8) -> Option<Displacement> {
        use Displacement::*;
        [None, Byte, Word].get(usize::from(number)).copied()
    }

    /// Returns its size in bytes.
    pub fn size(self) -> usize {
        [0, 1, 4][self as usize]
    }
}

/// Whether a SIB byte follows a ModRM byte.
pub fn has_sib(mod_rm: u8) -> bool {
    mod_rm < 0xC0 && mod_rm & 7 == 4
}

/// Returns the displacement after a ModRM byte, given the number of the base register in ModRM or SIB.
pub fn displacement(mod_rm: u8, base: u8) -> Displacement {
    match mod_rm >> 6 {
        0 if base & 7 == 5 => Displacement::Word,
        1 => Displacement::Byte,
        2 => Displacement::Word,
        _ => Displacement::None,
    }
}

/// Returns whether the displacement of x86-64 code after a ModRM byte counts from the end of the instruction.
pub fn is_relative(mod_rm: u8) -> bool {
    mod_rm & 0xC7 == 5
}

/// Returns whether a byte before an opcode is a prefix; a REX prefix is one only in x86-64 code.
pub fn is_prefix(byte: u8, is_64: bool) -> bool {
    matches!(byte, 0x26 | 0x2E | 0x36 | 0x3E | 0x64 | 0x65 | 0x66 | 0xF0 | 0xF2 | 0xF3)
        || is_64 && byte >> 4 == 4
}

/// Returns the prefixes and opcode at the start of `bytes`, at most 3 for an i386 and 5 for x86-64, and the format of
/// the instruction. `None` for rare ones, which are coded as literal bytes.
pub fn opcode(bytes: &[u8], is_64: bool) -> Option<(&[u8], Format)> {
    let prefixes = bytes.iter().take_while(|&&byte| is_prefix(byte, is_64)).count();
    let rex = bytes[..prefixes].last().filter(|&&last| is_64 && last >> 4 == 4);
    let long = rex.is_some_and(|rex| rex & 8 != 0);
    let wide = long || !bytes[..prefixes].contains(&0x66);
    let first = *bytes.get(prefixes)?;
    let second = bytes.get(prefixes + 1).copied();
    let (len, format) = match first {
        0x0F if is_64 && matches!(second, Some(0x38 | 0x3A)) => (prefixes + 3, three_byte(second?)),
        0x0F => (prefixes + 2, two_byte(second?, wide)?),
        0xA0..0xA4 if is_64 => return None,
        0xB8..0xC0 if long => (prefixes + 1, Format { operand: Operand::Imm64, ..Format::default() }),
        _ => (prefixes + 1, one_byte(first, wide)?),
    };
    let most = if is_64 { 5 } else { 3 };
    Some((bytes.get(..len).filter(|_| len <= most)?, format))
}

fn three_byte(map: u8) -> Format {
    let operand = if map == 0x3A { Operand::Imm8 } else { Operand::None };
    Format { mod_rm: true, operand, only_test: false }
}

fn one_byte(opcode: u8, wide: bool) -> Option<Format> {
    use Operand::*;
    let full = if wide { Imm32 } else { Imm16 };
    let format = |mod_rm, operand| Some(Format { mod_rm, operand, only_test: false });
    match opcode {
        0x00..0x40 => match opcode & 7 {
            0..4 => format(true, None),
            4 => format(false, Imm8),
            5 => format(false, full),
            // Segment registers, decimal adjustment; 0F and prefixes are handled above.
            _ => format(false, None),
        },
        0x40..0x62 => format(false, None),
        0x62 | 0x63 => format(true, None),
        0x68 => format(false, full),
        0x69 => format(true, full),
        0x6A => format(false, Imm8),
        0x6B => format(true, Imm8),
        0x6C..0x70 => format(false, None),
        0x70..0x80 | 0xE0..0xE4 | 0xEB => format(false, Rel8),
        0x80 | 0x82 | 0x83 => format(true, Imm8),
        0x81 => format(true, full),
        0x84..0x90 => format(true, None),
        0x90..=0x99 | 0x9B..=0x9F => format(false, None),
        0xA0..0xA4 => format(false, Address),
        0xA4..0xA8 | 0xAA..0xB0 => format(false, None),
        0xA8 => format(false, Imm8),
        0xA9 => format(false, full),
        0xB0..0xB8 => format(false, Imm8),
        0xB8..0xC0 => format(false, full),
        0xC0 | 0xC1 | 0xC6 => format(true, Imm8),
        0xC2 => format(false, Imm16),
        0xC7 => format(true, full),
        0xC3 | 0xC9 | 0xCC | 0xCE | 0xCF => format(false, None),
        0xCD | 0xD4 | 0xD5 => format(false, Imm8),
        0xD0..0xD4 | 0xD8..0xE0 => format(true, None),
        0xD6 | 0xD7 => format(false, None),
        0xE4..0xE8 => format(false, Imm8),
        // With a prefix 66, branches have 16 bits.
        0xE8 | 0xE9 if wide => format(false, Rel32),
        0xEC..=0xEF | 0xF1 | 0xF4 | 0xF5 | 0xF8..0xFE => format(false, None),
        0xF6 => Some(Format { mod_rm: true, operand: Imm8, only_test: true }),
        0xF7 => Some(Format { mod_rm: true, operand: full, only_test: true }),
        0xFE | 0xFF => format(true, None),
        _ => Option::None,
    }
}

fn two_byte(opcode: u8, wide: bool) -> Option<Format> {
    use Operand::*;
    let format = |mod_rm, operand| Some(Format { mod_rm, operand, only_test: false });
    match opcode {
        0x80..0x90 if wide => format(false, Rel32),
        0x05..=0x0B | 0x0E | 0x30..=0x37 | 0x77 | 0xA0..=0xA2 | 0xA8..=0xAA | 0xC8..=0xCF => {
            format(false, None)
        }
        0x70..0x74 | 0xA4 | 0xAC | 0xBA | 0xC2 | 0xC4..0xC7 => format(true, Imm8),
        0x00..=0x03 | 0x0D | 0x10..=0x1F | 0x28..=0x2F | 0x40..=0x6F | 0x74..0x77 | 0x90..0xA0 => {
            format(true, None)
        }
        0xA3 | 0xA5 | 0xAB | 0xAD..0xBA | 0xBB..0xC2 | 0xC3 | 0xC7 | 0xD0..=0xFF => format(true, None),
        _ => Option::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::code::choose::Template as _;
    use crate::codec::code::x86::template::Template;

    /// The length of an instruction according to its fields.
    fn length(bytes: &[u8], is_64: bool) -> Option<usize> {
        let (prefix, format) = opcode(bytes, is_64)?;
        let mut template = Template::new(prefix, format);
        while let Some(longer) = template.then_symbol(bytes[usize::from(template.len)]) {
            template = longer;
        }
        let follows = template.follows;
        let word = if follows.displacement == Displacement::Word { 4 } else { 0 };
        Some(usize::from(template.len) + word + follows.operand.size())
    }

    /// Compares the lengths of instructions with the decoder of the instruction set.
    fn compare(machine: kelf::Machine, prefixes: &[&[u8]], maps: &[&[u8]]) {
        let (isa, is_64) = (kisa::isa(machine), machine == kelf::Machine::X86_64);
        let (mut same, mut differ) = (0, Vec::new());
        for (prefix, map) in prefixes.iter().flat_map(|prefix| maps.iter().map(move |map| (prefix, map))) {
            for (opcode, mod_rm) in (0..=255).flat_map(|opcode| (0..=255).map(move |mod_rm| (opcode, mod_rm)))
            {
                let mut bytes = [prefix, *map, &[opcode, mod_rm, 0x25]].concat();
                bytes.resize(24, 0x11);
                let Some(kisa::Inst { insn, .. }) = isa.decode(&bytes, kisa::Encoding::Main.at(0)) else {
                    continue;
                };
                match length(&bytes, is_64) {
                    Some(length) if length == usize::from(insn.len) => same += 1,
                    // Rare instructions are coded as literal bytes, and so are instructions with a wrong length.
                    Some(length) => differ.push((bytes, length, insn.len)),
                    None => {}
                }
            }
        }
        assert!(same > 100_000, "{same}");
        assert!(differ.len() * 500 < same, "{} differ, such as {:02X?}", differ.len(), differ.first());
    }

    #[test]
    fn instructions_end_where_the_decoder_of_the_instruction_set_says() {
        let prefixes: [&[u8]; 5] = [&[], &[0x66], &[0xF0], &[0x64], &[0xF3]];
        compare(kelf::Machine::I386, &prefixes, &[&[], &[0x0F]]);
        let prefixes: [&[u8]; 7] =
            [&[], &[0x66], &[0x65, 0x4D], &[0x48], &[0x41], &[0xF3, 0x48], &[0x66, 0x44]];
        compare(kelf::Machine::X86_64, &prefixes, &[&[], &[0x0F], &[0x0F, 0x38], &[0x0F, 0x3A]]);
    }
}

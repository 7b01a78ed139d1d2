//! Templates of opcode symbols: the start of an instruction, or whole instructions and the start of another.

use super::opcodes::{self, Displacement, Format, Operand};

/// Maximum number of bytes of a template.
pub const LONGEST: usize = 8;

/// Bytes of code, and the rest of the last instruction that follows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Template {
    /// The bytes; `len` of them are valid.
    pub bytes: [u8; LONGEST],
    /// Number of valid bytes.
    pub len: u8,
    /// ModRM of the last instruction, if it is among the bytes, else 0.
    pub mod_rm: u8,
    /// The fields that follow.
    pub follows: Follows,
}

/// The fields of an instruction that follow, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Follows {
    /// ModRM, with the SIB and displacement that it implies.
    pub mod_rm: bool,
    /// SIB, with the displacement that SIB and ModRM imply.
    pub sib: bool,
    /// A displacement.
    pub displacement: Displacement,
    /// The operand at the end.
    pub operand: Operand,
    /// Whether the operand exists only if the `reg` field of the following ModRM byte is 0 or 1.
    pub only_test: bool,
}

/// A field of one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    ModRm,
    Sib,
    Displacement,
    Operand,
}

impl Follows {
    /// Returns the fields that follow a ModRM byte.
    pub fn given_mod_rm(self, mod_rm: u8) -> Follows {
        let operand = if self.only_test && mod_rm >> 3 & 7 > 1 { Operand::None } else { self.operand };
        let sib = opcodes::has_sib(mod_rm);
        let displacement = if sib { Displacement::None } else { opcodes::displacement(mod_rm, mod_rm) };
        Follows { mod_rm: false, sib, displacement, operand, only_test: false }
    }

    /// Returns the fields that follow a SIB byte, given the ModRM byte before it.
    pub fn given_sib(self, mod_rm: u8, sib: u8) -> Follows {
        Follows { sib: false, displacement: opcodes::displacement(mod_rm, sib), ..self }
    }

    /// Returns the next field, if it has one byte.
    fn next(self) -> Option<Next> {
        match self {
            Follows { mod_rm: true, .. } => Some(Next::ModRm),
            Follows { sib: true, .. } => Some(Next::Sib),
            Follows { displacement: Displacement::Byte, .. } => Some(Next::Displacement),
            Follows { displacement: Displacement::Word, .. } => None,
            Follows { operand: Operand::Imm8 | Operand::Rel8, .. } => Some(Next::Operand),
            _ => None,
        }
    }

    /// Returns the encoding as a byte of the format.
    pub fn to_byte(self) -> u8 {
        u8::from(self.mod_rm)
            | u8::from(self.sib) << 1
            | (self.displacement as u8) << 2
            | (self.operand as u8) << 4
            | u8::from(self.only_test) << 7
    }

    /// Decodes a byte of the format, unless it is invalid.
    pub fn from_byte(byte: u8) -> Option<Follows> {
        Some(Follows {
            mod_rm: byte & 1 != 0,
            sib: byte & 2 != 0,
            displacement: Displacement::from_number(byte >> 2 & 3)?,
            operand: Operand::from_number(byte >> 4 & 7)?,
            only_test: byte & 0x80 != 0,
        })
    }
}

impl Template {
    /// Creates a template from prefixes and opcode, and the opcode's format.
    pub fn new(prefix: &[u8], format: Format) -> Template {
        let Format { mod_rm, operand, only_test } = format;
        let follows = Follows { mod_rm, operand, only_test, ..Follows::default() };
        let mut template = Template { len: prefix.len() as u8, follows, ..Template::default() };
        template.bytes[..prefix.len()].copy_from_slice(prefix);
        template
    }

    fn with(&self, more: &[u8]) -> Option<Template> {
        let mut longer = *self;
        longer.bytes.get_mut(usize::from(self.len)..)?.get_mut(..more.len())?.copy_from_slice(more);
        longer.len += more.len() as u8;
        Some(longer)
    }
}

impl crate::codec::code::choose::Template for Template {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    fn then_symbol(&self, byte: u8) -> Option<Template> {
        let next = self.follows.next()?;
        let mut longer = self.with(&[byte])?;
        match next {
            Next::ModRm => {
                longer.mod_rm = byte;
                longer.follows = self.follows.given_mod_rm(byte);
            }
            Next::Sib => longer.follows = self.follows.given_sib(self.mod_rm, byte),
            Next::Displacement => longer.follows.displacement = Displacement::None,
            Next::Operand => longer.follows.operand = Operand::None,
        }
        Some(longer)
    }

    fn then(&self, other: &Template) -> Option<Template> {
        let longer = self.with(other.bytes())?;
        let Template { bytes, len, .. } = longer;
        (self.follows == Follows::default()).then_some(Template { bytes, len, ..*other })
    }
}

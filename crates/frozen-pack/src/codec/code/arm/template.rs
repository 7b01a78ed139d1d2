//! Templates of opcode symbols: the start of an instruction, or whole instructions and the start of another.

use super::format::Format;
use crate::codec::code::choose;

/// Maximum number of bytes of a template.
pub const LONGEST: usize = 8;

/// Bytes of code, and the rest of the last instruction that follows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Template {
    /// The bytes, without the bits of the last instruction that follow; `len` of them are valid.
    pub bytes: [u8; LONGEST],
    /// Number of valid bytes.
    pub len: u8,
    /// The parts of the last instruction.
    pub format: Format,
    /// Number of its first parts that are among the bytes.
    pub included_parts: u8,
}

impl Template {
    /// An instruction without its parts.
    pub fn new(word: u32, format: Format) -> Template {
        let len = format.size() as u8;
        let mut bytes = [0; LONGEST];
        bytes[..4].copy_from_slice(&format.opcode(word).to_le_bytes());
        Template { bytes, len, format, included_parts: 0 }
    }

    /// The start of the last instruction.
    pub fn last(&self) -> usize {
        usize::from(self.len) - self.format.size()
    }
}

impl choose::Template for Template {
    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    fn then_symbol(&self, symbol: u8) -> Option<Template> {
        let part = (*self.format.parts.get(usize::from(self.included_parts))?)?;
        let mut longer = *self;
        for (byte, bits) in longer.bytes[self.last()..].iter_mut().zip(part.place(symbol).to_le_bytes()) {
            *byte |= bits;
        }
        longer.included_parts += 1;
        Some(longer)
    }

    fn then(&self, other: &Template) -> Option<Template> {
        let is_complete = self.format.parts.get(usize::from(self.included_parts)).is_none_or(Option::is_none);
        let (start, end) = (usize::from(self.len), usize::from(self.len + other.len));
        let mut longer = Template { bytes: self.bytes, len: end as u8, ..*other };
        longer.bytes.get_mut(start..end)?.copy_from_slice(other.bytes());
        is_complete.then_some(longer)
    }
}

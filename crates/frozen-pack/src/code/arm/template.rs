//! What an opcode symbol stands for: the beginning of an instruction, or instructions and the beginning of another.

use super::format::Format;
use crate::code::choose;

/// The most bytes that a template has.
pub const LONGEST: usize = 8;

/// Bytes of code, and what of the last instruction among them follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Template {
    /// The bytes, without those bits of the last instruction that follow; what of them counts is given by `len`.
    pub bytes: [u8; LONGEST],
    /// How many of the bytes there are.
    pub len: u8,
    /// How the last instruction is cut.
    pub format: Format,
    /// How many of its parts, the first ones, are among the bytes.
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

    /// Where the last instruction begins.
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

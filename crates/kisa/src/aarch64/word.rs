//! An instruction word and its fields.

use crate::semantics::{Reg, TEMPORARY, Value};

use super::registers::SP;

/// An instruction.
#[derive(Clone, Copy)]
pub(crate) struct Word(pub(super) u32);

impl Word {
    pub(super) fn read(bytes: &[u8]) -> Option<Word> {
        bytes.first_chunk().map(|&bytes| Word(u32::from_le_bytes(bytes)))
    }

    /// Whether the bits of `mask` equal those of `value`.
    pub(super) fn is(self, mask: u32, value: u32) -> bool {
        self.0 & mask == value
    }

    /// Returns the field of `width` bits that begins with bit `low`.
    pub(super) fn field(self, low: u32, width: u32) -> u32 {
        self.0 >> low & ((1 << width) - 1)
    }

    pub(super) fn bit(self, bit: u32) -> bool {
        self.0 >> bit & 1 != 0
    }

    /// Returns the field as a signed number.
    pub(super) fn signed(self, low: u32, width: u32) -> i64 {
        i64::from(((self.field(low, width) << (32 - width)) as i32) >> (32 - width))
    }

    /// Returns the width of a data-processing instruction in bytes.
    pub(super) fn width(self) -> u8 {
        if self.bit(31) { 8 } else { 4 }
    }

    /// Returns the number of the register in the field that begins with bit `low`.
    fn number(self, low: u32) -> u8 {
        self.field(low, 5) as u8
    }

    /// Returns a destination register; [`TEMPORARY`] for the zero register, which discards writes.
    pub(super) fn reg(self, low: u32) -> Reg {
        match self.number(low) {
            31 => TEMPORARY,
            number => Reg(number),
        }
    }

    /// Returns a destination register, where 31 is the stack pointer.
    pub(super) fn reg_or_sp(self, low: u32) -> Reg {
        Reg(self.number(low))
    }

    /// Returns the value of a register, where 31 is zero.
    pub(super) fn value(self, low: u32, width: u8) -> Value {
        match self.number(low) {
            31 => Value::Const(0),
            number => Value::Reg { reg: Reg(number), width },
        }
    }

    /// Returns the value of a register, where 31 is the stack pointer.
    pub(super) fn value_or_sp(self, low: u32, width: u8) -> Value {
        Value::Reg { reg: Reg(self.number(low)), width }
    }

    /// Returns the register in a field, as a bit; no bit for number 31.
    pub(super) fn as_bit(self, low: u32) -> u64 {
        1 << self.number(low) & !(1 << SP.0)
    }

    /// Returns the mask of a logical immediate (`DecodeBitMasks` in the manual); `None` if it is reserved.
    pub(super) fn bit_mask(self) -> Option<u64> {
        let (n, immr, imms) = (self.field(22, 1), self.field(16, 6), self.field(10, 6));
        let length = (n << 6 | !imms & 0x3f).checked_ilog2()?;
        let size = 1u32 << length;
        let (rotation, ones) = (immr & (size - 1), (imms & (size - 1)) + 1);
        if ones == size || (n == 1 && !self.bit(31)) {
            return None;
        }
        let element = (1u64 << ones) - 1;
        let all = if size == 64 { u64::MAX } else { (1 << size) - 1 };
        let rotated = match rotation {
            0 => element,
            _ => (element >> rotation | element << (size - rotation)) & all,
        };
        // Repeat it over the word.
        let mask = rotated.wrapping_mul(u64::MAX / all);
        Some(if self.bit(31) { mask } else { mask & 0xffff_ffff })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks() {
        // and x0, x0, #0xfffffffffffffff0
        assert_eq!(Word(0x927c_ec00).bit_mask(), Some(!0xf));
        // and w0, w0, #0xff
        assert_eq!(Word(0x1200_1c00).bit_mask(), Some(0xff));
        // mov x0, #0x5555555555555555
        assert_eq!(Word(0xb200_f3e0).bit_mask(), Some(0x5555_5555_5555_5555));
        // All ones are reserved.
        assert_eq!(Word(0x927f_fc00).bit_mask(), None);
    }
}

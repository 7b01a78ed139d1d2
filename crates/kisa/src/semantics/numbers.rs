//! Arithmetic on numbers of a width in bytes.

use super::BinaryOp;

/// Returns all ones in the low `width` bytes.
pub fn low_mask(width: u8) -> u64 {
    if width >= 8 { u64::MAX } else { (1 << (8 * u32::from(width))) - 1 }
}

/// Returns the low `width` bytes of a number.
pub fn low_bytes(number: u64, width: u8) -> u64 {
    number & low_mask(width)
}

/// Returns the low `width` bytes of a number, sign-extended.
pub fn sign_extend(number: u64, width: u8) -> u64 {
    let unused = 64 - 8 * u32::from(width.clamp(1, 8));
    ((number << unused) as i64 >> unused) as u64
}

impl BinaryOp {
    /// Computes the operation on two numbers, in the low `width` bytes; `None` for a shift by 64 bits or more, which
    /// machines define differently.
    pub fn compute(self, left: u64, right: u64, width: u8) -> Option<u64> {
        let number = match self {
            BinaryOp::Add => left.wrapping_add(right),
            BinaryOp::Sub => left.wrapping_sub(right),
            BinaryOp::And => left & right,
            BinaryOp::Or => left | right,
            BinaryOp::Xor => left ^ right,
            BinaryOp::Shl => left.checked_shl(u32::try_from(right).ok()?)?,
            BinaryOp::Shr => low_bytes(left, width).checked_shr(u32::try_from(right).ok()?)?,
        };
        Some(low_bytes(number, width))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_as_wide_as_the_operation() {
        assert_eq!(BinaryOp::Add.compute(0xffff_ffff, 1, 4), Some(0));
        assert_eq!(BinaryOp::Sub.compute(0, 1, 2), Some(0xffff));
        assert_eq!(BinaryOp::And.compute(0x1ff, 0x1f0, 1), Some(0xf0));
        assert_eq!(BinaryOp::Or.compute(0x100, 1, 8), Some(0x101));
        assert_eq!(BinaryOp::Xor.compute(0xff, 0x0f, 1), Some(0xf0));
        assert_eq!(BinaryOp::Shl.compute(0x80, 1, 1), Some(0));
        // A right shift brings in zeros, not the bits above `width` bytes.
        assert_eq!(BinaryOp::Shr.compute(0x1_0000_0000, 1, 4), Some(0));
        assert_eq!(BinaryOp::Shl.compute(1, 64, 8), None);
    }

    #[test]
    fn extensions() {
        assert_eq!(sign_extend(0x80, 1), 0xffff_ffff_ffff_ff80);
        assert_eq!(sign_extend(0x1_7fff_ffff, 4), 0x7fff_ffff);
        assert_eq!(low_bytes(0x1234, 1), 0x34);
        assert_eq!(low_mask(8), u64::MAX);
    }
}

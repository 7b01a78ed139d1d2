//! The arithmetic of numbers of a few bytes.

use kisa::BinaryOp;

/// All ones in the low `width` bytes.
pub(crate) fn low_mask(width: u8) -> u64 {
    if width >= 8 { u64::MAX } else { (1 << (8 * u32::from(width))) - 1 }
}

/// The low `width` bytes, sign-extended.
pub(crate) fn sign_extend(number: u64, width: u8) -> u64 {
    let unused = 64 - 8 * u32::from(width.clamp(1, 8));
    ((number << unused) as i64 >> unused) as u64
}

/// What an operation makes of two numbers of so many bytes; `None` where that is not known.
pub(crate) fn compute(op: BinaryOp, a: u64, b: u64, width: u8) -> Option<u64> {
    let number = match op {
        BinaryOp::Add => a.wrapping_add(b),
        BinaryOp::Sub => a.wrapping_sub(b),
        BinaryOp::And => a & b,
        BinaryOp::Or => a | b,
        BinaryOp::Xor => a ^ b,
        BinaryOp::Shl => a.checked_shl(u32::try_from(b).ok()?)?,
        BinaryOp::Shr => (a & low_mask(width)).checked_shr(u32::try_from(b).ok()?)?,
    };
    Some(number & low_mask(width))
}

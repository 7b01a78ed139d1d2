//! Instructions that overwrite registers and flags, by which tests show that nothing reads them.

use crate::Reg;

/// The number that registers are overwritten with, and the stack pointer is compared with to overwrite the flags.
const OTHER: u32 = 0x5a5a_a5a5;

/// See [`crate::Rewritable::encode_overwrite`].
pub(super) fn overwrite(bits: u32, reg: Reg, out: &mut Vec<u8>) {
    // mov $OTHER,%reg
    if bits == 64 {
        out.push(0x40 | reg.0 >> 3 & 1);
    }
    out.push(0xb8 | reg.0 & 7);
    out.extend(OTHER.to_le_bytes());
}

/// See [`crate::Rewritable::encode_overwrite_flags`].
pub(super) fn overwrite_flags(out: &mut Vec<u8>) {
    // cmp $OTHER,%esp
    out.extend([0x81, 0xfc]);
    out.extend(OTHER.to_le_bytes());
}

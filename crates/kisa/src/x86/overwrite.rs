//! Instructions that overwrite registers and flags. Tests use them to show that nothing reads these.

use crate::Reg;

/// The number that overwrites registers, and that the stack pointer is compared with to overwrite the flags.
const OTHER: u32 = 0x5a5a_a5a5;

/// See [`crate::Rewritable::encode_overwrite`].
pub(super) fn overwrite(reg: Reg, out: &mut Vec<u8>) {
    number(reg, OTHER, false, out)
}

/// See [`crate::Rewritable::encode_number`].
pub(super) fn number(reg: Reg, number: u32, flags_may_change: bool, out: &mut Vec<u8>) {
    let low = reg.0 & 7;
    let high = reg.0 >> 3 & 1;
    if number == 0 && flags_may_change {
        // xor %reg,%reg
        if high != 0 {
            out.push(0x45);
        }
        return out.extend([0x31, 0xc0 | low << 3 | low]);
    }
    // mov $number,%reg
    if high != 0 {
        out.push(0x41);
    }
    out.push(0xb8 | low);
    out.extend(number.to_le_bytes());
}

/// See [`crate::Rewritable::encode_overwrite_flags`].
pub(super) fn overwrite_flags(out: &mut Vec<u8>) {
    // cmp $OTHER,%esp
    out.extend([0x81, 0xfc]);
    out.extend(OTHER.to_le_bytes());
}

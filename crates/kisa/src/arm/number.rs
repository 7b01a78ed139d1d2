//! Numbers in instructions, and instructions that put numbers into registers.

use super::op::{PC, SP, field};
use crate::{Encoding, Reg};

/// The number that registers are overwritten with: all its bytes are equal, so every encoding can express it.
const OTHER: u32 = 0xa5a5_a5a5;

/// See [`crate::Rewritable::encode_overwrite`].
pub(super) fn overwrite(encoding: Encoding, reg: Reg, out: &mut Vec<u8>) -> bool {
    let number = if encoding == Encoding::Main { 0xa5 } else { OTHER };
    self::number(encoding, reg, number, false, out)
}

/// See [`crate::Rewritable::encode_overwrite_flags`].
pub(super) fn overwrite_flags(encoding: Encoding, out: &mut Vec<u8>) {
    // cmp sp, #0; in Thumb code, cmp r0, r0
    match encoding {
        Encoding::Main => out.extend(0xe35d_0000u32.to_le_bytes()),
        Encoding::Thumb => out.extend(0x4280u16.to_le_bytes()),
    }
}

/// See [`crate::Rewritable::encode_number`]. Thumb instructions of two halfwords require a processor that has them
/// (ARMv6T2); `movw` of ARM code, which came with them, is not used.
pub(super) fn number(
    encoding: Encoding,
    reg: Reg,
    number: u32,
    flags_may_change: bool,
    out: &mut Vec<u8>,
) -> bool {
    let dst = u32::from(reg.0);
    if reg.0 >= PC || reg.0 == SP {
        return false;
    }
    match encoding {
        Encoding::Main => main(dst, number).is_some_and(|word| {
            out.extend(word.to_le_bytes());
            true
        }),
        // movs rd, #number
        Encoding::Thumb if flags_may_change && dst < 8 && number < 1 << 8 => {
            out.extend(((0x2000 | dst << 8 | number) as u16).to_le_bytes());
            true
        }
        Encoding::Thumb => thumb(dst, number).is_some_and(|word| {
            out.extend(word.rotate_left(16).to_le_bytes());
            true
        }),
    }
}

/// `mov` or `mvn` of ARM code.
fn main(dst: u32, number: u32) -> Option<u32> {
    let of = |opcode: u32| move |operand: u32| opcode | dst << 12 | operand;
    rotated(number).map(of(0xe3a0_0000)).or_else(|| rotated(!number).map(of(0xe3e0_0000)))
}

/// Returns the 12 bits that encode a number in data processing of ARM code: 8 bits rotated right by an even number.
pub(super) fn rotated(number: u32) -> Option<u32> {
    let by = (0..16).find(|by| number.rotate_left(2 * by) < 1 << 8)?;
    Some(by << 8 | number.rotate_left(2 * by))
}

/// Decodes the 12 bits of [`rotated`] into a number.
pub(super) fn rotated_number(word: u32) -> u32 {
    field(word, 0, 8).rotate_right(2 * field(word, 8, 4))
}

/// `mov`, `mvn` or `movw` of Thumb code, with the first halfword as the upper one.
fn thumb(dst: u32, number: u32) -> Option<u32> {
    let of = |opcode: u32| move |code: u32| opcode | dst << 8 | spread(code);
    let wide = || (number < 1 << 16).then(|| of(0xf240_0000 | number >> 12 << 16)(number & 0xfff));
    let modified = |number| modified_immediate(number);
    modified(number).map(of(0xf04f_0000)).or_else(|| modified(!number).map(of(0xf06f_0000))).or_else(wide)
}

/// Spreads the 12 bits of a number to their positions in Thumb code: bit 11, bits 8 to 10, and the rest are separate.
pub(super) fn spread(code: u32) -> u32 {
    (code >> 11 & 1) << 26 | (code >> 8 & 7) << 12 | code & 0xff
}

/// Returns the 12 bits that [`spread`] puts into an instruction.
pub(super) fn spread_number(word: u32) -> u32 {
    field(word, 26, 1) << 11 | field(word, 12, 3) << 8 | field(word, 0, 8)
}

/// Returns the 12 bits that encode a number in data processing of Thumb code (DDI 0487, F1.7.7 and the function
/// `T32ExpandImm`).
pub(super) fn modified_immediate(number: u32) -> Option<u32> {
    let byte = number & 0xff;
    let second = number >> 8 & 0xff;
    match number {
        _ if number == byte => Some(byte),
        _ if number == byte * 0x0001_0001 => Some(1 << 8 | byte),
        _ if number == second * 0x0100_0100 => Some(2 << 8 | second),
        _ if number == byte * 0x0101_0101 => Some(3 << 8 | byte),
        _ => {
            let by = (8..32).find(|&by| (0x80..0x100).contains(&number.rotate_left(by)))?;
            Some(by << 7 | number.rotate_left(by) & 0x7f)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::Arm;
    use crate::{Effect, Isa, Value};

    /// An encoded instruction decodes as the same number in the same register, without other effects.
    #[test]
    fn numbers_are_decoded_as_they_were_encoded() {
        let some = (0..32)
            .flat_map(|bit| [1u32 << bit, (1 << bit) - 1, 0xff << bit, !(0xabu32 << bit), 0x101 << bit]);
        let numbers = some.chain([
            0,
            0xff00_ff00,
            0x00ab_00ab,
            0xcdcd_cdcd,
            0x1234,
            0x0001_2345,
            u32::MAX,
            0xfffe_0000,
        ]);
        for number in numbers {
            for (encoding, reg) in
                [(Encoding::Main, 0), (Encoding::Main, 14), (Encoding::Thumb, 3), (Encoding::Thumb, 12)]
            {
                for flags in [false, true] {
                    let mut bytes = Vec::new();
                    if !super::number(encoding, Reg(reg), number, flags, &mut bytes) {
                        continue;
                    }
                    let mut effects = Vec::new();
                    Arm.effects(&Arm.decode(&bytes, encoding.at(0)).unwrap(), &mut effects);
                    let set = Effect::Set { dst: Reg(reg), value: Value::Const(number.into()), width: 4 };
                    assert_eq!(effects[0], set, "{bytes:x?}");
                    let sets_flags = bytes.len() == 2;
                    assert!(!sets_flags || flags, "{bytes:x?}");
                    assert_eq!(effects.len(), 1 + usize::from(sets_flags), "{bytes:x?}");
                }
            }
        }
    }

    #[test]
    fn as_gnu_as_encodes_them() {
        let cases: &[(Encoding, u8, u32, bool, &[u8])] = &[
            (Encoding::Thumb, 3, 5, true, &[0x05, 0x23]), // movs r3, #5
            (Encoding::Thumb, 3, 5, false, &[0x4f, 0xf0, 0x05, 0x03]), // mov.w r3, #5
            (Encoding::Thumb, 9, 0x1_0000, true, &[0x4f, 0xf4, 0x80, 0x39]), // mov.w r9, #65536
            (Encoding::Thumb, 0, 0xffff_ffea, true, &[0x6f, 0xf0, 0x15, 0x00]), // mvn.w r0, #21
            (Encoding::Thumb, 1, 0x1234, true, &[0x41, 0xf2, 0x34, 0x21]), // movw r1, #0x1234
            (Encoding::Main, 1, 0x3fc, true, &[0xff, 0x1f, 0xa0, 0xe3]), // mov r1, #1020
            (Encoding::Main, 2, 0xffff_fff4, true, &[0x0b, 0x20, 0xe0, 0xe3]), // mvn r2, #11
        ];
        for &(encoding, reg, number, flags, expected) in cases {
            let mut bytes = Vec::new();
            assert!(super::number(encoding, Reg(reg), number, flags, &mut bytes));
            assert_eq!(bytes, expected, "{number:#x}");
        }
        assert!(!super::number(Encoding::Main, Reg(0), 0x1234, true, &mut Vec::new()));
        assert!(!super::number(Encoding::Thumb, Reg(13), 0, true, &mut Vec::new()));
    }
}

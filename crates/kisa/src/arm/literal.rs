//! Instructions that read a nearby place, or compute its address, by its distance.
//!
//! The distance is relative to the program counter as the instruction reads it, rounded down to a word (DDI 0487,
//! F1.5).

use super::number::{rotated, rotated_number, spread, spread_number};
use super::op::{bit, field};
use crate::{At, Encoding, Literal};

/// The encoding of the distance.
#[derive(Clone, Copy)]
enum Distance {
    /// 8 bits, in words, forward only.
    Words,
    /// 12 bits; bit 23 is set for forward.
    Bytes12,
    /// 8 bits, in words; bit 23 is set for forward.
    Words8,
    /// Two groups of 4 bits; bit 23 is set for forward.
    Bytes8,
    /// 12 bits in three places; bits 23 and 21 are set for backward.
    Spread12,
    /// 8 bits, rotated right by an even number; the opcode selects the direction.
    Rotated,
}

impl Distance {
    /// Returns the bits of an instruction that encode the distance and its direction.
    fn mask(self) -> u32 {
        match self {
            Words => 0xff,
            Bytes12 => 0x0080_0fff,
            Words8 => 0x0080_00ff,
            Bytes8 => 0x0080_0f0f,
            Spread12 => 0x04a0_70ff,
            Rotated => 0x00c0_0fff,
        }
    }
}

/// A group of instructions, identified by fixed bits.
struct Form {
    mask: u32,
    bits: u32,
    distance: Distance,
    read: Option<u8>,
}

const fn form(mask: u32, bits: u32, distance: Distance, read: Option<u8>) -> Form {
    Form { mask, bits, distance, read }
}

use Distance::{Bytes8, Bytes12, Rotated, Spread12, Words, Words8};

const NARROW: &[Form] = &[
    form(0xf800, 0x4800, Words, Some(4)), // ldr
    form(0xf800, 0xa000, Words, None),    // adr
];

/// The first halfword is the upper one.
const WIDE: &[Form] = &[
    form(0xff7f_0000, 0xf81f_0000, Bytes12, Some(1)), // ldrb, pld
    form(0xff7f_0000, 0xf83f_0000, Bytes12, Some(2)), // ldrh
    form(0xff7f_0000, 0xf85f_0000, Bytes12, Some(4)), // ldr
    form(0xff7f_0000, 0xf91f_0000, Bytes12, Some(1)), // ldrsb, pli
    form(0xff7f_0000, 0xf93f_0000, Bytes12, Some(2)), // ldrsh
    form(0xff7f_0000, 0xe95f_0000, Words8, Some(8)),  // ldrd
    form(0xff3f_0f00, 0xed1f_0a00, Words8, Some(4)),  // vldr
    form(0xff3f_0f00, 0xed1f_0b00, Words8, Some(8)),  // vldr
    form(0xfbff_8000, 0xf20f_0000, Spread12, None),   // adr, forward
    form(0xfbff_8000, 0xf2af_0000, Spread12, None),   // adr, backward
];

/// With any condition but 15, which is no condition.
const MAIN: &[Form] = &[
    form(0x0f7f_0000, 0x051f_0000, Bytes12, Some(4)), // ldr
    form(0x0f7f_0000, 0x055f_0000, Bytes12, Some(1)), // ldrb
    form(0x0f7f_00f0, 0x015f_00b0, Bytes8, Some(2)),  // ldrh
    form(0x0f7f_00f0, 0x015f_00d0, Bytes8, Some(1)),  // ldrsb
    form(0x0f7f_00f0, 0x015f_00f0, Bytes8, Some(2)),  // ldrsh
    form(0x0f7f_00f0, 0x014f_00d0, Bytes8, Some(8)),  // ldrd
    form(0x0f3f_0f00, 0x0d1f_0a00, Words8, Some(4)),  // vldr
    form(0x0f3f_0f00, 0x0d1f_0b00, Words8, Some(8)),  // vldr
    form(0x0fff_0000, 0x028f_0000, Rotated, None),    // adr, forward
    form(0x0fff_0000, 0x024f_0000, Rotated, None),    // adr, backward
];

/// Finds the instruction as one number, its form, and whether it has two halfwords.
fn find(bytes: &[u8], encoding: Encoding) -> Option<(u32, &'static Form, bool)> {
    let half = |at: usize| Some(u32::from(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?)));
    let (word, forms, wide) = match encoding {
        Encoding::Main => {
            let word = u32::from_le_bytes(*bytes.first_chunk()?);
            (word, if word >> 28 == 15 { &[][..] } else { MAIN }, false)
        }
        Encoding::Thumb if half(0)? >> 11 >= 0b11101 => (half(0)? << 16 | half(2)?, WIDE, true),
        Encoding::Thumb => (half(0)?, NARROW, false),
    };
    forms.iter().find(|form| word & form.mask == form.bits).map(|form| (word, form, wide))
}

/// Returns the base of the distance.
fn base(at: At) -> i64 {
    let ahead = if at.encoding == Encoding::Main { 8 } else { 4 };
    i64::from((at.address as u32).wrapping_add(ahead) & !3)
}

/// See [`crate::Rewritable::literal`].
pub(super) fn literal(bytes: &[u8], at: At) -> Option<Literal> {
    let (word, form, _) = find(bytes, at.encoding)?;
    let signed = |forward: bool, size: u32| if forward { i64::from(size) } else { -i64::from(size) };
    let distance = match form.distance {
        Words => i64::from(field(word, 0, 8) * 4),
        Bytes12 => signed(bit(word, 23), field(word, 0, 12)),
        Words8 => signed(bit(word, 23), field(word, 0, 8) * 4),
        Bytes8 => signed(bit(word, 23), field(word, 8, 4) << 4 | field(word, 0, 4)),
        Spread12 => signed(!bit(word, 23), spread_number(word)),
        Rotated => signed(bit(word, 23), rotated_number(word)),
    };
    let target = u64::try_from(base(at) + distance).ok()?;
    Some(Literal { target, read: form.read })
}

/// See [`crate::Rewritable::set_literal`].
pub(super) fn set(bytes: &mut [u8], at: At, target: u64) -> bool {
    let Some((word, form, wide)) = find(bytes, at.encoding) else { return false };
    let distance = target as i64 - base(at);
    let (forward, size) = (distance >= 0, distance.unsigned_abs() as u32);
    let with = |value: u32| word & !form.distance.mask() | value;
    let up = u32::from(forward) << 23;
    let changed = match form.distance {
        Words if forward && size % 4 == 0 && size < 1 << 10 => with(size / 4),
        Bytes12 if size < 1 << 12 => with(up | size),
        Words8 if size % 4 == 0 && size < 1 << 10 => with(up | (size / 4)),
        Bytes8 if size < 1 << 8 => with(up | size >> 4 << 8 | size & 15),
        Spread12 if size < 1 << 12 => {
            let back = if forward { 0 } else { 1 << 23 | 1 << 21 };
            with(back | spread(size))
        }
        Rotated => {
            let Some(operand) = rotated(size) else { return false };
            let opcode = if forward { 1 << 23 } else { 1 << 22 };
            with(opcode | operand)
        }
        _ => return false,
    };
    write(bytes, changed, at.encoding, wide);
    true
}

/// See [`crate::Rewritable::clear_literal`].
pub(super) fn clear(bytes: &mut [u8], encoding: Encoding) {
    let Some((word, form, wide)) = find(bytes, encoding) else { return };
    write(bytes, word & !form.distance.mask(), encoding, wide);
}

/// Writes an instruction that [`find`] returned as one number.
fn write(bytes: &mut [u8], word: u32, encoding: Encoding, wide: bool) {
    let word = if wide { word.rotate_left(16) } else { word };
    let len = if wide || encoding == Encoding::Main { 4 } else { 2 };
    bytes[..len].copy_from_slice(&word.to_le_bytes()[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are from GNU as.
    #[test]
    fn literals_are_read_and_set() {
        let thumb: &[(&[u8], u64, u64, Option<u8>)] = &[
            (&[0x05, 0x4b], 0x114, 0x12c, Some(4)),             // ldr r3, [pc, #20]
            (&[0x05, 0x4b], 0x116, 0x12c, Some(4)),             // the same from a halfword
            (&[0x01, 0xa0], 0x100, 0x108, None),                // adr r0, 0x108
            (&[0xdf, 0xf8, 0x08, 0x00], 0x100, 0x10c, Some(4)), // ldr.w r0, [pc, #8]
            (&[0x5f, 0xf8, 0x08, 0x00], 0x100, 0x0fc, Some(4)), // ldr.w r0, [pc, #-8]
            (&[0x9f, 0xf8, 0x08, 0x00], 0x100, 0x10c, Some(1)), // ldrb.w r0, [pc, #8]
            (&[0xdf, 0xe9, 0x02, 0x01], 0x100, 0x10c, Some(8)), // ldrd r0, r1, [pc, #8]
            (&[0x9f, 0xed, 0x02, 0x0b], 0x100, 0x10c, Some(8)), // vldr d0, [pc, #8]
            (&[0x0f, 0xf2, 0x08, 0x00], 0x100, 0x10c, None),    // adr.w r0, 0x10c
            (&[0xaf, 0xf2, 0x08, 0x00], 0x100, 0x0fc, None),    // adr.w r0, 0xfc
        ];
        let main: &[(&[u8], u64, u64, Option<u8>)] = &[
            (&[0x08, 0x00, 0x9f, 0xe5], 0x100, 0x110, Some(4)), // ldr r0, [pc, #8]
            (&[0x08, 0x00, 0x1f, 0x15], 0x100, 0x100, Some(4)), // ldrne r0, [pc, #-8]
            (&[0xb8, 0x00, 0xdf, 0xe1], 0x100, 0x110, Some(2)), // ldrh r0, [pc, #8]
            (&[0xd8, 0x00, 0xcf, 0xe1], 0x100, 0x110, Some(8)), // ldrd r0, [pc, #8]
            (&[0x02, 0x0b, 0x9f, 0xed], 0x100, 0x110, Some(8)), // vldr d0, [pc, #8]
            (&[0x08, 0x00, 0x8f, 0xe2], 0x100, 0x110, None),    // add r0, pc, #8
            (&[0x08, 0x00, 0x4f, 0xe2], 0x100, 0x100, None),    // sub r0, pc, #8
        ];
        for (encoding, cases) in [(Encoding::Thumb, thumb), (Encoding::Main, main)] {
            for &(bytes, address, target, read) in cases {
                let at = encoding.at(address);
                let found = literal(bytes, at);
                assert_eq!(found, Some(Literal { target, read }), "{bytes:x?}");
                let mut changed = bytes.to_vec();
                for to in [target, target + 4, target + 8] {
                    assert!(set(&mut changed, at, to), "{bytes:x?}");
                    assert_eq!(literal(&changed, at).unwrap().target, to, "{bytes:x?}");
                }
                assert!(!set(&mut changed, at, target + 0x1_0003), "{bytes:x?}");
                assert!(set(&mut changed, at, target));
                assert_eq!(changed, bytes);
                let (mut one, mut other) = (changed.clone(), changed);
                assert!(set(&mut other, at, target + 4));
                clear(&mut one, encoding);
                clear(&mut other, encoding);
                assert_eq!(one, other, "{bytes:x?}");
            }
        }
    }

    #[test]
    fn other_instructions_have_none() {
        // add r0, pc; ldr r0, [r1, #8]; bx lr; add r0, r1, #8
        for bytes in [&[0x78, 0x44][..], &[0x88, 0x68], &[0x70, 0x47], &[0x01, 0xf2, 0x08, 0x00]] {
            assert_eq!(literal(bytes, Encoding::Thumb.at(0)), None);
        }
        // ldr pc, [pc, r0, lsl #2]; the same bits with condition 15 are `pld`
        for word in [0xe79f_f100u32, 0xf55f_f008] {
            assert_eq!(literal(&word.to_le_bytes(), Encoding::Main.at(0)), None);
        }
    }
}

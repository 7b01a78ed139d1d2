//! Instructions that check the contents of a register or of a word in memory.

use super::number::{self, modified_immediate, rotated, spread};
use super::op::{PC, SP};
use crate::{Encoding, Reg};

/// See [`crate::Rewritable::encode_load_word`]: `ldr dst, [base, #displacement]`.
pub(super) fn load_word(
    encoding: Encoding,
    dst: Reg,
    base: Reg,
    displacement: u8,
    out: &mut Vec<u8>,
) -> bool {
    if is_special(dst) || base.0 == PC {
        return false;
    }
    let (dst, base, displacement) = (u32::from(dst.0), u32::from(base.0), u32::from(displacement));
    let operands = base << 16 | dst << 12 | displacement;
    match encoding {
        Encoding::Main => main(0xe590_0000 | operands, out),
        Encoding::Thumb => wide(0xf8d0_0000 | operands, out),
    }
    true
}

/// See [`crate::Rewritable::encode_compare`]: `cmp` or `cmn` with a number, or with the scratch register, which first
/// receives the number.
pub(super) fn compare(
    encoding: Encoding,
    reg: Reg,
    number: u32,
    scratch: Option<Reg>,
    out: &mut Vec<u8>,
) -> bool {
    if is_special(reg) {
        return false;
    }
    let at = u32::from(reg.0) << 16;
    let negative = number.wrapping_neg();
    match encoding {
        Encoding::Main => match (rotated(number), rotated(negative), scratch) {
            (Some(operand), _, _) => main(0xe350_0000 | at | operand, out),
            (None, Some(operand), _) => main(0xe370_0000 | at | operand, out),
            (None, None, Some(scratch)) if !is_special(scratch) => {
                put_in_main(scratch, number, out);
                main(0xe150_0000 | at | u32::from(scratch.0), out);
            }
            _ => return false,
        },
        Encoding::Thumb if reg.0 < 8 && number < 1 << 8 => {
            half(0x2800 | u32::from(reg.0) << 8 | number, out);
        }
        Encoding::Thumb => match (modified_immediate(number), modified_immediate(negative), scratch) {
            (Some(code), _, _) => wide(0xf1b0_0f00 | at | spread(code), out),
            (None, Some(code), _) => wide(0xf110_0f00 | at | spread(code), out),
            // `cmp` of two registers, one of them above r7: the only form for such registers.
            (None, None, Some(scratch)) if !is_special(scratch) && scratch.0 >= 8 => {
                put_in_thumb(scratch, number, out);
                let (left, right) = (u32::from(reg.0), u32::from(scratch.0));
                half(0x4500 | (left >> 3) << 7 | right << 3 | left & 7, out);
            }
            _ => return false,
        },
    }
    true
}

fn is_special(reg: Reg) -> bool {
    reg.0 >= PC || reg.0 == SP
}

/// Puts a number into a register, in pieces of 8 bits if one instruction cannot hold it: not every processor has
/// `movw`.
fn put_in_main(dst: Reg, number: u32, out: &mut Vec<u8>) {
    if number::number(Encoding::Main, dst, number, true, out) {
        return;
    }
    let (dst, mut left, mut opcode) = (u32::from(dst.0), number, 0xe3a0_0000);
    while left != 0 {
        let low = left.trailing_zeros() & !1;
        let byte = left >> low & 0xff;
        // The byte is rotated right by an even number of bits: first `mov`, then `orr`.
        main(opcode | dst << 12 | (((32 - low) / 2) & 15) << 8 | byte, out);
        (left, opcode) = (left & !(byte << low), 0xe380_0000 | dst << 16);
    }
}

/// Puts a number into a register by `movw` and `movt`.
fn put_in_thumb(dst: Reg, number: u32, out: &mut Vec<u8>) {
    if number::number(Encoding::Thumb, dst, number, true, out) {
        return;
    }
    number::number(Encoding::Thumb, dst, number & 0xffff, true, out);
    wide(0xf2c0_0000 | (number >> 28) << 16 | u32::from(dst.0) << 8 | spread(number >> 16 & 0xfff), out);
}

fn main(word: u32, out: &mut Vec<u8>) {
    out.extend(word.to_le_bytes());
}

/// Appends an instruction of two halfwords, the first as the upper one.
fn wide(word: u32, out: &mut Vec<u8>) {
    out.extend(word.rotate_left(16).to_le_bytes());
}

fn half(half: u32, out: &mut Vec<u8>) {
    out.extend((half as u16).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::op::SP;
    use super::*;
    use crate::arm::Arm;
    use crate::{Effect, Isa, Rewritable, TEMPORARY, Value};

    const IP: Reg = Reg(12);
    const ENCODINGS: [Encoding; 2] = [Encoding::Main, Encoding::Thumb];

    /// Returns the effects of all instructions in these bytes.
    fn effects(encoding: Encoding, bytes: &[u8]) -> Vec<Effect> {
        let (mut at, mut effects) = (0, Vec::new());
        while at < bytes.len() {
            let inst = Arm.decode(&bytes[at..], encoding.at(at as u64)).expect("an instruction");
            Arm.effects(&inst, &mut effects);
            at += inst.bytes.len();
        }
        effects
    }

    /// Returns the number in the scratch register and the compared pairs after these instructions.
    fn followed(effects: &[Effect]) -> (Option<u64>, Vec<(Value, Value)>) {
        let (mut scratch, mut compared) = (None, Vec::new());
        for effect in effects {
            match *effect {
                Effect::Set { dst: IP, value: Value::Const(number), width: 4 } => scratch = Some(number),
                Effect::Binary { op, dst: IP, right: Value::Const(number), width: 4, .. } => {
                    scratch = scratch.and_then(|before| op.compute(before, number, 4));
                }
                Effect::Compare { left, right, width: 4 } => compared.push((left, right)),
                Effect::Binary { dst: TEMPORARY, .. } | Effect::Escape(_) => {}
                other => panic!("{other:?}"),
            }
        }
        (scratch, compared)
    }

    #[test]
    fn comparisons_are_with_the_number() {
        let some = (0..32).flat_map(|bit| [1u32 << bit, (1u32 << bit).wrapping_neg(), 0x406 << bit]);
        let odd = [0, 0xfee1_dead, 0x5401, 0xffff_5401, 0x1234_0000, 0x00ab_00ab, 0x0102_0304];
        for number in some.chain(odd) {
            for (encoding, reg) in ENCODINGS.into_iter().flat_map(|e| [(e, Reg(1)), (e, Reg(9))]) {
                let mut bytes = Vec::new();
                assert!(Arm.encode_compare(encoding, reg, number, Some(IP), &mut bytes));
                let (scratch, compared) = followed(&effects(encoding, &bytes));
                let left = Value::Reg { reg, width: 4 };
                let right = match scratch {
                    Some(known) => {
                        assert_eq!(known, u64::from(number), "{bytes:x?}");
                        Value::Reg { reg: IP, width: 4 }
                    }
                    None => Value::Const(number.into()),
                };
                assert_eq!(compared, [(left, right)], "{number:#x}: {bytes:x?}");
                // Without a scratch register, the result is the same or nothing.
                let mut without = Vec::new();
                let is_known = Arm.encode_compare(encoding, reg, number, None, &mut without);
                assert_eq!((is_known, without.is_empty()), (scratch.is_none(), scratch.is_some()));
            }
        }
    }

    #[test]
    fn as_gnu_as_encodes_them() {
        let cases: &[(Encoding, u8, u32, &[u8])] = &[
            (Encoding::Thumb, 1, 5, &[0x05, 0x29]),                // cmp r1, #5
            (Encoding::Thumb, 9, 5, &[0xb9, 0xf1, 0x05, 0x0f]),    // cmp.w r9, #5
            (Encoding::Thumb, 0, 1024, &[0xb0, 0xf5, 0x80, 0x6f]), // cmp.w r0, #1024
            (Encoding::Thumb, 0, 0xffff_ff9c, &[0x10, 0xf1, 0x64, 0x0f]), // cmn.w r0, #100
            // movw ip, #0x406; cmp r1, ip
            (Encoding::Thumb, 1, 0x406, &[0x40, 0xf2, 0x06, 0x4c, 0x61, 0x45]),
            // movw ip, #0xdead; movt ip, #0xfee1; cmp r0, ip
            (Encoding::Thumb, 0, 0xfee1_dead, &[0x4d, 0xf6, 0xad, 0x6c, 0xcf, 0xf6, 0xe1, 0x6c, 0x60, 0x45]),
            (Encoding::Main, 1, 1020, &[0xff, 0x0f, 0x51, 0xe3]), // cmp r1, #1020
            (Encoding::Main, 1, 0xffff_ff9c, &[0x64, 0x00, 0x71, 0xe3]), // cmn r1, #100
            // mov ip, #6; orr ip, ip, #1024; cmp r1, ip
            (
                Encoding::Main,
                1,
                0x406,
                &[0x06, 0xc0, 0xa0, 0xe3, 0x01, 0xcb, 0x8c, 0xe3, 0x0c, 0x00, 0x51, 0xe1],
            ),
        ];
        for &(encoding, reg, number, expected) in cases {
            let mut bytes = Vec::new();
            assert!(compare(encoding, Reg(reg), number, Some(IP), &mut bytes));
            assert_eq!(bytes, expected, "{number:#x}");
        }
    }

    #[test]
    fn words_are_loaded() {
        let expected: [&[u8]; 2] = [&[0x04, 0xc0, 0x9d, 0xe5], &[0xdd, 0xf8, 0x04, 0xc0]]; // ldr ip, [sp, #4]
        for (encoding, expected) in ENCODINGS.into_iter().zip(expected) {
            let mut bytes = Vec::new();
            assert!(Arm.encode_load_word(encoding, IP, Reg(SP), 4, &mut bytes));
            assert_eq!(bytes, expected);
            assert!(!Arm.encode_load_word(encoding, Reg(PC), Reg(SP), 4, &mut bytes));
        }
    }
}

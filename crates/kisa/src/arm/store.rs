//! The store at the start of instrumented blocks, and the exclusive stores that another store may disturb.

use goblin::elf::reloc::{R_ARM_MOVT_ABS, R_ARM_MOVW_ABS_NC, R_ARM_THM_MOVT_ABS, R_ARM_THM_MOVW_ABS_NC};
use kelf::RelocClass;

use super::op::{ALWAYS, Op, PC, SP};
use crate::{AddressField, Encoding, Exclusive, Inst, StoreLayout, StoreOne};

/// A register receives an address whose lowest byte is 1, and stores that byte at an offset from the address: one
/// register is enough.
pub(super) const LAYOUT: StoreLayout =
    StoreLayout { align: 1 << 8, first: 1, span: 1 << 12, takes_register: true };

/// Values of `Tag_CPU_arch` that have `movw` and `movt` in each of their encodings (IHI 0045, 3.3.5.2): ARMv6T2, and
/// everything from ARMv7 on except ARMv6-M.
const WITH_WIDE_MOVES: [u64; 9] = [8, 10, 13, 14, 15, 17, 20, 21, 22];

/// Whether processors of an architecture, by its `Tag_CPU_arch`, have `movw` and `movt`.
pub(super) fn has_wide_moves(architecture: u64) -> bool {
    WITH_WIDE_MOVES.contains(&architecture)
}

/// See [`crate::Rewritable::encode_store_one`]: `movw`, `movt`, `strb`; within `push` and `pop` if no register is
/// free.
pub(super) fn store_one(encoding: Encoding, free: u64, displacement: u32, out: &mut Vec<u8>) -> StoreOne {
    debug_assert!(displacement < LAYOUT.span, "the store reaches it");
    let usable = (0..PC).filter(|&reg| reg != SP);
    let free = usable.into_iter().find(|&reg| free >> reg & 1 != 0);
    let reg = u32::from(free.unwrap_or(0));
    let start = out.len();
    if free.is_none() {
        save(encoding, out);
    }
    let first = (out.len() - start) as u8;
    let (low, high, store, relocations) = match encoding {
        Encoding::Main => {
            let of = |opcode: u32| opcode | reg << 12;
            let store = of(0xe5c0_0000) | reg << 16 | displacement;
            (of(0xe300_0000), of(0xe340_0000), store, [R_ARM_MOVW_ABS_NC, R_ARM_MOVT_ABS])
        }
        Encoding::Thumb => {
            // The first halfword precedes the second in memory.
            let of = |opcode: u32| (opcode | reg << 8).rotate_left(16);
            let store = (0xf880_0000 | reg << 16 | reg << 12 | displacement).rotate_left(16);
            (of(0xf240_0000), of(0xf2c0_0000), store, [R_ARM_THM_MOVW_ABS_NC, R_ARM_THM_MOVT_ABS])
        }
    };
    out.extend([low, high, store].iter().flat_map(|word| word.to_le_bytes()));
    if free.is_none() {
        restore(encoding, out);
    }
    let field =
        |offset, r_type| AddressField { offset, width: 4, bias: 0, r_type, class: RelocClass::Instruction };
    let fields = vec![field(first, relocations[0]), field(first + 4, relocations[1])];
    StoreOne { fields, addend: 0, saves: free.is_none() }
}

/// `push {r0}`
fn save(encoding: Encoding, out: &mut Vec<u8>) {
    match encoding {
        Encoding::Main => out.extend(0xe52d_0004u32.to_le_bytes()),
        Encoding::Thumb => out.extend(0xb401u16.to_le_bytes()),
    }
}

/// `pop {r0}`
fn restore(encoding: Encoding, out: &mut Vec<u8>) {
    match encoding {
        Encoding::Main => out.extend(0xe49d_0004u32.to_le_bytes()),
        Encoding::Thumb => out.extend(0xbc01u16.to_le_bytes()),
    }
}

/// See [`crate::Rewritable::encode_push_link`].
pub(super) fn push_link(encoding: Encoding, out: &mut Vec<u8>) {
    match encoding {
        Encoding::Main => out.extend(0xe52d_e004_u32.to_le_bytes()),
        Encoding::Thumb => out.extend(0xb500_u16.to_le_bytes()),
    }
}

/// See [`crate::Rewritable::exclusive`].
pub(super) fn exclusive(inst: &Inst<'_>) -> Option<Exclusive> {
    let decoded = inst.arm();
    let always = decoded.condition == ALWAYS;
    match decoded.op {
        Op::Load { exclusive: true, .. } => {
            Some(Exclusive { loads: true, always: always && !only_orders(inst.at.encoding, inst.bytes) })
        }
        Op::StoreExclusive { .. } => Some(Exclusive { loads: false, always }),
        _ => None,
    }
}

/// Whether a load that is treated as exclusive is `lda`, which only orders other accesses (DDI 0487, F4.1.2 and
/// F3.1.9).
fn only_orders(encoding: Encoding, bytes: &[u8]) -> bool {
    match encoding {
        Encoding::Main => bytes.get(1).is_some_and(|byte| byte & 3 == 0),
        Encoding::Thumb => {
            let is_ldrex =
                bytes.first_chunk().is_some_and(|half| u16::from_le_bytes(*half) & 0xfff0 == 0xe850);
            !is_ldrex && bytes.get(2).is_some_and(|byte| (0x80..0xb0).contains(byte))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::op::LR;
    use super::super::{Arm, registers};
    use super::*;
    use kelf::Machine;

    use crate::{At, Effect, Isa, Rewritable, Value};

    /// Whatever is free, all other registers are unchanged, and one byte is 1.
    #[test]
    fn it_stores_one_and_changes_only_what_is_free() {
        for encoding in [Encoding::Main, Encoding::Thumb] {
            for free in [0u64, 1, 1 << 3, 1 << 12, 1 << LR, 1 << 13 | 1 << 15, 0x5fff] {
                let mut bytes = Vec::new();
                let StoreOne { fields, addend, saves } = store_one(encoding, free, 0xabc, &mut bytes);
                assert_eq!((fields.len(), addend, saves), (2, 0, free & 0x5fff == 0));
                let (mut effects, mut at) = (Vec::new(), 0);
                while at < bytes.len() {
                    let inst = Arm.decode(&bytes[at..], encoding.at(at as u64)).expect("an instruction");
                    Arm.effects(&inst, &mut effects);
                    at += inst.bytes.len();
                }
                let written = effects.iter().fold(0, |set, effect| set | effect.registers_written());
                let others = written & !free & !(1 << registers::SP.0) & 0xffff;
                assert_eq!(others, u64::from(saves), "{bytes:x?}");
                assert!(!effects.contains(&Effect::ClobberFlags));
                let stores = effects.iter().filter_map(|effect| match effect {
                    Effect::Store { to, value: Value::Reg { reg, .. }, width: 1 } => Some((*to, *reg)),
                    _ => None,
                });
                let [(to, reg)] = stores.collect::<Vec<_>>()[..] else { panic!("one byte: {effects:?}") };
                assert_eq!((to.base, to.displacement), (Some(reg), 0xabc));
            }
        }
    }

    /// The bytes are from GNU as, with `movw` and `movt` of 0.
    #[test]
    fn as_gnu_as_encodes_them() {
        let mut bytes = Vec::new();
        store_one(Encoding::Thumb, 1 << 12, 0xfff, &mut bytes);
        // movw ip, #0; movt ip, #0; strb.w ip, [ip, #4095]
        assert_eq!(bytes, [0x40, 0xf2, 0x00, 0x0c, 0xc0, 0xf2, 0x00, 0x0c, 0x8c, 0xf8, 0xff, 0xcf]);
        bytes.clear();
        store_one(Encoding::Main, 1 << LR, 0xfff, &mut bytes);
        // movw lr, #0; movt lr, #0; strb lr, [lr, #4095]
        assert_eq!(bytes, [0x00, 0xe0, 0x00, 0xe3, 0x00, 0xe0, 0x40, 0xe3, 0xff, 0xef, 0xce, 0xe5]);
    }

    #[test]
    fn exclusive_accesses() {
        let of = |bytes: &[u8], at: At| {
            let inst = Arm.decode(bytes, at).unwrap();
            Arm.exclusive(&inst).map(|exclusive| (exclusive.loads, exclusive.always))
        };
        /// Bytes and address of an instruction, whether it loads, and whether it certainly makes an exclusive access.
        type Case = (&'static [u8], u64, Option<(bool, bool)>);
        let cases: [Case; 10] = [
            (&[0x50, 0xe8, 0x00, 0x3f], 1, Some((true, true))), // ldrex r3, [r0]
            (&[0x50, 0xe8, 0x20, 0x3f], 1, Some((true, true))), // ldrex r3, [r0, #128]
            (&[0xd0, 0xe8, 0x4f, 0x3f], 1, Some((true, true))), // ldrexb r3, [r0]
            (&[0xd0, 0xe8, 0xef, 0x3f], 1, Some((true, true))), // ldaex r3, [r0]
            (&[0xd0, 0xe8, 0xaf, 0x3f], 1, Some((true, false))), // lda r3, [r0]
            (&[0x40, 0xe8, 0x00, 0x31], 1, Some((false, true))), // strex r1, r3, [r0]
            (&[0x91, 0x2f, 0x83, 0x01], 0, Some((false, false))), // strexeq r2, r1, [r3]
            (&[0x9f, 0x3f, 0x90, 0xe1], 0, Some((true, true))), // ldrex r3, [r0]
            (&[0x9f, 0x3c, 0x90, 0xe1], 0, Some((true, false))), // lda r3, [r0]
            (&[0x00, 0x30, 0x90, 0xe5], 0, None),               // ldr r3, [r0]
        ];
        for (bytes, address, expected) in cases {
            assert_eq!(of(bytes, At::of_pointer(Machine::Arm, address)), expected, "{bytes:x?}");
        }
        // After `it ne`.
        let not_equal = Encoding::Thumb.at(0).on(Some(1));
        assert_eq!(of(&[0x40, 0xe8, 0x00, 0x31], not_equal), Some((false, false)));
    }

    #[test]
    fn wide_moves_came_with_thumb_2() {
        assert!([4, 6, 9, 11, 12].iter().all(|&old| !has_wide_moves(old)));
        assert!([8, 10, 14].iter().all(|&new| has_wide_moves(new)));
    }
}

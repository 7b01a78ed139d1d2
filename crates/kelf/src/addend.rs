//! Addends in place: REL machines (i386, ARM) store them in the relocated bytes.
//!
//! i386 stores plain little-endian numbers. ARM encodes the addends of branches and moves in the instruction. The
//! formulas are in IHI 0044 (ELF for the Arm Architecture), section 5.6, and in the instruction encodings of the
//! Architecture Reference Manual. [`put`] is the exact inverse of [`get`] and changes no other bit of the field.

use crate::machine::Machine;

/// Reads the addend of relocation `r_type` from `field`, which has the width of the relocation.
pub(crate) fn get(machine: Machine, r_type: u32, field: &[u8]) -> i64 {
    if let Some(coding) = (machine.target().relocs.coding)(r_type) {
        return coding.get(field);
    }
    let bits = 8 * field.len() as u32;
    if bits == 0 { 0 } else { sign_extend(number(field), bits) }
}

/// Writes `addend` into `field`, in the encoding of relocation `r_type`.
///
/// # Errors
/// A short description why it does not fit; the field is then unchanged.
pub fn put(machine: Machine, r_type: u32, field: &mut [u8], addend: i64) -> Result<(), String> {
    if let Some(coding) = (machine.target().relocs.coding)(r_type) {
        let mut changed = [0; 4];
        let changed = &mut changed[..field.len()];
        changed.copy_from_slice(field);
        coding.put(changed, addend);
        if coding.get(changed) != addend {
            return Err(format!("the instruction cannot hold the addend {addend:#x}"));
        }
        field.copy_from_slice(changed);
        return Ok(());
    }
    let bits = 8 * field.len() as u32;
    if bits == 0 && addend == 0 {
        return Ok(());
    }
    // The field may hold an address or a distance: accept what fits as a signed or as an unsigned number.
    let fits = bits != 0 && (-(1i64 << (bits - 1))..1i64 << bits.min(62)).contains(&addend);
    if !fits {
        return Err(format!("{bits} bits cannot hold the addend {addend:#x}"));
    }
    let length = field.len();
    field.copy_from_slice(&addend.to_le_bytes()[..length]);
    Ok(())
}

/// The encoding of an immediate in an ARM instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Coding {
    /// `b`, `bl`, `blx`: 24 bits, in words, and for `blx` a half-word bit.
    Branch24,
    /// 31 bits; the top bit is not part of it.
    Low31,
    /// `movw`, `movt`: imm4:imm12.
    Move16,
    /// `ldr`, `str`: 12 bits and a sign bit U.
    Load12,
    /// `ldrd`, `ldrsh`: 4 + 4 bits and a sign bit U.
    Load8,
    /// `ldc`: 8 bits, in words, and a sign bit U.
    LoadCoprocessor,
    /// `add`, `sub`: 8 bits rotated right by an even number.
    Rotated,
    /// Thumb `movw`, `movt`: imm4:i:imm3:imm8.
    ThumbMove16,
    /// Thumb `bl`, `b.w`: S:I1:I2:imm10:imm11:0.
    ThumbBranch24,
    /// Thumb `b<cond>.w`: S:J2:J1:imm6:imm11:0.
    ThumbBranch19,
    /// Thumb `b`: 11 bits, in half-words.
    ThumbBranch11,
    /// Thumb `b<cond>`: 8 bits, in half-words.
    ThumbBranch8,
    /// Thumb `cbz`: i:imm5, in half-words, forward only.
    ThumbBranch6,
    /// Thumb `ldr.w`: 12 bits and a sign bit U.
    ThumbLoad12,
    /// Thumb `adr.w`: i:imm3:imm8, added or subtracted.
    ThumbAdr,
    /// Thumb `ldr`: 8 bits, in words, forward only.
    ThumbLoad8,
}

impl Coding {
    fn get(self, field: &[u8]) -> i64 {
        let word = load(self, field);
        let signed = |up: u64, size: u64| if up == 1 { size as i64 } else { -(size as i64) };
        match self {
            Coding::Branch24 => {
                let half = if bits(word, 28, 4) == 0xf { bits(word, 24, 1) } else { 0 };
                sign_extend(bits(word, 0, 24) << 2 | half << 1, 26)
            }
            Coding::Low31 => sign_extend(word, 31),
            Coding::Move16 => sign_extend(bits(word, 16, 4) << 12 | bits(word, 0, 12), 16),
            Coding::Load12 | Coding::ThumbLoad12 => signed(bits(word, 23, 1), bits(word, 0, 12)),
            Coding::Load8 => signed(bits(word, 23, 1), bits(word, 8, 4) << 4 | bits(word, 0, 4)),
            Coding::LoadCoprocessor => signed(bits(word, 23, 1), bits(word, 0, 8) << 2),
            Coding::Rotated => {
                let immediate = (bits(word, 0, 8) as u32).rotate_right(2 * bits(word, 8, 4) as u32);
                // Opcode 4 is `add`, 2 is `sub`.
                signed(u64::from(bits(word, 21, 4) == 4), u64::from(immediate))
            }
            Coding::ThumbMove16 => {
                let high = bits(word, 16, 4) << 12 | bits(word, 26, 1) << 11;
                sign_extend(high | bits(word, 12, 3) << 8 | bits(word, 0, 8), 16)
            }
            Coding::ThumbBranch24 => {
                let sign = bits(word, 26, 1);
                let i1 = 1 ^ bits(word, 13, 1) ^ sign;
                let i2 = 1 ^ bits(word, 11, 1) ^ sign;
                let low = bits(word, 16, 10) << 12 | bits(word, 0, 11) << 1;
                sign_extend(sign << 24 | i1 << 23 | i2 << 22 | low, 25)
            }
            Coding::ThumbBranch19 => {
                let high = bits(word, 26, 1) << 20 | bits(word, 11, 1) << 19 | bits(word, 13, 1) << 18;
                sign_extend(high | bits(word, 16, 6) << 12 | bits(word, 0, 11) << 1, 21)
            }
            Coding::ThumbBranch11 => sign_extend(bits(word, 0, 11) << 1, 12),
            Coding::ThumbBranch8 => sign_extend(bits(word, 0, 8) << 1, 9),
            Coding::ThumbBranch6 => (bits(word, 9, 1) << 6 | bits(word, 3, 5) << 1) as i64,
            Coding::ThumbAdr => {
                let size = bits(word, 26, 1) << 11 | bits(word, 12, 3) << 8 | bits(word, 0, 8);
                // Bits 23 and 21 are both set in the subtracting form.
                signed(1 ^ bits(word, 23, 1), size)
            }
            Coding::ThumbLoad8 => (bits(word, 0, 8) << 2) as i64,
        }
    }

    /// Writes the bits that fit; the caller compares the result.
    fn put(self, field: &mut [u8], addend: i64) {
        let mut word = load(self, field);
        let value = addend as u64;
        let (up, size) = (u64::from(addend >= 0), addend.unsigned_abs());
        let mut set = |at: u32, count: u32, value: u64| {
            let mask = ((1 << count) - 1) << at;
            word = word & !mask | value << at & mask;
        };
        match self {
            Coding::Branch24 => {
                set(0, 24, value >> 2);
                if bits(load(self, field), 28, 4) == 0xf {
                    set(24, 1, value >> 1);
                }
            }
            Coding::Low31 => set(0, 31, value),
            Coding::Move16 => {
                set(16, 4, value >> 12);
                set(0, 12, value);
            }
            Coding::Load12 | Coding::ThumbLoad12 => {
                set(23, 1, up);
                set(0, 12, size);
            }
            Coding::Load8 => {
                set(23, 1, up);
                set(8, 4, size >> 4);
                set(0, 4, size);
            }
            Coding::LoadCoprocessor => {
                set(23, 1, up);
                set(0, 8, size >> 2);
            }
            Coding::Rotated => {
                let rotation = (0..16u32).find(|&r| (size as u32).rotate_left(2 * r) < 256);
                if let Some(rotation) = rotation {
                    set(21, 4, if up == 1 { 4 } else { 2 });
                    set(8, 4, u64::from(rotation));
                    set(0, 8, u64::from((size as u32).rotate_left(2 * rotation)));
                }
            }
            Coding::ThumbMove16 => {
                set(16, 4, value >> 12);
                set(26, 1, value >> 11);
                set(12, 3, value >> 8);
                set(0, 8, value);
            }
            Coding::ThumbBranch24 => {
                let sign = value >> 24 & 1;
                set(26, 1, sign);
                set(13, 1, 1 ^ value >> 23 ^ sign);
                set(11, 1, 1 ^ value >> 22 ^ sign);
                set(16, 10, value >> 12);
                set(0, 11, value >> 1);
            }
            Coding::ThumbBranch19 => {
                set(26, 1, value >> 20);
                set(11, 1, value >> 19);
                set(13, 1, value >> 18);
                set(16, 6, value >> 12);
                set(0, 11, value >> 1);
            }
            Coding::ThumbBranch11 => set(0, 11, value >> 1),
            Coding::ThumbBranch8 => set(0, 8, value >> 1),
            Coding::ThumbBranch6 => {
                set(9, 1, value >> 6);
                set(3, 5, value >> 1);
            }
            Coding::ThumbAdr => {
                set(23, 1, 1 ^ up);
                set(21, 1, 1 ^ up);
                set(26, 1, size >> 11);
                set(12, 3, size >> 8);
                set(0, 8, size);
            }
            Coding::ThumbLoad8 => set(0, 8, value >> 2),
        }
        store(self, field, word);
    }

    /// Whether the field is a Thumb instruction of two half-words, the first of which is the
    /// higher.
    fn is_wide_thumb(self) -> bool {
        use Coding::*;
        matches!(self, ThumbMove16 | ThumbBranch24 | ThumbBranch19 | ThumbLoad12 | ThumbAdr)
    }
}

fn load(coding: Coding, field: &[u8]) -> u64 {
    let word = number(field);
    if coding.is_wide_thumb() { word >> 16 | (word & 0xffff) << 16 } else { word }
}

fn store(coding: Coding, field: &mut [u8], word: u64) {
    let word = if coding.is_wide_thumb() { word >> 16 | (word & 0xffff) << 16 } else { word };
    let length = field.len();
    field.copy_from_slice(&word.to_le_bytes()[..length]);
}

fn number(field: &[u8]) -> u64 {
    field.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn bits(word: u64, at: u32, count: u32) -> u64 {
    word >> at & ((1 << count) - 1)
}

fn sign_extend(value: u64, bits: u32) -> i64 {
    ((value << (64 - bits)) as i64) >> (64 - bits)
}

#[cfg(test)]
mod tests {
    use goblin::elf::reloc::*;

    use super::*;

    fn arm(r_type: u32, field: [u8; 4]) -> i64 {
        get(Machine::Arm, r_type, &field)
    }

    #[test]
    fn i386_is_sign_extended_by_width() {
        assert_eq!(get(Machine::I386, R_386_PC32, &[0xfc, 0xff, 0xff, 0xff]), -4);
        assert_eq!(get(Machine::I386, R_386_PC16, &[0xfe, 0xff]), -2);
        assert_eq!(get(Machine::I386, R_386_8, &[0x7f]), 127);
        let mut field = [0; 2];
        assert!(put(Machine::I386, R_386_16, &mut field, 0xffff).is_ok());
        assert_eq!(field, [0xff, 0xff]);
        assert!(put(Machine::I386, R_386_16, &mut field, 0x10000).is_err());
        assert!(put(Machine::I386, R_386_16, &mut field, -0x8001).is_err());
    }

    #[test]
    fn arm_as_gas_codes_it() {
        // ebfffffe bl, fa000000 blx, e3001001 movw r1, e1c7 PREL31 with its top bit set
        assert_eq!(arm(R_ARM_CALL, [0xfe, 0xff, 0xff, 0xeb]), -8);
        assert_eq!(arm(R_ARM_CALL, [0x00, 0x00, 0x00, 0xfb]), 2);
        assert_eq!(arm(R_ARM_MOVW_ABS_NC, [0x01, 0x10, 0x00, 0xe3]), 1);
        assert_eq!(arm(R_ARM_PREL31, [0xff, 0xff, 0xff, 0xff]), -1);
        // f7ff fffe bl
        assert_eq!(arm(R_ARM_THM_PC22, [0xff, 0xf7, 0xfe, 0xff]), -4);
        // f2af 0004 sub.w r0, pc, #4
        assert_eq!(arm(R_ARM_THM_ALU_PREL_11_0, [0xaf, 0xf2, 0x04, 0x00]), -4);
        // e24f0ff0 sub r0, pc, #960
        assert_eq!(arm(R_ARM_ALU_PC_G0, [0xf0, 0x0f, 0x4f, 0xe2]), -960);
    }

    #[test]
    fn put_inverts_get_and_keeps_other_bits() {
        let words: [(u32, u32, u32); 10] = [
            (R_ARM_CALL, 0xebff_fffe, 0xff00_0000),
            (R_ARM_PREL31, 0x8000_0000, 0x8000_0000),
            (R_ARM_MOVT_ABS, 0xe340_1234, 0xfff0_f000),
            (R_ARM_PC13, 0xe59f_1004, 0xff7f_f000),
            (R_ARM_LDRS_PC_G0, 0xe1df_10d4, 0xff7f_f0f0),
            (R_ARM_LDC_PC_G0, 0xed9f_1a04, 0xff7f_ff00),
            (R_ARM_THM_MOVW_ABS_NC, 0x0123_f240, 0x8f00_fbf0),
            (R_ARM_THM_PC22, 0xfffe_f7ff, 0xd000_f800),
            (R_ARM_THM_JUMP19, 0xaffe_f43f, 0xd000_fbc0),
            (R_ARM_THM_PC12, 0x0004_f8df, 0xf000_ff7f),
        ];
        for (r_type, word, fixed) in words {
            let original = word.to_le_bytes();
            let addend = arm(r_type, original);
            let mut same = original;
            put(Machine::Arm, r_type, &mut same, addend).unwrap();
            assert_eq!(same, original, "relocation {r_type}");
            for other in [0, 8, 64, -64, 252] {
                let mut field = original;
                put(Machine::Arm, r_type, &mut field, other).unwrap();
                assert_eq!(arm(r_type, field), other, "relocation {r_type}");
                let now = u32::from_le_bytes(field);
                assert_eq!(now & fixed, word & fixed, "relocation {r_type}: {now:#x}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut field = 0xebff_fffeu32.to_le_bytes();
        assert!(put(Machine::Arm, R_ARM_CALL, &mut field, 1 << 25).is_err());
        assert!(put(Machine::Arm, R_ARM_CALL, &mut field, 3).is_err());
        assert_eq!(field, 0xebff_fffeu32.to_le_bytes());
        assert!(put(Machine::Arm, R_ARM_ALU_PC_G0, &mut field, 0x101).is_err());
    }
}

//! Encoding of direct branches and of padding.
//!
//! The number of a condition ([`Branch::condition`]) is the machine's own, 0 to 13; a branch without a condition has 0
//! in Thumb code and 14 in ARM code. [`MAIN`] is added for ARM code. A Thumb branch that compares a register with 0 has
//! [`COMPARES`], the register, and [`NOT_ZERO`] if it is taken when the register is not 0.

use goblin::elf::reloc::{R_ARM_CALL, R_ARM_JUMP24, R_ARM_THM_JUMP19, R_ARM_THM_JUMP24, R_ARM_THM_PC22};
use kelf::RelocClass;

use super::op::{self, ALWAYS, Decoded, Op};
use crate::{AddressField, Branch, BranchForm, BranchKind, BranchRelocation, Condition, Encoding, Reg};

const MAIN: u8 = 0x80;
const COMPARES: u8 = 0x40;
const NOT_ZERO: u8 = 0x08;
const REGISTER: u8 = 0x07;

/// Returns the condition number of a branch; for one without a condition, only the encoding.
pub(super) fn number(decoded: &Decoded, encoding: Encoding) -> u8 {
    let main = if encoding == Encoding::Main { MAIN } else { 0 };
    match decoded.op {
        Op::CompareBranch { src, equal, .. } => COMPARES | src | if equal { 0 } else { NOT_ZERO },
        _ if decoded.condition < ALWAYS => main | decoded.condition,
        _ if encoding == Encoding::Main => main | ALWAYS,
        _ => main,
    }
}

/// See [`crate::Rewritable::jump`].
pub(super) fn jump(encoding: Encoding) -> Branch {
    let condition = if encoding == Encoding::Main { MAIN | ALWAYS } else { 0 };
    Branch { kind: BranchKind::Jump, condition }
}

/// See [`crate::Rewritable::branch_if_equal`]. The condition `eq` has the number 0.
pub(super) fn if_equal(encoding: Encoding) -> Branch {
    let condition = if encoding == Encoding::Main { MAIN } else { 0 };
    Branch { kind: BranchKind::Conditional, condition }
}

fn is_main(branch: Branch) -> bool {
    branch.condition & MAIN != 0
}

fn compares(branch: Branch) -> bool {
    branch.kind == BranchKind::Conditional && branch.condition & COMPARES != 0
}

/// Returns a form that is one instruction. Its immediate has `bits` bits, including the ones below its `unit`, and is
/// relative to `ahead` bytes after the end of the instruction.
const fn form(len: u8, bits: u32, unit: i64, ahead: i64) -> BranchForm {
    let (low, high) = (-(1 << (bits - 1)), (1 << (bits - 1)) - unit);
    BranchForm { len, field_offset: 0, field_width: len, reach: (low + ahead, high + ahead) }
}

const MAIN_FORM: BranchForm = form(4, 26, 4, 4);
const WIDE_JUMP: BranchForm = form(4, 25, 2, 0);
const THUMB_JUMPS: [BranchForm; 2] = [form(2, 12, 2, 2), WIDE_JUMP];
/// The inverse of a conditional branch, and the jump that it skips.
const OVER_JUMP: BranchForm = BranchForm { len: 6, field_offset: 2, field_width: 4, reach: WIDE_JUMP.reach };
const THUMB_CONDITIONALS: [BranchForm; 3] = [form(2, 9, 2, 2), form(4, 21, 2, 0), OVER_JUMP];
/// `cbz` reaches forward only.
const COMPARISONS: [BranchForm; 2] =
    [BranchForm { len: 2, field_offset: 0, field_width: 2, reach: (2, 128) }, OVER_JUMP];

/// See [`crate::Rewritable::branch_forms`].
pub(super) fn forms(branch: Branch) -> &'static [BranchForm] {
    match branch.kind {
        _ if is_main(branch) => &[MAIN_FORM],
        BranchKind::Jump => &THUMB_JUMPS,
        BranchKind::Conditional if compares(branch) => &COMPARISONS,
        BranchKind::Conditional => &THUMB_CONDITIONALS,
        BranchKind::Call => &[WIDE_JUMP],
    }
}

/// See [`crate::Rewritable::branch_relocation`].
pub(super) fn relocation(branch: Branch, len: u8) -> BranchRelocation {
    let always = branch.condition & 15 == ALWAYS;
    let (r_type, bias) = match branch.kind {
        // A conditional `bl` has no form that changes the encoding (IHI 0044, 5.6.1.6).
        BranchKind::Call if is_main(branch) && always => (R_ARM_CALL, 8),
        _ if is_main(branch) => (R_ARM_JUMP24, 8),
        BranchKind::Call => (R_ARM_THM_PC22, 4),
        BranchKind::Conditional if !compares(branch) && len != OVER_JUMP.len => (R_ARM_THM_JUMP19, 4),
        _ => (R_ARM_THM_JUMP24, 4),
    };
    BranchRelocation { r_type, bias }
}

/// See [`crate::Rewritable::encode_branch`].
pub(super) fn encode(branch: Branch, form: BranchForm, displacement: i64, out: &mut Vec<u8>) {
    debug_assert!(form.reaches(displacement));
    let distance = displacement as u32;
    if is_main(branch) {
        let condition = u32::from(branch.condition & 15);
        let link = u32::from(branch.kind == BranchKind::Call) << 24;
        let word = condition << 28 | 0x0a00_0000 | link | distance.wrapping_sub(4) >> 2 & 0x00ff_ffff;
        out.extend(word.to_le_bytes());
        return;
    }
    let half = distance.wrapping_sub(2);
    match (branch.kind, form.len) {
        (BranchKind::Jump, 2) => narrow(0xe000 | half >> 1 & 0x7ff, out),
        (BranchKind::Conditional, 2) if compares(branch) => compare(branch, half, out),
        (BranchKind::Conditional, 2) => {
            narrow(0xd000 | u32::from(branch.condition & 15) << 8 | half >> 1 & 0xff, out);
        }
        (BranchKind::Conditional, 6) => {
            // From its own address plus 4 to the address plus 6.
            match compares(branch) {
                true => compare(Branch { condition: branch.condition ^ NOT_ZERO, ..branch }, 2, out),
                false => narrow(0xd001 | u32::from(branch.condition & 15 ^ 1) << 8, out),
            }
            far(0x9000, distance, out);
        }
        (BranchKind::Conditional, _) => {
            let (sign, j2, j1) = (distance >> 20 & 1, distance >> 19 & 1, distance >> 18 & 1);
            let condition = u32::from(branch.condition & 15);
            narrow(0xf000 | sign << 10 | condition << 6 | distance >> 12 & 0x3f, out);
            narrow(0x8000 | j1 << 13 | j2 << 11 | distance >> 1 & 0x7ff, out);
        }
        (BranchKind::Jump, _) => far(0x9000, distance, out),
        (BranchKind::Call, _) => far(0xd000, distance, out),
    }
}

fn narrow(half: u32, out: &mut Vec<u8>) {
    out.extend((half as u16).to_le_bytes());
}

fn compare(branch: Branch, distance: u32, out: &mut Vec<u8>) {
    let not_zero = u32::from(branch.condition & NOT_ZERO != 0) << 11;
    let field = (distance >> 6 & 1) << 9 | (distance >> 1 & 0x1f) << 3;
    narrow(0xb100 | not_zero | field | u32::from(branch.condition & REGISTER), out);
}

/// `b.w` and `bl`
fn far(second: u32, distance: u32, out: &mut Vec<u8>) {
    let sign = distance >> 24 & 1;
    let (j1, j2) = (!(distance >> 23 ^ sign) & 1, !(distance >> 22 ^ sign) & 1);
    narrow(0xf000 | sign << 10 | distance >> 12 & 0x3ff, out);
    narrow(second | j1 << 13 | j2 << 11 | distance >> 1 & 0x7ff, out);
}

/// See [`crate::Rewritable::inverse`].
pub(super) fn inverse(branch: Branch) -> Option<Branch> {
    let bit = if compares(branch) { NOT_ZERO } else { 1 };
    let inverted = Branch { condition: branch.condition ^ bit, ..branch };
    (branch.kind == BranchKind::Conditional).then_some(inverted)
}

/// See [`crate::Rewritable::condition`].
pub(super) fn condition(branch: Branch) -> Condition {
    match branch.kind {
        BranchKind::Conditional if !compares(branch) => op::condition(branch.condition & 15),
        _ => Condition::Other,
    }
}

/// See [`crate::Rewritable::compared`].
pub(super) fn compared(branch: Branch) -> Option<(Reg, Condition)> {
    let condition = if branch.condition & NOT_ZERO != 0 { Condition::NotEqual } else { Condition::Equal };
    compares(branch).then_some((Reg(branch.condition & REGISTER), condition))
}

/// See [`crate::Rewritable::encode_call`].
pub(super) fn call(encoding: Encoding, out: &mut Vec<u8>) -> AddressField {
    let branch = Branch { kind: BranchKind::Call, ..jump(encoding) };
    let form = forms(branch)[0];
    encode(branch, form, form.reach.0, out);
    let BranchRelocation { r_type, bias } = relocation(branch, form.len);
    AddressField { offset: 0, width: form.field_width, bias, r_type, class: RelocClass::Branch }
}

/// `bx lr`.
const RETURN: u16 = 0x4770;
const MAIN_RETURN: u32 = 0xe12f_ff1e;

/// See [`crate::Rewritable::encode_return`].
pub(super) fn go_back(encoding: Encoding, out: &mut Vec<u8>) {
    match encoding {
        Encoding::Main => out.extend(MAIN_RETURN.to_le_bytes()),
        Encoding::Thumb => out.extend(RETURN.to_le_bytes()),
    }
}

/// The `nop` that GNU as uses as padding.
const NOP: u16 = 0xbf00;
const WIDE_NOP: u32 = 0xf3af_8000;
const MAIN_NOP: u32 = 0xe320_f000;
/// `mov r8, r8` and `mov r0, r0`, for processors without `nop`.
const OLD_NOP: u16 = 0x46c0;
const OLD_MAIN_NOP: u32 = 0xe1a0_0000;

/// See [`crate::Rewritable::encode_nops`].
pub(super) fn nops(encoding: Encoding, size: usize, out: &mut Vec<u8>) {
    let end = out.len() + size;
    match encoding {
        Encoding::Main => (0..size / 4).for_each(|_| out.extend(MAIN_NOP.to_le_bytes())),
        Encoding::Thumb => (0..size / 2).for_each(|_| out.extend(NOP.to_le_bytes())),
    }
    out.resize(end, 0);
}

/// See [`crate::Rewritable::padding_len`].
pub(super) fn padding_len(encoding: Encoding, bytes: &[u8]) -> Option<usize> {
    let half = |at: usize| Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    if encoding == Encoding::Main {
        let word = u32::from_le_bytes(*bytes.first_chunk()?);
        return matches!(word, MAIN_NOP | OLD_MAIN_NOP | 0).then_some(4);
    }
    match half(0)? {
        NOP | OLD_NOP | 0 => Some(2),
        first => {
            let word = u32::from(first) << 16 | u32::from(half(2)?);
            (word == WIDE_NOP).then_some(4)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::Arm;
    use crate::{Flow, Isa};

    /// Encoded branches decode as the same branch to the same target, at both ends of the reach of every form.
    #[test]
    fn branches_are_decoded_as_they_were_encoded() {
        let mut branches = vec![jump(Encoding::Main), jump(Encoding::Thumb)];
        for condition in 0..14 {
            for main in [0, MAIN] {
                branches.push(Branch { kind: BranchKind::Conditional, condition: condition | main });
            }
        }
        branches.extend((0..16).map(|n| Branch { kind: BranchKind::Conditional, condition: COMPARES | n }));
        branches.extend(
            [0, MAIN | ALWAYS, MAIN | 1].map(|condition| Branch { kind: BranchKind::Call, condition }),
        );
        for branch in branches {
            for form in forms(branch) {
                let middle = ((form.reach.0 + form.reach.1) / 2) & !3;
                for displacement in [form.reach.0, form.reach.1, middle] {
                    let mut bytes = Vec::new();
                    encode(branch, *form, displacement, &mut bytes);
                    assert_eq!(bytes.len(), usize::from(form.len));
                    let encoding = if is_main(branch) { Encoding::Main } else { Encoding::Thumb };
                    let base = 0x4000_0000u64;
                    let insn = Arm.decode(&bytes, encoding.at(base)).unwrap().insn;
                    let target = (base as i64 + i64::from(form.len) + displacement) as u64;
                    let target = encoding.at(target).pointer();
                    if form.len == 6 {
                        // The inverse over a jump.
                        let jump = Arm.decode(&bytes[2..], encoding.at(base + 2)).unwrap().insn;
                        let (over, to) = (direct(insn.flow), direct(jump.flow));
                        assert_eq!(Some(over.0), inverse(branch));
                        assert_eq!((over.1, to), ((base + 6) | 1, (self::jump(encoding), target)));
                        continue;
                    }
                    assert_eq!(direct(insn.flow), (branch, target), "{branch:?} {form:?} {displacement}");
                }
                assert!(!form.reaches(form.reach.0 - 2) && !form.reaches(form.reach.1 + 2));
            }
        }
    }

    fn direct(flow: Flow) -> (Branch, u64) {
        let Flow::Direct { branch, target, .. } = flow else { panic!("{flow:?}") };
        (branch, target)
    }

    #[test]
    fn padding_is_recognized() {
        for encoding in [Encoding::Main, Encoding::Thumb] {
            let mut bytes = Vec::new();
            nops(encoding, 8, &mut bytes);
            let len = if encoding == Encoding::Main { 4 } else { 2 };
            assert_eq!(padding_len(encoding, &bytes), Some(len));
            assert_eq!(bytes.len(), 8);
        }
        assert_eq!(padding_len(Encoding::Thumb, &[0xaf, 0xf3, 0x00, 0x80]), Some(4));
        assert_eq!(padding_len(Encoding::Thumb, &[0x70, 0x47]), None);
        assert_eq!(padding_len(Encoding::Main, &[0]), None);
    }
}

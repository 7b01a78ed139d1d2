//! Encoding of direct branches and of padding.

use iced_x86::ConditionCode;

use crate::{Branch, BranchForm, BranchKind};

/// Condition codes in the order of the opcodes `0x70` to `0x7f`.
pub(super) const CONDITION_CODES: [ConditionCode; 16] = [
    ConditionCode::o,
    ConditionCode::no,
    ConditionCode::b,
    ConditionCode::ae,
    ConditionCode::e,
    ConditionCode::ne,
    ConditionCode::be,
    ConditionCode::a,
    ConditionCode::s,
    ConditionCode::ns,
    ConditionCode::p,
    ConditionCode::np,
    ConditionCode::l,
    ConditionCode::ge,
    ConditionCode::le,
    ConditionCode::g,
];

/// The opcode of a direct call.
pub(super) const CALL: u8 = 0xe8;
/// The opcode of `ret`.
pub(super) const RETURN: u8 = 0xc3;

/// `je`.
pub(super) const IF_EQUAL: Branch = Branch { kind: BranchKind::Conditional, condition: 4 };

// Unusual branches keep their opcode as condition number.
pub(super) const LOOPNE: u8 = 0xe0;
pub(super) const LOOPE: u8 = 0xe1;
pub(super) const LOOP: u8 = 0xe2;
pub(super) const ECXZ: u8 = 0xe3;

/// The reach of a displacement of one byte, and of four.
const BYTE: (i64, i64) = (-0x80, 0x7f);
const WORD: (i64, i64) = (-0x8000_0000, 0x7fff_ffff);

const SHORT: BranchForm = BranchForm { len: 2, field_offset: 1, field_width: 1, reach: BYTE };
const NEAR: BranchForm = BranchForm { len: 5, field_offset: 1, field_width: 4, reach: WORD };
const NEAR_CONDITIONAL: BranchForm = BranchForm { len: 6, field_offset: 2, field_width: 4, reach: WORD };

/// See [`crate::Rewritable::branch_forms`].
pub(super) fn forms(branch: Branch) -> &'static [BranchForm] {
    match branch.kind {
        BranchKind::Jump => &[SHORT, NEAR],
        BranchKind::Conditional if branch.condition < 16 => &[SHORT, NEAR_CONDITIONAL],
        BranchKind::Conditional => &[SHORT],
        BranchKind::Call => &[NEAR],
    }
}

/// See [`crate::Rewritable::encode_branch`].
pub(super) fn encode(branch: Branch, form: BranchForm, displacement: i64, out: &mut Vec<u8>) {
    debug_assert!(form.reaches(displacement));
    match (branch.kind, form.field_width) {
        (BranchKind::Jump, 1) => out.push(0xeb),
        (BranchKind::Jump, _) => out.push(0xe9),
        (BranchKind::Conditional, 1) if branch.condition < 16 => out.push(0x70 | branch.condition),
        (BranchKind::Conditional, 1) => out.push(branch.condition),
        (BranchKind::Conditional, _) => out.extend([0x0f, 0x80 | branch.condition]),
        (BranchKind::Call, _) => out.push(0xe8),
    }
    out.extend_from_slice(&displacement.to_le_bytes()[..usize::from(form.field_width)]);
}

/// See [`crate::Rewritable::inverse`].
pub(super) fn inverse(branch: Branch) -> Option<Branch> {
    let coded = branch.kind == BranchKind::Conditional && branch.condition < 16;
    coded.then_some(Branch { condition: branch.condition ^ 1, ..branch })
}

/// Appends the multi-byte `nop`s that GNU as uses as padding.
pub(super) fn nops(mut size: usize, out: &mut Vec<u8>) {
    const NOPS: [&[u8]; 8] = [
        &[0x90],
        &[0x66, 0x90],
        &[0x0f, 0x1f, 0x00],
        &[0x0f, 0x1f, 0x40, 0x00],
        &[0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
        &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
        &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
    ];
    while size > 0 {
        let step = size.min(NOPS.len());
        out.extend_from_slice(NOPS[step - 1]);
        size -= step;
    }
}

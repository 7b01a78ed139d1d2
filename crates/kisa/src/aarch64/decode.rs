//! Decoding: control flow.

use super::word::Word;
use crate::{Branch, BranchKind, Flow, Insn, Predicates};

/// See [`crate::Isa::decode`].
pub(super) fn decode(word: Word, address: u64) -> Insn {
    Insn {
        len: 4,
        flow: flow(word, address),
        system_call: is_system_call(word),
        conditional: false,
        predicates: Predicates::NONE,
    }
}

pub(super) fn is_system_call(word: Word) -> bool {
    word.is(0xffe0_001f, 0xd400_0001)
}

fn flow(word: Word, address: u64) -> Flow {
    let direct = |kind, low, width| Flow::Direct {
        branch: Branch { kind, condition: condition(word) },
        target: address.wrapping_add_signed(word.signed(low, width) * 4),
        field_offset: 0,
        field_width: 4,
    };
    if word.is(0xfc00_0000, 0x1400_0000) {
        return direct(BranchKind::Jump, 0, 26);
    }
    if word.is(0xfc00_0000, 0x9400_0000) {
        return direct(BranchKind::Call, 0, 26);
    }
    if is_conditional(word) {
        // `b.al`
        let always = word.bit(30) && word.field(0, 4) >= 14;
        return direct(if always { BranchKind::Jump } else { BranchKind::Conditional }, 5, 19);
    }
    if is_compare(word) {
        return direct(BranchKind::Conditional, 5, 19);
    }
    if is_bit_test(word) {
        return direct(BranchKind::Conditional, 5, 14);
    }
    if is_computed(word) {
        return match word.field(21, 4) & 0b0111 {
            0 => Flow::IndirectJump,
            1 => Flow::IndirectCall,
            2 | 4 => Flow::Return,
            _ => Flow::Trap,
        };
    }
    // `udf`, `brk`, `hlt`.
    let traps =
        word.is(0xffff_0000, 0) || word.is(0xffe0_001f, 0xd420_0000) || word.is(0xffe0_001f, 0xd440_0000);
    if traps { Flow::Trap } else { Flow::Next }
}

fn condition(word: Word) -> u8 {
    if is_conditional(word) { word.field(0, 4) as u8 } else { 0 }
}

/// `b.eq` and the other conditional branches.
pub(super) fn is_conditional(word: Word) -> bool {
    word.is(0xff00_0000, 0x5400_0000)
}

/// `cbz`, `cbnz`.
pub(super) fn is_compare(word: Word) -> bool {
    word.is(0x7e00_0000, 0x3400_0000)
}

/// `tbz`, `tbnz`.
pub(super) fn is_bit_test(word: Word) -> bool {
    word.is(0x7e00_0000, 0x3600_0000)
}

/// `br`, `blr`, `ret` and the forms that authenticate.
pub(super) fn is_computed(word: Word) -> bool {
    word.is(0xfe00_0000, 0xd600_0000)
}

//! Results and control flow of operations, in the language of [`crate::semantics`].

use super::branch;
use super::op::{ALWAYS, Data, Decoded, LR, Mode, Offset, Op, PC, Place, SP, Source};
use crate::semantics::{Effect, let_escape};
use crate::{Branch, BranchKind, Encoding, Flow, Insn, Predicates};

mod memory;
mod model;

pub(super) use memory::memory_operand;
use model::Model;
pub use model::program_counter;

/// Returns the length and control flow.
pub(super) fn instruction(decoded: &Decoded, encoding: Encoding) -> Insn {
    let is_conditional = decoded.condition < ALWAYS;
    let condition = branch::number(decoded, encoding);
    let direct = |kind, target: u32| Flow::Direct {
        branch: Branch { kind, condition },
        target: target.into(),
        field_offset: 0,
        field_width: decoded.len,
    };
    let (mut system_call, mut predicates) = (false, Predicates::NONE);
    let flow = match decoded.op {
        Op::Branch { target, link: true } => direct(BranchKind::Call, target),
        Op::Branch { target, .. } if is_conditional => direct(BranchKind::Conditional, target),
        Op::Branch { target, .. } => direct(BranchKind::Jump, target),
        Op::CompareBranch { target, .. } => direct(BranchKind::Conditional, target),
        Op::BranchTo { link: true, .. } => Flow::IndirectCall,
        Op::BranchTo { src: LR, .. } => Flow::Return,
        Op::BranchTo { .. } | Op::Table { .. } => Flow::IndirectJump,
        Op::Data { data: Data::Move, dst: Some(PC), right: Source::Reg(LR), .. } => Flow::Return,
        // `subs pc, lr, #4` and the like return from an exception.
        Op::Data { dst: Some(PC), flags: true, .. } => Flow::Return,
        Op::Data { dst: Some(PC), .. } => Flow::IndirectJump,
        Op::Load { dst: [Some(PC), _], from: Place { base: SP, mode: Mode::After, .. }, .. } => Flow::Return,
        Op::Load { dst: [Some(PC), _], .. } => Flow::IndirectJump,
        // Frames of the old convention end with `ldm fp, {fp, sp, pc}`.
        Op::Multiple { loads: true, base, list, .. } if list >> PC & 1 != 0 => {
            if base == SP || list >> SP & 1 != 0 { Flow::Return } else { Flow::IndirectJump }
        }
        Op::Trap => Flow::Trap,
        Op::SystemCall { .. } => {
            system_call = true;
            Flow::Next
        }
        Op::Predicate { conditions, count } => {
            predicates = Predicates::new(conditions, count);
            Flow::Next
        }
        _ => Flow::Next,
    };
    let transfers = !matches!(
        flow,
        Flow::Next
            | Flow::Direct { branch: Branch { kind: BranchKind::Jump | BranchKind::Conditional, .. }, .. }
    );
    Insn { len: decoded.len, flow, system_call, conditional: is_conditional && transfers, predicates }
}

/// See [`crate::Isa::effects`].
pub(super) fn effects(decoded: &Decoded, at: u32, out: &mut Vec<Effect>) {
    let start = out.len();
    Model { decoded, at, out }.run();
    if !matches!(decoded.op, Op::SystemCall { .. }) {
        let address = memory_operand(decoded, at).map_or(0, |operand| operand.address.registers());
        let_escape(out, start, registers_read(decoded) & !address, 4);
    }
}

/// See [`crate::Isa::registers_read`].
pub(super) fn registers_read(decoded: &Decoded) -> u64 {
    let source = |source: Source| match source {
        Source::Number(_) => 0,
        Source::Reg(src) | Source::Shifted { src, .. } => 1 << src,
        Source::Unknown { reads } => reads.into(),
    };
    let place = |place: Place| {
        1 << place.base
            | match place.offset {
                Offset::Number(_) => 0u64,
                Offset::Reg { src, .. } | Offset::Unknown { src } => 1 << src,
            }
    };
    let read = match decoded.op {
        Op::Nothing | Op::Branch { .. } | Op::Predicate { .. } | Op::Trap => 0,
        Op::Data { left, right, .. } => source(left) | source(right),
        Op::MoveTop { dst, .. } => 1 << dst,
        Op::Field { src, .. } | Op::CompareBranch { src, .. } | Op::BranchTo { src, .. } => 1 << src,
        Op::Load { from, .. } => place(from),
        Op::Store { src, to, .. } => src.iter().flatten().fold(place(to), |bits, reg| bits | 1 << reg),
        Op::StoreExclusive { src, to, .. } => place(to) | u64::from(src),
        Op::SystemCall { .. } => 0x7fff,
        Op::Vector { place: to, .. } => place(to),
        Op::Multiple { loads, base, list, .. } => 1 << base | if loads { 0 } else { u64::from(list) },
        Op::Table { base, index, .. } => 1 << base | 1 << index,
        Op::Foreign { first, second } => 1 << first | 1 << second,
        Op::Other { reads, .. } => reads.into(),
    };
    read & 0x7fff
}

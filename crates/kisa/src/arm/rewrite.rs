//! Properties of ARM code that rewriting needs.

use kelf::RelocClass;

use super::op::{ALWAYS, Data, FP, Mode, Offset, Op, PC, Place, Source};
use super::{Arm, branch, compare, literal, number, own, print, registers, semantics, store};
use crate::semantics::{Address, Effect, Reg, Value};
use crate::{
    AddressField, At, Branch, BranchForm, BranchRelocation, Condition, Encoding, Exclusive, Inst, Isa,
    Literal, Reads, RelocatedField, Rewritable, StoreLayout, StoreOne,
};

impl Rewritable for Arm {
    fn branch_forms(&self, branch: Branch) -> &'static [BranchForm] {
        branch::forms(branch)
    }

    fn encode_branch(&self, branch: Branch, form: BranchForm, displacement: i64, out: &mut Vec<u8>) {
        branch::encode(branch, form, displacement, out)
    }

    fn inverse(&self, branch: Branch) -> Option<Branch> {
        branch::inverse(branch)
    }

    fn jump(&self, encoding: Encoding) -> Branch {
        branch::jump(encoding)
    }

    fn branch_relocation(&self, branch: Branch, len: u8) -> BranchRelocation {
        branch::relocation(branch, len)
    }

    fn encode_nops(&self, encoding: Encoding, size: usize, out: &mut Vec<u8>) {
        branch::nops(encoding, size, out)
    }

    fn padding_len(&self, bytes: &[u8], encoding: Encoding) -> Option<usize> {
        branch::padding_len(encoding, bytes)
    }

    fn condition(&self, branch: Branch) -> Condition {
        branch::condition(branch)
    }

    fn compared(&self, branch: Branch) -> Option<(Reg, Condition)> {
        branch::compared(branch)
    }

    fn can_move(&self, inst: &Inst<'_>) -> bool {
        self.literal(inst).is_some() || !uses_own_address(inst)
    }

    fn literal(&self, inst: &Inst<'_>) -> Option<Literal> {
        let behind = |ahead: u8| Some(Literal { target: inst.at.address + u64::from(ahead), read: None });
        if self.distance_table(inst).is_some() {
            return behind(inst.insn.len);
        }
        if self.address_table(inst) == Some(registers::PC) {
            return behind(8);
        }
        literal::literal(inst.bytes, inst.at)
    }

    fn computes_from_pc(&self, inst: &Inst<'_>) -> Option<u64> {
        let computes = matches!(inst.arm().op, Op::Data { .. } | Op::Load { .. } | Op::Store { .. })
            && self.literal(inst).is_none()
            && uses_own_address(inst);
        computes.then(|| semantics::program_counter(inst.at.pointer() as u32).into())
    }

    fn half_of_number(&self, inst: &Inst<'_>) -> Option<(Reg, u16, bool)> {
        match inst.arm().op {
            Op::MoveTop { dst, number } => Some((Reg(dst), number, true)),
            Op::Data { data: Data::Move, dst: Some(dst), right: Source::Number(number), .. } => {
                Some((Reg(dst), u16::try_from(number).ok()?, false))
            }
            _ => None,
        }
    }

    fn length(&self, bytes: &[u8], encoding: Encoding) -> Option<usize> {
        let len = match encoding {
            Encoding::Thumb if *bytes.get(1)? < 0xe8 => 2,
            _ => 4,
        };
        (len <= bytes.len()).then_some(len)
    }

    fn set_literal(&self, bytes: &mut [u8], at: At, target: u64) -> bool {
        // The place of a table is fixed.
        let table = self.decode(bytes, at).filter(|inst| {
            self.distance_table(inst).is_some() || self.address_table(inst) == Some(registers::PC)
        });
        match table.and_then(|inst| self.literal(&inst)) {
            Some(literal) => target == literal.target,
            None => literal::set(bytes, at, target),
        }
    }

    fn distance_table(&self, inst: &Inst<'_>) -> Option<u8> {
        match inst.arm().op {
            Op::Table { base: PC, width, .. } => Some(width),
            _ => None,
        }
    }

    fn distance_index(&self, inst: &Inst<'_>) -> Option<Reg> {
        match inst.arm().op {
            Op::Table { base: PC, index, .. } => Some(Reg(index)),
            _ => None,
        }
    }

    fn address_table(&self, inst: &Inst<'_>) -> Option<Reg> {
        match inst.arm().op {
            Op::Load {
                dst: [Some(PC), None],
                width: 4,
                from: Place { base, offset: Offset::Reg { by: 2, .. }, mode: Mode::Offset },
                ..
            } => Some(Reg(base)),
            _ => None,
        }
    }

    fn clear_literal(&self, bytes: &mut [u8], encoding: Encoding) {
        if self.decode(bytes, encoding.at(0)).is_none_or(|inst| self.distance_table(&inst).is_none()) {
            literal::clear(bytes, encoding);
        }
    }

    fn set_distance_table(&self, bytes: &mut [u8], encoding: Encoding, width: u8) -> bool {
        let is_table =
            self.decode(bytes, encoding.at(0)).is_some_and(|inst| self.distance_table(&inst).is_some());
        // Bit 4 of the second halfword distinguishes `tbh` from `tbb` (DDI 0487, F5.1.274).
        match width {
            1 if is_table => bytes[2] &= !0x10,
            2 if is_table => bytes[2] |= 0x10,
            _ => return false,
        }
        true
    }

    fn unit(&self, encoding: Encoding) -> usize {
        if encoding == Encoding::Main { 4 } else { 2 }
    }

    fn is_constant(&self, inst: &Inst<'_>, offset: u8, width: u8, class: RelocClass) -> bool {
        let decoded = inst.arm();
        let right = match class {
            RelocClass::Branch => matches!(decoded.op, Op::Branch { .. }),
            RelocClass::Instruction => matches!(
                decoded.op,
                Op::MoveTop { .. } | Op::Data { data: Data::Move, right: Source::Number(_), .. }
            ),
            _ => false,
        };
        right && offset == 0 && width == decoded.len
    }

    fn string_registers(&self, _inst: &Inst<'_>) -> u64 {
        0
    }

    fn relocated_effects(&self, inst: &Inst<'_>, fields: &[RelocatedField], out: &mut Vec<Effect>) {
        let decoded = inst.arm();
        let first = out.len();
        semantics::effects(decoded, own(inst.at), out);
        let effects = &mut out[first..];
        let literal = self.literal(inst);
        if let (Some(Literal { target, read: Some(_) }), [field]) = (literal, fields) {
            return effects.iter_mut().for_each(|effect| read_literal(effect, target, *field));
        }
        let own = literal.is_some() || uses_own_address(inst);
        let links = matches!(decoded.op, Op::Branch { link: true, .. } | Op::BranchTo { link: true, .. });
        let forgets = own || !fields.is_empty() || matches!(decoded.op, Op::Table { base: PC, .. });
        for effect in effects {
            match effect {
                // The return address is as unknown as the address of the call.
                Effect::Set { dst: registers::LR, value, .. } if links => *value = Value::Unknown,
                _ if forgets => forget(effect),
                _ => {}
            }
        }
    }

    fn move_into_callee(&self, bytes: &mut [u8], at: At) -> bool {
        let Some(inst) = self.decode(bytes, at) else { return false };
        let mut effects = Vec::new();
        self.effects(&inst, &mut effects);
        let written = effects.iter().fold(0, |all, effect| all | effect.registers_written());
        let bit = |reg: Reg| 1u64 << reg.0;
        let link = (self.reads(&inst).registers | written) & bit(registers::LR) != 0;
        let own = self.literal(&inst).is_some() || uses_own_address(&inst);
        let plain = self.only_computes(&inst) || self.only_stores(&inst);
        plain && !link && !own && written & bit(registers::SP) == 0
    }

    fn only_computes(&self, inst: &Inst<'_>) -> bool {
        let computes = match inst.arm().op {
            Op::MoveTop { .. } | Op::Field { .. } => true,
            // Stack unwinders need it, even if the function does not.
            ref op if op.sets_apcs_frame() => false,
            // `mov r1, r1` waits until a coprocessor has been read (`cpwait` of XScale; section 5.4 of the paper).
            Op::Data { data: Data::Move, dst: Some(dst), right: Source::Reg(src), .. } if dst == src => false,
            Op::Data { dst, right, .. } => dst != Some(PC) && !matches!(right, Source::Unknown { .. }),
            Op::Load { dst, exclusive, from: Place { mode: Mode::Offset, .. }, .. } => {
                !exclusive && !dst.contains(&Some(PC))
            }
            // An operation without effects may be a barrier.
            _ => false,
        };
        // Without it, the preceding `it` would apply its condition to another instruction.
        computes && inst.at.condition.is_none()
    }

    fn only_stores(&self, inst: &Inst<'_>) -> bool {
        let stores = matches!(inst.arm().op, Op::Store { to: Place { mode: Mode::Offset, .. }, .. });
        stores && inst.at.condition.is_none()
    }

    fn reads_flags(&self, inst: &Inst<'_>) -> bool {
        let decoded = inst.arm();
        let reads = match decoded.op {
            // An instruction that is not identified may be a conditional selection, or read the flags (`mrs`).
            Op::Other { .. } | Op::Foreign { .. } => true,
            Op::Data { data: Data::WithCarry, .. }
            | Op::Data { right: Source::Unknown { .. }, .. }
            | Op::SystemCall { .. }
            | Op::Trap => true,
            _ => false,
        };
        reads || decoded.condition < ALWAYS
    }

    fn reads(&self, inst: &Inst<'_>) -> Reads {
        let decoded = inst.arm();
        let operand = self.memory_operand(inst);
        // Until then, stack unwinders need the frame pointer.
        let frame = if decoded.op.leaves_apcs_frame() { 1 << FP } else { 0 };
        Reads {
            registers: semantics::registers_read(decoded) | frame,
            flags: self.reads_flags(inst),
            memory: operand.is_some_and(|operand| operand.width > 0),
        }
    }

    fn store_layout(&self, architecture: Option<u64>) -> Option<StoreLayout> {
        architecture.is_some_and(store::has_wide_moves).then_some(store::LAYOUT)
    }

    fn encode_store_one(
        &self,
        encoding: Encoding,
        free: u64,
        displacement: u32,
        out: &mut Vec<u8>,
    ) -> StoreOne {
        store::store_one(encoding, free, displacement, out)
    }

    fn holds_interrupts(&self, _inst: &Inst<'_>) -> bool {
        false
    }

    fn exclusive(&self, inst: &Inst<'_>) -> Option<Exclusive> {
        store::exclusive(inst)
    }

    fn encode_call(&self, encoding: Encoding, out: &mut Vec<u8>) -> AddressField {
        branch::call(encoding, out)
    }

    fn encode_return(&self, encoding: Encoding, out: &mut Vec<u8>) {
        branch::go_back(encoding, out);
    }

    fn encode_push_link(&self, encoding: Encoding, out: &mut Vec<u8>) {
        store::push_link(encoding, out)
    }

    fn encode_overwrite(&self, encoding: Encoding, reg: Reg, out: &mut Vec<u8>) -> bool {
        number::overwrite(encoding, reg, out)
    }

    fn encode_number(
        &self,
        encoding: Encoding,
        reg: Reg,
        number: u32,
        flags_may_change: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        number::number(encoding, reg, number, flags_may_change, out)
    }

    fn encode_load_word(
        &self,
        encoding: Encoding,
        dst: Reg,
        base: Reg,
        displacement: u8,
        out: &mut Vec<u8>,
    ) -> bool {
        compare::load_word(encoding, dst, base, displacement, out)
    }

    fn encode_compare(
        &self,
        encoding: Encoding,
        reg: Reg,
        number: u32,
        scratch: Option<Reg>,
        out: &mut Vec<u8>,
    ) -> bool {
        compare::compare(encoding, reg, number, scratch, out)
    }

    fn branch_if_equal(&self, encoding: Encoding) -> Option<Branch> {
        Some(branch::if_equal(encoding))
    }

    fn encode_overwrite_flags(&self, encoding: Encoding, out: &mut Vec<u8>) {
        number::overwrite_flags(encoding, out)
    }

    fn format(&self, bytes: &[u8], at: At) -> String {
        print::format(bytes, at)
    }
}

/// Whether an instruction computes with its own address, other than for a [`Rewritable::literal`], to jump through the
/// table after it, or to branch.
fn uses_own_address(inst: &Inst<'_>) -> bool {
    let decoded = inst.arm();
    let reads = |source: Source| match source {
        Source::Reg(PC) | Source::Shifted { src: PC, .. } => true,
        Source::Unknown { reads } => reads >> PC & 1 != 0,
        _ => false,
    };
    let near = |place: Place| {
        place.base == PC || matches!(place.offset, Offset::Reg { src: PC, .. } | Offset::Unknown { src: PC })
    };
    match decoded.op {
        // A branch to code in the other encoding.
        Op::Branch { target, .. } => (target & 1 != 0) != (inst.at.encoding == Encoding::Thumb),
        Op::Data { data: Data::Move | Data::Not, right, .. } => reads(right),
        Op::Data { left, right, .. } => reads(left) || reads(right),
        Op::Load { from, .. } => near(from),
        Op::Store { src, to, .. } => near(to) || src.contains(&Some(PC)),
        Op::Multiple { loads: false, list, .. } => list >> PC & 1 != 0 && !decoded.op.begins_apcs_frame(),
        Op::StoreExclusive { to, .. } => near(to),
        Op::Vector { place, .. } => near(place),
        Op::BranchTo { src: PC, .. } => true,
        // A table elsewhere.
        Op::Table { .. } => true,
        _ => false,
    }
}

/// Makes an effect that reads the literal at `target` read the address that the linker fills in instead.
fn read_literal(effect: &mut Effect, target: u64, field: RelocatedField) {
    let (Effect::Set { value, .. } | Effect::SetSigned { value, .. }) = effect else { return };
    let Value::Load { from, .. } = value else { return };
    let distance = from.displacement - target as i64;
    *from =
        Address { symbol: Some(field.symbol), displacement: field.addend + distance, ..Address::default() };
}

/// Makes the values that an effect computes unknown.
fn forget(effect: &mut Effect) {
    *effect = match *effect {
        Effect::Set { dst, .. }
        | Effect::MaybeSet { dst, .. }
        | Effect::SetSigned { dst, .. }
        | Effect::Binary { dst, .. } => Effect::Clobber(dst),
        Effect::Compare { .. } | Effect::CompareZero { .. } => Effect::ClobberFlags,
        Effect::Store { .. } => Effect::ClobberRange(Address::default()),
        Effect::Transfer(_) => Effect::Transfer(Value::Unknown),
        other => other,
    };
}

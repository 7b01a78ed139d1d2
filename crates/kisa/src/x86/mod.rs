//! i386 and x86-64, decoded and encoded by iced-x86.

use kelf::{Machine, RelocClass};

use super::{
    AddressField, Addressing, At, Branch, BranchForm, BranchKind, BranchRelocation, Condition, Convention,
    Effect, Encoding, Exclusive, Inst, Isa, Literal, MemoryOperand, Reader, Reads, Reg, RelocatedField,
    Rewritable, StoreLayout, StoreOne,
};

mod branch;
mod compare;
mod computes;
mod convention;
pub(crate) mod decode;
mod evaluate;
mod info;
mod operands;
mod overwrite;
mod reader;
mod semantics;
mod simple;
mod stack;
mod store;

use decode::Decoded;

use crate::specializing::{Bits, Encoded, Equality, Fill, Inputs, Outcome, Place, Simple, Specialize};

pub use semantics::registers;

/// An x86 processor in one of its two modes.
pub struct X86 {
    bits: u32,
}

/// 32-bit mode.
pub static I386: X86 = X86 { bits: 32 };
/// 64-bit mode.
pub static X86_64: X86 = X86 { bits: 64 };

impl Isa for X86 {
    fn machine(&self) -> Machine {
        if self.bits == 64 { Machine::X86_64 } else { Machine::I386 }
    }

    fn decode<'b>(&self, bytes: &'b [u8], at: At) -> Option<Inst<'b>> {
        reader::inst(Decoded::new(self.bits, bytes, at.address)?, bytes, at)
    }

    fn effects(&self, inst: &Inst<'_>, out: &mut Vec<Effect>) {
        semantics::effects_of(inst.x86(), out)
    }

    fn memory_operand(&self, inst: &Inst<'_>) -> Option<MemoryOperand> {
        operands::memory(inst.x86())
    }

    fn registers_read(&self, inst: &Inst<'_>) -> u64 {
        operands::registers_read(&inst.x86().instruction)
    }

    fn reader<'b>(&'b self, bytes: &'b [u8]) -> Box<dyn Reader<'b> + 'b> {
        Box::new(reader::Reader::new(self.bits, bytes))
    }

    fn convention(&self) -> &'static Convention {
        if self.bits == 64 { &convention::X86_64 } else { &convention::I386 }
    }

    fn addressing(&self) -> Addressing {
        Addressing::Whole
    }

    fn may_enter_kernel(&self, code: &[u8]) -> bool {
        // syscall, sysenter, int $0x80
        code.windows(2).any(|pair| matches!(pair, [0x0f, 0x05 | 0x34] | [0xcd, 0x80]))
    }

    fn is_halt(&self, bytes: &[u8]) -> bool {
        // hlt
        bytes.first() == Some(&0xf4)
    }

    fn registers(&self) -> usize {
        if self.bits == 64 { 16 } else { 8 }
    }
}

impl Specialize for X86 {
    fn evaluate(&self, inst: &Inst<'_>, inputs: &Inputs<'_>) -> Outcome {
        evaluate::evaluate(&inst.x86().instruction, inputs)
    }

    fn flags_of(&self, equality: Equality, flags: Bits) -> Bits {
        evaluate::flags_of(equality, flags)
    }

    fn holds(&self, condition: u8, flags: Bits) -> Option<bool> {
        evaluate::holds(condition, flags)
    }

    fn encode(&self, simple: Simple, wide: bool) -> Option<Encoded> {
        simple::encode(simple, wide)
    }

    fn with_operand(&self, inst: &Inst<'_>, place: Place) -> Option<Vec<u8>> {
        simple::with_operand(&inst.x86().instruction, place)
    }

    fn with_number(&self, inst: &Inst<'_>, number: u32) -> Option<Vec<u8>> {
        simple::with_number(&inst.x86().instruction, number)
    }

    fn fill(&self, inst: &Inst<'_>) -> Option<Fill> {
        simple::fill(&inst.x86().instruction)
    }

    fn overwrites_flags(&self, inst: &Inst<'_>) -> bool {
        evaluate::overwrites_flags(&inst.x86().instruction)
    }

    fn uses_stack_pointer(&self, inst: &Inst<'_>) -> bool {
        simple::uses_stack_pointer(inst.x86())
    }
}

impl Rewritable for X86 {
    fn specialize(&self) -> Option<&dyn Specialize> {
        // Other encodings than those of 32-bit code are not supported.
        (self.bits == 32).then_some(self as &dyn Specialize)
    }

    fn branch_forms(&self, branch: Branch) -> &'static [BranchForm] {
        branch::forms(branch)
    }

    fn encode_branch(&self, branch: Branch, form: BranchForm, displacement: i64, out: &mut Vec<u8>) {
        branch::encode(branch, form, displacement, out)
    }

    fn inverse(&self, branch: Branch) -> Option<Branch> {
        branch::inverse(branch)
    }

    fn jump(&self, _encoding: Encoding) -> Branch {
        Branch { kind: BranchKind::Jump, condition: 0 }
    }

    fn branch_relocation(&self, _branch: Branch, _len: u8) -> BranchRelocation {
        BranchRelocation { r_type: kelf::reloc::branch(self.machine()), bias: 4 }
    }

    fn encode_nops(&self, _encoding: Encoding, size: usize, out: &mut Vec<u8>) {
        branch::nops(size, out)
    }

    fn store_layout(&self, _architecture: Option<u64>) -> Option<StoreLayout> {
        Some(store::LAYOUT)
    }

    fn encode_store_one(
        &self,
        _encoding: Encoding,
        _free: u64,
        displacement: u32,
        out: &mut Vec<u8>,
    ) -> StoreOne {
        store::store_one(self.bits, displacement, out)
    }

    fn encode_call(&self, _encoding: Encoding, out: &mut Vec<u8>) -> AddressField {
        out.extend([branch::CALL, 0, 0, 0, 0]);
        let (r_type, class) = (kelf::reloc::branch(self.machine()), RelocClass::Branch);
        AddressField { offset: 1, width: 4, bias: 4, r_type, class }
    }

    fn encode_return(&self, _encoding: Encoding, out: &mut Vec<u8>) {
        out.push(branch::RETURN);
    }

    fn encode_overwrite(&self, _encoding: Encoding, reg: Reg, out: &mut Vec<u8>) -> bool {
        overwrite::overwrite(reg, out);
        true
    }

    fn encode_number(
        &self,
        _encoding: Encoding,
        reg: Reg,
        number: u32,
        flags_may_change: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        overwrite::number(reg, number, flags_may_change, out);
        true
    }

    fn encode_load_word(
        &self,
        _encoding: Encoding,
        dst: Reg,
        base: Reg,
        displacement: u8,
        out: &mut Vec<u8>,
    ) -> bool {
        compare::load_word(dst, base, displacement, out)
    }

    fn encode_compare(
        &self,
        _encoding: Encoding,
        reg: Reg,
        number: u32,
        _scratch: Option<Reg>,
        out: &mut Vec<u8>,
    ) -> bool {
        compare::compare(reg, number, out)
    }

    fn branch_if_equal(&self, _encoding: Encoding) -> Option<Branch> {
        Some(branch::IF_EQUAL)
    }

    fn encode_overwrite_flags(&self, _encoding: Encoding, out: &mut Vec<u8>) {
        overwrite::overwrite_flags(out);
    }

    fn padding_len(&self, bytes: &[u8], _encoding: Encoding) -> Option<usize> {
        decode::padding_len(self.bits, bytes)
    }

    fn condition(&self, branch: Branch) -> Condition {
        branch::CONDITION_CODES
            .get(usize::from(branch.condition))
            .filter(|_| branch.kind == BranchKind::Conditional)
            .map_or(Condition::Other, |&code| semantics::condition(code))
    }

    fn compared(&self, _branch: Branch) -> Option<(Reg, Condition)> {
        None
    }

    fn holds_interrupts(&self, inst: &Inst<'_>) -> bool {
        decode::holds_interrupts(&inst.x86().instruction)
    }

    fn exclusive(&self, _inst: &Inst<'_>) -> Option<Exclusive> {
        None
    }

    fn can_move(&self, inst: &Inst<'_>) -> bool {
        decode::can_move(&inst.x86().instruction)
    }

    fn literal(&self, _inst: &Inst<'_>) -> Option<Literal> {
        None
    }

    fn computes_from_pc(&self, _inst: &Inst<'_>) -> Option<u64> {
        None
    }

    fn operand_beside(&self, inst: &Inst<'_>) -> Option<(u8, u64)> {
        let decoded = inst.x86();
        let (instruction, constants) = (&decoded.instruction, &decoded.constants);
        let is_it = decode::has_memory_operand(instruction) && instruction.is_ip_rel_memory_operand();
        is_it.then(|| (constants.displacement_offset() as u8, instruction.ip_rel_memory_address()))
    }

    fn half_of_number(&self, _inst: &Inst<'_>) -> Option<(Reg, u16, bool)> {
        None
    }

    fn length(&self, _bytes: &[u8], _encoding: Encoding) -> Option<usize> {
        None
    }

    fn set_literal(&self, _bytes: &mut [u8], _at: At, _target: u64) -> bool {
        false
    }

    fn clear_literal(&self, _bytes: &mut [u8], _encoding: Encoding) {}

    fn distance_table(&self, _inst: &Inst<'_>) -> Option<u8> {
        None
    }

    fn distance_index(&self, _inst: &Inst<'_>) -> Option<Reg> {
        None
    }

    fn address_table(&self, _inst: &Inst<'_>) -> Option<Reg> {
        None
    }

    fn set_distance_table(&self, _bytes: &mut [u8], _encoding: Encoding, _width: u8) -> bool {
        false
    }

    fn unit(&self, _encoding: Encoding) -> usize {
        1
    }

    fn is_constant(&self, inst: &Inst<'_>, offset: u8, width: u8, _class: RelocClass) -> bool {
        decode::is_constant(inst.x86(), inst.bytes, offset, width)
    }

    fn string_registers(&self, inst: &Inst<'_>) -> u64 {
        operands::string_registers(&inst.x86().instruction)
    }

    fn relocated_effects(&self, inst: &Inst<'_>, fields: &[RelocatedField], out: &mut Vec<Effect>) {
        semantics::relocated_effects(inst.x86(), inst.bytes, fields, out)
    }

    fn move_into_callee(&self, bytes: &mut [u8], _at: At) -> bool {
        stack::move_into_callee(self.bits, bytes)
    }

    fn shift_operand(&self, bytes: &mut [u8], _at: At, by: i32) -> bool {
        stack::shift_operand(self.bits, bytes, by)
    }

    fn only_computes(&self, inst: &Inst<'_>) -> bool {
        computes::only_computes(&inst.x86().instruction)
    }

    fn only_stores(&self, inst: &Inst<'_>) -> bool {
        computes::only_stores(&inst.x86().instruction)
    }

    fn is_landing_pad(&self, bytes: &[u8]) -> bool {
        // endbr64, endbr32
        matches!(bytes, [0xf3, 0x0f, 0x1e, 0xfa | 0xfb, ..])
    }

    fn reads_flags(&self, inst: &Inst<'_>) -> bool {
        operands::reads_flags(&inst.x86().instruction)
    }

    fn reads(&self, inst: &Inst<'_>) -> Reads {
        operands::reads(&inst.x86().instruction)
    }

    fn encode_push_link(&self, _encoding: Encoding, _out: &mut Vec<u8>) {}

    fn format(&self, bytes: &[u8], at: At) -> String {
        decode::format(self.bits, bytes, at.address)
    }
}

//! Reads of instructions whose effects do not define the use of the value.

use iced_x86::{Mnemonic, OpKind, Register, UsedMemory};

use super::super::info::with_info;
use super::super::operands::is_read;
use super::registers::ESP;
use super::{Model, general, is_beside_operand, is_high_byte, is_operand_memory};
use crate::semantics::{Address, Effect, Value};

/// The largest operand in memory that is described piece by piece, in bytes: a vector of AVX-512.
const MAX_PIECES: usize = 64;

impl Model<'_> {
    /// Whether an operand is not a value of the language: a part of a register other than its lowest, a register that
    /// is not general, memory at an address computed in another way, or more than 8 bytes of memory.
    pub(super) fn has_unnamed_operand(&self) -> bool {
        let instruction = self.instruction;
        (0..instruction.op_count()).any(|operand| match instruction.op_kind(operand) {
            OpKind::Register => {
                let register = instruction.op_register(operand);
                is_high_byte(register) || general(register).is_none()
            }
            OpKind::Memory => instruction.memory_size().size() > 8 || self.address().is_none(),
            _ => false,
        })
    }

    /// Adds escapes of the general registers and the memory that the instruction reads, before any write. This excludes
    /// registers that only form an address.
    pub(super) fn escape(&mut self) {
        let instruction = self.instruction;
        // `bt` decides only a flag.
        if std::mem::replace(&mut self.has_escaped, true) || instruction.mnemonic() == Mnemonic::Bt {
            return;
        }
        // Find the reads other than the operand's address.
        let mut elsewhere = *instruction;
        elsewhere.set_memory_base(Register::None);
        elsewhere.set_memory_index(Register::None);
        let top = instruction.is_stack_instruction().then_some(ESP);
        let word = self.word;
        with_info(&elsewhere, |info| {
            let read = info.used_registers().iter().filter(|used| is_read(used.access()));
            let registers = read.filter_map(|used| general(used.register())).filter(|&reg| Some(reg) != top);
            self.out.extend(registers.map(|reg| Effect::Escape(Value::Reg { reg, width: word })));
        });
        with_info(instruction, |info| {
            let read = info.used_memory().iter().filter(|used| is_read(used.access()));
            read.for_each(|used| self.escape_memory(used));
        });
    }

    fn escape_memory(&mut self, used: &UsedMemory) {
        let instruction = self.instruction;
        let is_there = is_operand_memory(instruction) && !is_beside_operand(instruction);
        let from = is_there.then(|| self.address()).flatten();
        let size = used.memory_size().size();
        match from.filter(|_| (1..=MAX_PIECES).contains(&size)) {
            Some(from) => self.out.extend((0..size).step_by(8).map(|at| {
                let from = Address { displacement: from.displacement.wrapping_add(at as i64), ..from };
                Effect::Escape(Value::Load { from, width: (size - at).min(8) as u8 })
            })),
            None => self.out.push(Effect::Escape(Value::Unknown)),
        }
    }
}

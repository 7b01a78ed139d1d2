//! Reads of instructions, and their memory operand.

use iced_x86::{Instruction, Mnemonic, OpAccess, OpKind, Register, RflagsBits};

use super::decode::{self, Decoded};
use super::info::with_info;
use super::semantics::registers::{EDI, ESI};
use super::semantics::{address, general};
use crate::{MemoryOperand, Reads};

/// See [`crate::Isa::memory_operand`].
pub(super) fn memory(decoded: &Decoded) -> Option<MemoryOperand> {
    let Decoded { bits, instruction, constants } = decoded;
    if !decode::has_memory_operand(instruction) {
        return None;
    }
    let width = match instruction.mnemonic() {
        Mnemonic::Lea => 0,
        // iced gives no size for these operands; the fact that they access memory at the address is enough.
        _ => instruction.memory_size().size().clamp(1, 255) as u8,
    };
    let displacement_offset = constants.has_displacement().then_some(constants.displacement_offset() as u8);
    Some(MemoryOperand { address: address(*bits, instruction)?, width, displacement_offset })
}

/// See [`crate::Rewritable::string_registers`].
pub(super) fn string_registers(instruction: &Instruction) -> u64 {
    let registers = instruction.op_kinds().filter_map(|kind| match kind {
        OpKind::MemorySegESI | OpKind::MemorySegRSI => Some(ESI),
        OpKind::MemoryESEDI | OpKind::MemoryESRDI => Some(EDI),
        _ => None,
    });
    registers.fold(0, |set, reg| set | 1 << reg.0)
}

/// See [`crate::Isa::registers_read`].
pub(super) fn registers_read(instruction: &Instruction) -> u64 {
    if goes_elsewhere(instruction) {
        return u64::MAX;
    }
    if clears(instruction) {
        return 0;
    }
    with_info(instruction, |info| {
        let read = info.used_registers().iter().filter(|used| is_read(used.access()));
        read.filter_map(|used| general(used.register())).fold(0, |set, reg| set | 1 << reg.0)
    })
}

/// Whether an operand with this access is read.
pub(super) fn is_read(access: OpAccess) -> bool {
    matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite)
}

/// See [`crate::Rewritable::reads_flags`].
pub(super) fn reads_flags(instruction: &Instruction) -> bool {
    const ASKED_FOR: u32 =
        RflagsBits::OF | RflagsBits::SF | RflagsBits::ZF | RflagsBits::AF | RflagsBits::CF | RflagsBits::PF;
    instruction.rflags_read() & ASKED_FOR != 0
}

/// See [`crate::Rewritable::reads`].
pub(super) fn reads(instruction: &Instruction) -> Reads {
    let has_operand = decode::has_memory_operand(instruction) && instruction.mnemonic() != Mnemonic::Lea;
    Reads {
        registers: registers_read(instruction),
        flags: reads_flags(instruction),
        memory: has_operand || string_registers(instruction) != 0,
    }
}

/// Whether it enters a handler, a hypervisor, a device that may have one (`in` and `out` of VMware, and of system
/// management), or another program, which may read any register.
fn goes_elsewhere(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    matches!(
        instruction.mnemonic(),
        Int | Int1
            | Int3
            | Into
            | In
            | Insb
            | Insd
            | Insw
            | Out
            | Outsb
            | Outsd
            | Outsw
            | Syscall
            | Sysenter
            | Sysexit
            | Sysexitq
            | Sysret
            | Sysretq
            | Iret
            | Iretd
            | Iretq
            | Vmcall
            | Vmmcall
            | Vmlaunch
            | Vmresume
    )
}

/// Whether the result does not depend on the operands: `xor %eax, %eax`.
fn clears(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Xor | Mnemonic::Sub)
        && instruction.op0_kind() == OpKind::Register
        && instruction.op1_kind() == OpKind::Register
        && instruction.op0_register() == instruction.op1_register()
        && instruction.op0_register() != Register::None
}

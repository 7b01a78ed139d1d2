//! 32-bit ARM: IHI 0044 (ELF for the Arm Architecture).

use goblin::elf::header::EM_ARM;
use goblin::elf::reloc::*;
use kplan::Abi;

use super::{BootLine, INIT, Kernel, Lowest, Programs, Relocs, Target};
use crate::addend::Coding;
use crate::reloc::{DynamicReloc, Half, RelocClass};

/// The record.
pub(super) static TARGET: Target = Target {
    name: "arm",
    e_machine: EM_ARM,
    is_64: false,
    is_rela: false,
    is_rewritten: true,
    has_encoding_bit: true,
    mapping_symbols: &["$a", "$d", "$t"],
    has_encoded_branches: true,
    has_relative_addresses: false,
    has_literals: true,
    has_section_anchors: true,
    drops_branch_addends: true,
    has_unwind_index: true,
    code_alignment: 4,
    has_got_register: false,
    relocs: Relocs {
        prefix: "ARM",
        describe,
        absolute_word: R_ARM_ABS32,
        absolute_32: R_ARM_ABS32,
        relative_32: R_ARM_REL32,
        branch: R_ARM_JUMP24,
        // The program counter is two instructions ahead.
        branch_bias: |r_type| match r_type {
            R_ARM_PC24 | R_ARM_PLT32 | R_ARM_CALL | R_ARM_JUMP24 => Some(8),
            _ => Some(4),
        },
        is_short,
        is_distance: |_| false,
        counts_from_place,
        is_added_to_pc: |r_type| matches!(r_type, R_ARM_REL32 | R_ARM_REL32_NOI),
        counts_from_end: |_| false,
        is_in_sequence: |_| false,
        counts_from_itself: |_| false,
        names_thread_storage: true,
        renamed,
        coding,
        is_in_thumb_code,
        half: |r_type| match r_type {
            R_ARM_MOVW_ABS_NC | R_ARM_THM_MOVW_ABS_NC => Some(Half::Lower),
            R_ARM_MOVT_ABS | R_ARM_THM_MOVT_ABS => Some(Half::Upper),
            _ => None,
        },
        dynamic,
    },
    programs: Programs {
        abi: Abi::Arm,
        gate_abi: Abi::Arm,
        musl: "armhf",
        triplets: &["arm-linux-gnueabihf", "arm-linux-gnueabi"],
        has_vsyscall: false,
    },
    kernel: Kernel {
        arch: "arm",
        boot_images: ["arch/arm/boot/zImage", "zImage"],
        reserved: &[("_stext", "_end")],
        freed: &[INIT],
        // Modules are below the kernel (`MODULES_VADDR` of arch/arm/include/asm/memory.h).
        lowest: Lowest::BelowKernel(16 << 20),
        command_line: Some(BootLine::DeviceTree),
        command_line_size: 1024,
    },
};

/// The names of AAELF32 that differ from goblin's older ones.
fn renamed(r_type: u32) -> Option<&'static str> {
    Some(match r_type {
        R_ARM_PC13 => "R_ARM_LDR_PC_G0",
        R_ARM_THM_PC22 => "R_ARM_THM_CALL",
        R_ARM_THM_PC11 => "R_ARM_THM_JUMP11",
        R_ARM_THM_PC9 => "R_ARM_THM_JUMP8",
        R_ARM_GOTOFF => "R_ARM_GOTOFF32",
        R_ARM_GOTPC => "R_ARM_BASE_PREL",
        R_ARM_GOT32 => "R_ARM_GOT_BREL",
        _ => return None,
    })
}

fn is_short(r_type: u32) -> bool {
    let branch = matches!(r_type, R_ARM_THM_JUMP19 | R_ARM_THM_PC11 | R_ARM_THM_PC9 | R_ARM_THM_JUMP6);
    let load = matches!(r_type, R_ARM_THM_ALU_PREL_11_0 | R_ARM_THM_PC12 | R_ARM_THM_PC8 | R_ARM_PC13);
    branch || load || (R_ARM_ALU_PC_G0_NC..=R_ARM_LDC_PC_G2).contains(&r_type)
}

fn counts_from_place(r_type: u32) -> bool {
    let entry = matches!(r_type, R_ARM_GOTPC | R_ARM_GOT_PREL | R_ARM_TARGET2 | R_ARM_TLS_GOTDESC);
    entry || matches!(r_type, R_ARM_TLS_GD32 | R_ARM_TLS_LDM32 | R_ARM_TLS_IE32)
}

fn is_in_thumb_code(r_type: u32) -> bool {
    let branch = matches!(r_type, R_ARM_THM_PC22 | R_ARM_THM_JUMP24 | R_ARM_THM_JUMP19);
    branch || matches!(r_type, R_ARM_THM_PC11 | R_ARM_THM_PC9 | R_ARM_THM_JUMP6)
}

fn coding(r_type: u32) -> Option<Coding> {
    Some(match r_type {
        R_ARM_PC24 | R_ARM_PLT32 | R_ARM_CALL | R_ARM_JUMP24 => Coding::Branch24,
        R_ARM_PREL31 => Coding::Low31,
        R_ARM_MOVW_ABS_NC..=R_ARM_MOVT_PREL => Coding::Move16,
        R_ARM_ABS12 | R_ARM_PC13 | R_ARM_LDR_PC_G1 | R_ARM_LDR_PC_G2 => Coding::Load12,
        R_ARM_LDRS_PC_G0..=R_ARM_LDRS_PC_G2 => Coding::Load8,
        R_ARM_LDC_PC_G0..=R_ARM_LDC_PC_G2 => Coding::LoadCoprocessor,
        R_ARM_ALU_PC_G0_NC..=R_ARM_ALU_PC_G2 => Coding::Rotated,
        R_ARM_THM_MOVW_ABS_NC..=R_ARM_THM_MOVT_PREL => Coding::ThumbMove16,
        R_ARM_THM_PC22 | R_ARM_THM_JUMP24 => Coding::ThumbBranch24,
        R_ARM_THM_JUMP19 => Coding::ThumbBranch19,
        R_ARM_THM_PC11 => Coding::ThumbBranch11,
        R_ARM_THM_PC9 => Coding::ThumbBranch8,
        R_ARM_THM_JUMP6 => Coding::ThumbBranch6,
        R_ARM_THM_PC12 => Coding::ThumbLoad12,
        R_ARM_THM_ALU_PREL_11_0 => Coding::ThumbAdr,
        R_ARM_THM_PC8 => Coding::ThumbLoad8,
        _ => return None,
    })
}

fn describe(r_type: u32) -> Option<(RelocClass, u8)> {
    use RelocClass::*;
    Some(match r_type {
        // V4BX marks a `bx` that ld rewrites for ARMv4 on request.
        R_ARM_NONE | R_ARM_V4BX => (None, 0),
        R_ARM_ABS32 | R_ARM_ABS32_NOI | R_ARM_TARGET1 => (Absolute, 4),
        R_ARM_ABS16 => (Absolute, 2),
        R_ARM_ABS8 => (Absolute, 1),
        // PREL31 is a distance of 31 bits; the word's top bit is not part of it.
        R_ARM_REL32 | R_ARM_REL32_NOI | R_ARM_PREL31 => (Relative, 4),
        R_ARM_PC24 | R_ARM_PLT32 | R_ARM_CALL | R_ARM_JUMP24 => (Branch, 4),
        R_ARM_THM_PC22 | R_ARM_THM_JUMP24 | R_ARM_THM_JUMP19 => (Branch, 4),
        R_ARM_THM_PC11 | R_ARM_THM_PC9 | R_ARM_THM_JUMP6 => (Branch, 2),
        R_ARM_ABS12 | R_ARM_THM_ALU_PREL_11_0 | R_ARM_THM_PC12 => (Instruction, 4),
        R_ARM_THM_PC8 => (Instruction, 2),
        R_ARM_MOVW_ABS_NC..=R_ARM_THM_MOVT_PREL => (Instruction, 4),
        // ALU, LDR, LDRS and LDC group relocations, and LDR_PC_G0, whose older name is PC13.
        R_ARM_ALU_PC_G0_NC..=R_ARM_LDC_PC_G2 | R_ARM_PC13 => (Instruction, 4),
        // TARGET2, in exception tables, is GOT_PREL on Linux.
        R_ARM_GOTOFF | R_ARM_GOTPC | R_ARM_GOT32 | R_ARM_GOT_PREL | R_ARM_TARGET2 => (Got, 4),
        R_ARM_TLS_DTPMOD32..=R_ARM_TLS_TPOFF32 | R_ARM_TLS_GD32..=R_ARM_TLS_LE32 => (Tls, 4),
        R_ARM_TLS_GOTDESC => (Tls, 4),
        _ => return Option::None,
    })
}

fn dynamic(r_type: u32) -> DynamicReloc {
    use DynamicReloc::*;
    match r_type {
        R_ARM_RELATIVE => Relative,
        R_ARM_JUMP_SLOT => CallSlot,
        R_ARM_GLOB_DAT => Slot,
        R_ARM_ABS32 => Absolute(4),
        R_ARM_REL32 => Distance(4),
        R_ARM_COPY => Copy,
        R_ARM_IRELATIVE => Irelative,
        R_ARM_TLS_DESC => Number(2),
        R_ARM_TLS_DTPMOD32..=R_ARM_TLS_TPOFF32 => Number(1),
        R_ARM_NONE => None,
        _ => Unknown,
    }
}

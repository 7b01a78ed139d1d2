//! 32-bit x86: the System V ABI's i386 supplement, 1.1.

use goblin::elf::header::EM_386;
use goblin::elf::reloc::*;
use kplan::Abi;

use super::{BootLine, INIT, Kernel, Lowest, Programs, Relocs, Target, X86_IMAGE};
use crate::reloc::{DynamicReloc, RelocClass};

/// The record.
pub(super) static TARGET: Target = Target {
    name: "i386",
    e_machine: EM_386,
    is_64: false,
    is_rela: false,
    is_rewritten: true,
    has_encoding_bit: false,
    mapping_symbols: &[],
    has_encoded_branches: false,
    has_relative_addresses: false,
    has_literals: false,
    has_section_anchors: false,
    drops_branch_addends: false,
    has_unwind_index: false,
    code_alignment: 1,
    has_got_register: true,
    relocs: Relocs {
        prefix: "386",
        describe,
        absolute_word: R_386_32,
        absolute_32: R_386_32,
        relative_32: R_386_PC32,
        // Not `R_386_PLT32`: the kernel has no procedure linkage table there, and gas makes the same choice for code
        // that is not position-independent.
        branch: R_386_PC32,
        branch_bias: |_| None,
        is_short: |r_type| matches!(r_type, R_386_PC8 | R_386_PC16),
        is_distance: |r_type| {
            matches!(r_type, R_386_GOTOFF | R_386_TLS_LE | R_386_TLS_LE_32 | R_386_TLS_LDO_32)
        },
        counts_from_place: |_| false,
        is_added_to_pc: |_| false,
        counts_from_end: |_| false,
        is_in_sequence: |_| false,
        counts_from_itself: |r_type| r_type == R_386_GOTPC,
        names_thread_storage: false,
        renamed: |_| None,
        coding: |_| None,
        is_in_thumb_code: |_| false,
        half: |_| None,
        dynamic,
    },
    programs: Programs {
        abi: Abi::I386,
        gate_abi: Abi::I386,
        musl: "i386",
        triplets: &["i386-linux-gnu"],
        has_vsyscall: false,
    },
    kernel: Kernel {
        arch: "i386",
        boot_images: ["arch/x86/boot/bzImage", "bzImage"],
        reserved: X86_IMAGE,
        freed: &[INIT],
        lowest: Lowest::BelowKernel(0),
        command_line: Some(BootLine::Setup),
        command_line_size: 2048,
    },
};

fn describe(r_type: u32) -> Option<(RelocClass, u8)> {
    use RelocClass::*;
    /// `R_386_TLS_GOTDESC`, `R_386_TLS_DESC_CALL`.
    const TLS_DESCRIPTOR: (u32, u32) = (39, 40);
    Some(match r_type {
        R_386_NONE => (None, 0),
        R_386_32 => (Absolute, 4),
        R_386_16 => (Absolute, 2),
        R_386_8 => (Absolute, 1),
        R_386_PC32 => (Relative, 4),
        R_386_PC16 => (Relative, 2),
        R_386_PC8 => (Relative, 1),
        R_386_PLT32 => (Branch, 4),
        R_386_GOT32 | R_386_GOTOFF | R_386_GOTPC | R_386_GOT32X => (Got, 4),
        R_386_TLS_TPOFF..=R_386_TLS_LDM | R_386_TLS_GD_32..=R_386_TLS_LE_32 => (Tls, 4),
        _ if r_type == TLS_DESCRIPTOR.0 => (Tls, 4),
        _ if r_type == TLS_DESCRIPTOR.1 => (Tls, 0),
        _ => return Option::None,
    })
}

fn dynamic(r_type: u32) -> DynamicReloc {
    use DynamicReloc::*;
    match r_type {
        R_386_RELATIVE => Relative,
        R_386_JMP_SLOT => CallSlot,
        R_386_GLOB_DAT => Slot,
        R_386_32 => Absolute(4),
        R_386_PC32 => Distance(4),
        R_386_COPY => Copy,
        R_386_IRELATIVE => Irelative,
        R_386_TLS_DESC => Number(2),
        R_386_TLS_TPOFF | R_386_TLS_DTPMOD32..=R_386_TLS_TPOFF32 | R_386_SIZE32 => Number(1),
        R_386_NONE => None,
        _ => Unknown,
    }
}

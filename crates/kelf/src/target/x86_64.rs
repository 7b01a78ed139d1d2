//! 64-bit x86: the System V ABI's x86-64 supplement, 1.0.

use goblin::elf::header::EM_X86_64;
use goblin::elf::reloc::*;
use kplan::Abi;

use super::{BootLine, INIT, Kernel, Lowest, Programs, Relocs, Target, X86_IMAGE};
use crate::reloc::{DynamicReloc, RelocClass};

/// The record.
pub(super) static TARGET: Target = Target {
    name: "x86_64",
    e_machine: EM_X86_64,
    is_64: true,
    is_rela: true,
    is_rewritten: true,
    has_encoding_bit: false,
    mapping_symbols: &[],
    has_encoded_branches: false,
    has_relative_addresses: true,
    has_literals: false,
    has_section_anchors: false,
    drops_branch_addends: false,
    has_unwind_index: false,
    code_alignment: 1,
    has_got_register: false,
    relocs: Relocs {
        prefix: "X86_64",
        describe,
        absolute_word: R_X86_64_64,
        absolute_32: R_X86_64_32S,
        relative_32: R_X86_64_PC32,
        branch: R_X86_64_PLT32,
        branch_bias: |_| None,
        is_short: |r_type| matches!(r_type, R_X86_64_PC8 | R_X86_64_PC16),
        is_distance: |r_type| matches!(r_type, R_X86_64_GOTOFF64 | R_X86_64_TPOFF32 | R_X86_64_TPOFF64),
        counts_from_place: |_| false,
        is_added_to_pc: |_| false,
        counts_from_end: |r_type| {
            matches!(
                r_type,
                R_X86_64_GOTPCREL
                    | R_X86_64_GOTPCRELX
                    | R_X86_64_REX_GOTPCRELX
                    | R_X86_64_GOTTPOFF
                    | R_X86_64_TLSGD
                    | R_X86_64_TLSLD
                    | R_X86_64_GOTPC32_TLSDESC
            )
        },
        is_in_sequence: |r_type| {
            matches!(
                r_type,
                R_X86_64_TLSGD | R_X86_64_TLSLD | R_X86_64_GOTPC32_TLSDESC | R_X86_64_TLSDESC_CALL
            )
        },
        counts_from_itself: |_| false,
        names_thread_storage: false,
        renamed: |_| None,
        coding: |_| None,
        is_in_thumb_code: |_| false,
        half: |_| None,
        dynamic,
    },
    programs: Programs {
        abi: Abi::X86_64,
        gate_abi: Abi::I386,
        musl: "x86_64",
        triplets: &["x86_64-linux-gnu"],
        has_vsyscall: true,
    },
    kernel: Kernel {
        arch: "x86_64",
        boot_images: ["arch/x86/boot/bzImage", "bzImage"],
        reserved: X86_IMAGE,
        freed: &[INIT, ("_etext", "__start_rodata"), ("__end_rodata", "_sdata")],
        lowest: Lowest::UpperHalf,
        command_line: Some(BootLine::Setup),
        command_line_size: 2048,
    },
};

fn describe(r_type: u32) -> Option<(RelocClass, u8)> {
    use RelocClass::*;
    Some(match r_type {
        R_X86_64_NONE => (None, 0),
        R_X86_64_64 => (Absolute, 8),
        R_X86_64_32 | R_X86_64_32S => (Absolute, 4),
        R_X86_64_16 => (Absolute, 2),
        R_X86_64_8 => (Absolute, 1),
        R_X86_64_PC64 => (Relative, 8),
        R_X86_64_PC32 => (Relative, 4),
        R_X86_64_PC16 => (Relative, 2),
        R_X86_64_PC8 => (Relative, 1),
        R_X86_64_PLT32 => (Branch, 4),
        R_X86_64_GOT32 | R_X86_64_GOTPCREL | R_X86_64_GOTPC32 => (Got, 4),
        R_X86_64_GOTPCRELX | R_X86_64_REX_GOTPCRELX => (Got, 4),
        R_X86_64_GOTOFF64 | R_X86_64_GOT64..=R_X86_64_PLTOFF64 => (Got, 8),
        R_X86_64_DTPMOD64..=R_X86_64_TPOFF64 => (Tls, 8),
        R_X86_64_TLSGD..=R_X86_64_TPOFF32 | R_X86_64_GOTPC32_TLSDESC => (Tls, 4),
        R_X86_64_TLSDESC_CALL => (Tls, 0),
        _ => return Option::None,
    })
}

fn dynamic(r_type: u32) -> DynamicReloc {
    use DynamicReloc::*;
    match r_type {
        R_X86_64_RELATIVE => Relative,
        R_X86_64_JUMP_SLOT => CallSlot,
        R_X86_64_GLOB_DAT => Slot,
        R_X86_64_64 => Absolute(8),
        R_X86_64_32 | R_X86_64_32S => Absolute(4),
        R_X86_64_PC32 => Distance(4),
        R_X86_64_PC64 => Distance(8),
        R_X86_64_COPY => Copy,
        R_X86_64_IRELATIVE => Irelative,
        R_X86_64_TLSDESC => Number(2),
        R_X86_64_DTPMOD64..=R_X86_64_TPOFF64 | R_X86_64_DTPOFF32 | R_X86_64_TPOFF32 => Number(1),
        R_X86_64_SIZE32 | R_X86_64_SIZE64 => Number(1),
        R_X86_64_NONE => None,
        _ => Unknown,
    }
}

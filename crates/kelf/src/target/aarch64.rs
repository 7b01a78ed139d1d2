//! 64-bit ARM: IHI 0056 (ELF for the Arm 64-bit Architecture).

use goblin::elf::header::EM_AARCH64;
use goblin::elf::reloc::*;
use kplan::Abi;

use super::{INIT, Kernel, Lowest, Programs, Relocs, Target};
use crate::reloc::{DynamicReloc, RelocClass};

/// `R_AARCH64_NONE` before the ABI was final.
const OLD_NONE: u32 = 256;

/// The record.
pub(super) static TARGET: Target = Target {
    name: "aarch64",
    e_machine: EM_AARCH64,
    is_64: true,
    is_rela: true,
    is_rewritten: false,
    has_encoding_bit: false,
    mapping_symbols: &["$d", "$x"],
    has_encoded_branches: true,
    has_relative_addresses: false,
    has_literals: true,
    has_section_anchors: true,
    drops_branch_addends: false,
    has_unwind_index: false,
    code_alignment: 4,
    has_got_register: false,
    relocs: Relocs {
        prefix: "AARCH64",
        describe,
        absolute_word: R_AARCH64_ABS64,
        absolute_32: R_AARCH64_ABS32,
        relative_32: R_AARCH64_PREL32,
        branch: R_AARCH64_JUMP26,
        branch_bias: |_| None,
        is_short: |r_type| matches!(r_type, R_AARCH64_TSTBR14 | R_AARCH64_CONDBR19),
        is_distance: |_| false,
        counts_from_place: |_| false,
        is_added_to_pc: |_| false,
        counts_from_end: |_| false,
        is_in_sequence: |_| false,
        counts_from_itself: |_| false,
        names_thread_storage: false,
        renamed: |_| None,
        coding: |_| None,
        is_in_thumb_code: |_| false,
        half: |_| None,
        dynamic,
    },
    programs: Programs {
        abi: Abi::Aarch64,
        gate_abi: Abi::Aarch64,
        musl: "aarch64",
        triplets: &["aarch64-linux-gnu"],
        has_vsyscall: false,
    },
    kernel: Kernel {
        arch: "arm64",
        boot_images: ["arch/arm64/boot/Image.gz", "Image.gz"],
        reserved: &[("_stext", "_end")],
        freed: &[INIT],
        lowest: Lowest::UpperHalf,
        command_line: None,
        command_line_size: 2048,
    },
};

fn describe(r_type: u32) -> Option<(RelocClass, u8)> {
    use RelocClass::*;
    /// `R_AARCH64_PLT32`: a data word, which gas emits for static call tables.
    const PLT32: u32 = 314;
    Some(match r_type {
        R_AARCH64_NONE | OLD_NONE => (None, 0),
        R_AARCH64_ABS64 => (Absolute, 8),
        R_AARCH64_ABS32 => (Absolute, 4),
        R_AARCH64_ABS16 => (Absolute, 2),
        R_AARCH64_PREL64 => (Relative, 8),
        R_AARCH64_PREL32 => (Relative, 4),
        R_AARCH64_PREL16 => (Relative, 2),
        R_AARCH64_TSTBR14 | R_AARCH64_CONDBR19 | R_AARCH64_JUMP26 | R_AARCH64_CALL26 => (Branch, 4),
        PLT32 => (Branch, 4),
        R_AARCH64_MOVW_UABS_G0..=R_AARCH64_LDST8_ABS_LO12_NC => (Instruction, 4),
        R_AARCH64_LDST16_ABS_LO12_NC..=R_AARCH64_MOVW_PREL_G3 => (Instruction, 4),
        R_AARCH64_LDST128_ABS_LO12_NC => (Instruction, 4),
        R_AARCH64_GOTREL64 => (Got, 8),
        R_AARCH64_MOVW_GOTOFF_G0..=R_AARCH64_MOVW_GOTOFF_G3 => (Got, 4),
        R_AARCH64_GOTREL32..=R_AARCH64_LD64_GOTPAGE_LO15 => (Got, 4),
        R_AARCH64_TLSDESC_CALL => (Tls, 0),
        R_AARCH64_TLSGD_ADR_PREL21..=R_AARCH64_TLSLD_LDST128_DTPREL_LO12_NC => (Tls, 4),
        _ => return Option::None,
    })
}

fn dynamic(r_type: u32) -> DynamicReloc {
    use DynamicReloc::*;
    match r_type {
        R_AARCH64_RELATIVE => Relative,
        R_AARCH64_JUMP_SLOT => CallSlot,
        R_AARCH64_GLOB_DAT => Slot,
        R_AARCH64_ABS64 => Absolute(8),
        R_AARCH64_ABS32 => Absolute(4),
        R_AARCH64_PREL32 => Distance(4),
        R_AARCH64_PREL64 => Distance(8),
        R_AARCH64_COPY => Copy,
        R_AARCH64_IRELATIVE => Irelative,
        R_AARCH64_TLSDESC => Number(2),
        R_AARCH64_TLS_DTPMOD | R_AARCH64_TLS_DTPREL | R_AARCH64_TLS_TPREL => Number(1),
        R_AARCH64_NONE | OLD_NONE => None,
        _ => Unknown,
    }
}

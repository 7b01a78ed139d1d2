//! Relocations of every supported machine under one set of names.
//!
//! A rewriter moves fields and changes their targets; it seldom computes them, because `ld` does that. A relocation
//! therefore keeps the machine's own number, to be written back, and adds only the properties that a rewriter needs: is
//! this an address, a distance, a branch? These tables contain the numbers that gcc, gas and the kernel use; the reader
//! refuses all others rather than guess.

use goblin::elf::header::{EM_386, EM_AARCH64, EM_ARM, EM_X86_64};
use goblin::elf::reloc::*;

use crate::index::SymbolIndex;
use crate::machine::Machine;

/// One relocation. Its addend is explicit, whether the file stores it in the table (RELA) or in the section's bytes
/// (REL).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reloc {
    /// Offset in bytes of the relocated field within the section.
    pub offset: u64,
    /// The machine's own relocation number (`R_386_32`, …), to write it back.
    pub r_type: u32,
    /// The formula.
    pub class: RelocClass,
    /// Width in bytes of the field; 0 for a marker that changes nothing.
    pub width: u8,
    /// Target.
    pub symbol: SymbolIndex,
    /// Addend in bytes.
    pub addend: i64,
}

/// The formula of a relocation, in the terms of the System V ABI supplements: S symbol, A addend, P place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RelocClass {
    /// S + A.
    Absolute,
    /// S + A - P.
    Relative,
    /// Like [`RelocClass::Relative`], but possibly through a procedure linkage table: only calls and jumps have this
    /// class. On ARM and AArch64 the field is the branch instruction, in the machine's encoding.
    Branch,
    /// Through the global offset table, or relative to it.
    Got,
    /// Thread-local storage.
    Tls,
    /// A field inside an instruction in the machine's own encoding (ARM immediates, AArch64 pages).
    Instruction,
    /// The distance from an instruction to a nearby place, in the machine's encoding, that the assembler resolves
    /// (literals of ARM). It never occurs in a file.
    Literal,
    /// No formula (`R_*_NONE`).
    None,
}

/// Returns the class and the width in bytes of relocation `r_type`, or `None` if it should not occur in a relocatable
/// object for `machine` (unknown numbers, and those for the dynamic loader).
///
/// The numbers are from the System V ABI supplements: i386 1.1, x86-64 1.0, ARM IHI 0044 and
/// AArch64 IHI 0056.
pub fn describe(machine: Machine, r_type: u32) -> Option<(RelocClass, u8)> {
    match machine {
        Machine::I386 => describe_i386(r_type),
        Machine::X86_64 => describe_x86_64(r_type),
        Machine::Arm => describe_arm(r_type),
        Machine::Aarch64 => describe_aarch64(r_type),
    }
}

/// Returns the relocation of a word that holds an address: S + A, [`Machine::word_size`] bytes.
pub fn absolute_word(machine: Machine) -> u32 {
    match machine {
        Machine::I386 => R_386_32,
        Machine::X86_64 => R_X86_64_64,
        Machine::Arm => R_ARM_ABS32,
        Machine::Aarch64 => R_AARCH64_ABS64,
    }
}

/// Returns the relocation of a 4-byte distance in data or in an x86 instruction: S + A - P.
pub fn relative_32(machine: Machine) -> u32 {
    match machine {
        Machine::I386 => R_386_PC32,
        Machine::X86_64 => R_X86_64_PC32,
        Machine::Arm => R_ARM_REL32,
        Machine::Aarch64 => R_AARCH64_PREL32,
    }
}

/// Returns the relocation of an unconditional jump to a symbol: `jmp rel32` on x86, `b` of A32 and AArch64.
///
/// On i386 this is `R_386_PC32` instead of `R_386_PLT32`: the kernel has no procedure linkage table there, and gas
/// makes the same choice for code that is not position-independent.
pub fn branch(machine: Machine) -> u32 {
    match machine {
        Machine::I386 => R_386_PC32,
        Machine::X86_64 => R_X86_64_PLT32,
        Machine::Arm => R_ARM_JUMP24,
        Machine::Aarch64 => R_AARCH64_JUMP26,
    }
}

/// Returns the bytes from a field of class [`RelocClass::Branch`] to the address that the processor counts from, if the
/// relocation alone determines that (ARM: the program counter is two instructions ahead).
pub fn branch_bias(machine: Machine, r_type: u32) -> Option<u8> {
    match (machine, r_type) {
        (Machine::Arm, R_ARM_PC24 | R_ARM_PLT32 | R_ARM_CALL | R_ARM_JUMP24) => Some(8),
        (Machine::Arm, _) => Some(4),
        _ => None,
    }
}

/// Whether a relocation reaches any place of a program. The exceptions are a relocated conditional branch of Thumb code
/// (1 MiB), a branch in one or two bytes, and a load or an address with a short distance (AAELF32, relocation codes).
pub fn reaches_everywhere(machine: Machine, r_type: u32) -> bool {
    match machine {
        Machine::I386 => !matches!(r_type, R_386_PC8 | R_386_PC16),
        Machine::X86_64 => !matches!(r_type, R_X86_64_PC8 | R_X86_64_PC16),
        Machine::Arm => {
            let branch =
                matches!(r_type, R_ARM_THM_JUMP19 | R_ARM_THM_PC11 | R_ARM_THM_PC9 | R_ARM_THM_JUMP6);
            let load =
                matches!(r_type, R_ARM_THM_ALU_PREL_11_0 | R_ARM_THM_PC12 | R_ARM_THM_PC8 | R_ARM_PC13);
            let group = (R_ARM_ALU_PC_G0_NC..=R_ARM_LDC_PC_G2).contains(&r_type);
            !(branch || load || group)
        }
        Machine::Aarch64 => !matches!(r_type, R_AARCH64_TSTBR14 | R_AARCH64_CONDBR19),
    }
}

/// Returns the ABI's name of a relocation, `R_386_PC32`; `R_I386_200 (unknown)` if it has none.
pub fn name(machine: Machine, r_type: u32) -> String {
    // goblin's tables lack R_*_NONE, and use older names for some of ARM's numbers.
    if r_type == 0 {
        let prefix = if machine == Machine::I386 { "386".into() } else { machine.to_string() };
        return format!("R_{}_NONE", prefix.to_uppercase());
    }
    if machine == Machine::Arm {
        match r_type {
            R_ARM_PC13 => return "R_ARM_LDR_PC_G0".into(),
            R_ARM_THM_PC22 => return "R_ARM_THM_CALL".into(),
            R_ARM_THM_PC11 => return "R_ARM_THM_JUMP11".into(),
            R_ARM_THM_PC9 => return "R_ARM_THM_JUMP8".into(),
            R_ARM_GOTOFF => return "R_ARM_GOTOFF32".into(),
            R_ARM_GOTPC => return "R_ARM_BASE_PREL".into(),
            R_ARM_GOT32 => return "R_ARM_GOT_BREL".into(),
            _ => {}
        }
    }
    let e_machine = match machine {
        Machine::I386 => EM_386,
        Machine::X86_64 => EM_X86_64,
        Machine::Arm => EM_ARM,
        Machine::Aarch64 => EM_AARCH64,
    };
    match r_to_str(r_type, e_machine) {
        text if text.contains("UNKNOWN") => {
            format!("R_{}_{r_type} (unknown)", machine.to_string().to_uppercase())
        }
        text if text.starts_with("R_") => text.into(),
        text => format!("R_{text}"),
    }
}

fn describe_i386(r_type: u32) -> Option<(RelocClass, u8)> {
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

fn describe_x86_64(r_type: u32) -> Option<(RelocClass, u8)> {
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

fn describe_arm(r_type: u32) -> Option<(RelocClass, u8)> {
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

fn describe_aarch64(r_type: u32) -> Option<(RelocClass, u8)> {
    use RelocClass::*;
    /// `R_AARCH64_NONE` before the ABI was final.
    const OLD_NONE: u32 = 256;
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

/// Whether a relocation of class [`RelocClass::Got`] or [`RelocClass::Tls`] is a distance from the global offset table
/// or the thread pointer. It can then target any place, not only a table entry that the linker makes for a symbol (i386
/// ABI supplement, section 4.4; x86-64 psABI, section 4.4.1).
pub fn is_distance(machine: Machine, r_type: u32) -> bool {
    match machine {
        Machine::I386 => matches!(r_type, R_386_GOTOFF | R_386_TLS_LE | R_386_TLS_LE_32 | R_386_TLS_LDO_32),
        Machine::X86_64 => matches!(r_type, R_X86_64_GOTOFF64 | R_X86_64_TPOFF32 | R_X86_64_TPOFF64),
        Machine::Arm | Machine::Aarch64 => false,
    }
}

/// Whether the linker fills in the distance from the place to an entry of a table that it makes (AAELF32, relocation
/// codes: `GOT(S) + A - P`), and an instruction adds the program counter. The addend is then the distance from that
/// instruction to the place.
pub fn counts_from_place(machine: Machine, r_type: u32) -> bool {
    let entry = matches!(r_type, R_ARM_GOTPC | R_ARM_GOT_PREL | R_ARM_TARGET2 | R_ARM_TLS_GOTDESC);
    let of_thread = matches!(r_type, R_ARM_TLS_GD32 | R_ARM_TLS_LDM32 | R_ARM_TLS_IE32);
    machine == Machine::Arm && (entry || of_thread)
}

/// Whether a relocation keeps its symbol and addend, because the addend need not be an offset from the symbol. An
/// instruction of ARM interprets the addend by the type of the relocation, and the linker of ARM accepts no section
/// symbol for thread-local storage.
pub fn stays_by_symbol(machine: Machine, r_type: u32, class: RelocClass) -> bool {
    let of_thread = machine == Machine::Arm && class == RelocClass::Tls;
    class == RelocClass::Instruction || of_thread || counts_from_place(machine, r_type)
}

/// Whether the field of a relocation in code of 32-bit ARM holds a distance that an instruction adds to the program
/// counter (AAELF32, relocation codes: `S + A - P`). The addend then contains the distance from the instruction to the
/// field, and does not give a place in a function.
pub fn is_added_to_pc(machine: Machine, r_type: u32) -> bool {
    machine == Machine::Arm && matches!(r_type, R_ARM_REL32 | R_ARM_REL32_NOI)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINES: [Machine; 4] = [Machine::I386, Machine::X86_64, Machine::Arm, Machine::Aarch64];

    #[test]
    fn new_relocations_are_known() {
        for machine in MACHINES {
            let word = describe(machine, absolute_word(machine));
            assert_eq!(word, Some((RelocClass::Absolute, machine.word_size())));
            assert_eq!(describe(machine, relative_32(machine)), Some((RelocClass::Relative, 4)));
            let (class, width) = describe(machine, branch(machine)).unwrap();
            assert!(matches!(class, RelocClass::Branch | RelocClass::Relative));
            assert_eq!(width, 4);
            assert_eq!(describe(machine, 0), Some((RelocClass::None, 0)));
        }
    }

    #[test]
    fn short_branches_do_not_reach_everywhere() {
        for (r_type, reaches) in [
            (R_ARM_THM_JUMP19, false),
            (R_ARM_THM_PC11, false),
            (R_ARM_PC13, false),
            (R_ARM_ALU_PC_G0_NC, false),
            (R_ARM_THM_JUMP24, true),
            (R_ARM_CALL, true),
            (R_ARM_ABS32, true),
            (R_ARM_PREL31, true),
            (R_ARM_THM_MOVW_ABS_NC, true),
        ] {
            assert_eq!(reaches_everywhere(Machine::Arm, r_type), reaches, "{}", name(Machine::Arm, r_type));
        }
        assert!(
            !reaches_everywhere(Machine::I386, R_386_PC8) && reaches_everywhere(Machine::I386, R_386_PC32)
        );
    }

    #[test]
    fn known_relocations_have_names() {
        for machine in MACHINES {
            for r_type in (0..1200).filter(|&r_type| describe(machine, r_type).is_some()) {
                let name = name(machine, r_type);
                let newer = machine == Machine::Aarch64 && matches!(r_type, 256 | 314);
                assert!(newer || !name.contains("unknown"), "{machine} {r_type}: {name}");
                assert!(name.starts_with("R_"), "{name}");
            }
        }
    }

    #[test]
    fn names() {
        assert_eq!(name(Machine::I386, R_386_PC32), "R_386_PC32");
        assert_eq!(name(Machine::X86_64, 42), "R_X86_64_REX_GOTPCRELX");
        assert_eq!(name(Machine::Arm, R_ARM_CALL), "R_ARM_CALL");
        assert_eq!(name(Machine::Aarch64, R_AARCH64_CALL26), "R_AARCH64_CALL26");
        assert_eq!(name(Machine::I386, 200), "R_I386_200 (unknown)");
    }

    #[test]
    fn dynamic_relocations_are_refused() {
        assert_eq!(describe(Machine::I386, R_386_JMP_SLOT), None);
        assert_eq!(describe(Machine::X86_64, R_X86_64_RELATIVE), None);
        assert_eq!(describe(Machine::Arm, R_ARM_GLOB_DAT), None);
        assert_eq!(describe(Machine::Aarch64, R_AARCH64_COPY), None);
    }
}

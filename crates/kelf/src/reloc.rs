//! Relocations of every supported machine under one set of names.
//!
//! A rewriter moves fields and changes their targets; it seldom computes them, because `ld` does that. A relocation
//! therefore keeps the machine's own number, to be written back, and adds only the properties that a rewriter needs: is
//! this an address, a distance, a branch? These tables contain the numbers that gcc, gas and the kernel use; the reader
//! refuses all others rather than guess.

use goblin::elf::reloc::r_to_str;

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

/// The half of an address that an instruction puts into half of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Bits 0 to 15 (`movw` of ARM).
    Lower,
    /// Bits 16 to 31 (`movt` of ARM).
    Upper,
}

/// The value that a relocation of a program stores at start, in the terms of the System V ABI supplements: B base, S
/// symbol, A addend, P place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DynamicReloc {
    /// B + A.
    Relative,
    /// The result of the function at B + A.
    Irelative,
    /// S + A, with this size in bytes.
    Absolute(u8),
    /// S, in the global offset table.
    Slot,
    /// S, in the part of the global offset table that calls use.
    CallSlot,
    /// The content of S.
    Copy,
    /// S + A - P, with this size in bytes.
    Distance(u8),
    /// No address: sizes, and offsets and numbers of thread-local variables. The number of words.
    Number(u8),
    /// Nothing.
    None,
    /// An unsupported relocation.
    Unknown,
}

/// Returns the value that relocation `r_type` of an executable or a shared object stores.
pub fn dynamic(machine: Machine, r_type: u32) -> DynamicReloc {
    (machine.target().relocs.dynamic)(r_type)
}

/// Returns the class and the width in bytes of relocation `r_type`, or `None` if it should not occur in a relocatable
/// object for `machine` (unknown numbers, and those for the dynamic loader).
pub fn describe(machine: Machine, r_type: u32) -> Option<(RelocClass, u8)> {
    (machine.target().relocs.describe)(r_type)
}

/// Returns the relocation of a word that holds an address: S + A, [`Machine::word_size`] bytes.
pub fn absolute_word(machine: Machine) -> u32 {
    machine.target().relocs.absolute_word
}

/// Returns the relocation of 4 bytes that hold an address, or of the lower half of an address of 64 bits, which is
/// extended with its sign where there is such a relocation.
pub fn absolute_32(machine: Machine) -> u32 {
    machine.target().relocs.absolute_32
}

/// Returns the relocation of a 4-byte distance in data or in an x86 instruction: S + A - P.
pub fn relative_32(machine: Machine) -> u32 {
    machine.target().relocs.relative_32
}

/// Returns the relocation of an unconditional jump to a symbol: `jmp rel32` on x86, `b` of A32 and AArch64.
pub fn branch(machine: Machine) -> u32 {
    machine.target().relocs.branch
}

/// Returns the bytes from a field of class [`RelocClass::Branch`] to the address that the processor counts from, if the
/// relocation alone determines that.
pub fn branch_bias(machine: Machine, r_type: u32) -> Option<u8> {
    (machine.target().relocs.branch_bias)(r_type)
}

/// Whether a relocation reaches any place of a program. The exceptions are a relocated conditional branch of Thumb code
/// (1 MiB), a branch in one or two bytes, and a load or an address with a short distance (AAELF32, relocation codes).
pub fn reaches_everywhere(machine: Machine, r_type: u32) -> bool {
    !(machine.target().relocs.is_short)(r_type)
}

/// Returns the ABI's name of a relocation, `R_386_PC32`; `R_386_200 (unknown)` if it has none.
pub fn name(machine: Machine, r_type: u32) -> String {
    let target = machine.target();
    // goblin's tables lack R_*_NONE.
    if r_type == 0 {
        return format!("R_{}_NONE", target.relocs.prefix);
    }
    if let Some(name) = (target.relocs.renamed)(r_type) {
        return name.into();
    }
    match r_to_str(r_type, target.e_machine) {
        text if text.contains("UNKNOWN") => format!("R_{}_{r_type} (unknown)", target.relocs.prefix),
        text if text.starts_with("R_") => text.into(),
        text => format!("R_{text}"),
    }
}

/// Whether a relocation of class [`RelocClass::Got`] or [`RelocClass::Tls`] is a distance from the global offset table
/// or the thread pointer. It can then target any place, not only a table entry that the linker makes for a symbol (i386
/// ABI supplement, section 4.4; x86-64 psABI, section 4.4.1).
pub fn is_distance(machine: Machine, r_type: u32) -> bool {
    (machine.target().relocs.is_distance)(r_type)
}

/// Whether the linker fills in the distance from the place to an entry of a table that it makes (AAELF32, relocation
/// codes: `GOT(S) + A - P`), and an instruction adds the program counter. The addend is then the distance from that
/// instruction to the place.
pub fn counts_from_place(machine: Machine, r_type: u32) -> bool {
    (machine.target().relocs.counts_from_place)(r_type)
}

/// Whether a relocation keeps its symbol and addend, because the addend need not be an offset from the symbol. An
/// instruction of ARM interprets the addend by the type of the relocation, and the linker of ARM accepts no section
/// symbol for thread-local storage.
pub fn stays_by_symbol(machine: Machine, r_type: u32, class: RelocClass) -> bool {
    let of_thread = machine.target().relocs.names_thread_storage && class == RelocClass::Tls;
    class == RelocClass::Instruction || of_thread || counts_from_place(machine, r_type)
}

/// Whether the field of a relocation in code holds a distance that an instruction adds to the program counter (AAELF32,
/// relocation codes: `S + A - P`). The addend then contains the distance from the instruction to the field, and does
/// not give a place in a function.
pub fn is_added_to_pc(machine: Machine, r_type: u32) -> bool {
    (machine.target().relocs.is_added_to_pc)(r_type)
}

/// Whether a relocation of class [`RelocClass::Got`] or [`RelocClass::Tls`] is the distance of an entry from the end of
/// its instruction, so that its addend is as for [`RelocClass::Relative`] (System V ABI for x86-64, section 4.4).
pub fn counts_from_end(machine: Machine, r_type: u32) -> bool {
    (machine.target().relocs.counts_from_end)(r_type)
}

/// Whether a relocation belongs to a sequence of instructions that the linker replaces as a whole (the general and
/// local dynamic models of thread-local storage).
pub fn is_in_sequence(machine: Machine, r_type: u32) -> bool {
    (machine.target().relocs.is_in_sequence)(r_type)
}

/// Whether a relocation of class [`RelocClass::Got`] is the distance from the field to the global offset table, which
/// code adds to its own address (`_GLOBAL_OFFSET_TABLE_` of i386).
pub fn counts_from_itself(machine: Machine, r_type: u32) -> bool {
    (machine.target().relocs.counts_from_itself)(r_type)
}

/// Whether a relocation of class [`RelocClass::Branch`] is about a branch in Thumb code.
pub fn is_in_thumb_code(machine: Machine, r_type: u32) -> bool {
    (machine.target().relocs.is_in_thumb_code)(r_type)
}

/// Returns the half of its target's address that a relocation fills in; `None` if it does something else.
pub fn half(machine: Machine, r_type: u32) -> Option<Half> {
    (machine.target().relocs.half)(r_type)
}

#[cfg(test)]
mod tests {
    use goblin::elf::reloc::*;

    use super::*;

    #[test]
    fn new_relocations_are_known() {
        for machine in Machine::ALL {
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
    fn relocations_of_programs_are_known() {
        let cases = [
            (Machine::I386, 8, DynamicReloc::Relative),
            (Machine::I386, 42, DynamicReloc::Irelative),
            (Machine::X86_64, 7, DynamicReloc::CallSlot),
            (Machine::X86_64, 6, DynamicReloc::Slot),
            (Machine::X86_64, 36, DynamicReloc::Number(2)),
            (Machine::Arm, 160, DynamicReloc::Irelative),
            (Machine::Arm, 20, DynamicReloc::Copy),
            (Machine::Aarch64, 257, DynamicReloc::Absolute(8)),
            (Machine::Aarch64, 1027, DynamicReloc::Relative),
            (Machine::Aarch64, 9999, DynamicReloc::Unknown),
        ];
        for (machine, r_type, kind) in cases {
            assert_eq!(dynamic(machine, r_type), kind, "{machine} {r_type}");
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
        for machine in Machine::ALL {
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
        assert_eq!(name(Machine::I386, 200), "R_386_200 (unknown)");
    }

    #[test]
    fn dynamic_relocations_are_refused() {
        assert_eq!(describe(Machine::I386, R_386_JMP_SLOT), None);
        assert_eq!(describe(Machine::X86_64, R_X86_64_RELATIVE), None);
        assert_eq!(describe(Machine::Arm, R_ARM_GLOB_DAT), None);
        assert_eq!(describe(Machine::Aarch64, R_AARCH64_COPY), None);
    }
}

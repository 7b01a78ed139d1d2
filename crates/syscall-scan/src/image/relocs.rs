//! The relocations that are applied at start, from the dynamic section. Without a dynamic section, they come from the
//! loaded sections, which a static program at a fixed address finds by symbols.

use goblin::container::Ctx;
use goblin::elf::dynamic::{DT_JMPREL, DT_PLTRELSZ, DT_REL, DT_RELA, DT_RELASZ, DT_RELSZ};
use goblin::elf::reloc::*;
use goblin::elf::section_header::{SHT_REL, SHT_RELA};
use kelf::Machine;

use super::bytes::number;
use super::entries::Entries;
use super::parts::{Parts, file_range};
use super::segment::{Segment, bytes_in};
use RelocKind::{Absolute, CallSlot, Distance, Irelative, Number, Relative, Slot, Unknown};

/// The packed table of relative relocations, and its size in bytes, which are newer than goblin's constants.
const DT_RELR: u64 = 36;
const DT_RELRSZ: u64 = 35;

/// One relocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reloc {
    /// The address of the field in the object.
    pub place: u64,
    /// The kind of the stored value.
    pub kind: RelocKind,
    /// The symbol; 0 for none.
    pub symbol: u32,
    /// The addend; `None` if it is the field's content.
    pub addend: Option<i64>,
}

/// The value that a relocation stores, in the terms of the System V ABI supplements: B base, S symbol, A addend, P
/// place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelocKind {
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

/// The numbers of the kinds, the most frequent first, by the supplements for i386, x86-64, ARM and AArch64, in this
/// order. (AArch64 has two numbers for no relocation.)
const KINDS: [(RelocKind, [&[u32]; 4]); 12] = [
    (Relative, [&[R_386_RELATIVE], &[R_X86_64_RELATIVE], &[R_ARM_RELATIVE], &[R_AARCH64_RELATIVE]]),
    (CallSlot, [&[R_386_JMP_SLOT], &[R_X86_64_JUMP_SLOT], &[R_ARM_JUMP_SLOT], &[R_AARCH64_JUMP_SLOT]]),
    (Slot, [&[R_386_GLOB_DAT], &[R_X86_64_GLOB_DAT], &[R_ARM_GLOB_DAT], &[R_AARCH64_GLOB_DAT]]),
    (Absolute(8), [&[], &[R_X86_64_64], &[], &[R_AARCH64_ABS64]]),
    (Absolute(4), [&[R_386_32], &[R_X86_64_32, R_X86_64_32S], &[R_ARM_ABS32], &[R_AARCH64_ABS32]]),
    (Distance(4), [&[R_386_PC32], &[R_X86_64_PC32], &[R_ARM_REL32], &[R_AARCH64_PREL32]]),
    (Distance(8), [&[], &[R_X86_64_PC64], &[], &[R_AARCH64_PREL64]]),
    (RelocKind::Copy, [&[R_386_COPY], &[R_X86_64_COPY], &[R_ARM_COPY], &[R_AARCH64_COPY]]),
    (Irelative, [&[R_386_IRELATIVE], &[R_X86_64_IRELATIVE], &[R_ARM_IRELATIVE], &[R_AARCH64_IRELATIVE]]),
    (Number(2), [&[R_386_TLS_DESC], &[R_X86_64_TLSDESC], &[R_ARM_TLS_DESC], &[R_AARCH64_TLSDESC]]),
    (Number(1), [&NUMBERS_I386, &NUMBERS_X86_64, &NUMBERS_ARM, &NUMBERS_AARCH64]),
    (RelocKind::None, [&[R_386_NONE], &[R_X86_64_NONE], &[R_ARM_NONE], &[0, 256]]),
];

const NUMBERS_I386: [u32; 5] =
    [R_386_TLS_TPOFF, R_386_TLS_DTPMOD32, R_386_TLS_DTPOFF32, R_386_TLS_TPOFF32, R_386_SIZE32];
const NUMBERS_X86_64: [u32; 7] = [
    R_X86_64_DTPMOD64,
    R_X86_64_DTPOFF64,
    R_X86_64_TPOFF64,
    R_X86_64_DTPOFF32,
    R_X86_64_TPOFF32,
    R_X86_64_SIZE32,
    R_X86_64_SIZE64,
];
const NUMBERS_ARM: [u32; 3] = [R_ARM_TLS_DTPMOD32, R_ARM_TLS_DTPOFF32, R_ARM_TLS_TPOFF32];
const NUMBERS_AARCH64: [u32; 3] = [R_AARCH64_TLS_DTPMOD, R_AARCH64_TLS_DTPREL, R_AARCH64_TLS_TPREL];

impl RelocKind {
    fn of(machine: Machine, r_type: u32) -> RelocKind {
        let column = match machine {
            Machine::I386 => 0,
            Machine::X86_64 => 1,
            Machine::Arm => 2,
            Machine::Aarch64 => 3,
        };
        let row = KINDS.iter().find(|(_, numbers)| numbers[column].contains(&r_type));
        row.map_or(Unknown, |&(kind, _)| kind)
    }
}

/// Reads all relocations. A damaged table ends at the damage.
pub(super) fn read(parts: &Parts, segments: &[Segment], entries: Option<&Entries>) -> Vec<Reloc> {
    let mut relocs = Vec::new();
    if let Some(entries) = entries {
        packed(parts, segments, entries, &mut relocs);
    }
    let machine = parts.machine;
    for table in tables(parts, segments, entries) {
        relocs.extend(table.iter().map(|reloc| Reloc {
            place: reloc.r_offset,
            kind: RelocKind::of(machine, reloc.r_type),
            symbol: reloc.r_sym as u32,
            addend: reloc.r_addend,
        }));
    }
    relocs
}

/// Returns the highest symbol index in a relocation.
pub(super) fn highest_symbol(parts: &Parts, segments: &[Segment], entries: &Entries) -> Option<u32> {
    let tables = tables(parts, segments, Some(entries));
    tables.iter().flat_map(RelocSection::iter).map(|reloc| reloc.r_sym as u32).max()
}

fn tables<'a>(
    parts: &Parts<'a>,
    segments: &'a [Segment],
    entries: Option<&Entries>,
) -> Vec<RelocSection<'a>> {
    let Some(entries) = entries else {
        let sections = parts.loaded_sections().filter(|s| matches!(s.sh_type, SHT_REL | SHT_RELA));
        let tables = sections.filter_map(|section| {
            let range = file_range(parts.bytes, section.sh_offset, section.sh_size)?;
            table(&parts.bytes[range], section.sh_type == SHT_RELA, parts.ctx)
        });
        return tables.collect();
    };
    let is_rela = parts.machine.is_rela();
    let kinds = [(DT_RELA, DT_RELASZ, true), (DT_REL, DT_RELSZ, false), (DT_JMPREL, DT_PLTRELSZ, is_rela)];
    let tables = kinds.into_iter().filter_map(|(start, size, is_rela)| {
        let start = entries.value(start)?;
        let range = start..start.saturating_add(entries.value(size)?);
        table(bytes_in(segments, &range), is_rela, parts.ctx)
    });
    tables.collect()
}

fn table(bytes: &[u8], is_rela: bool, ctx: Ctx) -> Option<RelocSection<'_>> {
    let whole = bytes.len() - bytes.len() % Reloc::size(is_rela, ctx);
    RelocSection::parse(bytes, 0, whole, is_rela, ctx).ok()
}

impl Reloc {
    fn size(is_rela: bool, ctx: Ctx) -> usize {
        goblin::elf::Reloc::size(is_rela, ctx)
    }
}

/// Reads relative relocations in the packed form (`DT_RELR`): an even word is the address of a pointer, an odd word a
/// bitmap of the words that follow. The pointers hold their addends.
fn packed(parts: &Parts, segments: &[Segment], entries: &Entries, relocs: &mut Vec<Reloc>) {
    let (Some(start), Some(size)) = (entries.value(DT_RELR), entries.value(DT_RELRSZ)) else { return };
    let word = parts.machine.word_size();
    let bytes = bytes_in(segments, &(start..start.saturating_add(size)));
    let mut add = |place| {
        relocs.push(Reloc { place, kind: RelocKind::Relative, symbol: 0, addend: None });
    };
    let mut next = 0u64;
    for entry in bytes.chunks_exact(word.into()) {
        let entry = number(entry);
        let word = u64::from(word);
        if entry & 1 == 0 {
            add(entry);
            next = entry.wrapping_add(word);
        } else {
            for bit in (1..8 * word).filter(|bit| entry >> bit & 1 != 0) {
                add(next.wrapping_add((bit - 1) * word));
            }
            next = next.wrapping_add((8 * word - 1) * word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_that_programs_have() {
        let cases = [
            (Machine::I386, 8, RelocKind::Relative),
            (Machine::I386, 42, RelocKind::Irelative),
            (Machine::X86_64, 7, RelocKind::CallSlot),
            (Machine::X86_64, 6, RelocKind::Slot),
            (Machine::X86_64, 36, RelocKind::Number(2)),
            (Machine::Arm, 160, RelocKind::Irelative),
            (Machine::Arm, 20, RelocKind::Copy),
            (Machine::Aarch64, 257, RelocKind::Absolute(8)),
            (Machine::Aarch64, 1027, RelocKind::Relative),
            (Machine::Aarch64, 9999, RelocKind::Unknown),
        ];
        for (machine, r_type, kind) in cases {
            assert_eq!(RelocKind::of(machine, r_type), kind, "{machine} {r_type}");
        }
    }
}

//! The relocations that are applied at start, from the dynamic section. Without a dynamic section, they come from the
//! loaded sections, which a static program at a fixed address finds by symbols.

use goblin::container::Ctx;
use goblin::elf::dynamic::{DT_JMPREL, DT_PLTRELSZ, DT_REL, DT_RELA, DT_RELASZ, DT_RELSZ};
use goblin::elf::reloc::RelocSection;
use goblin::elf::section_header::{SHT_REL, SHT_RELA};
use kelf::reloc::{DynamicReloc, dynamic};

use super::bytes::number;
use super::entries::Entries;
use super::parts::{Parts, file_range};
use super::segment::{Segment, bytes_in};

/// The packed table of relative relocations, and its size in bytes, which are newer than goblin's constants.
const DT_RELR: u64 = 36;
const DT_RELRSZ: u64 = 35;

/// One relocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reloc {
    /// The address of the field in the object.
    pub place: u64,
    /// The kind of the stored value.
    pub kind: DynamicReloc,
    /// The symbol; 0 for none.
    pub symbol: u32,
    /// The addend; `None` if it is the field's content.
    pub addend: Option<i64>,
}

/// Reads all relocations. A damaged table ends at the damage.
pub(super) fn read(parts: &Parts, segments: &[Segment], entries: Option<&Entries>) -> Vec<Reloc> {
    let mut relocs = Vec::new();
    if let Some(entries) = entries {
        packed(parts, segments, entries, &mut relocs);
    }
    for table in tables(parts, segments, entries) {
        relocs.extend(table.iter().map(|reloc| Reloc {
            place: reloc.r_offset,
            kind: dynamic(parts.machine, reloc.r_type),
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
        relocs.push(Reloc { place, kind: DynamicReloc::Relative, symbol: 0, addend: None });
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

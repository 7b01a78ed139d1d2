//! Words of data that may be pointers to code.
//!
//! A program that is loaded at a fixed address has no relocations left, and every aligned word of its
//! data that lies in code has to be taken for a pointer. A static-PIE program lists its pointers, as
//! relative relocations. `IRELATIVE` relocations, of either, name functions that are called before `main`
//! and whose results are stored over the relocated word.

use goblin::elf::program_header::{PF_X, PT_LOAD};
use goblin::elf::reloc::{
    R_386_IRELATIVE, R_386_RELATIVE, R_X86_64_IRELATIVE, R_X86_64_RELATIVE, RelocSection,
};
use goblin::elf::section_header::{
    SHF_EXECINSTR, SHT_DYNAMIC, SHT_DYNSYM, SHT_NOBITS, SHT_NOTE, SHT_REL, SHT_RELA,
};
use kelf::Machine;
use rustc_hash::FxHashSet;

use super::read::{Parts, file_range};
use super::{Addr, Image};

/// The packed table of relative relocations, and its size in bytes: newer than goblin's constants.
const DT_RELR: u64 = 36;
const DT_RELRSZ: u64 = 35;

/// What data says about code.
#[derive(Default)]
pub(super) struct Pointers {
    /// (where, whereto).
    pub(super) to_code: Vec<(Addr, Addr)>,
    /// Words that are computed when the program starts.
    pub(super) computed: FxHashSet<Addr>,
}

impl Pointers {
    /// Finds the pointers, and applies relative relocations to the memory of `image`.
    pub(super) fn find(parts: &Parts, image: &mut Image) -> Pointers {
        let mut pointers = Pointers::default();
        for relocs in reloc_sections(parts) {
            pointers.relocate(parts, image, &relocs);
        }
        if parts.relocatable {
            pointers.relocate_packed(parts, image);
        } else {
            for (start, end) in data_ranges(parts) {
                pointers.scan(image, start, end);
            }
        }
        pointers.to_code.sort_unstable();
        pointers.to_code.dedup();
        pointers
    }

    fn relocate(&mut self, parts: &Parts, image: &mut Image, relocs: &RelocSection<'_>) {
        let (relative, irelative) = match parts.machine {
            Machine::I386 => (R_386_RELATIVE, R_386_IRELATIVE),
            _ => (R_X86_64_RELATIVE, R_X86_64_IRELATIVE),
        };
        for reloc in relocs {
            let place = Addr(reloc.r_offset);
            if reloc.r_type != relative && reloc.r_type != irelative {
                continue;
            }
            let in_place = || image.initial(place, parts.machine.word_size());
            let Some(target) = reloc.r_addend.map(|addend| addend as u64).or_else(in_place) else {
                continue;
            };
            let target = Addr(image.wrap(target));
            if image.is_code(target) {
                self.to_code.push((place, target));
            }
            if reloc.r_type == irelative {
                self.computed.insert(place);
            } else {
                write_word(image, place, target.0);
            }
        }
    }

    /// Relative relocations in the packed form (`DT_RELR`): an even word is the address of a pointer, an
    /// odd one a bitmap of the words that follow. The pointers have their addends in place.
    fn relocate_packed(&mut self, parts: &Parts, image: &Image) {
        let word = u64::from(parts.machine.word_size());
        let value = |tag| {
            let dynamic = parts.dynamic.as_ref()?;
            dynamic.dyns.iter().find(|entry| entry.d_tag == tag).map(|entry| entry.d_val)
        };
        let (Some(start), Some(size)) = (value(DT_RELR), value(DT_RELRSZ)) else { return };
        let mut next = 0u64;
        for index in 0..size / word {
            let at = Addr(start.wrapping_add(index * word));
            let Some(entry) = image.initial(at, word as u8) else { return };
            if entry & 1 == 0 {
                self.point(image, Addr(entry));
                next = entry.wrapping_add(word);
            } else {
                for bit in (1..8 * word).filter(|bit| entry >> bit & 1 != 0) {
                    self.point(image, Addr(next.wrapping_add((bit - 1) * word)));
                }
                next = next.wrapping_add((8 * word - 1) * word);
            }
        }
    }

    fn scan(&mut self, image: &Image, start: u64, end: u64) {
        let word = usize::from(image.machine.word_size());
        let aligned = start.next_multiple_of(word as u64);
        let bytes = image.bytes(Addr(aligned));
        let size = usize::try_from(end.saturating_sub(aligned)).unwrap_or(0).min(bytes.len());
        for (index, chunk) in bytes[..size].chunks_exact(word).enumerate() {
            let mut value = [0; 8];
            value[..word].copy_from_slice(chunk);
            let target = Addr(u64::from_le_bytes(value));
            if image.is_code(target) {
                self.to_code.push((Addr(aligned + (index * word) as u64), target));
            }
        }
    }

    fn point(&mut self, image: &Image, place: Addr) {
        let target = image.initial(place, image.machine.word_size()).map(Addr);
        if let Some(target) = target.filter(|&target| image.is_code(target)) {
            self.to_code.push((place, target));
        }
    }
}

fn write_word(image: &mut Image, place: Addr, value: u64) {
    let width = usize::from(image.machine.word_size());
    for segment in &mut image.segments {
        let offset = place.0.checked_sub(segment.address).and_then(|o| usize::try_from(o).ok());
        let bytes = offset.and_then(|o| segment.bytes.get_mut(o..o.checked_add(width)?));
        if let Some(bytes) = bytes {
            bytes.copy_from_slice(&value.to_le_bytes()[..width]);
        }
    }
}

/// The relocations that the program applies to itself when it starts: those of its dynamic section, or
/// else the loaded sections (a program at a fixed address finds them by symbols).
fn reloc_sections<'a>(parts: &Parts<'a>) -> Vec<RelocSection<'a>> {
    let mut found = Vec::new();
    let mut add = |offset: u64, size: u64, rela: bool| {
        if let Some(range) = file_range(parts.bytes, offset, size) {
            found.extend(RelocSection::parse(parts.bytes, range.start, range.len(), rela, parts.ctx));
        }
    };
    if let Some(dynamic) = &parts.dynamic {
        let info = &dynamic.info;
        add(info.rela as u64, info.relasz as u64, true);
        add(info.rel as u64, info.relsz as u64, false);
        add(info.jmprel as u64, info.pltrelsz as u64, parts.machine.is_rela());
        return found;
    }
    for section in parts.loaded_sections() {
        if matches!(section.sh_type, SHT_REL | SHT_RELA) {
            add(section.sh_offset, section.sh_size, section.sh_type == SHT_RELA);
        }
    }
    found
}

/// Where a program at a fixed address keeps its data.
fn data_ranges(parts: &Parts) -> Vec<(u64, u64)> {
    let is_data = |section: &&goblin::elf::SectionHeader| {
        section.sh_flags & u64::from(SHF_EXECINSTR) == 0
            && !matches!(
                section.sh_type,
                SHT_NOBITS | SHT_NOTE | SHT_REL | SHT_RELA | SHT_DYNSYM | SHT_DYNAMIC
            )
            // Tables for the unwinder hold distances, not addresses.
            && !matches!(parts.name(section), ".eh_frame" | ".eh_frame_hdr" | ".gcc_except_table")
    };
    let mut ranges: Vec<(u64, u64)> = parts
        .loaded_sections()
        .filter(is_data)
        .map(|section| (section.sh_addr, section.sh_addr.saturating_add(section.sh_size)))
        .collect();
    if parts.loaded_sections().next().is_none() {
        let loads = parts.programs.iter().filter(|program| program.p_type == PT_LOAD);
        // Without sections, constants may hide in the executable segment as well, but taking every word
        // of code for a pointer would make everything reachable. Linkers have kept constants in a
        // segment of their own since 2018; older programs have section headers.
        let loads: Vec<_> = loads.collect();
        let separate = loads.iter().any(|p| p.p_flags & PF_X == 0 && p.p_flags & 2 == 0);
        for program in loads {
            if program.p_flags & PF_X == 0 || !separate {
                ranges.push((program.p_vaddr, program.p_vaddr.saturating_add(program.p_filesz)));
            }
        }
    }
    ranges
}

//! The sizes of an object's variables.
//!
//! Sizes come from the symbol tables of the file and of its debugging file, if present, and from the dynamic symbol
//! table, which every shared object has. A variable of unknown size may extend to the next known
//! variable, or to the end of the section.
//!
//! Linkers define symbols for the beginning and the end of a section whose name is a C identifier, and code walks from
//! one to the other. One such section is never walked: glibc collects the jump tables of its streams in
//! [`JUMP_TABLES`], and uses the section's bounds only to check that a stream's table is inside. Each of these tables
//! is a separate variable, which code refers to when a stream gets it.

use std::ops::Range;

use goblin::elf::section_header::{
    SHF_EXECINSTR, SHT_DYNSYM, SHT_FINI_ARRAY, SHT_INIT_ARRAY, SHT_PREINIT_ARRAY, SHT_SYMTAB, SectionHeader,
};
use goblin::elf::sym::{STT_COMMON, STT_OBJECT};

use super::parts::{Parts, memory_range};

/// The section with the jump tables of glibc's streams, since 2.24.
const JUMP_TABLES: &str = "__libc_IO_vtables";

/// Number of words in such a table (`struct _IO_jump_t` of glibc's `libio/libioP.h`).
const JUMP_TABLE_WORDS: u64 = 21;

/// Alignment of large variables by compilers, in bytes.
const LARGE_ALIGNMENT: u64 = 32;

/// The variables of an object, by address in the object.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    /// The variables of known size, by rising address, without overlaps.
    known: Vec<Range<u64>>,
    /// The sections of data, by rising address.
    sections: Vec<Section>,
}

#[derive(Clone, Debug)]
struct Section {
    memory: Range<u64>,
    kind: SectionKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SectionKind {
    /// A sequence of variables.
    Plain,
    /// A section whose bounds have linker symbols, so that code may walk it.
    Collected,
    /// A section that is walked, regardless of its variables.
    Walked,
}

impl Variables {
    pub(super) fn read(parts: &Parts, is_made_by_go: bool) -> Variables {
        let data = parts.loaded_sections().filter(|s| s.sh_flags & u64::from(SHF_EXECINSTR) == 0);
        let word = if parts.ctx.is_big() { 8 } else { 4 };
        let mut tables = Vec::new();
        let mut sections: Vec<Section> = data
            .map(|section| {
                let kind = match section.sh_type {
                    SHT_INIT_ARRAY | SHT_FINI_ARRAY | SHT_PREINIT_ARRAY => SectionKind::Walked,
                    _ if is_made_by_go => SectionKind::Walked,
                    _ if parts.name(section) == JUMP_TABLES => {
                        let found = jump_tables(memory_range(section), word);
                        tables.extend(found.iter().flatten().cloned());
                        if found.is_some() { SectionKind::Plain } else { SectionKind::Collected }
                    }
                    // The name is a C identifier.
                    _ if !parts.name(section).starts_with('.') => SectionKind::Collected,
                    _ => SectionKind::Plain,
                };
                Section { memory: memory_range(section), kind }
            })
            .collect();
        if sections.is_empty() {
            sections =
                parts.data_segments().map(|memory| Section { memory, kind: SectionKind::Plain }).collect();
        }
        sections.sort_by_key(|section| section.memory.start);
        let mut variables = Variables { known: Vec::new(), sections };
        let known = parts.sections.iter().filter(|s| matches!(s.sh_type, SHT_SYMTAB | SHT_DYNSYM));
        let known = known.flat_map(|table| symbols(parts, table));
        variables.add(known.chain(tables).collect());
        variables
    }

    /// Adds the variables in a debugging file of the object. Its addresses are the same.
    pub(super) fn add_debugging_file(&mut self, bytes: &[u8]) {
        let Ok(parts) = Parts::of(bytes) else { return };
        let tables = parts.sections.iter().filter(|section| section.sh_type == SHT_SYMTAB);
        self.add(tables.flat_map(|table| symbols(&parts, table)).collect());
    }

    fn add(&mut self, mut found: Vec<Range<u64>>) {
        found.retain(|range| self.section(range.start).is_some());
        found.append(&mut self.known);
        found.sort_by_key(|range| (range.start, range.end));
        // Several names for one variable, or for parts of it.
        for range in found {
            match self.known.last_mut() {
                Some(last) if range.start < last.end => last.end = last.end.max(range.end),
                _ => self.known.push(range),
            }
        }
    }

    /// Returns the range that an address may reach, provided that it is in a variable.
    pub(super) fn around(&self, address: u64) -> Range<u64> {
        let Some(section) = self.section(address) else {
            let next = self.sections.partition_point(|section| section.memory.start <= address);
            let after = address.saturating_add(1);
            let end = self.sections.get(next).map_or(after, |section| section.memory.start);
            return address..end;
        };
        let walked = match section.kind {
            SectionKind::Plain => false,
            SectionKind::Collected => address == section.memory.start,
            SectionKind::Walked => true,
        };
        if walked {
            return section.memory.clone();
        }
        if let Some(variable) = self.known(address) {
            return variable;
        }
        let next = self.known.partition_point(|variable| variable.start <= address);
        let end = self.known.get(next).map_or(u64::MAX, |variable| variable.start);
        address..end.min(section.memory.end)
    }

    /// Returns the start of the variable that ends at an address; `address` itself if none does.
    pub(super) fn before(&self, address: u64) -> u64 {
        let last = address.wrapping_sub(1);
        let Some(section) = self.section(last) else { return address };
        if let Some(variable) = self.known(last) {
            return if variable.end == address { variable.start } else { address };
        }
        let next = self.known.partition_point(|variable| variable.start <= last);
        let end = self.known[..next].last().map_or(0, |variable| variable.end);
        end.max(section.memory.start)
    }

    /// Returns the variable of known size at an address.
    pub(super) fn known(&self, address: u64) -> Option<Range<u64>> {
        let next = self.known.partition_point(|variable| variable.start <= address);
        self.known[..next].last().filter(|variable| address < variable.end).cloned()
    }

    /// Returns whether a section ends at an address and no other begins there.
    pub(super) fn ends_section(&self, address: u64) -> bool {
        self.section(address).is_none() && self.section(address.wrapping_sub(1)).is_some()
    }

    fn section(&self, address: u64) -> Option<&Section> {
        let next = self.sections.partition_point(|section| section.memory.start <= address);
        self.sections[..next].iter().rev().find(|section| address < section.memory.end)
    }
}

/// Returns the consecutive jump tables of streams in a section, aligned as large variables or as array elements. `None`
/// if they do not fill the section.
fn jump_tables(section: Range<u64>, word: u64) -> Option<Vec<Range<u64>>> {
    let size = JUMP_TABLE_WORDS * word;
    let space = section.end.checked_sub(section.start)?.checked_sub(size)?;
    let strides = [size.next_multiple_of(LARGE_ALIGNMENT), size];
    let stride = strides.into_iter().find(|stride| space % *stride == 0)?;
    let starts = (0..=space / stride).map(|index| section.start + index * stride);
    Some(starts.map(|start| start..start + size).collect())
}

/// Returns the variables of a symbol table.
fn symbols(parts: &Parts, table: &SectionHeader) -> Vec<Range<u64>> {
    let symbols = parts.symbols(table);
    symbols
        .iter()
        .flat_map(|symbols| symbols.iter())
        .filter(|symbol| matches!(symbol.st_type(), STT_OBJECT | STT_COMMON) && symbol.st_shndx != 0)
        .filter_map(|symbol| {
            let end = symbol.st_value.checked_add(symbol.st_size)?;
            (symbol.st_size > 0).then_some(symbol.st_value..end)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables() {
        let ends = |section, word| {
            jump_tables(section, word).map(|tables| (tables.len(), tables[tables.len() - 1].clone()))
        };
        assert_eq!(ends(0x1000..0x1000 + 2 * 192 + 168, 8), Some((3, 0x1180..0x1228)));
        assert_eq!(ends(0x1000..0x1000 + 2 * 168, 8), Some((2, 0x10a8..0x1150)));
        assert_eq!(ends(0x1000..0x1000 + 96 + 84, 4), Some((2, 0x1060..0x10b4)));
        assert_eq!(ends(0x1000..0x1000 + 168, 8), Some((1, 0x1000..0x10a8)));
        assert_eq!(ends(0x1000..0x1000 + 176, 8), None);
        assert_eq!(ends(0x1000..0x1010, 8), None);
    }
}

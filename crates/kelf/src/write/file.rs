//! The layout of a written object: first numbers, then offsets, then bytes.
//!
//! `object`'s writer requires all reservations before the first write. The file is therefore made in three walks over
//! the object, each in the same order: groups, sections, relocations, symbols, strings, section headers.

use std::borrow::Cow;

use goblin::elf::header::ET_REL;
use goblin::elf::section_header::{SHF_GROUP, SHF_INFO_LINK, SHT_GROUP, SHT_NOBITS, SHT_REL, SHT_RELA};
use goblin::elf::sym::{STB_GNU_UNIQUE, STT_GNU_IFUNC};
use object::Endianness;
use object::write::StringId;
use object::write::elf::{self, FileHeader, Rel, SectionHeader, Sym, Writer};

use super::order::SymbolOrder;
use crate::error::Result;
use crate::machine::Machine;
use crate::object::{Group, Object, Place, Section, Symbol};

/// `ELFOSABI_GNU`, which marks files that use the GNU extensions below.
const OSABI_GNU: u8 = 3;
/// `SHF_GNU_RETAIN`.
const SHF_GNU_RETAIN: u64 = 1 << 21;
/// `SHN_ABS` and `SHN_COMMON` as 16-bit fields.
const SHN_ABS: u16 = 0xfff1;
const SHN_COMMON: u16 = 0xfff2;

/// The largest alignment of a section's offset in the file, the largest page of any machine; more would only make the
/// file longer.
const MAX_FILE_ALIGN: u64 = 1 << 16;

/// Place in the file of one section of the object, and of its relocations.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// Number in the file; 0 for tables, which are not written as sections.
    index: elf::SectionIndex,
    name: Option<StringId>,
    offset: usize,
    reloc_name: Option<StringId>,
    reloc_index: elf::SectionIndex,
    reloc_offset: usize,
    in_group: bool,
}

/// A file that is being written.
struct File<'o, 'w> {
    object: &'o Object<'o>,
    order: &'o SymbolOrder,
    contents: &'o [Cow<'o, [u8]>],
    writer: Writer<'w>,
    sections: Vec<Slot>,
    /// Offset of each group.
    groups: Vec<usize>,
}

/// Writes `object` with its symbols in `order`. `names` are the names of the relocation sections.
pub(super) fn write(
    object: &Object<'_>,
    order: &SymbolOrder,
    contents: &[Cow<'_, [u8]>],
    names: &[String],
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = File {
        object,
        order,
        contents,
        writer: Writer::new(Endianness::Little, object.machine.is_64(), &mut bytes),
        sections: vec![Slot::default(); object.sections.len()],
        groups: Vec::with_capacity(object.groups.len()),
    };
    file.number(names)?;
    let strings = file.reserve()?;
    file.write(&strings)?;
    Ok(bytes)
}

/// Returns the prefix of a relocation section's name, before the name of the section that it applies to.
pub(super) fn reloc_prefix(machine: Machine) -> &'static str {
    if machine.is_rela() { ".rela" } else { ".rel" }
}

impl<'o: 'w, 'w> File<'o, 'w> {
    /// Gives every section its number. `names` are the names of the relocation sections.
    fn number(&mut self, names: &'o [String]) -> Result<()> {
        let object = self.object;
        self.writer.reserve_null_section_index();
        // A section symbol of a group's own section keeps its meaning if the object has those sections.
        let mut own = (0..object.sections.len()).filter(|&s| object.sections[s].kind == SHT_GROUP);
        for (number, group) in object.groups.iter().enumerate() {
            let index = self.writer.reserve_section_index();
            if let Some(section) = own.next() {
                self.sections[section].index = index;
            }
            if group.signature.get() >= object.symbols.len() {
                let problem = format!("its signature is symbol {}", group.signature.get());
                return Err(object.unwritable(format!("group {number}"), problem));
            }
            for member in &group.members {
                let known = object.sections.get(member.get()).is_some_and(|s| !s.is_table());
                if !known {
                    let problem = format!("its member {} is no section", member.get());
                    return Err(object.unwritable(format!("group {number}"), problem));
                }
                self.sections[member.get()].in_group = true;
            }
        }
        for (section, slot) in object.sections.iter().zip(&mut self.sections) {
            if section.is_table() {
                continue;
            }
            slot.index = self.writer.reserve_section_index();
            check_string(object, section.name)?;
            slot.name = Some(self.writer.add_section_name(section.name.as_bytes()));
        }
        for ((section, slot), name) in object.sections.iter().zip(&mut self.sections).zip(names) {
            if section.relocs.is_empty() {
                continue;
            }
            if slot.name.is_none() {
                let place = format!("section {name}");
                return Err(object.unwritable(place, "relocations in a table of the file"));
            }
            slot.reloc_index = self.writer.reserve_section_index();
            slot.reloc_name = Some(self.writer.add_section_name(name.as_bytes()));
        }
        Ok(())
    }

    /// Reserves the place of everything in the file.
    fn reserve(&mut self) -> Result<Strings> {
        let object = self.object;
        let group = (!object.groups.is_empty()).then(|| self.writer.add_section_name(b".group"));
        self.writer.reserve_null_symbol_index();
        let mut symbols = Vec::with_capacity(object.symbols.len());
        symbols.push(None);
        for &index in &self.order.old[1..] {
            let symbol = &object.symbols[index];
            check_string(object, symbol.name)?;
            let name = symbol.name.as_bytes();
            symbols.push((!name.is_empty()).then(|| self.writer.add_string(name)));
            let section = self.symbol_section(index)?;
            self.writer.reserve_symbol_index(section);
        }
        self.writer.reserve_symtab_section_index();
        if self.writer.symtab_shndx_needed() {
            self.writer.reserve_symtab_shndx_section_index();
        }
        self.writer.reserve_strtab_section_index();
        self.writer.reserve_shstrtab_section_index();

        self.writer.reserve_file_header();
        for group in &object.groups {
            self.groups.push(self.writer.reserve(4 * self.group_words(group).count(), 4));
        }
        for (slot, (section, content)) in
            self.sections.iter_mut().zip(object.sections.iter().zip(self.contents))
        {
            if slot.name.is_some() {
                let align = if section.kind == SHT_NOBITS { 1 } else { section.align.min(MAX_FILE_ALIGN) };
                let align = align as usize;
                slot.offset = self.writer.reserve(content.len(), align);
            }
        }
        let is_rela = self.is_rela();
        for (slot, section) in self.sections.iter_mut().zip(&object.sections) {
            if slot.reloc_name.is_some() {
                let count = section.relocs.len();
                slot.reloc_offset = self.writer.reserve_relocations(count, is_rela);
            }
        }
        self.writer.reserve_symtab();
        self.writer.reserve_symtab_shndx();
        self.writer.reserve_strtab();
        self.writer.reserve_shstrtab();
        self.writer.reserve_section_headers();
        if !object.machine.is_64() && self.writer.reserved_len() > u32::MAX as usize {
            return Err(object.unwritable("file", "more than 4 GiB in a 32-bit object"));
        }
        Ok(Strings { group, symbols })
    }

    /// Writes everything that [`File::reserve`] reserved, in the same order.
    fn write(mut self, strings: &Strings) -> Result<()> {
        let object = self.object;
        let header = FileHeader {
            os_abi: if uses_gnu_extensions(object) { OSABI_GNU } else { 0 },
            abi_version: 0,
            e_type: ET_REL,
            e_machine: object.machine.to_elf(),
            e_entry: 0,
            e_flags: object.flags,
        };
        let result = self.writer.write_file_header(&header);
        result.map_err(|error| object.unwritable("file", error.to_string()))?;
        for group in &object.groups {
            let words: Vec<u8> = self.group_words(group).flat_map(u32::to_le_bytes).collect();
            self.writer.write_align(4);
            self.writer.write(&words);
        }
        for (slot, content) in self.sections.iter().zip(self.contents) {
            if slot.name.is_some() {
                self.writer.pad_until(slot.offset);
                self.writer.write(content);
            }
        }
        let is_rela = self.is_rela();
        for (slot, section) in self.sections.iter().zip(&object.sections) {
            if slot.reloc_name.is_none() {
                continue;
            }
            self.writer.write_align_relocation();
            for reloc in &section.relocs {
                let symbol = self.order.new[reloc.symbol.get()];
                self.writer.write_relocation(
                    is_rela,
                    &Rel {
                        r_offset: reloc.offset,
                        r_sym: symbol,
                        r_type: reloc.r_type,
                        r_addend: reloc.addend,
                    },
                );
            }
        }
        self.writer.write_null_symbol();
        for (&index, &name) in self.order.old.iter().zip(&strings.symbols).skip(1) {
            self.write_symbol(index, name)?;
        }
        self.writer.write_symtab_shndx();
        self.writer.write_strtab();
        self.writer.write_shstrtab();
        self.write_section_headers(strings);
        Ok(())
    }

    fn write_symbol(&mut self, index: usize, name: Option<StringId>) -> Result<()> {
        let symbol = &self.object.symbols[index];
        let limit = if self.object.machine.is_64() { u64::MAX } else { u64::from(u32::MAX) };
        if symbol.value > limit || symbol.size > limit {
            let problem = format!("value {:#x} in a 32-bit object", symbol.value.max(symbol.size));
            return Err(self.object.unwritable(format!("symbol {index} ({})", symbol.name), problem));
        }
        let section = self.symbol_section(index)?;
        self.writer.write_symbol(&Sym {
            name,
            section,
            st_info: symbol.binding << 4 | symbol.kind & 0xf,
            st_other: symbol.other,
            st_shndx: match symbol.place {
                Place::Absolute => SHN_ABS,
                Place::Common => SHN_COMMON,
                Place::Undefined | Place::Section(_) => 0,
            },
            st_value: symbol.value | u64::from(symbol.thumb),
            st_size: symbol.size,
        });
        Ok(())
    }

    fn write_section_headers(&mut self, strings: &Strings) {
        let object = self.object;
        let symbol_table = self.writer.symtab_index();
        self.writer.write_null_section_header();
        for (group, &offset) in object.groups.iter().zip(&self.groups) {
            let size = 4 * self.group_words(group).count() as u64;
            self.writer.write_section_header(&SectionHeader {
                name: strings.group,
                sh_type: SHT_GROUP,
                sh_flags: 0,
                sh_addr: 0,
                sh_offset: offset as u64,
                sh_size: size,
                sh_link: symbol_table.0,
                sh_info: self.order.new[group.signature.get()],
                sh_addralign: 4,
                sh_entsize: 4,
            });
        }
        for (slot, section) in self.sections.iter().zip(&object.sections) {
            if slot.name.is_none() {
                continue;
            }
            let link_order = section.link_order.map_or(0, |s| self.sections[s.get()].index.0);
            self.writer.write_section_header(&SectionHeader {
                name: slot.name,
                sh_type: section.kind,
                // To ld, a group flag without a group is an error, and so is a group without the flag.
                sh_flags: section.flags & !GROUP_FLAG | slot.group_flag(),
                sh_addr: 0,
                sh_offset: slot.offset as u64,
                sh_size: section.size,
                sh_link: link_order,
                sh_info: 0,
                sh_addralign: section.align,
                sh_entsize: section.entsize,
            });
        }
        let is_rela = self.is_rela();
        let (kind, size) = if is_rela { (SHT_RELA, 24) } else { (SHT_REL, 8) };
        for (slot, section) in self.sections.iter().zip(&object.sections) {
            if slot.reloc_name.is_none() {
                continue;
            }
            self.writer.write_section_header(&SectionHeader {
                name: slot.reloc_name,
                sh_type: kind,
                sh_flags: u64::from(SHF_INFO_LINK) | slot.group_flag(),
                sh_addr: 0,
                sh_offset: slot.reloc_offset as u64,
                sh_size: section.relocs.len() as u64 * size,
                sh_link: symbol_table.0,
                sh_info: slot.index.0,
                sh_addralign: u64::from(object.machine.word_size()),
                sh_entsize: size,
            });
        }
        self.writer.write_symtab_section_header(self.order.locals);
        self.writer.write_symtab_shndx_section_header();
        self.writer.write_strtab_section_header();
        self.writer.write_shstrtab_section_header();
    }

    /// Returns the number in the file of the section that contains symbol `index`.
    fn symbol_section(&self, index: usize) -> Result<Option<elf::SectionIndex>> {
        let symbol = &self.object.symbols[index];
        let Place::Section(section) = symbol.place else {
            return Ok(None);
        };
        match self.sections.get(section.get()) {
            Some(slot) if slot.index.0 != 0 => Ok(Some(slot.index)),
            _ => {
                let problem = format!("is in section {}, which is not written", section.get());
                Err(self.object.unwritable(format!("symbol {index} ({})", symbol.name), problem))
            }
        }
    }

    /// Returns the content of a group: its flags, and its members with their relocation sections.
    fn group_words(&self, group: &Group) -> impl Iterator<Item = u32> {
        let members = group.members.iter().map(|member| &self.sections[member.get()]);
        let numbers = members.flat_map(|slot| [slot.index.0, slot.reloc_index.0]);
        std::iter::once(group.flags).chain(numbers.filter(|&number| number != 0))
    }

    fn is_rela(&self) -> bool {
        self.object.machine.is_rela()
    }
}

/// Names in the string tables.
struct Strings {
    group: Option<StringId>,
    /// In the order of the file.
    symbols: Vec<Option<StringId>>,
}

const GROUP_FLAG: u64 = SHF_GROUP as u64;

impl Slot {
    fn group_flag(&self) -> u64 {
        if self.in_group { GROUP_FLAG } else { 0 }
    }
}

/// Refuses a string with a zero byte, which terminates a string in ELF.
fn check_string(object: &Object<'_>, string: &str) -> Result<()> {
    if string.contains('\0') {
        return Err(object.unwritable(format!("name {string:?}"), "contains a zero byte"));
    }
    Ok(())
}

fn uses_gnu_extensions(object: &Object<'_>) -> bool {
    let retained = |section: &Section<'_>| section.flags & SHF_GNU_RETAIN != 0;
    let special = |symbol: &Symbol<'_>| symbol.binding == STB_GNU_UNIQUE || symbol.kind == STT_GNU_IFUNC;
    object.sections.iter().any(retained) || object.symbols.iter().any(special)
}

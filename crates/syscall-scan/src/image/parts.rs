//! The parts of an ELF file: its headers, its sections by name, and its notes.

use std::ops::Range;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::header::{
    EI_CLASS, EI_DATA, ELFCLASS64, ELFDATA2LSB, ELFMAG, ET_CORE, ET_DYN, ET_EXEC, ET_REL, Header,
};
use goblin::elf::note::NT_GNU_BUILD_ID;
use goblin::elf::program_header::{PF_W, PF_X, PT_GNU_EH_FRAME, PT_INTERP, PT_LOAD, PT_NOTE, ProgramHeader};
use goblin::elf::section_header::{
    SHF_ALLOC, SHF_EXECINSTR, SHT_DYNAMIC, SHT_DYNSYM, SHT_NOBITS, SHT_NOTE, SHT_REL, SHT_RELA, SectionHeader,
};
use goblin::elf::sym::Symtab;
use kelf::Machine;

use super::bytes::name;
use super::ranges::{contains, normalize};
use crate::Error;

/// The parts of an ELF file that the reading steps need.
pub(super) struct Parts<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) ctx: Ctx,
    pub(super) machine: Machine,
    pub(super) entry: u64,
    pub(super) fixed: bool,
    pub(super) programs: Vec<ProgramHeader>,
    pub(super) sections: Vec<SectionHeader>,
    /// The string table of section names.
    names: Range<usize>,
}

impl<'a> Parts<'a> {
    pub(super) fn of(bytes: &[u8]) -> Result<Parts<'_>, Error> {
        let (header, machine) = identify(bytes)?;
        let fixed = header.e_type == ET_EXEC;
        let container = if machine.is_64() { Container::Big } else { Container::Little };
        let ctx = Ctx::new(container, Endian::Little);
        let damaged = |error: goblin::error::Error| Error::Damaged { error: error.to_string() };
        let programs = ProgramHeader::parse(bytes, header.e_phoff as usize, header.e_phnum.into(), ctx)
            .map_err(damaged)?;
        let sections = SectionHeader::parse(bytes, header.e_shoff as usize, header.e_shnum.into(), ctx);
        let sections = sections.unwrap_or_default();
        let names = sections
            .get(usize::from(header.e_shstrndx))
            .and_then(|section| file_range(bytes, section.sh_offset, section.sh_size))
            .unwrap_or(0..0);
        Ok(Parts { bytes, ctx, machine, entry: header.e_entry, fixed, programs, sections, names })
    }

    /// Returns the name of a section; empty if the file lacks it.
    pub(super) fn name(&self, section: &SectionHeader) -> &str {
        let names = self.bytes.get(self.names.clone()).unwrap_or(&[]);
        let name = name(names, section.sh_name).unwrap_or(&[]);
        std::str::from_utf8(name).unwrap_or("")
    }

    /// Returns the symbols of a symbol table.
    pub(super) fn symbols(&self, table: &SectionHeader) -> Option<Symtab<'a>> {
        let range = file_range(self.bytes, table.sh_offset, table.sh_size)?;
        let size = usize::try_from(table.sh_entsize).ok().filter(|&size| size > 0)?;
        Symtab::parse(self.bytes, range.start, range.len() / size, self.ctx).ok()
    }

    /// Returns the sections that are loaded.
    pub(super) fn loaded_sections(&self) -> impl Iterator<Item = &SectionHeader> {
        self.sections.iter().filter(|section| section.sh_flags & u64::from(SHF_ALLOC) != 0)
    }

    /// Returns the content of the note that `ld --build-id` creates.
    pub(super) fn build_id(&self) -> Option<Vec<u8>> {
        self.note(b"GNU", NT_GNU_BUILD_ID).map(<[u8]>::to_vec)
    }

    /// Returns the content of a note.
    fn note(&self, owner: &[u8], kind: u32) -> Option<&'a [u8]> {
        let notes = self.programs.iter().filter(|program| program.p_type == PT_NOTE);
        notes
            .filter_map(|program| file_range(self.bytes, program.p_offset, program.p_filesz))
            .find_map(|range| kelf::find_note(&self.bytes[range], owner, kind))
    }

    /// Returns the ranges of data, without section headers.
    pub(super) fn data_segments(&self) -> impl Iterator<Item = Range<u64>> {
        let loads = self.programs.iter().filter(|program| program.p_type == PT_LOAD);
        loads.map(|program| program.p_vaddr..program.p_vaddr.saturating_add(program.p_memsz))
    }

    /// Returns whether the Go compiler made it. Go programs find variables by their distance from others.
    pub(super) fn is_made_by_go(&self) -> bool {
        self.sections.iter().any(|section| matches!(self.name(section), ".gopclntab" | ".go.buildinfo"))
            || self.note(b"Go", GO_BUILD_ID).is_some()
    }

    pub(super) fn interpreter(&self) -> Option<String> {
        let program = self.programs.iter().find(|program| program.p_type == PT_INTERP)?;
        let name = &self.bytes[file_range(self.bytes, program.p_offset, program.p_filesz)?];
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        Some(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    pub(super) fn sections_named(&self, names: &[&str]) -> Vec<Range<u64>> {
        let named = self.loaded_sections().filter(|section| names.contains(&self.name(section)));
        normalize(named.map(memory_range).collect())
    }

    pub(super) fn code(&self) -> Vec<Range<u64>> {
        let executable = |section: &&SectionHeader| section.sh_flags & u64::from(SHF_EXECINSTR) != 0;
        let sections: Vec<Range<u64>> = self.loaded_sections().filter(executable).map(memory_range).collect();
        let segments = self.programs.iter().filter(|p| p.p_type == PT_LOAD && p.p_flags & PF_X != 0);
        let segments = normalize(segments.map(filled).collect());
        // Sections are trusted only if the segments agree.
        let within = |section: &Range<u64>| {
            contains(&segments, section.start, section.end.wrapping_sub(section.start))
        };
        if !sections.is_empty() && sections.iter().all(within) { normalize(sections) } else { segments }
    }

    /// Returns the ranges of data that may hold pointers.
    pub(super) fn data(&self) -> Vec<Range<u64>> {
        let is_data = |section: &&SectionHeader| {
            section.sh_flags & u64::from(SHF_EXECINSTR) == 0
                && !matches!(
                    section.sh_type,
                    SHT_NOBITS | SHT_NOTE | SHT_REL | SHT_RELA | SHT_DYNSYM | SHT_DYNAMIC
                )
                // Unwind tables hold distances, not addresses.
                && !matches!(
                    self.name(section),
                    ".eh_frame" | ".eh_frame_hdr" | ".gcc_except_table" | ".ARM.exidx" | ".ARM.extab"
                )
        };
        if self.loaded_sections().next().is_some() {
            return normalize(self.loaded_sections().filter(is_data).map(memory_range).collect());
        }
        // Without sections, constants may also be in the executable segment, but if every word of code counted as a
        // pointer, everything would be reachable. Linkers have kept constants in a separate segment since 2018; older
        // programs have section headers.
        let loads = || self.programs.iter().filter(|program| program.p_type == PT_LOAD);
        let separate = loads().any(|program| program.p_flags & (PF_X | PF_W) == 0);
        let holds = loads().filter(|program| program.p_flags & PF_X == 0 || !separate);
        normalize(holds.map(filled).collect())
    }

    /// Returns the address and the bytes of the unwind table.
    pub(super) fn unwind_section(&self) -> Option<(u64, &'a [u8])> {
        if let Some(section) = self.loaded_sections().find(|s| self.name(s) == ".eh_frame") {
            let range = file_range(self.bytes, section.sh_offset, section.sh_size)?;
            return Some((section.sh_addr, &self.bytes[range]));
        }
        // Without section headers, the second word of its index leads to `.eh_frame`.
        let index = self.programs.iter().find(|program| program.p_type == PT_GNU_EH_FRAME)?;
        let range = file_range(self.bytes, index.p_offset, 8)?;
        let header = &self.bytes[range];
        // Version 1; a signed 4-byte pointer relative to itself, as every linker writes.
        if header[..2] != [1, 0x1b] {
            return None;
        }
        let relative = i32::from_le_bytes(header[4..8].try_into().ok()?);
        let address = index.p_vaddr.wrapping_add(4).wrapping_add_signed(relative.into());
        let load = self.programs.iter().find(|program| {
            program.p_type == PT_LOAD
                && address >= program.p_vaddr
                && address - program.p_vaddr < program.p_filesz
        })?;
        let skipped = address - load.p_vaddr;
        let offset = load.p_offset.checked_add(skipped)?;
        let range = file_range(self.bytes, offset, load.p_filesz - skipped)?;
        Some((address, &self.bytes[range]))
    }
}

/// Reads the header of an executable or a shared object, and its machine. Ignores everything after the header.
pub(super) fn identify(bytes: &[u8]) -> Result<(Header, Machine), Error> {
    if bytes.starts_with(b"#!") {
        return Err(Error::Script);
    }
    if kelf::is_bitcode(bytes) {
        return Err(Error::NotExecutable { what: "LLVM bitcode" });
    }
    if !bytes.starts_with(ELFMAG) {
        return Err(Error::NotElf);
    }
    let header = goblin::elf::Elf::parse_header(bytes);
    let header = header.map_err(|error| Error::Damaged { error: error.to_string() })?;
    let machine = Machine::from_elf(header.e_machine)
        .filter(|_| header.e_ident[EI_DATA] == ELFDATA2LSB)
        .ok_or_else(|| Error::OtherMachine { name: machine_name(header.e_machine) })?;
    if (header.e_ident[EI_CLASS] == ELFCLASS64) != machine.is_64() {
        return Err(Error::OtherMachine { name: format!("x32 or another mixed ABI of {machine}") });
    }
    match header.e_type {
        ET_EXEC | ET_DYN => Ok((header, machine)),
        ET_REL => Err(Error::NotExecutable { what: "a relocatable object" }),
        ET_CORE => Err(Error::NotExecutable { what: "a core dump" }),
        _ => Err(Error::NotExecutable { what: "an ELF file of unknown type" }),
    }
}

/// The note with the build ID of the Go linker.
const GO_BUILD_ID: u32 = 4;

/// Returns the addresses of a segment's bytes in the file.
pub(super) fn filled(program: &ProgramHeader) -> Range<u64> {
    program.p_vaddr..program.p_vaddr.saturating_add(program.p_filesz)
}

pub(super) fn memory_range(section: &SectionHeader) -> Range<u64> {
    section.sh_addr..section.sh_addr.saturating_add(section.sh_size)
}

/// Returns a range of the file, if the file has it.
pub(super) fn file_range(bytes: &[u8], offset: u64, size: u64) -> Option<Range<usize>> {
    // A stripped file may end before an empty range.
    if size == 0 {
        return Some(0..0);
    }
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    (end <= bytes.len()).then_some(start..end)
}

fn machine_name(e_machine: u16) -> String {
    match Machine::from_elf(e_machine) {
        Some(machine) => format!("big-endian {machine}"),
        None => goblin::elf::header::machine_to_str(e_machine).to_owned(),
    }
}

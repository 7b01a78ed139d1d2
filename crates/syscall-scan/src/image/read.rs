//! Reading an executable, and saying what is wrong with one that cannot be scanned.
//!
//! Headers are parsed piece by piece with goblin rather than all at once, because a program runs, and so
//! must be scanned, whatever is wrong with its section headers.

use std::ops::Range;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::dynamic::{DF_1_PIE, DT_FLAGS_1, DT_NEEDED, Dynamic};
use goblin::elf::header::{ELFMAG, ET_CORE, ET_DYN, ET_EXEC, ET_REL};
use goblin::elf::program_header::{
    PF_W, PF_X, PT_DYNAMIC, PT_GNU_EH_FRAME, PT_GNU_RELRO, PT_INTERP, PT_LOAD, ProgramHeader,
};
use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SectionHeader};
use kelf::Machine;

use super::pointers::Pointers;
use super::{Addr, Extents, Image, Segment, Symbols, normalize};
use crate::Error;

/// How often a byte of the file may be loaded on average. Linkers let two segments share a page.
const MAX_OVERLAP: u64 = 4;

/// The parts of an ELF file that the other steps of reading look at.
pub(super) struct Parts<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) ctx: Ctx,
    pub(super) machine: Machine,
    entry: u64,
    /// Whether the program may be loaded anywhere (static PIE).
    pub(super) relocatable: bool,
    pub(super) programs: Vec<ProgramHeader>,
    pub(super) sections: Vec<SectionHeader>,
    /// The string table of section names.
    names: Range<usize>,
    pub(super) dynamic: Option<Dynamic>,
}

impl Parts<'_> {
    /// The name of a section; empty where the file does not have it.
    pub(super) fn name(&self, section: &SectionHeader) -> &str {
        let names = self.bytes.get(self.names.clone()).unwrap_or(&[]);
        let name = names.get(section.sh_name..).unwrap_or(&[]);
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(0);
        std::str::from_utf8(&name[..end]).unwrap_or("")
    }

    /// The sections that are loaded.
    pub(super) fn loaded_sections(&self) -> impl Iterator<Item = &SectionHeader> {
        self.sections.iter().filter(|section| section.sh_flags & u64::from(SHF_ALLOC) != 0)
    }
}

impl Image {
    /// Reads a static executable.
    ///
    /// # Errors
    /// One for each kind of file that is none. The message does not name the file.
    pub fn read(bytes: &[u8]) -> Result<Image, Error> {
        let parts = parse(bytes)?;
        let loaded = parts.programs.iter().filter(|program| program.p_type == PT_LOAD);
        let loaded = loaded.fold(0u64, |sum, program| sum.saturating_add(program.p_filesz));
        if loaded / MAX_OVERLAP > bytes.len() as u64 {
            return Err(Error::Damaged { error: "its segments overlap".to_owned() });
        }
        let mut segments = Vec::new();
        for program in parts.programs.iter().filter(|program| program.p_type == PT_LOAD) {
            let range = file_range(bytes, program.p_offset, program.p_filesz).ok_or_else(|| {
                let needed = program.p_offset.saturating_add(program.p_filesz);
                Error::Truncated { size: bytes.len() as u64, needed }
            })?;
            segments.push(Segment {
                address: program.p_vaddr,
                bytes: bytes[range].to_vec(),
                memory_size: program.p_memsz,
                writable: program.p_flags & PF_W != 0,
            });
        }
        let code = code_ranges(&parts);
        let mut constant = Vec::new();
        for program in &parts.programs {
            let filled = program.p_vaddr..program.p_vaddr.saturating_add(program.p_filesz);
            let read_only = program.p_type == PT_LOAD && program.p_flags & PF_W == 0;
            if read_only || program.p_type == PT_GNU_RELRO {
                constant.push(filled);
            }
        }
        let mut image = Image {
            machine: parts.machine,
            relocatable: parts.relocatable,
            entry: Addr(parts.entry),
            symbols: Symbols::read(&parts),
            extents: Extents::default(),
            code_pointers: Vec::new(),
            segments,
            code,
            constant: normalize(constant),
            computed: Default::default(),
        };
        if !image.is_code(image.entry) {
            return Err(Error::NoEntry { entry: image.entry });
        }
        let Pointers { to_code, computed } = Pointers::find(&parts, &mut image);
        image.code_pointers = to_code;
        image.computed = computed;
        image.extents = unwind_section(&parts)
            .map(|(address, bytes)| Extents::read(bytes, address, parts.machine))
            .unwrap_or_default();
        Ok(image)
    }
}

fn parse(bytes: &[u8]) -> Result<Parts<'_>, Error> {
    if bytes.starts_with(b"#!") {
        return Err(Error::Script);
    }
    if !bytes.starts_with(ELFMAG) {
        return Err(Error::NotElf);
    }
    let damaged = |error: goblin::error::Error| Error::Damaged { error: error.to_string() };
    let header = goblin::elf::Elf::parse_header(bytes).map_err(damaged)?;
    let machine = match Machine::from_elf(header.e_machine) {
        Some(machine @ (Machine::I386 | Machine::X86_64)) => machine,
        _ => return Err(Error::OtherMachine { name: machine_name(header.e_machine) }),
    };
    let is_64 = header.e_ident[goblin::elf::header::EI_CLASS] == goblin::elf::header::ELFCLASS64;
    if is_64 != machine.is_64() {
        return Err(Error::OtherMachine { name: format!("x32 or another mixed ABI of {machine}") });
    }
    match header.e_type {
        ET_EXEC | ET_DYN => {}
        ET_REL => return Err(Error::NotExecutable { what: "a relocatable object" }),
        ET_CORE => return Err(Error::NotExecutable { what: "a core dump" }),
        _ => return Err(Error::NotExecutable { what: "of an unknown ELF type" }),
    }
    let container = if is_64 { Container::Big } else { Container::Little };
    let ctx = Ctx::new(container, Endian::Little);
    let programs =
        ProgramHeader::parse(bytes, header.e_phoff as usize, header.e_phnum.into(), ctx).map_err(damaged)?;
    if programs.iter().any(|program| program.p_type == PT_INTERP) {
        return Err(Error::Dynamic);
    }
    let dynamic = read_dynamic(bytes, &programs, ctx);
    if let Some(dynamic) = &dynamic {
        let has = |tag| dynamic.dyns.iter().any(|entry| entry.d_tag == tag);
        if has(DT_NEEDED) {
            return Err(Error::Dynamic);
        }
        let pie = |entry: &goblin::elf::Dyn| entry.d_tag == DT_FLAGS_1 && entry.d_val & DF_1_PIE != 0;
        if header.e_type == ET_DYN && !dynamic.dyns.iter().any(pie) {
            return Err(Error::NotExecutable { what: "a shared object" });
        }
    }
    let sections =
        SectionHeader::parse(bytes, header.e_shoff as usize, header.e_shnum.into(), ctx).unwrap_or_default();
    let names = sections
        .get(usize::from(header.e_shstrndx))
        .and_then(|section| file_range(bytes, section.sh_offset, section.sh_size))
        .unwrap_or(0..0);
    let relocatable = header.e_type == ET_DYN;
    let entry = header.e_entry;
    Ok(Parts { bytes, ctx, machine, entry, relocatable, programs, sections, names, dynamic })
}

/// The dynamic section of a static-PIE program, found by its segment.
fn read_dynamic(bytes: &[u8], programs: &[ProgramHeader], ctx: Ctx) -> Option<Dynamic> {
    let dynamic = programs.iter().find(|program| program.p_type == PT_DYNAMIC)?;
    file_range(bytes, dynamic.p_offset, dynamic.p_filesz)?;
    Dynamic::parse(bytes, programs, ctx).ok().flatten()
}

/// A range of the file, if the file has it.
pub(super) fn file_range(bytes: &[u8], offset: u64, size: u64) -> Option<Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(usize::try_from(size).ok()?)?;
    (end <= bytes.len()).then_some(start..end)
}

pub(super) fn code_ranges(parts: &Parts) -> Vec<Range<u64>> {
    let sections: Vec<Range<u64>> = parts
        .loaded_sections()
        .filter(|section| section.sh_flags & u64::from(SHF_EXECINSTR) != 0)
        .map(|section| section.sh_addr..section.sh_addr.saturating_add(section.sh_size))
        .collect();
    let segments: Vec<Range<u64>> = parts
        .programs
        .iter()
        .filter(|program| program.p_type == PT_LOAD && program.p_flags & PF_X != 0)
        .map(|program| program.p_vaddr..program.p_vaddr.saturating_add(program.p_filesz))
        .collect();
    // Sections are believed only where the segments agree.
    let segments = normalize(segments);
    let within = |section: &Range<u64>| {
        super::contains(&segments, section.start, section.end.wrapping_sub(section.start))
    };
    if !sections.is_empty() && sections.iter().all(within) { normalize(sections) } else { segments }
}

/// The unwinding table: its address and bytes.
fn unwind_section<'a>(parts: &Parts<'a>) -> Option<(u64, &'a [u8])> {
    if let Some(section) = parts.loaded_sections().find(|s| parts.name(s) == ".eh_frame") {
        let range = file_range(parts.bytes, section.sh_offset, section.sh_size)?;
        return Some((section.sh_addr, &parts.bytes[range]));
    }
    // Without section headers, `.eh_frame` follows from its index, whose second word names it.
    let index = parts.programs.iter().find(|program| program.p_type == PT_GNU_EH_FRAME)?;
    let range = file_range(parts.bytes, index.p_offset, 8)?;
    let header = &parts.bytes[range];
    // Version 1, pointer relative to itself, signed, 4 bytes: what every linker writes.
    if header[..2] != [1, 0x1b] {
        return None;
    }
    let relative = i32::from_le_bytes(header[4..8].try_into().ok()?);
    let address = index.p_vaddr.wrapping_add(4).wrapping_add_signed(relative.into());
    let load = parts.programs.iter().find(|program| {
        program.p_type == PT_LOAD
            && address >= program.p_vaddr
            && address - program.p_vaddr < program.p_filesz
    })?;
    let skipped = address - load.p_vaddr;
    let offset = load.p_offset.checked_add(skipped)?;
    let range = file_range(parts.bytes, offset, load.p_filesz - skipped)?;
    Some((address, &parts.bytes[range]))
}

fn machine_name(e_machine: u16) -> String {
    match Machine::from_elf(e_machine) {
        Some(machine) => machine.to_string(),
        None => goblin::elf::header::machine_to_str(e_machine).to_owned(),
    }
}

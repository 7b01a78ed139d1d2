//! One ELF file, executable or shared object, as plain data: its loaded contents and its dynamic section. Nothing is
//! relocated; addresses are the file's own.
//!
//! Headers are parsed piece by piece with goblin rather than all at once: a program with invalid section headers runs,
//! and must be scanned. Section headers are optional. If they are missing (some programs are stripped of them),
//! segments replace them, and more words count as code pointers.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::header::{
    EI_CLASS, EI_DATA, ELFCLASS64, ELFDATA2LSB, ELFMAG, ET_CORE, ET_DYN, ET_EXEC, ET_REL, Header,
};
use goblin::elf::note::NT_GNU_BUILD_ID;
use goblin::elf::program_header::{
    PF_W, PF_X, PT_ARM_EXIDX, PT_GNU_EH_FRAME, PT_GNU_RELRO, PT_INTERP, PT_LOAD, PT_NOTE, PT_TLS,
    ProgramHeader,
};
use goblin::elf::section_header::{
    SHF_ALLOC, SHF_EXECINSTR, SHT_DYNAMIC, SHT_DYNSYM, SHT_NOBITS, SHT_NOTE, SHT_REL, SHT_RELA, SectionHeader,
};
use goblin::elf::sym::Symtab;
use kelf::Machine;

use super::dynamic::Dynamic;
use super::exidx;
use super::names;
use super::relocs::{self, Reloc, RelocKind};
use super::{DynamicSymbol, Extent, Extents, SymbolKind, Symbols, Variables, contains, normalize};
use crate::Error;

/// Maximum number of times that a byte of the file is loaded on average. Linkers let two segments share a page.
const MAX_OVERLAP: u64 = 4;

/// An executable or shared object.
#[derive(Debug)]
pub struct Object {
    /// Its machine.
    pub machine: Machine,
    /// Whether it is loaded only at its own addresses (not position-independent).
    pub fixed: bool,
    /// The entry point in the header; 0 for most libraries.
    pub entry: u64,
    /// The program that the kernel starts to load it.
    pub interpreter: Option<String>,
    /// Its dynamic section. A static executable at a fixed address has none.
    pub dynamic: Option<Dynamic>,
    /// Its relocations, in the order in which they are applied.
    pub relocs: Vec<Reloc>,
    /// The strings in its data that may be names of libraries.
    pub library_names: Vec<String>,
    /// The strings in its data that may be directories of character conversion modules.
    pub conversion_directories: Vec<String>,
    /// The names of its functions.
    pub symbols: Symbols,
    /// The extents of its functions, from the unwind table.
    pub extents: Extents,
    /// The functions of 32-bit ARM code that have landing pads.
    pub(super) unwound: Vec<Extent>,
    /// The sizes of its variables.
    pub variables: Variables,
    /// The unique number of this build, which names its debugging file.
    pub build_id: Option<Vec<u8>>,
    /// Whether the Go compiler made it.
    pub made_by_go: bool,
    pub(super) segments: Vec<Segment>,
    /// The ranges of code: executable sections, or else executable segments.
    pub(super) code: Vec<Range<u64>>,
    /// Memory that is never written to.
    pub(super) read_only: Vec<Range<u64>>,
    /// Memory that the dynamic linker protects once it has relocated it.
    pub(super) relro: Vec<Range<u64>>,
    /// Constants with addresses, as collected by compilers.
    pub(super) relocated_constants: Vec<Range<u64>>,
    /// The global offset table.
    pub(super) got: Vec<Range<u64>>,
    /// The procedure linkage table.
    pub(super) plt: Vec<Range<u64>>,
    /// The initial content of thread-local variables.
    pub(super) thread_local: Option<Range<u64>>,
    /// The ranges of data.
    pub(super) data: Vec<Range<u64>>,
}

/// A loaded segment with its bytes in the file. Zeros that exist only in memory are omitted.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) address: u64,
    /// Shared with every process that has not relocated them.
    pub(super) bytes: Arc<Vec<u8>>,
    /// Size in memory, in bytes.
    pub(super) memory_size: u64,
    pub(super) writable: bool,
}

impl Segment {
    /// Returns the address after its last byte in memory.
    pub(super) fn end(&self) -> u64 {
        self.address.saturating_add(self.memory_size)
    }
}

/// Returns the bytes from `address` to the end of its segment; empty outside of any segment. Segments are sorted.
pub(super) fn bytes_at(segments: &[Segment], address: u64) -> &[u8] {
    let next = segments.partition_point(|segment| segment.address <= address);
    let Some(segment) = next.checked_sub(1).map(|index| &segments[index]) else { return &[] };
    let offset = usize::try_from(address - segment.address).unwrap_or(usize::MAX);
    segment.bytes.get(offset..).unwrap_or(&[])
}

/// Returns the bytes in a range of addresses, as far as one segment has them.
pub(super) fn bytes_in<'s>(segments: &'s [Segment], range: &Range<u64>) -> &'s [u8] {
    let bytes = bytes_at(segments, range.start);
    let size = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
    &bytes[..size.min(bytes.len())]
}

/// Returns the addresses of a segment's bytes in the file.
fn filled(program: &ProgramHeader) -> Range<u64> {
    program.p_vaddr..program.p_vaddr.saturating_add(program.p_filesz)
}

impl Object {
    /// Returns whether `head` is the start of an executable or a shared object, judging by the header.
    pub fn is_object(head: &[u8]) -> bool {
        identify(head).is_ok()
    }

    /// Reads an executable or a shared object.
    ///
    /// # Errors
    /// One for each other kind of file. The message does not name the file.
    pub fn read(bytes: &[u8]) -> Result<Object, Error> {
        let parts = Parts::of(bytes)?;
        let loads = || parts.programs.iter().filter(|program| program.p_type == PT_LOAD);
        let loaded = loads().fold(0u64, |sum, program| sum.saturating_add(program.p_filesz));
        if loaded / MAX_OVERLAP > bytes.len() as u64 {
            return Err(Error::Damaged { error: "its segments overlap".to_owned() });
        }
        let mut segments = Vec::new();
        for program in loads() {
            let range = file_range(bytes, program.p_offset, program.p_filesz).ok_or_else(|| {
                let needed = program.p_offset.saturating_add(program.p_filesz);
                Error::Truncated { size: bytes.len() as u64, needed }
            })?;
            segments.push(Segment {
                address: program.p_vaddr,
                bytes: Arc::new(bytes[range].to_vec()),
                memory_size: program.p_memsz,
                writable: program.p_flags & PF_W != 0,
            });
        }
        segments.sort_by_key(|segment| segment.address);
        let dynamic = Dynamic::read(&parts, &segments);
        let relocs = relocs::read(&parts, &segments, dynamic.as_ref());
        let of_type = |p_type| parts.programs.iter().filter(move |p| p.p_type == p_type).map(filled);
        let data = parts.data();
        let texts = || data.iter().map(|range| bytes_in(&segments, range));
        let made_by_go = parts.is_made_by_go();
        let code = parts.code();
        let code_end = code.last().map_or(0, |range| range.end);
        let unwound = of_type(PT_ARM_EXIDX).find(|_| parts.machine == Machine::Arm).map(|index| {
            exidx::read(bytes_in(&segments, &index), index.start, code_end, |address| {
                bytes_at(&segments, address)
            })
        });
        Ok(Object {
            unwound: unwound.unwrap_or_default(),
            library_names: texts().flat_map(names::libraries).collect(),
            conversion_directories: texts().flat_map(names::conversion_directories).collect(),
            machine: parts.machine,
            fixed: parts.fixed,
            entry: parts.entry,
            interpreter: parts.interpreter(),
            relocs,
            symbols: Symbols::read(&parts, dynamic.as_ref()),
            extents: parts
                .unwind_section()
                .map(|(a, b)| Extents::read(b, a, parts.machine))
                .unwrap_or_default(),
            variables: Variables::read(&parts, made_by_go),
            build_id: parts.build_id(),
            made_by_go,
            code,
            read_only: normalize(loads().filter(|p| p.p_flags & PF_W == 0).map(filled).collect()),
            relro: normalize(of_type(PT_GNU_RELRO).collect()),
            relocated_constants: parts.sections_named(&[".data.rel.ro"]),
            got: parts.sections_named(&[".got", ".got.plt"]),
            plt: parts.sections_named(&[".plt", ".plt.got", ".plt.sec", ".iplt"]),
            thread_local: of_type(PT_TLS).next(),
            data,
            dynamic,
            segments,
        })
    }

    /// Returns whether its own functions run during relocation, before its constants are protected.
    pub(super) fn chooses_functions(&self) -> bool {
        self.relocs.iter().any(|reloc| reloc.kind == RelocKind::Irelative)
            || self.dynamic_symbols().any(|symbol| symbol.kind == SymbolKind::Ifunc)
    }

    /// Returns the conventional path of the object's debugging file, if it has one.
    pub fn debugging_file(&self) -> Option<PathBuf> {
        let (first, rest) = self.build_id.as_ref()?.split_first()?;
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(PathBuf::from(format!("/usr/lib/debug/.build-id/{first:02x}/{rest}.debug")))
    }

    /// Reads the sizes of variables from the object's debugging file.
    pub fn add_debugging_file(&mut self, bytes: &[u8]) {
        self.variables.add_debugging_file(bytes);
    }

    /// Returns whether code may be at this address.
    pub fn is_code(&self, address: u64) -> bool {
        super::is_code(self.machine, &self.code, address)
    }

    /// Returns whether an address is in a segment, including its zeros.
    pub fn is_loaded(&self, address: u64) -> bool {
        let next = self.segments.partition_point(|segment| segment.address <= address);
        next > 0 && address < self.segments[next - 1].end()
    }

    /// Returns its first address and the one after its last. Empty if it loads nothing.
    pub fn memory(&self) -> Range<u64> {
        let start = self.segments.first().map_or(0, |segment| segment.address);
        start..self.segments.iter().map(Segment::end).max().unwrap_or(start)
    }

    /// Returns whether it is a library rather than a program: it has no interpreter, or it has a soname (glibc has
    /// both), and nothing else indicates that it can be started.
    pub fn is_library(&self) -> bool {
        let Some(dynamic) = &self.dynamic else { return false };
        let named = dynamic.soname.is_some();
        !self.fixed && !dynamic.is_program && (named || self.interpreter.is_none())
    }

    /// Returns whether it is the C library, which requests libraries in its own ways.
    pub fn is_c_library(&self) -> bool {
        self.exports(b"__libc_start_main").next().is_some()
    }

    /// Returns its dynamic symbols.
    pub fn dynamic_symbols(&self) -> impl Iterator<Item = &DynamicSymbol> {
        self.dynamic.iter().flat_map(|dynamic| dynamic.symbols.iter())
    }

    /// Returns the symbols of this name that it defines for other objects, of every version.
    pub fn exports(&self, name: &[u8]) -> impl Iterator<Item = &DynamicSymbol> {
        self.dynamic.iter().flat_map(move |dynamic| dynamic.symbols.named(name))
    }

    /// Returns the functions that other objects can call, unordered.
    pub fn exported_functions(&self) -> impl Iterator<Item = &DynamicSymbol> {
        self.dynamic.iter().flat_map(|dynamic| dynamic.symbols.exported_functions())
    }

    /// Returns whether it may request libraries by name at run time.
    pub fn asks_by_name(&self) -> bool {
        self.dynamic_symbols().any(|symbol| {
            !symbol.defined && matches!(&*symbol.name, b"dlopen" | b"dlmopen" | b"__libc_dlopen_mode")
        })
    }

    /// Returns whether any bytes of its code may be an instruction that enters the kernel, at any alignment.
    pub fn may_enter_kernel(&self) -> bool {
        self.code.iter().any(|range| {
            let bytes = bytes_in(&self.segments, range);
            let mut pairs = bytes.windows(2);
            match self.machine {
                Machine::I386 | Machine::X86_64 => {
                    pairs.any(|pair| matches!(pair, [0x0f, 0x05 | 0x34] | [0xcd, 0x80]))
                }
                // `svc` in Thumb code; in ARM code, most of its low byte is arbitrary.
                Machine::Arm => pairs.any(|pair| pair[1] == 0xdf || pair[1] & 0x0f == 0x0f),
                Machine::Aarch64 => {
                    let mut words = bytes.chunks_exact(4).map(relocs::number);
                    words.any(|word| word & 0xffe0_001f == 0xd400_0001)
                }
            }
        })
    }
}

/// The parts of an ELF file that the reading steps need.
pub(super) struct Parts<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) ctx: Ctx,
    pub(super) machine: Machine,
    entry: u64,
    fixed: bool,
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
        let name = super::dynsym::name(names, section.sh_name).unwrap_or(&[]);
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
    fn build_id(&self) -> Option<Vec<u8>> {
        self.note(b"GNU\0", NT_GNU_BUILD_ID)
    }

    /// Returns the content of a note.
    fn note(&self, owner: &[u8], kind: u32) -> Option<Vec<u8>> {
        let notes = self.programs.iter().filter(|program| program.p_type == PT_NOTE);
        notes
            .filter_map(|program| file_range(self.bytes, program.p_offset, program.p_filesz))
            .find_map(|range| find_note(&self.bytes[range], owner, kind))
    }

    /// Returns the ranges of data, without section headers.
    pub(super) fn data_segments(&self) -> impl Iterator<Item = Range<u64>> {
        let loads = self.programs.iter().filter(|program| program.p_type == PT_LOAD);
        loads.map(|program| program.p_vaddr..program.p_vaddr.saturating_add(program.p_memsz))
    }

    /// Returns whether the Go compiler made it. Go programs find variables by their distance from others.
    fn is_made_by_go(&self) -> bool {
        self.sections.iter().any(|section| matches!(self.name(section), ".gopclntab" | ".go.buildinfo"))
            || self.note(b"Go\0\0", GO_BUILD_ID).is_some()
    }

    fn interpreter(&self) -> Option<String> {
        let program = self.programs.iter().find(|program| program.p_type == PT_INTERP)?;
        let name = &self.bytes[file_range(self.bytes, program.p_offset, program.p_filesz)?];
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        Some(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    fn sections_named(&self, names: &[&str]) -> Vec<Range<u64>> {
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
    fn data(&self) -> Vec<Range<u64>> {
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
    fn unwind_section(&self) -> Option<(u64, &'a [u8])> {
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
fn identify(bytes: &[u8]) -> Result<(Header, Machine), Error> {
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

/// Finds the content of a note in a list of notes. Names and contents are padded to 4 bytes.
fn find_note(mut notes: &[u8], owner: &[u8], kind: u32) -> Option<Vec<u8>> {
    while notes.len() >= 12 {
        let number = |at: usize| relocs::number(&notes[at..at + 4]) as usize;
        let (name, content) = (12..12 + number(0), 12 + number(0).next_multiple_of(4));
        let content = content..content + number(4);
        if number(8) == kind as usize && notes.get(name) == Some(owner) {
            return notes.get(content).map(<[u8]>::to_vec);
        }
        notes = notes.get(content.end.next_multiple_of(4)..)?;
    }
    None
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

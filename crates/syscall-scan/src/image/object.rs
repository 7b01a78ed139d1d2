//! One ELF file, executable or shared object, as plain data: its loaded contents and its dynamic section. Nothing is
//! relocated; addresses are the file's own.
//!
//! Headers are parsed piece by piece with goblin rather than all at once: a program with invalid section headers runs,
//! and must be scanned. Section headers are optional. If they are missing (some programs are stripped of them),
//! segments replace them, and more words count as code pointers.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use goblin::elf::program_header::{PF_W, PT_ARM_EXIDX, PT_GNU_RELRO, PT_LOAD, PT_TLS};
use kelf::Machine;
use kelf::reloc::DynamicReloc;

use super::dynamic::Dynamic;
use super::dynsym::{DynamicSymbol, SymbolKind};
use super::parts::{Parts, file_range, filled, identify};
use super::ranges::{contains, normalize};
use super::relocs::{self, Reloc};
use super::segment::{Segment, bytes_at, bytes_in};
use super::symbols::Symbols;
use super::unwind::{Extent, Extents};
use super::variables::Variables;
use super::{exidx, names};
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
        let relocs = relocs::read(&parts, &segments, dynamic.as_ref().map(|dynamic| &dynamic.entries));
        let of_type = |p_type| parts.programs.iter().filter(move |p| p.p_type == p_type).map(filled);
        let data = parts.data();
        let texts = || data.iter().map(|range| bytes_in(&segments, range));
        let made_by_go = parts.is_made_by_go();
        let code = parts.code();
        let code_end = code.last().map_or(0, |range| range.end);
        let unwound = of_type(PT_ARM_EXIDX).find(|_| parts.machine.target().has_unwind_index).map(|index| {
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
        self.relocs.iter().any(|reloc| reloc.kind == DynamicReloc::Irelative)
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
        self.machine.is_aligned_code(address) && contains(&self.code, address, 1)
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
        let isa = kisa::isa(self.machine);
        self.code.iter().any(|range| isa.may_enter_kernel(bytes_in(&self.segments, range)))
    }
}

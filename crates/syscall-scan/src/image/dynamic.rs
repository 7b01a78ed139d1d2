//! The dynamic section of an object (`PT_DYNAMIC`).
//!
//! Addresses are the object's own. Tables are found by address, as in the dynamic linker, and not by section headers,
//! which the dynamic linker never reads.

use std::ops::Range;

use goblin::elf::dynamic::{
    DF_1_PIE, DF_SYMBOLIC, DT_FINI, DT_FINI_ARRAY, DT_FINI_ARRAYSZ, DT_FLAGS, DT_FLAGS_1, DT_INIT,
    DT_INIT_ARRAY, DT_INIT_ARRAYSZ, DT_NEEDED, DT_PLTGOT, DT_PREINIT_ARRAY, DT_PREINIT_ARRAYSZ, DT_RPATH,
    DT_RUNPATH, DT_SONAME, DT_STRSZ, DT_STRTAB, DT_SYMBOLIC,
};
use goblin::elf::program_header::PT_DYNAMIC;

use super::bytes::name;
use super::dynsym::DynamicSymbols;
use super::entries::Entries;
use super::parts::{Parts, file_range};
use super::segment::{Segment, bytes_at};

/// Entries that name other libraries: `DT_AUXILIARY`, `DT_FILTER`, `DT_AUDIT`, `DT_DEPAUDIT`. They are newer than
/// goblin's constants, or extensions.
const OTHERS: [u64; 4] = [0x7fff_fffd, 0x7fff_ffff, 0x6fff_fefc, 0x6fff_fefb];

/// The entries of a dynamic section that the scan uses.
#[derive(Debug, Default)]
pub struct Dynamic {
    /// The libraries that it needs, in order.
    pub needed: Vec<String>,
    /// The name under which others need it.
    pub soname: Option<String>,
    /// The search path for its dependencies and those of its libraries; ignored if there is a `runpath`.
    pub rpath: Option<String>,
    /// The search path for its dependencies.
    pub runpath: Option<String>,
    /// Whether it is marked as a program (`DF_1_PIE`).
    pub is_program: bool,
    /// Whether its references bind to itself first (`DT_SYMBOLIC`).
    pub symbolic: bool,
    /// `DT_INIT` and `DT_FINI`, if present.
    pub functions: Vec<u64>,
    /// The arrays of functions that run before and after the program.
    pub arrays: Vec<Range<u64>>,
    /// The start of its global offset table (`DT_PLTGOT`).
    pub got: Option<u64>,
    /// Other libraries to load: replacements for it (filters and auxiliaries), and auditors of the dynamic linker.
    pub others: Vec<String>,
    /// The symbols that the dynamic linker binds.
    pub symbols: DynamicSymbols,
    pub(super) entries: Entries,
}

impl Dynamic {
    /// Reads the dynamic section, if there is one.
    pub(super) fn read(parts: &Parts, segments: &[Segment]) -> Option<Dynamic> {
        let program = parts.programs.iter().find(|program| program.p_type == PT_DYNAMIC)?;
        file_range(parts.bytes, program.p_offset, program.p_filesz)?;
        let parsed = goblin::elf::Dynamic::parse(parts.bytes, &parts.programs, parts.ctx).ok()??;
        let entries = Entries(parsed.dyns);
        let strings = entries.value(DT_STRTAB).map_or(&[][..], |at| bytes_at(segments, at));
        let size = entries.value(DT_STRSZ).and_then(|size| usize::try_from(size).ok());
        let strings = &strings[..size.unwrap_or(0).min(strings.len())];
        let string = |offset: u64| string(strings, usize::try_from(offset).ok()?);
        let one = |tag| entries.value(tag).and_then(string);
        let needed = entries.0.iter().filter(|entry| entry.d_tag == DT_NEEDED);
        let array = |start, size| {
            let start = entries.value(start)?;
            Some(start..start.saturating_add(entries.value(size)?))
        };
        let arrays = [
            (DT_PREINIT_ARRAY, DT_PREINIT_ARRAYSZ),
            (DT_INIT_ARRAY, DT_INIT_ARRAYSZ),
            (DT_FINI_ARRAY, DT_FINI_ARRAYSZ),
        ];
        let flags = entries.value(DT_FLAGS_1).unwrap_or(0);
        let symbolic = entries.0.iter().any(|entry| entry.d_tag == DT_SYMBOLIC);
        Some(Dynamic {
            needed: needed.filter_map(|entry| string(entry.d_val)).collect(),
            others: OTHERS.into_iter().filter_map(one).collect(),
            soname: one(DT_SONAME),
            rpath: one(DT_RPATH),
            runpath: one(DT_RUNPATH),
            symbolic: symbolic || entries.value(DT_FLAGS).is_some_and(|flags| flags & DF_SYMBOLIC != 0),
            is_program: flags & DF_1_PIE != 0,
            functions: [DT_INIT, DT_FINI].into_iter().filter_map(|tag| entries.value(tag)).collect(),
            arrays: arrays.into_iter().filter_map(|(start, size)| array(start, size)).collect(),
            got: entries.value(DT_PLTGOT),
            symbols: DynamicSymbols::read(parts, segments, &entries, strings),
            entries,
        })
    }
}

/// Returns a string of a string table.
fn string(strings: &[u8], offset: usize) -> Option<String> {
    let string = name(strings, offset)?;
    Some(String::from_utf8_lossy(string).into_owned())
}

//! Images of a machine's memory: `/proc/kcore` or a copy of it, a dump that QEMU's `dump-guest-memory` made or a kdump
//! in the form of an ELF core, and raw physical memory (`pmemsave`).
//!
//! Reading is bounded: only the headers are read when an image is opened, and later the bytes that are asked for.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::header::{EI_CLASS, EI_DATA, ELFCLASS32, ELFCLASS64, ELFDATA2LSB, ELFMAG, ET_CORE, Header};
use goblin::elf::program_header::{PT_LOAD, ProgramHeader};

/// The reason why an image of memory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The file cannot be read.
    #[error("cannot read {name}: {source}")]
    Read {
        /// The file.
        name: String,
        /// The reason.
        source: io::Error,
    },
    /// The file is not an image of memory, or was cut off.
    #[error("{name}: {problem}; expected {expected}")]
    Unusable {
        /// The file.
        name: String,
        /// The problem with it.
        problem: String,
        /// The expected content.
        expected: String,
    },
}

impl kcli::Fault for DumpError {
    fn is_bad_input(&self) -> bool {
        matches!(self, DumpError::Unusable { .. })
    }
}

/// The memory of a machine, in a file.
#[derive(Debug)]
pub struct Dump {
    name: String,
    file: File,
    ranges: Vec<DumpedRange>,
}

/// A range of memory, and its place in the file.
#[derive(Debug)]
struct DumpedRange {
    /// Its virtual address, if the file records it.
    address: Option<u64>,
    physical: u64,
    size: u64,
    offset: u64,
}

impl Dump {
    /// Opens the image at `path`: an ELF core, or with `base` raw memory from that physical address on.
    ///
    /// # Errors
    /// If it cannot be read or is not an ELF core.
    pub fn open(path: &Path, base: Option<u64>) -> Result<Dump, DumpError> {
        let name = &path.display().to_string();
        let failed = |source| DumpError::Read { name: name.into(), source };
        let mut file = File::open(path).map_err(failed)?;
        let ranges = match base {
            Some(physical) => {
                let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
                vec![DumpedRange { address: None, physical, size, offset: 0 }]
            }
            None => ranges(&mut file, name)?,
        };
        Ok(Dump { name: name.into(), file, ranges })
    }

    /// Returns the name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the ranges of physical memory in it.
    pub fn physical_ranges(&self) -> Vec<Range<u64>> {
        let ranges = self.ranges.iter().filter(|range| range.is_physical());
        ranges.map(|range| range.physical..range.physical.saturating_add(range.size)).collect()
    }

    /// Returns the difference between the virtual address `address` and its physical address, if the file records both.
    pub fn linear_at(&self, address: u64) -> Option<u64> {
        self.ranges.iter().filter(|range| range.is_physical()).find_map(|range| {
            let start = range.address?;
            (address.checked_sub(start)? < range.size).then(|| start.wrapping_sub(range.physical))
        })
    }

    /// Fills `bytes` from a physical address. Returns whether the image contains it.
    ///
    /// # Errors
    /// If the file cannot be read, or ends before them.
    pub fn read_physical(&mut self, physical: u64, bytes: &mut [u8]) -> Result<bool, DumpError> {
        let size = bytes.len() as u64;
        let offset = self.ranges.iter().find_map(|range| range.offset_of(range.physical, physical, size));
        self.read_at(offset, bytes)
    }

    /// Fills `bytes` from the virtual address `address`, or else from the physical address `physical`. Returns whether
    /// the image contains it.
    ///
    /// # Errors
    /// If the file cannot be read, or ends before them.
    pub fn read(&mut self, address: u64, physical: u64, bytes: &mut [u8]) -> Result<bool, DumpError> {
        let size = bytes.len() as u64;
        let by_address = self.ranges.iter().find_map(|range| range.offset_of(range.address?, address, size));
        let by_physical =
            || self.ranges.iter().find_map(|range| range.offset_of(range.physical, physical, size));
        let offset = by_address.or_else(by_physical);
        self.read_at(offset, bytes)
    }

    /// Fills `bytes` from an offset of the file, if there is one.
    fn read_at(&mut self, offset: Option<u64>, bytes: &mut [u8]) -> Result<bool, DumpError> {
        let (Some(offset), size) = (offset, bytes.len()) else { return Ok(false) };
        let result = self.file.seek(SeekFrom::Start(offset)).and_then(|_| self.file.read_exact(bytes));
        match result {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(DumpError::Unusable {
                name: self.name.clone(),
                problem: format!("it ends before the {size} bytes at offset {offset}"),
                expected: "a dump that was not cut off".into(),
            }),
            Err(source) => Err(DumpError::Read { name: self.name.clone(), source }),
        }
    }
}

impl DumpedRange {
    /// Whether its physical address is known. `/proc/kcore` has ranges without one, for modules and `vmalloc`.
    fn is_physical(&self) -> bool {
        self.physical != u64::MAX && self.physical != u64::from(u32::MAX)
    }

    /// Returns the offset in the file of `size` bytes at the address `wanted`, if the range, which begins at `start`,
    /// contains them.
    fn offset_of(&self, start: u64, wanted: u64, size: u64) -> Option<u64> {
        let skip = wanted.checked_sub(start)?;
        (skip.checked_add(size)? <= self.size).then(|| self.offset.checked_add(skip))?
    }
}

/// The ranges of memory in an ELF core.
fn ranges(file: &mut File, name: &str) -> Result<Vec<DumpedRange>, DumpError> {
    let wrong = |problem: String| DumpError::Unusable {
        name: name.into(),
        problem,
        expected: "an ELF core (/proc/kcore, or QEMU's dump-guest-memory; raw memory needs --base)".into(),
    };
    // Reads at most the head of the core, because /proc/kcore has no length.
    let mut head = Vec::new();
    let read = file.take(64).read_to_end(&mut head);
    read.map_err(|source| DumpError::Read { name: name.into(), source })?;
    if !head.starts_with(ELFMAG) || head.len() < 64 {
        return Err(wrong("not an ELF file".into()));
    }
    let container = match (head[EI_CLASS], head[EI_DATA]) {
        (ELFCLASS32, ELFDATA2LSB) => Container::Little,
        (ELFCLASS64, ELFDATA2LSB) => Container::Big,
        _ => return Err(wrong("an ELF file of unknown class or byte order".into())),
    };
    let ctx = Ctx::new(container, Endian::Little);
    let header: Header = match container {
        Container::Little => goblin::elf32::header::Header::parse(&head).map(Header::from),
        Container::Big => goblin::elf64::header::Header::parse(&head).map(Header::from),
    }
    .map_err(|error| wrong(error.to_string()))?;
    if header.e_type != ET_CORE {
        return Err(wrong(format!("an ELF file of type {}, not a core", header.e_type)));
    }
    let size = ProgramHeader::size(ctx);
    let mut table = vec![0; size * usize::from(header.e_phnum)];
    file.seek(SeekFrom::Start(header.e_phoff))
        .and_then(|_| file.read_exact(&mut table))
        .map_err(|error| wrong(format!("its program headers cannot be read ({error})")))?;
    let headers = ProgramHeader::parse(&table, 0, usize::from(header.e_phnum), ctx);
    let headers = headers.map_err(|error| wrong(error.to_string()))?;
    let stored = headers.iter().filter(|header| header.p_type == PT_LOAD).map(|header| DumpedRange {
        // QEMU writes the physical address if it does not know a virtual one.
        address: Some(header.p_vaddr).filter(|&address| address != header.p_paddr),
        physical: header.p_paddr,
        size: header.p_filesz,
        offset: header.p_offset,
    });
    Ok(stored.collect())
}

//! Images of a machine's memory: `/proc/kcore` or a copy of it, a dump that QEMU's `dump-guest-memory` made or a kdump
//! in the form of an ELF core, and raw physical memory (`pmemsave`).
//!
//! Reading is bounded: only the headers are read when an image is opened, and later the bytes that are asked for.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
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

impl DumpError {
    /// Whether the input is at fault. If so, the same call on the same files cannot succeed.
    pub fn is_bad_input(&self) -> bool {
        matches!(self, DumpError::Unusable { .. })
    }
}

/// The memory of a machine, in a file.
#[derive(Debug)]
pub struct Dump {
    name: String,
    file: File,
    ranges: Vec<DumpedRange>,
    by_address: Vec<Segment>,
    by_physical: Vec<Segment>,
}

/// A part of the file, by the address of its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    start: u64,
    size: u64,
    offset: u64,
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
        let pipe = || DumpError::Unusable {
            name: name.into(),
            problem: "an image of memory cannot come from a pipe".into(),
            expected: "a file, because it is not read in order".into(),
        };
        let mut file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && path == Path::new("-") => {
                return Err(pipe());
            }
            file => file.map_err(failed)?,
        };
        let kind = file.metadata().map_err(failed)?;
        if kind.file_type().is_fifo() || kind.file_type().is_socket() {
            return Err(pipe());
        }
        let ranges = match base {
            Some(physical) => {
                let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
                vec![DumpedRange { address: None, physical, size, offset: 0 }]
            }
            None => ranges(&mut file, name)?,
        };
        // The length of a file in /proc means nothing.
        let end = ranges.iter().map(|range| range.offset.saturating_add(range.size)).max().unwrap_or(0);
        if kind.is_file() && !path.starts_with("/proc") && kind.len() < end {
            return Err(DumpError::Unusable {
                name: name.into(),
                problem: format!("it has {} bytes, but its headers describe {end}", kind.len()),
                expected: "a dump that was not cut off".into(),
            });
        }
        let by_address = segments(ranges.iter().filter_map(|range| Some((range.address?, range))));
        let physical = ranges.iter().filter(|range| range.is_physical());
        let by_physical = segments(physical.map(|range| (range.physical, range)));
        Ok(Dump { name: name.into(), file, ranges, by_address, by_physical })
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
        match parts(&self.by_physical, physical, bytes.len()) {
            Some(parts) => self.read_parts(parts, bytes),
            None => Ok(false),
        }
    }

    /// Fills `bytes` from the virtual address `address`, or else from the physical address `physical`. Returns whether
    /// the image contains it.
    ///
    /// # Errors
    /// If the file cannot be read, or ends before them.
    pub fn read(&mut self, address: u64, physical: u64, bytes: &mut [u8]) -> Result<bool, DumpError> {
        match parts(&self.by_address, address, bytes.len()) {
            Some(parts) => self.read_parts(parts, bytes),
            None => self.read_physical(physical, bytes),
        }
    }

    /// Fills `bytes` from parts of the file, each an offset and a number of bytes.
    fn read_parts(&mut self, parts: Vec<(u64, usize)>, bytes: &mut [u8]) -> Result<bool, DumpError> {
        let mut rest = bytes;
        for (offset, size) in parts {
            let (part, after) = rest.split_at_mut(size);
            let result = self.file.seek(SeekFrom::Start(offset)).and_then(|_| self.file.read_exact(part));
            match result {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(DumpError::Unusable {
                        name: self.name.clone(),
                        problem: format!("it ends before the {size} bytes at offset {offset}"),
                        expected: "a dump that was not cut off".into(),
                    });
                }
                Err(source) => return Err(DumpError::Read { name: self.name.clone(), source }),
            }
            rest = after;
        }
        Ok(true)
    }
}

impl DumpedRange {
    /// Whether its physical address is known. `/proc/kcore` has ranges without one, for modules and `vmalloc`.
    fn is_physical(&self) -> bool {
        self.physical != u64::MAX && self.physical != u64::from(u32::MAX)
    }
}

/// Returns the parts of the file by ascending address. Where ranges overlap, the first one counts.
fn segments<'a>(ranges: impl Iterator<Item = (u64, &'a DumpedRange)>) -> Vec<Segment> {
    let mut sorted: Vec<(u64, &DumpedRange)> = ranges.collect();
    sorted.sort_by_key(|&(start, _)| start);
    let mut segments: Vec<Segment> = Vec::new();
    let mut covered = 0;
    for (start, range) in sorted {
        let end = start.saturating_add(range.size);
        let first = start.max(covered);
        if let (true, Some(offset)) = (first < end, range.offset.checked_add(first - start)) {
            segments.push(Segment { start: first, size: end - first, offset });
            covered = end;
        }
    }
    segments
}

/// Returns the places in the file of `size` bytes from an address on, as offsets and numbers of bytes; `None` if the file
/// lacks one.
fn parts(segments: &[Segment], address: u64, size: usize) -> Option<Vec<(u64, usize)>> {
    let mut parts = Vec::new();
    let (mut at, mut missing) = (address, size);
    let mut next = segments.partition_point(|segment| segment.start <= address).checked_sub(1)?;
    while missing > 0 {
        let segment = segments.get(next)?;
        let skip = at.checked_sub(segment.start)?;
        let part = segment.size.checked_sub(skip).filter(|&rest| rest > 0)?.min(missing as u64);
        parts.push((segment.offset.checked_add(skip)?, part as usize));
        missing -= part as usize;
        at = at.checked_add(part)?;
        next += 1;
    }
    Some(parts)
}

/// The ranges of memory in an ELF core.
fn ranges(file: &mut File, name: &str) -> Result<Vec<DumpedRange>, DumpError> {
    let wrong = |problem: String| DumpError::Unusable {
        name: name.into(),
        problem,
        expected: "an ELF core (/proc/kcore, or QEMU's dump-guest-memory)".into(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_and_adjacent_ranges_are_read() {
        let range = |physical, size, offset| DumpedRange { address: None, physical, size, offset };
        let ranges =
            [range(0x3000, 0x800, 0x900), range(0x1000, 0x2000, 0x100), range(0x2000, 0x1800, 0x4000)];
        let segments = segments(ranges.iter().map(|range| (range.physical, range)));
        let expected = [(0x1000, 0x2000, 0x100), (0x3000, 0x800, 0x5000)];
        assert_eq!(segments, expected.map(|(start, size, offset)| Segment { start, size, offset }));
        assert_eq!(parts(&segments, 0x2ff0, 0x20), Some(vec![(0x20f0, 0x10), (0x5000, 0x10)]));
        assert_eq!(parts(&segments, 0x37f0, 0x10), Some(vec![(0x57f0, 0x10)]));
        assert_eq!(parts(&segments, 0x37f0, 0x11), None);
        assert_eq!(parts(&segments, 0xfff, 1), None);
        assert_eq!(parts(&segments, 0x3800, 1), None);
        let last = [Segment { start: u64::MAX - 3, size: 3, offset: u64::MAX - 1 }];
        assert_eq!(parts(&last, u64::MAX - 1, 1), None);
    }
}

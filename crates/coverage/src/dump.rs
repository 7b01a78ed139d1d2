//! The counter array of an instrumented kernel, from an image of its memory: `/proc/kcore` or a copy of it, a
//! dump that QEMU's `dump-guest-memory` made (all ELF cores), or raw physical memory (`pmemsave`).
//!
//! An instrumented kernel has an array with a zero byte for each block, which the block sets to 1 when it runs. The
//! dump has no order of execution: the section lists functions by address.
//!
//! The dump has no information about blocks without a counter (early boot code, hand-written code, patch sites);
//! [`uncounted`] decides which of them count as run.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use goblin::container::{Container, Ctx, Endian};
use goblin::elf::header::{EI_CLASS, EI_DATA, ELFCLASS32, ELFCLASS64, ELFDATA2LSB, ELFMAG, ET_CORE, Header};
use goblin::elf::program_header::{PT_LOAD, ProgramHeader};
use kplan::{Block, Counters, Run};
use ktext::{KernelText, Place};

use crate::error::{Error, Result};
use crate::recorder::Recorder;
use crate::uncounted;

/// Number of bytes of the kernel's code that are compared with the dump at a time.
const CHUNK: usize = 1 << 16;

/// The figures of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpCounts {
    /// Number of counters, one byte each.
    pub counters: u64,
    /// Number of counters that are set.
    pub set: u64,
    /// Number of blocks without a counter.
    pub uncounted: u64,
    /// Number of these that count as run.
    pub assumed: u64,
}

/// The memory of a machine, in a file.
struct Memory {
    name: String,
    file: File,
    ranges: Vec<DumpedRange>,
}

/// A range of memory, and its place in the file.
struct DumpedRange {
    /// Its virtual address, if the file records it.
    address: Option<u64>,
    physical: u64,
    size: u64,
    offset: u64,
}

/// Reads the counters in the dump at `path`, and records the blocks that ran. With `base`, the dump is raw memory from
/// that physical address on.
///
/// # Errors
/// If the dump cannot be read, does not hold the counters, or is of another kernel.
pub fn read(
    path: &Path,
    base: Option<u64>,
    kernel: &KernelText,
    recorder: &mut Recorder<'_>,
) -> Result<DumpCounts> {
    let name = path.display().to_string();
    let refuse = |name: &str, problem: String, expected: &str| Error::NotATrace {
        name: name.into(),
        problem,
        expected: expected.into(),
    };
    let map = kernel.block_map();
    let map_path = kernel.block_map_path().unwrap_or(&kernel.path);
    let Some((map, counters)) = map.and_then(|map| Some((map, map.counters.as_ref()?))) else {
        let problem = "a map of blocks without counters".into();
        return Err(refuse(
            map_path,
            problem,
            "the map of a kernel that was rewritten with the pass instrument",
        ));
    };
    let Counters { symbol, blocks } = counters;
    let Some(address) = kernel.linked.address_of(symbol) else {
        let problem = format!("it has no symbol {symbol}");
        return Err(refuse(&kernel.path, problem, &format!("the vmlinux that {map_path} was written for")));
    };
    let mut memory = Memory::open(path, &name, base)?;
    memory.check_code(kernel)?;
    let mut bytes = vec![0; blocks.len()];
    if !memory.read(address, kernel.physical_address(address), &mut bytes)? {
        let problem = format!(
            "it does not hold the {} counters at {address:#x} ({symbol} in {map_path})",
            blocks.len()
        );
        let expected =
            "the whole memory of the machine, and --load-address if it is one with an ARM processor";
        return Err(refuse(&name, problem, expected));
    }
    let mut dump = DumpCounts { counters: blocks.len() as u64, ..DumpCounts::default() };
    if let Some((number, value)) = bytes.iter().enumerate().find(|(_, value)| **value > 1) {
        let problem = format!("counter {number} of {map_path} is {value}; expected 0 or 1");
        return Err(Error::OtherKernel { name, kernel: kernel.path.clone(), problem });
    }
    let mut is_counted = vec![false; map.blocks.len()];
    let mut has_run = vec![false; map.blocks.len()];
    for (&block, &value) in blocks.iter().zip(&bytes) {
        is_counted[block] = true;
        has_run[block] = value != 0;
        dump.set += u64::from(value);
    }
    dump.uncounted = is_counted.iter().filter(|counted| !**counted).count() as u64;
    if dump.set == 0 {
        let problem = format!("none of the {} counters of {map_path} is set", dump.counters);
        return Err(Error::OtherKernel { name, kernel: kernel.path.clone(), problem });
    }
    dump.assumed = uncounted::add(kernel, map, &is_counted, &mut has_run);
    for (block, _) in map.blocks.iter().zip(has_run).filter(|(_, has_run)| *has_run) {
        recorder.ran(&place(kernel, block), None);
    }
    Ok(dump)
}

/// Returns all bytes of a block.
fn place(kernel: &KernelText, block: &Block) -> Place {
    let offsets = block.original_offset..block.original_offset + block.original_size;
    let sections = kernel.linked.sections.iter();
    let section = sections.take_while(|section| section.address <= block.address).count().saturating_sub(1);
    Place { function: block.function, section, offsets }
}

impl DumpCounts {
    /// Describes missing information, one remark per line.
    pub fn remarks(&self) -> Vec<String> {
        if self.uncounted == 0 {
            return Vec::new();
        }
        let blocks = self.counters + self.uncounted;
        vec![format!(
            "{} of {blocks} blocks have no counter (early boot code, hand-written code, patch sites); {} of these \
             count as run, because they follow code that ran",
            self.uncounted, self.assumed
        )]
    }
}

/// The dump as an entry of [`kplan::Coverage::runs`].
pub fn run(trace: &str, kernel: &KernelText) -> Run {
    Run {
        source: "kcore".into(),
        trace: trace.into(),
        kernel: kernel.path.clone(),
        build_id: kernel.linked.build_id.clone(),
        unknown: 0,
        unordered: true,
        reads: None,
    }
}

impl Memory {
    fn open(path: &Path, name: &str, base: Option<u64>) -> Result<Memory> {
        let failed = |source| Error::Read { name: name.into(), source };
        let mut file = File::open(path).map_err(failed)?;
        let ranges = match base {
            Some(physical) => {
                let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
                vec![DumpedRange { address: None, physical, size, offset: 0 }]
            }
            None => ranges(&mut file, name)?,
        };
        Ok(Memory { name: name.into(), file, ranges })
    }

    /// Fills `bytes` from the virtual address `address`, or else from the physical address `physical`. Returns whether
    /// the dump contains it.
    fn read(&mut self, address: u64, physical: u64, bytes: &mut [u8]) -> Result<bool> {
        let size = bytes.len() as u64;
        let within = |start: u64, range: &DumpedRange, wanted: u64| {
            let skip = wanted.checked_sub(start)?;
            (skip.checked_add(size)? <= range.size).then(|| range.offset.checked_add(skip))?
        };
        let by_address = self.ranges.iter().find_map(|range| within(range.address?, range, address));
        let by_physical = || self.ranges.iter().find_map(|range| within(range.physical, range, physical));
        let Some(offset) = by_address.or_else(by_physical) else { return Ok(false) };
        let result = self.file.seek(SeekFrom::Start(offset)).and_then(|_| self.file.read_exact(bytes));
        match result {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Error::NotATrace {
                name: self.name.clone(),
                problem: format!("it ends before the {size} bytes at offset {offset}"),
                expected: "a dump that was not cut off".into(),
            }),
            Err(source) => Err(Error::Read { name: self.name.clone(), source }),
        }
    }

    /// Compares the kernel's code with its copy in the dump, as far as it is there. Half of the bytes have to be equal:
    /// a kernel patches some of its code, and frees the memory of its init sections.
    fn check_code(&mut self, kernel: &KernelText) -> Result<()> {
        let Some(text) = kernel.linked.sections.iter().max_by_key(|section| section.bytes.len()) else {
            return Ok(());
        };
        let (mut compared, mut same) = (0, 0);
        let mut address = text.address;
        for bytes in text.bytes.chunks(CHUNK) {
            let mut dumped = vec![0; bytes.len()];
            if self.read(address, kernel.physical_address(address), &mut dumped)? {
                compared += bytes.len();
                same += bytes.iter().zip(&dumped).filter(|(one, other)| one == other).count();
            }
            address += bytes.len() as u64;
        }
        if same * 2 < compared {
            let problem = format!("{same} of {compared} bytes of {} are equal", text.name);
            let (name, kernel) = (self.name.clone(), kernel.path.clone());
            return Err(Error::OtherKernel { name, kernel, problem });
        }
        Ok(())
    }
}

/// The ranges of memory in an ELF core.
fn ranges(file: &mut File, name: &str) -> Result<Vec<DumpedRange>> {
    let wrong = |problem: String| Error::NotATrace {
        name: name.into(),
        problem,
        expected: "an ELF core (/proc/kcore, or QEMU's dump-guest-memory; raw memory needs --base)".into(),
    };
    // Reads at most the head of the core, because /proc/kcore has no length.
    let mut head = Vec::new();
    let read = file.take(64).read_to_end(&mut head);
    read.map_err(|source| Error::Read { name: name.into(), source })?;
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

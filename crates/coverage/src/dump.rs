//! The counter array of an instrumented kernel, from an image of its memory: `/proc/kcore` or a copy of it, a
//! dump that QEMU's `dump-guest-memory` made (all ELF cores), or raw physical memory (`pmemsave`).
//!
//! An instrumented kernel has an array with a zero byte for each block, which the block sets to 1 when it runs. The
//! dump has no order of execution: the section lists functions by address.
//!
//! The dump has no information about blocks without a counter (early boot code, hand-written code, patch sites);
//! [`uncounted`] decides which of them count as run.

use std::path::Path;

use kelf::{Dump, DumpError};
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
    let mut memory = Dump::open(path, base).map_err(|error| match error {
        DumpError::Unusable { name, problem, expected } if base.is_none() => {
            DumpError::Unusable { name, problem, expected: format!("{expected}; raw memory needs --base") }
        }
        error => error,
    })?;
    check_code(&mut memory, kernel)?;
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
    for (number, (&block, &value)) in blocks.iter().zip(&bytes).enumerate() {
        let Some(block) = block else {
            if value == 0 {
                continue;
            }
            let problem =
                format!("counter {number} of {map_path} is set, but its block was dropped by the link");
            return Err(Error::OtherKernel { name, kernel: kernel.path.clone(), problem });
        };
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

/// Compares the kernel's code with its copy in the dump, as far as it is there. Half of the bytes have to be equal:
/// a kernel patches some of its code, and frees the memory of its init sections.
fn check_code(memory: &mut Dump, kernel: &KernelText) -> Result<()> {
    let Some(text) = kernel.linked.sections.iter().max_by_key(|section| section.bytes.len()) else {
        return Ok(());
    };
    let (mut compared, mut same) = (0, 0);
    let mut address = text.address;
    for bytes in text.bytes.chunks(CHUNK) {
        let mut dumped = vec![0; bytes.len()];
        if memory.read(address, kernel.physical_address(address), &mut dumped)? {
            compared += bytes.len();
            same += bytes.iter().zip(&dumped).filter(|(one, other)| one == other).count();
        }
        address += bytes.len() as u64;
    }
    if same * 2 < compared {
        let problem = format!("{same} of {compared} bytes of {} are equal", text.name);
        let (name, kernel) = (memory.name().to_owned(), kernel.path.clone());
        return Err(Error::OtherKernel { name, kernel, problem });
    }
    Ok(())
}

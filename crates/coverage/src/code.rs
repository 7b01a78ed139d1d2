//! A linked kernel as its traces see it: from addresses to functions and offsets, and back.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use kelf::{Functions, Machine};
use kplan::{BlockMap, CoveredFunction, FunctionName};
use rustc_hash::FxHashMap;

use crate::error::{Error, Result};

/// How much of the address space below the kernel is modules, at most, where they are loaded there: 16 MB
/// on 32-bit ARM (`MODULES_VADDR`).
const ARM_MODULES: u64 = 16 << 20;

/// The kernel.
#[derive(Debug)]
pub struct Code {
    /// Its path.
    pub kernel: String,
    /// Its own functions.
    pub linked: Functions,
    /// By how much the kernel was loaded higher than its file says, modulo 2⁶⁴.
    moved: u64,
    blocks: Option<Blocks>,
}

/// Where the blocks of a rewritten kernel come from.
#[derive(Debug)]
struct Blocks {
    map: BlockMap,
    /// The number of each function.
    numbers: FxHashMap<FunctionName, usize>,
    /// The blocks of each function, as indices.
    of_function: Vec<Vec<usize>>,
}

impl Blocks {
    fn new(map: BlockMap) -> Blocks {
        let names = map.functions.iter().enumerate();
        let numbers = names.map(|(number, function)| (function.function.clone(), number)).collect();
        let mut of_function = vec![Vec::new(); map.functions.len()];
        for (index, block) in map.blocks.iter().enumerate() {
            of_function[block.function].push(index);
        }
        Blocks { map, numbers, of_function }
    }
}

/// Bytes of a function as it was compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The function, by a number that only this kernel knows.
    pub function: usize,
    /// The section of the linked kernel that they lie in, as an index.
    pub section: usize,
    /// Their offsets in the function.
    pub offsets: Range<u64>,
}

impl Code {
    /// Reads the kernel at `vmlinux`; for a rewritten one, `blocks` is the map of its blocks.
    ///
    /// # Errors
    /// If one of the files cannot be read, or is not what it should be.
    pub fn read(vmlinux: &Path, blocks: Option<&Path>) -> Result<Code> {
        let linked = Functions::read(vmlinux)?;
        let blocks = match blocks {
            None => None,
            Some(path) => {
                let name = path.display().to_string();
                let file = File::open(path).map_err(|source| Error::Read { name: name.clone(), source })?;
                Some(Blocks::new(BlockMap::read(file, &name)?))
            }
        };
        Ok(Code { kernel: vmlinux.display().to_string(), linked, moved: 0, blocks })
    }

    /// Says that the first byte of the kernel's code was loaded at this physical address, and not where its file
    /// says.
    pub fn loaded_at(&mut self, physical: u64) {
        let lowest = self.linked.sections.iter().map(|section| section.load_address).min();
        self.moved = physical.wrapping_sub(lowest.unwrap_or(0));
    }

    /// Where in physical memory what runs at `address` lies when the kernel starts.
    pub fn physical_address(&self, address: u64) -> u64 {
        self.linked.load_address(address).wrapping_add(self.moved)
    }

    /// For a rewritten kernel, the map of its blocks.
    pub fn block_map(&self) -> Option<&BlockMap> {
        self.blocks.as_ref().map(|blocks| &blocks.map)
    }

    /// How many functions there are; they are numbered from 0.
    pub fn function_count(&self) -> usize {
        self.block_map().map_or(self.linked.functions.len(), |map| map.functions.len())
    }

    /// The name of a function.
    ///
    /// # Panics
    /// If there is none of this number.
    pub fn name(&self, function: usize) -> FunctionName {
        match self.block_map() {
            Some(map) => map.functions[function].function.clone(),
            None => {
                let function = &self.linked.functions[function];
                let (name, file) = (function.name.clone(), function.file.clone());
                FunctionName { name, file, nth: function.nth }
            }
        }
    }

    /// The size of a function as it was compiled, in bytes.
    ///
    /// # Panics
    /// If there is none of this number.
    pub fn size(&self, function: usize) -> u64 {
        match self.block_map() {
            Some(map) => map.functions[function].size,
            None => self.linked.functions[function].size,
        }
    }

    /// What the `size` bytes at `address`, of one instruction, are part of.
    ///
    /// A block of a rewritten kernel that has kept its size has kept its instructions. Of one that has not,
    /// where any of it ran, all of it did.
    pub fn place(&self, address: u64, size: u64) -> Option<Place> {
        let (function, offsets) = match self.block_map() {
            None => {
                let (function, offset) = self.linked.at(address)?;
                let end = offset.saturating_add(size).min(self.linked.function(function).size);
                (function.get(), offset..end)
            }
            Some(map) => {
                let (block, offset) = map.at(address)?;
                let whole = block.original_offset..block.original_offset + block.original_size;
                let start = whole.start + offset;
                let part = start..start.saturating_add(size).min(whole.end);
                (block.function, if block.size == block.original_size { part } else { whole })
            }
        };
        let section = self.linked.sections.iter().position(|s| s.addresses().contains(&address))?;
        Some(Place { function, section, offsets })
    }

    /// The address at which the instruction `bytes` runs later, if it ran at its physical address, as the
    /// first code of a kernel does before it turns on paging.
    pub fn address_of_physical(&self, physical: u64, bytes: &[u8]) -> Option<u64> {
        let sections = self.linked.sections.iter();
        let mut addresses = sections.filter_map(|section| {
            let start = section.load_address.wrapping_add(self.moved);
            let offset = physical.checked_sub(start).filter(|&offset| offset < section.size)?;
            Some(section.address + offset)
        });
        addresses.find(|&address| !bytes.is_empty() && self.bytes_at(address, bytes.len()) == Some(bytes))
    }

    /// The bytes that the kernel was linked with at an address of its code.
    pub fn bytes_at(&self, address: u64, size: usize) -> Option<&[u8]> {
        let section = self.linked.section_at(address)?;
        let offset = usize::try_from(address - section.address).ok()?;
        section.bytes.get(offset..offset.checked_add(size)?)
    }

    /// The address of the kernel's first instruction, once paging is on.
    pub fn entry_address(&self) -> u64 {
        let entry = self.linked.entry;
        let section = self
            .linked
            .sections
            .iter()
            .find(|section| (section.load_address..section.load_address + section.size).contains(&entry));
        section.map_or(entry, |section| entry - section.load_address + section.address)
    }

    /// Whether an address is in the kernel's part of the address space: its own code, modules, or code
    /// that it has made.
    pub fn is_kernel_address(&self, address: u64) -> bool {
        let lowest = self.linked.sections.first().map_or(0, |section| section.address);
        match self.linked.machine {
            Machine::X86_64 | Machine::Aarch64 => address >> 63 != 0,
            Machine::I386 => address >= lowest,
            Machine::Arm => address >= lowest.saturating_sub(ARM_MODULES),
        }
    }

    /// Where the bytes of a function that ran lie in this kernel, not overlapping;
    /// `None` if it has no such function. Of a function of which the bytes are not known, all of it.
    pub fn addresses_of(&self, covered: &CoveredFunction) -> Option<Vec<Range<u64>>> {
        let FunctionName { name, file, nth } = &covered.function;
        let everything = 0..u64::MAX;
        let ranges: Vec<Range<u64>> = match &covered.ran {
            Some(ran) => ran.iter().map(kplan::RanRange::offsets).collect(),
            None => vec![everything],
        };
        let Some(Blocks { map, numbers, of_function }) = &self.blocks else {
            let (index, start) = self.linked.find(name, file.as_deref(), *nth)?;
            let function = self.linked.function(index);
            let end = function.address + function.size;
            let at = |offset: u64| (function.address + start).saturating_add(offset).min(end);
            let addresses = ranges.into_iter().map(|range| at(range.start)..at(range.end));
            return Some(addresses.filter(|range| !range.is_empty()).collect());
        };
        // A global function may be in the map under another of its names, all of which are in the symbol table.
        let alias = || {
            let (index, offset) = self.linked.find(name, None, 0).filter(|_| file.is_none())?;
            let (block, _) = map.at(self.linked.function(index).address + offset)?;
            (block.original_offset == 0).then_some(block.function)
        };
        let function = numbers.get(&covered.function).copied().or_else(alias)?;
        let blocks = &of_function[function];
        let mut addresses = Vec::new();
        for block in blocks.iter().map(|&block| &map.blocks[block]) {
            for range in &ranges {
                let start = range.start.max(block.original_offset);
                let end = range.end.min(block.original_offset + block.original_size);
                if start >= end {
                    continue;
                }
                if block.size != block.original_size {
                    addresses.push(block.address..block.address + block.size);
                    break;
                }
                let at = |offset: u64| block.address + (offset - block.original_offset);
                addresses.push(at(start)..at(end));
            }
        }
        Some(addresses)
    }
}

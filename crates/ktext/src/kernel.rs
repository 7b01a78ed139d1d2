//! A linked kernel: maps addresses to functions and offsets, and back.

use std::ops::Range;
use std::path::Path;

use kelf::target::Lowest;
use kelf::{Function, FunctionIndex, Functions};
use kplan::{BlockMap, Coverage, CoveredFunction, FunctionName};
use rangemap::RangeSet;
use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::pages::PageMap;

/// The code of a linked kernel.
#[derive(Debug)]
pub struct KernelText {
    /// The path of its file.
    pub path: String,
    /// The functions as they were linked. For a rewritten kernel, [`KernelText::name`] and [`KernelText::size`]
    /// describe the functions of the original kernel instead.
    pub linked: Functions,
    /// The difference between the load address and the one in the file, modulo 2⁶⁴.
    load_offset: u64,
    blocks: Option<Blocks>,
}

/// The origin of the blocks of a rewritten kernel.
#[derive(Debug)]
struct Blocks {
    /// The path of the map, for messages.
    path: String,
    map: BlockMap,
    /// The index of each original function in the map.
    indices: FxHashMap<FunctionName, usize>,
    /// The blocks of each function, as indices into the blocks of the map.
    of_function: Vec<Vec<usize>>,
}

impl Blocks {
    fn new(path: &Path, map: BlockMap) -> Blocks {
        let names = map.functions.iter().enumerate();
        let indices = names.map(|(index, function)| (function.function.clone(), index)).collect();
        let mut of_function = vec![Vec::new(); map.functions.len()];
        for (index, block) in map.blocks.iter().enumerate() {
            of_function[block.function].push(index);
        }
        Blocks { path: path.display().to_string(), map, indices, of_function }
    }
}

/// Returns the name of a linked function in a plan.
pub fn function_name(function: &Function) -> FunctionName {
    FunctionName { name: function.name.clone(), file: function.file.clone(), nth: function.nth }
}

/// Bytes of a function as it was compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The original function, by the number that [`KernelText`] gives it.
    pub function: usize,
    /// The section of the linked kernel that contains them, as an index into [`Functions::sections`].
    pub section: usize,
    /// Their offsets in the function.
    pub offsets: Range<u64>,
}

/// The executed code of a coverage, as addresses of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    /// The addresses of the bytes that ran, and all addresses of functions of which the coverage records only that they
    /// ran.
    pub addresses: RangeSet<u64>,
    /// Number of functions of the coverage that the kernel lacks.
    pub missing: usize,
}

impl KernelText {
    /// Reads the kernel at `vmlinux`; for a rewritten one, `blocks` is the map of its blocks.
    ///
    /// # Errors
    /// If one of the files cannot be read, or is not what it should be.
    pub fn read(vmlinux: &Path, blocks: Option<&Path>) -> Result<KernelText> {
        let linked = Functions::read(vmlinux)?;
        let blocks = match blocks {
            Some(path) => Some(Blocks::new(path, BlockMap::open(path)?)),
            None => None,
        };
        Ok(KernelText { path: vmlinux.display().to_string(), linked, load_offset: 0, blocks })
    }

    /// Sets the physical address at which the first byte of the kernel's code was loaded, if its file does not contain
    /// that address.
    pub fn set_load_address(&mut self, physical: u64) {
        let lowest = self.linked.sections.iter().map(|section| section.load_address).min();
        self.load_offset = physical.wrapping_sub(lowest.unwrap_or(0));
    }

    /// Returns the physical address, at kernel start, of the code whose virtual address is `address`.
    pub fn physical_address(&self, address: u64) -> u64 {
        self.linked.load_address(address).wrapping_add(self.load_offset)
    }

    /// Returns the map of the blocks, for a rewritten kernel.
    pub fn block_map(&self) -> Option<&BlockMap> {
        self.blocks.as_ref().map(|blocks| &blocks.map)
    }

    /// Returns the path of the block map, for messages.
    pub fn block_map_path(&self) -> Option<&str> {
        self.blocks.as_ref().map(|blocks| blocks.path.as_str())
    }

    /// Returns the number of functions, which are numbered from 0. For a rewritten kernel, this counts the original
    /// functions.
    pub fn function_count(&self) -> usize {
        self.block_map().map_or(self.linked.functions.len(), |map| map.functions.len())
    }

    /// Returns the name of a function.
    ///
    /// # Panics
    /// If no function has this number.
    pub fn name(&self, function: usize) -> FunctionName {
        match self.block_map() {
            Some(map) => map.functions[function].function.clone(),
            None => function_name(&self.linked.functions[function]),
        }
    }

    /// Returns the size of a function as it was compiled, in bytes.
    ///
    /// # Panics
    /// If no function has this number.
    pub fn size(&self, function: usize) -> u64 {
        match self.block_map() {
            Some(map) => map.functions[function].size,
            None => self.linked.functions[function].size,
        }
    }

    /// Finds the original function and offsets of the `size` bytes of one instruction at `address`.
    ///
    /// A block of a rewritten kernel with its original size has its original instructions. In a block of another size,
    /// an instruction stands for all original bytes of the block.
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

    /// Returns the virtual address of the instruction `bytes` that ran at a physical address, as the kernel's first
    /// code does before it turns on paging. Returns `None` if the kernel was not linked with these bytes there.
    pub fn address_of_physical(&self, physical: u64, bytes: &[u8]) -> Option<u64> {
        let sections = self.linked.sections.iter();
        let mut addresses = sections.filter_map(|section| {
            let start = section.load_address.wrapping_add(self.load_offset);
            let offset = physical.checked_sub(start).filter(|&offset| offset < section.size)?;
            Some(section.address + offset)
        });
        addresses
            .find(|&address| !bytes.is_empty() && self.linked.bytes_at(address, bytes.len()) == Some(bytes))
    }

    /// Returns the address of the kernel's first instruction, once paging is on.
    pub fn entry_address(&self) -> u64 {
        let entry = self.linked.entry;
        let section = self
            .linked
            .sections
            .iter()
            .find(|section| (section.load_address..section.load_address + section.size).contains(&entry));
        section.map_or(entry, |section| entry - section.load_address + section.address)
    }

    /// Whether an address is in the kernel's part of the address space: its own code, modules, or code generated at run
    /// time.
    pub fn is_kernel_address(&self, address: u64) -> bool {
        let lowest = self.linked.sections.first().map_or(0, |section| section.address);
        match self.linked.machine.target().kernel.lowest {
            Lowest::UpperHalf => address >> 63 != 0,
            Lowest::BelowKernel(distance) => address >= lowest.saturating_sub(distance),
        }
    }

    /// Finds the linked function with a symbol of this name, and the symbol's offset in the function in bytes.
    pub fn find(&self, wanted: &FunctionName) -> Option<(FunctionIndex, u64)> {
        self.linked.find(&wanted.name, wanted.file.as_deref(), wanted.nth)
    }

    /// Locates the code of a coverage, which may come from another link of this kernel.
    pub fn ran(&self, coverage: &Coverage) -> Ran {
        let mut ran = Ran { addresses: RangeSet::new(), missing: 0 };
        for function in &coverage.functions {
            match self.addresses_of(function) {
                Some(addresses) => {
                    ran.addresses.extend(addresses.into_iter().filter(|range| !range.is_empty()));
                }
                None => ran.missing += 1,
            }
        }
        ran
    }

    /// Returns the pages of `page_size` bytes that hold the kernel's code. `ran` holds the addresses that ran.
    pub fn pages(&self, ran: &RangeSet<u64>, page_size: u64) -> PageMap {
        PageMap::new(&self.linked.sections, &self.linked.functions, ran, page_size)
    }

    /// Returns the addresses, without overlaps, of the bytes of a function that ran; of the whole function if the
    /// coverage does not record bytes. Returns `None` if this kernel has no such function.
    pub fn addresses_of(&self, covered: &CoveredFunction) -> Option<Vec<Range<u64>>> {
        let everything = 0..u64::MAX;
        let ranges: Vec<Range<u64>> = match &covered.ran {
            Some(ran) => ran.iter().map(kplan::RanRange::offsets).collect(),
            None => vec![everything],
        };
        let Some(Blocks { map, indices, of_function, .. }) = &self.blocks else {
            let (index, start) = self.find(&covered.function)?;
            let function = self.linked.function(index);
            let end = function.addresses().end;
            let at = |offset: u64| (function.address + start).saturating_add(offset).min(end);
            let addresses = ranges.into_iter().map(|range| at(range.start)..at(range.end));
            return Some(addresses.filter(|range| !range.is_empty()).collect());
        };
        // The map may contain a global function under an alias. The symbol table has all of its names.
        let alias = || {
            let global = FunctionName { nth: 0, ..covered.function.clone() };
            let (index, offset) = self.find(&global).filter(|_| global.file.is_none())?;
            let (block, _) = map.at(self.linked.function(index).address + offset)?;
            (block.original_offset == 0).then_some(block.function)
        };
        let function = indices.get(&covered.function).copied().or_else(alias)?;
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

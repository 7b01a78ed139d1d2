//! A kernel that runs at some place of a core: its memory, with the addresses of its variables and its layouts.

use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::layout::Layouts;
use crate::memory::{Memory, PAGE};

/// A running kernel.
pub struct Running<'a> {
    /// Its file.
    pub kernel: &'a Kernel,
    /// The layouts of its structures.
    pub layouts: &'a Layouts,
    /// Its memory.
    pub memory: Memory<'a>,
    /// The difference between the addresses at which it runs and the linked ones.
    pub slide: u64,
}

/// The array of all `struct page`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    /// The number of the first page frame: its physical address in pages.
    pub first: u64,
    /// Number of page frames.
    pub count: u64,
    /// The address of the first `struct page`.
    pub map: u64,
    /// The size of a `struct page` in bytes.
    pub size: u64,
}

impl Frames {
    /// Returns the address of the `struct page` of the page frame with this index.
    pub fn page(&self, index: u64) -> u64 {
        self.map.wrapping_add(index.wrapping_mul(self.size))
    }

    /// Returns the index of the page frame whose `struct page` is at an address.
    pub fn index_of_page(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.map)?;
        (offset % self.size == 0 && offset / self.size < self.count).then_some(offset / self.size)
    }

    /// Returns the index of the page frame with a physical address.
    pub fn index_of(&self, physical: u64) -> Option<u64> {
        (physical / PAGE).checked_sub(self.first).filter(|&index| index < self.count)
    }
}

impl Running<'_> {
    /// Returns the address of a variable.
    ///
    /// # Errors
    /// If the kernel has no such symbol.
    pub fn symbol(&self, name: &str) -> Result<u64> {
        Ok(self.kernel.symbol(name)?.wrapping_add(self.slide) & 0xffff_ffff)
    }

    /// Returns the address of a variable, if the kernel has it.
    pub fn optional_symbol(&self, name: &str) -> Option<u64> {
        Some(self.kernel.optional_symbol(name)?.wrapping_add(self.slide) & 0xffff_ffff)
    }

    /// Reads a variable of 32 bits.
    ///
    /// # Errors
    /// If the kernel has no such symbol, or the core lacks it.
    pub fn variable(&mut self, name: &str) -> Result<u64> {
        let address = self.symbol(name)?;
        self.memory.word(address)
    }

    /// Reads the member of a structure at an address.
    ///
    /// # Errors
    /// If the layout is unknown, or the core lacks it.
    pub fn member(&mut self, address: u64, structure: &str, member: &str) -> Result<u64> {
        let field = self.layouts.field(structure, member)?;
        self.memory.field(address, field)
    }

    /// Finds the array of all `struct page`.
    ///
    /// # Errors
    /// If the kernel has another memory model, or the core contradicts itself.
    pub fn frames(&mut self) -> Result<Frames> {
        let unsupported = |problem: &str| Error::Unsupported {
            kernel: self.kernel.path.clone(),
            problem: problem.into(),
            advice: "census supports kernels with CONFIG_FLATMEM and page tables of two levels",
        };
        self.layouts.structure("pglist_data")?;
        if !self.layouts.has("pglist_data", "node_mem_map") {
            return Err(unsupported("a kernel with CONFIG_SPARSEMEM"));
        }
        if self.layouts.size("phys_addr_t")? != 4 {
            return Err(unsupported("a kernel with CONFIG_X86_PAE or CONFIG_ARM_LPAE"));
        }
        let node = self.symbol("contig_page_data")?;
        let frames = Frames {
            first: self.member(node, "pglist_data", "node_start_pfn")?,
            count: self.member(node, "pglist_data", "node_spanned_pages")?,
            map: self.member(node, "pglist_data", "node_mem_map")?,
            size: self.layouts.size("page")?,
        };
        if frames.count == 0 || frames.first.saturating_add(frames.count) > 1 << 20 {
            let problem = format!("{} page frames from frame {} on", frames.count, frames.first);
            return Err(self.memory.damaged("contig_page_data", problem, "at most 4 GiB of memory"));
        }
        Ok(frames)
    }

    /// Whether the page of a variable still belongs to the kernel: it was not given back after boot, as init data is.
    ///
    /// # Errors
    /// If the layout is unknown, or the core lacks the array of `struct page`.
    pub fn is_kept(&mut self, frames: &Frames, address: u64) -> Result<bool> {
        let Some(index) = frames.index_of(self.memory.physical(address)) else { return Ok(false) };
        let flags = self.member(frames.page(index), "page", "flags")?;
        Ok(flags & bit(self.layouts.constant("PG_reserved")?) != 0)
    }

    /// Returns the addresses of a per-CPU variable, one for each possible processor.
    ///
    /// # Errors
    /// If the core lacks the offsets.
    pub fn per_cpu(&mut self, pointer: u64) -> Result<Vec<u64>> {
        let Some(offsets) = self.optional_symbol("__per_cpu_offset") else { return Ok(vec![pointer]) };
        let possible = self.symbol("__cpu_possible_mask")?;
        let processors =
            (self.kernel.size_of("__cpu_possible_mask") * 8).min(self.kernel.size_of("__per_cpu_offset") / 4);
        let mut addresses = Vec::new();
        for processor in 0..processors {
            let word = self.memory.word(possible + processor / 32 * 4)?;
            if word >> (processor % 32) & 1 != 0 {
                let offset = self.memory.word(offsets + processor * 4)?;
                addresses.push(pointer.wrapping_add(offset) & 0xffff_ffff);
            }
        }
        Ok(addresses)
    }
}

/// Returns the mask of a page flag.
pub fn bit(number: u64) -> u64 {
    1u64.checked_shl(number as u32).unwrap_or(0)
}

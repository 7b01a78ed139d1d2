//! A kernel that runs at some place of a core: its memory, with the addresses of its variables and its layouts.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::layout::Layouts;
use crate::machine::Format;
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

/// The `struct page` of all page frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frames {
    /// The number of the first page frame: its physical address in pages.
    pub first: u64,
    /// Number of page frames, including holes.
    pub count: u64,
    /// The size of a `struct page` in bytes.
    pub size: u64,
    /// The arrays of `struct page`, by ascending page frame.
    pub arrays: Vec<FrameArray>,
}

/// An array of `struct page`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameArray {
    /// The indices of its page frames.
    pub indices: Range<u64>,
    /// The address of its first `struct page`.
    pub map: u64,
}

impl Frames {
    /// Returns the array with the `struct page` of the page frame with an index.
    fn array(&self, index: u64) -> Option<&FrameArray> {
        let next = self.arrays.partition_point(|array| array.indices.start <= index);
        self.arrays[..next].last().filter(|array| index < array.indices.end)
    }

    /// Returns the address of the `struct page` of the page frame with an index; 0 if it has none.
    pub fn page(&self, index: u64) -> u64 {
        self.array(index)
            .map_or(0, |array| array.map.wrapping_add((index - array.indices.start).wrapping_mul(self.size)))
    }

    /// Returns the index of the page frame whose `struct page` is at an address.
    pub fn index_of_page(&self, address: u64) -> Option<u64> {
        self.arrays.iter().find_map(|array| {
            let offset = address.checked_sub(array.map)?;
            let index = array.indices.start + offset / self.size;
            (offset % self.size == 0 && index < array.indices.end).then_some(index)
        })
    }

    /// Returns the index of the page frame with a physical address, if it has a `struct page`.
    pub fn index_of(&self, physical: u64) -> Option<u64> {
        (physical / PAGE).checked_sub(self.first).filter(|&index| self.array(index).is_some())
    }

    /// Returns the addresses of each array.
    pub fn addresses(&self) -> impl Iterator<Item = Range<u64>> {
        self.arrays.iter().map(|array| {
            let pages = array.indices.end - array.indices.start;
            array.map..array.map.wrapping_add(pages.wrapping_mul(self.size))
        })
    }
}

impl Running<'_> {
    /// Returns the address at which a linked address runs. Symbols outside of the image do not move: on x86-64 before Linux
    /// 6.15, those of per-CPU variables are offsets.
    pub fn at(&self, linked: u64) -> u64 {
        match &self.kernel.rules.image {
            Some(image) if linked < image.start => linked,
            _ => self.memory.wrap(linked.wrapping_add(self.slide)),
        }
    }

    /// Returns the address of a variable.
    ///
    /// # Errors
    /// If the kernel has no such symbol.
    pub fn symbol(&self, name: &str) -> Result<u64> {
        Ok(self.at(self.kernel.symbol(name)?))
    }

    /// Returns the address of a variable, if the kernel has it.
    pub fn optional_symbol(&self, name: &str) -> Option<u64> {
        Some(self.at(self.kernel.optional_symbol(name)?))
    }

    /// Reads a variable that is a number or a pointer.
    ///
    /// # Errors
    /// If the kernel has no such symbol, or the core lacks it.
    pub fn variable(&mut self, name: &str) -> Result<u64> {
        let address = self.symbol(name)?;
        let size = match self.kernel.size_of(name) {
            size @ 1..=8 => size,
            _ => self.memory.word_size(),
        };
        self.memory.integer(address, size)
    }

    /// Reads a variable that is a number or a pointer, if the kernel has it.
    ///
    /// # Errors
    /// If the core lacks it.
    pub fn optional_variable(&mut self, name: &str) -> Result<Option<u64>> {
        self.kernel.optional_symbol(name).map(|_| self.variable(name)).transpose()
    }

    /// Returns the text at an address, as [`Memory::text`] does; `None` if it is frozen data that has not thawed.
    ///
    /// # Errors
    /// If the core lacks it, or it is no text.
    pub fn name(&mut self, address: u64, limit: u64, place: &str) -> Result<Option<String>> {
        // A variable of the code that thaws, which kshrink-spec adds.
        let has_frozen = self.kernel.optional_symbol("kshrink_frozen").is_some();
        if has_frozen && !self.memory.try_read(address, &mut [0])? {
            return Ok(None);
        }
        Ok(Some(self.memory.text(address, limit, place)?))
    }

    /// Checks that the kernel's memory model is supported.
    ///
    /// # Errors
    /// If it is not.
    pub fn check(&self) -> Result<()> {
        let unsupported = |problem: &str| Error::Unsupported {
            kernel: self.kernel.path.clone(),
            problem: problem.into(),
            advice: "census supports kernels without CONFIG_NUMA, on 32-bit machines those with CONFIG_FLATMEM and page tables of \
                     two levels",
        };
        self.layouts.structure("pglist_data")?;
        if self.kernel.rules.section_bits.is_none() && !self.layouts.has("pglist_data", "node_mem_map") {
            return Err(unsupported("a kernel with CONFIG_SPARSEMEM"));
        }
        if self.layouts.size("phys_addr_t")? != self.memory.word_size() {
            return Err(unsupported("a kernel with CONFIG_X86_PAE or CONFIG_ARM_LPAE"));
        }
        if self.kernel.optional_symbol("node_data").is_some() {
            return Err(unsupported("a kernel with CONFIG_NUMA"));
        }
        Ok(())
    }

    /// Returns the format of its page tables.
    ///
    /// # Errors
    /// If there is none with as many levels as the kernel uses.
    pub fn tables(&mut self) -> Result<&'static Format> {
        let formats = self.kernel.rules.tables;
        let Some(shift) = self.optional_variable("pgdir_shift")? else { return Ok(&formats[0]) };
        formats.iter().find(|format| format.levels[0].shift == shift).ok_or_else(|| {
            let shifts: Vec<String> =
                formats.iter().map(|format| format.levels[0].shift.to_string()).collect();
            self.memory.damaged("pgdir_shift", format!("{shift} bits"), shifts.join(" or "))
        })
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
    /// If the core contradicts itself.
    pub fn frames(&mut self) -> Result<Frames> {
        let word = self.memory.word_size();
        let node = self.symbol("contig_page_data")?;
        let first = self.member(node, "pglist_data", "node_start_pfn")?;
        let count = self.member(node, "pglist_data", "node_spanned_pages")?;
        // Physical addresses of 32 or 52 bits.
        let (max, expected) = if word == 4 {
            (1 << 20, "at most 4 GiB of memory")
        } else {
            (1 << 40, "at most 4 PiB of memory")
        };
        if count == 0 || first.saturating_add(count) > max {
            let problem = format!("{count} page frames from frame {first} on");
            return Err(self.memory.damaged("contig_page_data", problem, expected));
        }
        let size = self.layouts.size("page")?;
        let mut frames = Frames { first, count, size, arrays: Vec::new() };
        match self.kernel.rules.section_bits {
            None => {
                let map = self.member(node, "pglist_data", "node_mem_map")?;
                frames.arrays.push(FrameArray { indices: 0..count, map });
            }
            Some(bits) => self.add_sections(&mut frames, bits)?,
        }
        Ok(frames)
    }

    /// Adds the arrays of all sections of memory (`CONFIG_SPARSEMEM_EXTREME`). Sections that are adjacent in the array of
    /// `CONFIG_SPARSEMEM_VMEMMAP` become one.
    fn add_sections(&mut self, frames: &mut Frames, bits: u64) -> Result<()> {
        let (size, word) = (self.layouts.size("mem_section")?, self.memory.word_size());
        let has_map = bit(self.layouts.constant("SECTION_HAS_MEM_MAP_BIT")?);
        let flags = bit(self.layouts.constant("SECTION_MAP_LAST_BIT")?).wrapping_sub(1);
        let roots = self.variable("mem_section")?;
        let (pages, per_root) = (1 << (bits - PAGE.ilog2() as u64), (PAGE / size).max(1));
        let end = frames.first + frames.count;
        let mut section = frames.first / pages;
        while section * pages < end {
            let root = self.memory.word(roots.wrapping_add(section / per_root * word))?;
            if root == 0 {
                section = (section / per_root + 1) * per_root;
                continue;
            }
            let map =
                self.member(root.wrapping_add(section % per_root * size), "mem_section", "section_mem_map")?;
            if map & has_map != 0 {
                // The address counts from page frame 0.
                let first = frames.first.max(section * pages);
                let map = (map & !flags).wrapping_add(first.wrapping_mul(frames.size));
                let indices = first - frames.first..end.min((section + 1) * pages) - frames.first;
                match frames.arrays.last_mut() {
                    Some(last)
                        if last.indices.end == indices.start
                            && last.map.wrapping_add((indices.start - last.indices.start) * frames.size)
                                == map =>
                    {
                        last.indices.end = indices.end;
                    }
                    _ => frames.arrays.push(FrameArray { indices, map }),
                }
            }
            section += 1;
        }
        match frames.arrays.is_empty() {
            true => Err(self.memory.damaged("mem_section", "no section has memory", "at least one")),
            false => Ok(()),
        }
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
        let (possible, word) = (self.symbol("__cpu_possible_mask")?, self.memory.word_size());
        let processors = (self.kernel.size_of("__cpu_possible_mask") * 8)
            .min(self.kernel.size_of("__per_cpu_offset") / word);
        let mut addresses = Vec::new();
        for processor in 0..processors {
            let byte = self.memory.integer(possible + processor / 8, 1)?;
            if byte >> (processor % 8) & 1 != 0 {
                let offset = self.memory.word(offsets + processor * word)?;
                addresses.push(self.memory.wrap(pointer.wrapping_add(offset)));
            }
        }
        Ok(addresses)
    }
}

/// Returns the mask of a page flag.
pub fn bit(number: u64) -> u64 {
    1u64.checked_shl(number as u32).unwrap_or(0)
}

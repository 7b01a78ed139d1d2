//! The pages that the kernel reserves before its page allocator runs: they are not in `MemTotal`.

use std::ops::Range;

use kelf::Machine;

use crate::error::Result;
use crate::memory::{PAGE, pages_of};
use crate::running::{Frames, Running};

/// Maximum number of ranges of `memblock`.
const MAX_REGIONS: u64 = 1 << 16;

/// The known ranges of reserved memory, as numbers of page frames. The first range with a frame names its owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    ranges: Vec<(Range<u64>, &'static str)>,
}

impl Reserved {
    /// Finds the ranges.
    ///
    /// # Errors
    /// If the core lacks a part.
    pub fn read(running: &mut Running<'_>, frames: &Frames) -> Result<Reserved> {
        let mut reserved = Reserved::default();
        let start = running.optional_symbol("_text").or(running.optional_symbol("_stext"));
        if let (Some(start), Some(end)) = (start, running.optional_symbol("_end")) {
            reserved.add(running, start, end, "kernel image");
        }
        reserved.add(running, frames.map, frames.page(frames.count), "struct page");
        if let Some(base) = running.optional_symbol("pcpu_base_addr") {
            let base = running.memory.word(base)?;
            let size = running.variable("pcpu_unit_size")?.saturating_mul(running.variable("pcpu_nr_units")?);
            reserved.add(running, base, base.saturating_add(size), "per-CPU memory");
        }
        if running.machine() == Machine::I386 {
            reserved.ranges.push((0..(1 << 20) / PAGE, "the first megabyte"));
        }
        reserved.add_memblock(running, frames)?;
        Ok(reserved)
    }

    /// Adds a range of virtual addresses.
    fn add(&mut self, running: &Running<'_>, start: u64, end: u64, name: &'static str) {
        let physical = running.memory.physical(start);
        self.ranges.push((pages_of(physical..physical.saturating_add(end.saturating_sub(start))), name));
    }

    /// Adds the allocations before the page allocator ran, if the kernel keeps the list (`CONFIG_ARCH_KEEP_MEMBLOCK`).
    fn add_memblock(&mut self, running: &mut Running<'_>, frames: &Frames) -> Result<()> {
        let Some(list) = running.optional_symbol("memblock") else { return Ok(()) };
        if !running.is_kept(frames, list)? {
            return Ok(());
        }
        let layouts = running.layouts;
        let list = list.wrapping_add(layouts.field("memblock", "reserved")?.offset);
        let count = running.member(list, "memblock_type", "cnt")?;
        let regions = running.member(list, "memblock_type", "regions")?;
        if count > MAX_REGIONS {
            return Err(running.memory.damaged("memblock.reserved", format!("{count} regions"), "fewer"));
        }
        for number in 0..count {
            let region = regions.wrapping_add(number * layouts.size("memblock_region")?);
            let base = running.member(region, "memblock_region", "base")?;
            let size = running.member(region, "memblock_region", "size")?;
            self.ranges.push((pages_of(base..base.saturating_add(size)), "memblock"));
        }
        Ok(())
    }

    /// Returns the owner of a reserved page frame.
    pub fn owner(&self, frame: u64) -> &'static str {
        self.ranges.iter().find(|(range, _)| range.contains(&frame)).map_or("unknown", |&(_, name)| name)
    }
}

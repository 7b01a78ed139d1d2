//! The pages that the kernel reserves before its page allocator runs: they are not in `MemTotal`.

use std::ops::Range;

use crate::error::Result;
use crate::memblock;
use crate::memory::{PAGE, pages_of};
use crate::running::{Frames, Running};

/// The name of the owner of the kernel's image.
pub const IMAGE: &str = "kernel image";

/// The name of the owner of the first megabyte of a PC.
pub const LOW: &str = "the first megabyte";

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
            reserved.add(running, start, end, IMAGE);
        }
        for array in frames.addresses() {
            reserved.add(running, array.start, array.end, "struct page");
        }
        if let Some(base) = running.optional_symbol("pcpu_base_addr") {
            let base = running.memory.word(base)?;
            let size = running.variable("pcpu_unit_size")?.saturating_mul(running.variable("pcpu_nr_units")?);
            reserved.add(running, base, base.saturating_add(size), "per-CPU memory");
        }
        if running.kernel.rules.reserves_low {
            reserved.ranges.push((0..(1 << 20) / PAGE, LOW));
        }
        let early = memblock::regions(running, frames, "reserved")?.unwrap_or_default();
        reserved.ranges.extend(early.into_iter().map(|range| (pages_of(range), "memblock")));
        Ok(reserved)
    }

    /// Adds a range of virtual addresses.
    fn add(&mut self, running: &Running<'_>, start: u64, end: u64, name: &'static str) {
        let ranges = running.memory.physical_ranges(start..end).into_iter();
        self.ranges.extend(ranges.map(|range| (pages_of(range), name)));
    }

    /// Returns the owner of a reserved page frame.
    pub fn owner(&self, frame: u64) -> &'static str {
        self.ranges.iter().find(|(range, _)| range.contains(&frame)).map_or("unknown", |&(_, name)| name)
    }
}

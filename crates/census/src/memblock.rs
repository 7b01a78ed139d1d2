//! The list of memory from the time before the page allocator ran, which some kernels keep
//! (`CONFIG_ARCH_KEEP_MEMBLOCK`).

use std::ops::Range;

use kelf::Machine;

use crate::error::Result;
use crate::memory::PAGE;
use crate::running::{Frames, Running};

/// Maximum number of ranges of a list.
const MAX_REGIONS: u64 = 1 << 16;

/// Returns the ranges of physical addresses on a list of `memblock`, `memory` or `reserved`; `None` if the kernel does
/// not keep it.
///
/// # Errors
/// If the core contradicts itself or lacks a part.
pub fn regions(running: &mut Running<'_>, frames: &Frames, list: &str) -> Result<Option<Vec<Range<u64>>>> {
    let Some(memblock) = running.optional_symbol("memblock") else { return Ok(None) };
    if !running.is_kept(frames, memblock)? {
        return Ok(None);
    }
    let layouts = running.layouts;
    let own = memblock.wrapping_add(layouts.offset("memblock", list)?);
    let count = running.member(own, "memblock_type", "cnt")?;
    let regions = running.member(own, "memblock_type", "regions")?;
    if count > MAX_REGIONS {
        let place = format!("memblock.{list}");
        return Err(running.memory.damaged(&place, format!("{count} regions"), "fewer"));
    }
    let mut ranges = Vec::new();
    for number in 0..count {
        let region = regions.wrapping_add(number.wrapping_mul(layouts.size("memblock_region")?));
        let base = running.member(region, "memblock_region", "base")?;
        let size = running.member(region, "memblock_region", "size")?;
        ranges.push(base..base.saturating_add(size));
    }
    Ok(Some(ranges))
}

/// Returns the page frames with memory, by index, as ascending ranges. On 32-bit ARM the page allocator also got the
/// `struct page` of the frames between (`free_unused_memmap` in `mm/memblock.c`). Other machines have all of them.
///
/// # Errors
/// If the core contradicts itself or lacks a part.
pub fn banks(running: &mut Running<'_>, frames: &Frames) -> Result<Vec<Range<u64>>> {
    let memory = match running.machine() {
        Machine::Arm => regions(running, frames, "memory")?,
        _ => None,
    };
    let Some(memory) = memory else { return Ok(vec![0..frames.count]) };
    let mut banks: Vec<Range<u64>> = Vec::new();
    for region in memory {
        // A page that is only partly memory is not used (`for_each_mem_pfn_range`).
        let index = |frame: u64| frame.saturating_sub(frames.first).min(frames.count);
        let bank = index(region.start.div_ceil(PAGE))..index(region.end / PAGE);
        match banks.last_mut() {
            _ if bank.is_empty() => {}
            Some(last) if bank.start < last.end => {
                let problem = format!("the region at {:#x} begins before the end of another", region.start);
                return Err(running.memory.damaged("memblock.memory", problem, "regions in ascending order"));
            }
            Some(last) if bank.start == last.end => last.end = bank.end,
            _ => banks.push(bank),
        }
    }
    Ok(banks)
}

//! The list of memory from the time before the page allocator ran, which some kernels keep
//! (`CONFIG_ARCH_KEEP_MEMBLOCK`).

use std::ops::Range;

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

/// Returns the page frames with memory, by index, as ascending ranges. Holes are frames without `struct page`, and where
/// the page allocator also got the `struct page` of the frames between banks, these frames.
///
/// # Errors
/// If the core contradicts itself or lacks a part.
pub fn banks(running: &mut Running<'_>, frames: &Frames) -> Result<Vec<Range<u64>>> {
    let memory = match running.kernel.rules.frees_map_between_banks {
        true => regions(running, frames, "memory")?,
        false => None,
    };
    let Some(memory) = memory else {
        return Ok(frames.arrays.iter().map(|array| array.indices.clone()).collect());
    };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
    use crate::layout::{Field, Layouts, Structure};
    use kelf::Machine;

    use crate::machine::Rules;
    use crate::memory::handmade::{Pages, START, memory};
    use crate::running::FrameArray;

    const MEMBLOCK: u64 = START + 0x100;
    const REGIONS: u64 = START + 0x200;

    /// Returns the banks of 16 page frames with these regions of memory.
    fn banks_of(machine: Machine, regions: &[[u64; 2]]) -> Result<Vec<[u64; 2]>> {
        let mut layouts = Layouts::default();
        let mut add = |name: &str, size, fields: &[(&str, u64)]| {
            let word = |&(name, offset): &(&str, u64)| {
                (name.to_owned(), Field { offset, size: 4, count: 1, bits: None })
            };
            let fields = fields.iter().map(word).collect();
            layouts.types.insert(name.to_owned(), Structure { size, fields });
        };
        add("memblock", 8, &[("memory", 0)]);
        add("memblock_type", 8, &[("cnt", 0), ("regions", 4)]);
        add("memblock_region", 8, &[("base", 0), ("size", 4)]);
        add("page", 32, &[("flags", 0)]);
        layouts.constants.insert("PG_reserved".into(), 0);
        let mut pages = Pages::new(1);
        pages.write(MEMBLOCK, &[regions.len() as u64, REGIONS]);
        pages.write(REGIONS, &regions.concat());
        // The page with the list is still reserved.
        pages.write(START + 0x400, &[1]);
        let mut kernel = Kernel::with_symbols(&[("memblock", MEMBLOCK)]);
        kernel.rules = Rules::of(machine).expect("a supported machine");
        let memory = memory(&mut pages);
        let mut running = Running { kernel: &kernel, layouts: &layouts, memory, slide: 0 };
        let arrays = vec![FrameArray { indices: 0..16, map: START + 0x400 }];
        let frames = Frames { first: 0, count: 16, size: 32, arrays };
        let banks = banks(&mut running, &frames)?;
        Ok(banks.into_iter().map(|bank| [bank.start, bank.end]).collect())
    }

    #[test]
    fn page_frames_between_banks_of_arm_are_holes() {
        let regions = [[0, 0x3800], [0x5000, 0x1000], [0x6000, 0x2000], [0xa800, 0x1_0000]];
        assert_eq!(banks_of(Machine::Arm, &regions).unwrap(), [[0, 3], [5, 8], [11, 16]]);
        assert_eq!(banks_of(Machine::I386, &regions).unwrap(), [[0, 16]]);
        let error = banks_of(Machine::Arm, &[[0, 0x3000], [0x2000, 0x1000]]).unwrap_err().to_string();
        assert!(error.contains("memblock.memory: the region at 0x2000 begins before"), "{error}");
    }
}

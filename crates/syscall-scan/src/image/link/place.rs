//! The addresses of the objects of a process.

use std::ops::Range;

use crate::Error;
use crate::image::process::Process;

/// The distance of objects on 64-bit machines, and the address of the first.
const WIDE: u64 = 1 << 32;
const WIDE_START: u64 = 16 * WIDE;
const WIDE_END: u64 = 1 << 47;

/// The same for 32-bit machines, whose programs at fixed addresses are below.
const NARROW: u64 = 1 << 16;
const NARROW_START: u64 = 0x2000_0000;
const NARROW_END: u64 = 0xff00_0000;

/// Returns the base of each member.
pub(super) fn bases(process: &Process) -> Result<Vec<u64>, Error> {
    let wide = process.members[0].object.machine.is_64();
    let (mut next, gap, end) =
        if wide { (WIDE_START, WIDE, WIDE_END) } else { (NARROW_START, NARROW, NARROW_END) };
    let fits = |memory: &Range<u64>| memory.end <= if wide { WIDE_END } else { 1 << 32 };
    let too_large = || Error::Damaged { error: "its segments do not fit into an address space".to_owned() };
    let mut taken: Vec<Range<u64>> = Vec::new();
    for member in process.members.iter().filter(|member| member.object.fixed) {
        let memory = member.object.memory();
        let free = |other: &Range<u64>| memory.end <= other.start || other.end <= memory.start;
        if !fits(&memory) || !taken.iter().all(free) {
            return Err(too_large());
        }
        taken.push(memory);
    }
    let mut bases = Vec::with_capacity(process.members.len());
    for member in &process.members {
        let memory = member.object.memory();
        if member.object.fixed {
            bases.push(0);
            continue;
        }
        let size = memory.end - memory.start;
        if size >= end {
            return Err(too_large());
        }
        let mut start = next;
        while let Some(other) = taken.iter().find(|other| start < other.end && other.start < start + size) {
            start = other.end.next_multiple_of(gap);
            if start >= end {
                return Err(too_large());
            }
        }
        let after = start + size;
        if after > end {
            return Err(too_large());
        }
        // Leave room for off-by-one addresses.
        next = (after + gap).next_multiple_of(gap);
        bases.push(start.wrapping_sub(memory.start));
    }
    Ok(bases)
}

//! The program as the kernel would load it: memory by address, entry points, and the words that may point
//! to code.
//!
//! Section headers are a help and not a need. Where they are missing (some programs are stripped of
//! them) segments stand in for them, at the price of taking more words for code pointers.

mod pointers;
mod read;
mod symbols;
mod unwind;

use std::fmt;
use std::ops::Range;

use kelf::Machine;
use rustc_hash::FxHashSet;

pub use symbols::Symbols;
pub use unwind::{Extent, Extents, landing_pads};

/// A virtual address of the program. On ARM, where Thumb code begins at an address is said with bit 0 set, as
/// ELF and the branch instructions have it: such an address means the instruction at the even address below.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Addr(pub u64);

impl Addr {
    /// The address `bytes` further on.
    pub fn plus(self, bytes: u64) -> Addr {
        Addr(self.0.wrapping_add(bytes))
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A static executable in memory.
#[derive(Debug)]
pub struct Image {
    /// Its machine.
    pub machine: Machine,
    /// Whether it may be loaded anywhere (static PIE), so that no constant in its code is an address.
    pub relocatable: bool,
    /// Where the kernel starts it.
    pub entry: Addr,
    /// Its symbols, if it has any.
    pub symbols: Symbols,
    /// Which function an address belongs to, as the unwinder sees it.
    pub extents: Extents,
    /// Words of data that may be pointers to code: (where, whereto).
    pub code_pointers: Vec<(Addr, Addr)>,
    segments: Vec<Segment>,
    /// Where code lies: executable sections, or else executable segments.
    code: Vec<Range<u64>>,
    /// Memory that never changes once the program runs.
    constant: Vec<Range<u64>>,
    /// Words in constant memory that the program computes when it starts (`IRELATIVE`).
    computed: FxHashSet<Addr>,
}

/// A loaded segment: its bytes in the file, relocated. Zeros that only memory has are left out.
#[derive(Debug)]
struct Segment {
    address: u64,
    bytes: Vec<u8>,
    /// Size in memory, in bytes.
    memory_size: u64,
    writable: bool,
}

impl Image {
    /// The bytes from `address` to the end of its segment; empty outside of any.
    pub fn bytes(&self, address: Addr) -> &[u8] {
        self.segments
            .iter()
            .find_map(|segment| {
                let offset = address.0.checked_sub(segment.address)?;
                segment.bytes.get(usize::try_from(offset).ok()?..)
            })
            .unwrap_or(&[])
    }

    /// The bytes of code from an instruction's address to the end of its segment; empty outside of any.
    pub fn code_bytes(&self, instruction: Addr) -> &[u8] {
        self.bytes(self.first_byte(instruction))
    }

    /// Where the first byte of an instruction is.
    pub fn first_byte(&self, instruction: Addr) -> Addr {
        match self.machine {
            Machine::Arm => Addr(instruction.0 & !1),
            _ => instruction,
        }
    }

    /// Whether an instruction may lie at this address.
    pub fn is_code(&self, address: Addr) -> bool {
        let aligned = match self.machine {
            Machine::I386 | Machine::X86_64 => true,
            Machine::Arm => address.0 & 1 != 0 || address.0 & 3 == 0,
            Machine::Aarch64 => address.0 & 3 == 0,
        };
        aligned && contains(&self.code, address.0, 1)
    }

    /// From the first address that the program may write to, to the one after the last.
    pub fn writable(&self) -> (u64, u64) {
        let writable = self.segments.iter().filter(|segment| segment.writable);
        let end = |segment: &Segment| segment.address.saturating_add(segment.memory_size);
        let ends = writable.clone().map(end);
        (writable.map(|segment| segment.address).min().unwrap_or(0), ends.max().unwrap_or(0))
    }

    /// Whether an address is in a segment, its zeros included.
    pub fn is_loaded(&self, address: Addr) -> bool {
        let offset = |segment: &Segment| address.0.checked_sub(segment.address);
        self.segments.iter().any(|s| offset(s).is_some_and(|offset| offset < s.memory_size))
    }

    /// Where code lies, by rising address.
    pub fn code(&self) -> &[Range<u64>] {
        &self.code
    }

    /// The number of `width` bytes (at most 8) at an address whose content never changes.
    pub fn constant(&self, address: Addr, width: u8) -> Option<u64> {
        let known =
            contains(&self.constant, address.0, u64::from(width)) && !self.computed.contains(&address);
        if known { self.initial(address, width) } else { None }
    }

    /// The number of `width` bytes (at most 8) at an address when the program starts.
    pub fn initial(&self, address: Addr, width: u8) -> Option<u64> {
        let mut word = [0; 8];
        let width = usize::from(width);
        word.get_mut(..width)?.copy_from_slice(self.bytes(address).get(..width)?);
        Some(u64::from_le_bytes(word))
    }

    /// A number modulo the machine's word.
    pub fn wrap(&self, value: u64) -> u64 {
        if self.machine.is_64() { value } else { value & 0xffff_ffff }
    }
}

fn contains(ranges: &[Range<u64>], address: u64, size: u64) -> bool {
    let next = ranges.partition_point(|range| range.start <= address);
    next > 0 && address.checked_add(size).is_some_and(|end| end <= ranges[next - 1].end)
}

/// Sorts ranges and joins those that touch.
fn normalize(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| range.start < range.end);
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let ranges = normalize(vec![10..20, 0..5, 20..30, 40..40]);
        assert_eq!(ranges, [0..5, 10..30]);
        assert!(contains(&ranges, 10, 20) && contains(&ranges, 29, 1));
        assert!(!contains(&ranges, 29, 2) && !contains(&ranges, 5, 1));
        assert!(!contains(&ranges, u64::MAX, 8));
    }
}

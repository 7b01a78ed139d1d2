//! The ranges of data known to be readable, and the references that are still to be followed.

use std::ops::Range;

use kisa::Reg;
use rangemap::RangeSet;
use rustc_hash::FxHashSet;

use crate::image::Addr;

/// The way in which an instruction refers to an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum How {
    /// It reads or writes this number of bytes there.
    Direct(u8),
    /// It loads the address into a register.
    Register(Reg),
    /// It stores the address.
    Stored,
    /// It adds an unknown value.
    Indexed,
}

/// The data known to be readable.
#[derive(Default)]
pub(in crate::code) struct Live {
    ranges: RangeSet<u64>,
    /// Unprocessed addresses with the instructions that refer to them.
    pub(super) named: Vec<(Addr, Addr, How)>,
    /// Unprocessed distances from a global offset table whose address is not yet known.
    pub(super) distances: Vec<(i64, Addr, How)>,
    /// Addresses that instructions load into registers, which may have further uses later.
    pub(super) registers: Vec<(Addr, Addr, Reg)>,
    /// Addresses of functions in registers.
    pub(super) functions: Vec<FunctionWord>,
    /// The calls through these registers, with their callees.
    pub(super) calls: FxHashSet<(Addr, Addr)>,
    /// The first addresses of variables that code refers to, with the first instruction of the function.
    pub(super) beginnings: FxHashSet<(Addr, Addr)>,
}

/// The address of a function, read from a constant word.
#[derive(Clone, Copy)]
pub(super) struct FunctionWord {
    pub(super) word: Addr,
    pub(super) target: Addr,
    /// The instruction that reads it.
    pub(super) at: Addr,
    /// The register that receives it.
    pub(super) register: Reg,
}

impl Live {
    /// Adds a range. Returns its new parts. A range that ends before it begins, as in some damaged tables, is empty.
    pub(super) fn add(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        if range.is_empty() {
            return Vec::new();
        }
        let new = self.ranges.gaps(&range).collect();
        self.ranges.insert(range);
        new
    }

    pub(super) fn has_all(&self, range: &Range<u64>) -> bool {
        range.is_empty() || self.ranges.get(&range.start).is_some_and(|known| known.end >= range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_backwards_is_empty() {
        let mut live = Live::default();
        let mut add = |start, end| {
            let new = live.add(Range { start, end }).into_iter();
            new.map(|range| (range.start, range.end)).collect::<Vec<_>>()
        };
        assert_eq!(add(0x20, 0x10), []);
        assert_eq!(add(0x10, 0x20), [(0x10, 0x20)]);
        assert_eq!(add(0x30, 0x08), []);
        assert_eq!(add(0x08, 0x30), [(0x08, 0x10), (0x20, 0x30)]);
    }
}

//! Bytes of the frame, and of the stack arguments.

use kisa::{Address, Reg};
use smallvec::{SmallVec, smallvec};

use super::names::{NameId, Names, Site};
use super::state::State;
use super::step::Step;

/// Bytes of the frame, from `start` up to but excluding `end`, relative to a sum of names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameRange {
    /// The names; none if the bytes may be anywhere in the frame.
    parts: SmallVec<[(NameId, u8); 2]>,
    start: i64,
    end: i64,
}

impl FrameRange {
    fn anywhere() -> FrameRange {
        FrameRange { parts: SmallVec::new(), start: i64::MIN, end: i64::MAX }
    }

    /// Whether both ranges have the same base, so that their distance is known.
    pub fn is_beside(&self, other: &FrameRange) -> bool {
        !self.parts.is_empty() && self.parts == other.parts
    }

    /// Whether the ranges may overlap.
    pub fn may_overlap(&self, other: &FrameRange) -> bool {
        !self.is_beside(other) || self.start < other.end && other.start < self.end
    }

    /// Whether its end is known.
    pub fn is_bounded(&self) -> bool {
        self.end < i64::MAX
    }

    /// Returns the end of the range, in bytes from the stack pointer on entry; `None` if unknown.
    pub fn end_after_entry(&self, names: &Names) -> Option<i64> {
        (self.counts_from_entry(names) && self.is_bounded()).then_some(self.end)
    }

    /// Returns its start, relative to the same place.
    pub fn start_after_entry(&self, names: &Names) -> Option<i64> {
        self.counts_from_entry(names).then_some(self.start)
    }

    fn counts_from_entry(&self, names: &Names) -> bool {
        matches!(self.parts[..], [(name, 1)] if names.is_top(name))
    }
}

impl State {
    /// Returns the bytes of the frame that an access to `width` bytes may touch; `None` if the address shows that it
    /// touches none.
    pub fn frame_range(&mut self, address: &Address, width: u8, names: &mut Names) -> Option<FrameRange> {
        let Some(place) = Step::new(self, names, Site::default()).place(address) else {
            let registers = [address.base, address.index.map(|(index, _)| index)];
            let framed = |&reg: &Reg| self.is_framed(reg, names);
            return registers.iter().flatten().any(framed).then_some(FrameRange::anywhere());
        };
        let start = names.signed(place.displacement);
        place.is_framed(names).then(|| FrameRange {
            parts: place.parts,
            start,
            end: start.saturating_add(width.into()),
        })
    }

    /// Returns `len` bytes at an offset from the stack pointer, or all bytes from there on if `len` is `None`.
    pub fn stack_range(&self, offset: u64, len: Option<u32>, names: &Names) -> FrameRange {
        let Some(top) = self.register(names.stack_pointer).single() else { return FrameRange::anywhere() };
        let start = names.signed(names.plus(top, offset).offset);
        let end = len.map_or(i64::MAX, |len| start.saturating_add(len.into()));
        FrameRange { parts: smallvec![(top.name, 1)], start, end }
    }

    /// Whether a register may hold an address in the frame.
    fn is_framed(&self, reg: Reg, names: &Names) -> bool {
        self.register(reg).elements().iter().any(|term| names.is_frame(term.name))
    }
}

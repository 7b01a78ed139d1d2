//! Memory whose content is known.

use kisa::Segment;
use smallvec::SmallVec;

use super::{NameId, Names, Value};

/// How many cells are kept; the oldest are forgotten first, those in the frame last.
const MAX_CELLS: usize = 32;

/// An address: a sum of unknowns, each so many times, and a number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// Sorted.
    pub(super) parts: SmallVec<[(NameId, u8); 2]>,
    pub(super) displacement: u64,
    /// Relative to the base of this segment, which is not known.
    pub(super) segment: Option<Segment>,
}

impl Place {
    /// Whether it is in the frame, as its parts tell.
    pub(super) fn is_framed(&self, names: &Names) -> bool {
        self.parts.iter().any(|&(name, _)| names.is_frame(name))
    }

    fn is_fixed(&self, names: &Names) -> bool {
        self.segment.is_none() && self.parts.iter().all(|&(name, _)| names.is_fixed(name))
    }
}

/// So many bytes of memory, and what they hold.
#[derive(Clone, PartialEq, Debug)]
struct Cell {
    place: Place,
    width: u8,
    value: Value,
}

/// The memory that is known at one point.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Memory {
    cells: Vec<Cell>,
    /// Whether others may know an address in the frame.
    pub(super) is_exposed: bool,
}

impl Memory {
    pub(super) fn new(is_exposed: bool) -> Memory {
        Memory { cells: Vec::new(), is_exposed }
    }

    /// What is known to be there, and of how many bytes: as many as asked for, or more that begin there.
    pub(super) fn load(&self, place: &Place, width: u8) -> Option<(&Value, u8)> {
        let there = self.cells.iter().filter(|cell| cell.width >= width && cell.place == *place);
        there.min_by_key(|cell| cell.width).map(|cell| (&cell.value, cell.width))
    }

    /// Notes what is there.
    pub(super) fn note(&mut self, place: Place, width: u8, value: Value, names: &Names) {
        if self.cells.len() >= MAX_CELLS {
            let outside = self.cells.iter().position(|cell| !cell.place.is_framed(names));
            self.cells.remove(outside.unwrap_or(0));
        }
        self.cells.push(Cell { place, width, value });
    }

    /// `width` bytes are written there, an unknown number if that is `None`.
    pub(super) fn write(&mut self, place: &Place, width: Option<u8>, names: &Names) {
        let exposed = self.is_exposed;
        self.cells.retain(|cell| are_apart(&cell.place, cell.width, place, width, exposed, names));
    }

    /// Memory is written, not known where.
    pub(super) fn write_anywhere(&mut self, names: &Names) {
        let exposed = self.is_exposed;
        self.cells.retain(|cell| !exposed && cell.place.is_framed(names));
    }

    /// All of the frame may be written.
    pub(super) fn write_frame(&mut self, names: &Names) {
        self.cells.retain(|cell| !cell.place.is_framed(names));
    }

    /// What is known of the bytes that may be among these.
    pub(super) fn overlapping<'m>(
        &'m self,
        place: &'m Place,
        width: u8,
        names: &'m Names,
    ) -> impl Iterator<Item = &'m Value> {
        let touched = move |cell: &&Cell| {
            !are_apart(&cell.place, cell.width, place, Some(width), self.is_exposed, names)
        };
        self.cells.iter().filter(touched).map(|cell| &cell.value)
    }

    /// Makes it hold for `other` too; where `widens`, what changes is forgotten.
    pub(super) fn join(&mut self, other: &Memory, widens: bool) {
        self.is_exposed |= other.is_exposed;
        self.cells.retain_mut(|cell| {
            let same = |theirs: &&Cell| theirs.width == cell.width && theirs.place == cell.place;
            let Some(theirs) = other.cells.iter().find(same) else { return false };
            let joined = cell.value.join(&theirs.value);
            let kept = joined == cell.value || !widens;
            cell.value = joined;
            kept && !cell.value.is_any()
        });
    }

    pub(super) fn forget(&mut self, is_stale: impl Fn(NameId) -> bool) {
        self.cells.retain(|cell| {
            let mut names = cell.place.parts.iter().map(|&(name, _)| name);
            !names.any(&is_stale) && !cell.value.terms().iter().any(|term| is_stale(term.name))
        });
    }
}

/// Whether what is written leaves a cell alone: it goes to other bytes at a known distance; one of the two is in the
/// frame, and the other at a fixed address; or nobody else knows where the frame is.
fn are_apart(
    cell: &Place,
    cell_width: u8,
    written: &Place,
    width: Option<u8>,
    exposed: bool,
    names: &Names,
) -> bool {
    if cell.parts == written.parts && cell.segment == written.segment {
        let distance = written.displacement.wrapping_sub(cell.displacement) & names.mask;
        let back = distance.wrapping_neg() & names.mask;
        return width.is_some_and(|width| distance >= cell_width.into() && back >= width.into());
    }
    match (cell.is_framed(names), written.is_framed(names)) {
        (true, false) => !exposed || written.is_fixed(names),
        (false, true) => !exposed || cell.is_fixed(names),
        _ => false,
    }
}

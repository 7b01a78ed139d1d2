//! Memory with known content.

use std::rc::Rc;

use kisa::Segment;
use smallvec::SmallVec;

use super::names::{NameId, Names, Term, TermSet};
use crate::constants::Constant;

/// Maximum number of cells; the oldest are dropped first, those in the frame last.
const MAX_CELLS: usize = 32;

/// An address: a sum of a number and of unknowns, each with a factor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// Sorted.
    pub(super) parts: SmallVec<[(NameId, u8); 2]>,
    pub(super) displacement: u64,
    /// Relative to the base of this segment, which is unknown.
    pub(super) segment: Option<Segment>,
}

impl Place {
    /// Whether its parts show that it is in the frame.
    pub(super) fn is_framed(&self, names: &Names) -> bool {
        self.parts.iter().any(|&(name, _)| names.is_frame(name))
    }

    /// Whether only the function and its callees write there ([`Names::keep_private`]).
    fn is_private(&self, names: &Names) -> bool {
        let is_it = |&(name, times): &(NameId, u8)| Some(name) == names.private && times == 1;
        self.segment.is_none() && self.parts.len() == 1 && self.parts.iter().all(is_it)
    }

    /// Whether comparisons settle the content: private memory, or a stack argument ([`Names::settle_passed`]).
    fn settles(&self, names: &Names) -> bool {
        let is_passed = |&(name, times): &(NameId, u8)| times == 1 && names.is_top(name);
        let is_above = self.displacement <= names.mask / 2;
        self.is_private(names)
            || names.settles_passed && is_above && self.parts.len() == 1 && self.parts.iter().all(is_passed)
    }

    fn is_fixed(&self, names: &Names) -> bool {
        self.segment.is_none() && self.parts.iter().all(|&(name, _)| names.is_fixed(name))
    }
}

impl Names {
    /// Returns the content of constant memory at a place.
    pub(super) fn constant_at(&mut self, place: &Place, width: u8) -> Option<Constant> {
        let memory = self.shared.as_ref()?;
        let ([(name, 1)], None) = (&place.parts[..], place.segment) else { return None };
        let (symbol, offset) = self.as_symbol(Term { name: *name, offset: place.displacement })?;
        let constant = memory.read(symbol, offset, width);
        self.asked.insert((symbol, offset, width), constant);
        constant
    }
}

/// Some bytes of memory and their content.
#[derive(Clone, PartialEq, Debug)]
struct Cell {
    place: Place,
    width: u8,
    value: TermSet,
}

/// The known memory at one point.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Memory {
    /// States with the same cells share them.
    cells: Rc<Vec<Cell>>,
    /// Whether others may have an address in the frame.
    pub(super) is_exposed: bool,
}

impl Memory {
    pub(super) fn new(is_exposed: bool) -> Memory {
        Memory { cells: Rc::default(), is_exposed }
    }

    /// Returns the known content of a place, and its size in bytes: the requested size, or a larger one from the same
    /// place.
    pub(super) fn load(&self, place: &Place, width: u8, names: &Names) -> Option<(&TermSet, u8)> {
        let there = self.cells.iter().filter(|cell| {
            cell.width >= width && cell.place == *place && self.is_own(&cell.place, &cell.value, names)
        });
        there.min_by_key(|cell| cell.width).map(|cell| (&cell.value, cell.width))
    }

    /// Whether the content stays valid until this function writes it.
    fn is_own(&self, place: &Place, value: &TermSet, names: &Names) -> bool {
        names.shared.is_none()
            || place.is_private(names)
            || place.is_framed(names) && (!self.is_exposed || names.is_saved(value))
    }

    /// Records the content of a place.
    pub(super) fn note(&mut self, place: Place, width: u8, value: TermSet, names: &Names) {
        if !self.is_own(&place, &value, names) {
            return;
        }
        let cells = Rc::make_mut(&mut self.cells);
        if cells.len() >= MAX_CELLS {
            let outside = cells.iter().position(|cell| !cell.place.is_framed(names));
            cells.remove(outside.unwrap_or(0));
        }
        cells.push(Cell { place, width, value });
    }

    /// Drops all cells for which `keep` is false.
    fn retain(&mut self, keep: impl Fn(&Cell) -> bool) {
        if !self.cells.iter().all(&keep) {
            Rc::make_mut(&mut self.cells).retain(keep);
        }
    }

    /// Records a write of `width` bytes, or of an unknown number if that is `None`.
    pub(super) fn write(&mut self, place: &Place, width: Option<u8>, names: &Names) {
        let exposed = self.is_exposed;
        // Only a certain write overwrites a saved register.
        let is_certain = |cell: &Cell| {
            width.is_some() && cell.place.parts == place.parts && cell.place.segment == place.segment
        };
        self.retain(|cell| {
            are_apart(&cell.place, cell.width, place, width, exposed, names)
                || names.is_saved(&cell.value) && !is_certain(cell)
        });
    }

    /// Records a write to an unknown place.
    pub(super) fn write_anywhere(&mut self, names: &Names) {
        let exposed = self.is_exposed;
        self.retain(|cell| cell.place.is_framed(names) && (!exposed || names.is_saved(&cell.value)));
    }

    /// Records a write to any part of the frame.
    pub(super) fn write_frame(&mut self, names: &Names) {
        self.retain(|cell| !cell.place.is_framed(names) || names.is_saved(&cell.value));
    }

    /// Replaces an unknown by its number in memory that settles. Where edges join, that memory then holds one of
    /// several numbers instead of a range with many between them.
    pub(super) fn settle(&mut self, unknown: Term, number: u64, names: &Names) {
        let holds = |cell: &Cell| cell.value.single() == Some(unknown) && cell.place.settles(names);
        if self.cells.iter().any(holds) {
            let cells = Rc::make_mut(&mut self.cells).iter_mut();
            cells.filter(|cell| holds(cell)).for_each(|cell| cell.value = TermSet::number(number));
        }
    }

    /// Makes the memory hold for `other` too; with `widens`, forgets cells that change.
    pub(super) fn join(&mut self, other: &Memory, widens: bool) {
        self.is_exposed |= other.is_exposed;
        if Rc::ptr_eq(&self.cells, &other.cells) || self.cells == other.cells {
            return;
        }
        Rc::make_mut(&mut self.cells).retain_mut(|cell| {
            let same = |theirs: &&Cell| theirs.width == cell.width && theirs.place == cell.place;
            let Some(theirs) = other.cells.iter().find(same) else { return false };
            let joined = cell.value.join(&theirs.value);
            let kept = joined == cell.value || !widens;
            cell.value = joined;
            kept && !cell.value.is_any()
        });
    }

    pub(super) fn forget(&mut self, is_stale: impl Fn(NameId) -> bool) {
        self.retain(|cell| {
            let mut names = cell.place.parts.iter().map(|&(name, _)| name);
            !names.any(&is_stale) && !cell.value.elements().iter().any(|term| is_stale(term.name))
        });
    }
}

/// Whether a write leaves a cell unchanged: the bytes differ at a known distance, one of the two is in the frame and
/// the other at a fixed address, or the address of the frame has not escaped.
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

//! The stack frame of a function: the values that it stored, and the places that other code may have changed.
//!
//! Other code writes to a frame only if it has an address in it. An address that the function passes as an argument or
//! stores in memory *exposes* everything from there to the end of its part of the frame: objects are passed by their
//! first byte, and their size is unknown. Local variables form one part, the arguments above the return address
//! another.

use std::ops::Range;
use std::rc::Rc;

use kflow::values::{Element, Span};
use kisa::low_mask;

use crate::values::{Atom, Origin, OriginId, ValueSet, When};

use super::domain::Domain;
use super::place::Place;

/// A part of the frame with a stored value.
#[derive(Clone, PartialEq, Debug)]
struct Cell {
    place: Place,
    /// The size in bytes.
    width: u8,
    value: ValueSet,
}

impl Cell {
    fn end(&self) -> i64 {
        self.place.plus(self.width)
    }

    /// Creates a cell of unknown content between two offsets, if they differ.
    fn unknown(frame: OriginId, from: i64, to: i64) -> Option<Cell> {
        let width = to.saturating_sub(from).clamp(0, 255) as u8;
        let place = Place { frame, offset: from };
        (width > 0).then_some(Cell { place, width, value: ValueSet::Any })
    }
}

/// Known facts about a function's frame. Copies share their cells until one of them is changed.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The cells, sorted by place, without overlaps. A cell of unknown content is kept only among the arguments: it
    /// records that the argument is no longer the caller's.
    cells: Rc<Vec<Cell>>,
    /// Other code may write from each of these places to the end of its part of the frame.
    exposed: Rc<Vec<Place>>,
    /// Arguments from this offset on may have changed since the function's entry.
    arguments_lost: i64,
}

impl PartialEq for Frame {
    fn eq(&self, other: &Frame) -> bool {
        (Rc::ptr_eq(&self.exposed, &other.exposed) || self.exposed == other.exposed)
            && self.arguments_lost == other.arguments_lost
            && (Rc::ptr_eq(&self.cells, &other.cells) || self.cells == other.cells)
    }
}

impl Frame {
    /// Creates the frame of a function at its entry.
    pub fn new() -> Frame {
        Frame { cells: Rc::default(), exposed: Rc::default(), arguments_lost: i64::MAX }
    }

    /// Creates a frame without known facts.
    pub fn lost() -> Frame {
        Frame { arguments_lost: 0, ..Frame::new() }
    }

    fn overlapping(&self, place: Place, width: u8) -> Range<usize> {
        let first = self.cells.partition_point(|cell| {
            (cell.place.frame, cell.end().saturating_sub(1)) < (place.frame, place.offset)
        });
        let end = place.plus(width);
        let count = self.cells[first..]
            .iter()
            .take_while(|cell| cell.place.frame == place.frame && cell.place.offset < end)
            .count();
        first..first + count
    }

    /// Returns the `width` bytes at a place; `None` if they are unknown.
    pub fn load(&self, place: Place, width: u8, domain: &mut Domain) -> Option<ValueSet> {
        let cells = &self.cells[self.overlapping(place, width)];
        let Some(cell) = cells.first() else { return self.argument(place, width, domain) };
        if cells.len() > 1 || cell.place.offset > place.offset || cell.end() < place.plus(width) {
            return None; // pieces of several values
        }
        if cell.place == place && cell.width == width {
            return Some(cell.value.clone()).filter(|value| *value != ValueSet::Any);
        }
        let shift = 8 * (place.offset - cell.place.offset) as u32;
        let part = cell.value.map(|atom| match atom.as_number() {
            Some(number) => Some(Atom::number((number >> shift) & low_mask(width))),
            None if shift == 0 => domain.low(atom, width, Span::new(0, u64::MAX)),
            None => None,
        });
        Some(part).filter(|value| *value != ValueSet::Any)
    }

    /// Returns the argument that the caller stored at a place.
    fn argument(&self, place: Place, width: u8, domain: &mut Domain) -> Option<ValueSet> {
        let untouched = domain.is_argument(place) && place.plus(width) <= self.arguments_lost;
        let at = domain.address(place);
        untouched.then(|| domain.value(Origin::Memory { at, width, when: When::Entry }))
    }

    /// Writes to a place.
    pub fn store(&mut self, place: Place, width: u8, value: ValueSet, domain: &Domain) {
        let range = self.overlapping(place, width);
        let known = value != ValueSet::Any;
        let argument = domain.is_argument(place);
        if range.is_empty() && !known && !argument {
            return;
        }
        if let [Cell { place: whole, width: size, .. }] = self.cells[range.clone()] {
            if (whole, size) == (place, width) && (known || argument) {
                Rc::make_mut(&mut self.cells)[range.start].value = value;
                return;
            }
        }
        // Forget the rest of a cell that is partly overwritten.
        let mut new = Vec::new();
        if argument {
            for cell in &self.cells[range.clone()] {
                new.extend(Cell::unknown(place.frame, cell.place.offset, place.offset));
                new.extend(Cell::unknown(place.frame, place.plus(width), cell.end()));
            }
        }
        let cells = Rc::make_mut(&mut self.cells);
        if range.is_empty() {
            cells.insert(range.start, Cell { place, width, value });
            return;
        }
        if known || argument {
            new.push(Cell { place, width, value });
        }
        new.sort_unstable_by_key(|cell| cell.place);
        cells.splice(range, new);
    }

    /// Forgets everything from a place to the end of its part of the frame.
    pub fn forget_from(&mut self, from: Place, domain: &Domain) {
        let argument = domain.is_argument(from);
        let touched = |cell: &Cell| {
            let spilled = cell.value.as_number().is_some_and(|number| domain.is_kept(number));
            cell.place.frame == from.frame
                && cell.end() > from.offset
                && domain.is_argument(cell.place) == argument
                && !spilled
        };
        if self.cells.iter().any(touched) {
            for cell in self.cells.iter().filter(|cell| touched(cell)) {
                domain.lose(&cell.value);
            }
            Rc::make_mut(&mut self.cells).retain_mut(|cell| {
                if touched(cell) {
                    cell.value = ValueSet::Any;
                }
                argument || cell.value != ValueSet::Any
            });
        }
        if argument {
            self.arguments_lost = self.arguments_lost.min(from.offset);
        }
    }

    /// Forgets everything: the frame may belong to another function or an earlier time.
    pub fn forget_all(&mut self, domain: &Domain) {
        let frames: Vec<OriginId> = self.cells.iter().map(|cell| cell.place.frame).collect();
        for frame in frames {
            self.forget_from(Place { frame, offset: i64::MIN }, domain);
        }
        self.forget_from(Place { frame: domain.frame, offset: 0 }, domain);
    }

    /// Forgets everything below the stack pointer, where a callee has its frame.
    pub fn forget_below(&mut self, place: Place) {
        let below = |cell: &Cell| cell.place.frame == place.frame && cell.end() <= place.offset;
        if self.cells.iter().any(below) {
            Rc::make_mut(&mut self.cells).retain(|cell| !below(cell));
        }
    }

    /// Makes the address of this place known to other code.
    pub fn expose(&mut self, place: Place, domain: &Domain) {
        let argument = domain.is_argument(place);
        let known = self
            .exposed
            .iter()
            .position(|exposed| exposed.frame == place.frame && domain.is_argument(*exposed) == argument);
        match known {
            Some(known) if self.exposed[known].offset <= place.offset => {}
            Some(known) => Rc::make_mut(&mut self.exposed)[known].offset = place.offset,
            None => Rc::make_mut(&mut self.exposed).push(place),
        }
    }

    /// Makes every frame address that this value may be known to other code.
    pub fn expose_value(&mut self, value: &ValueSet, domain: &Domain) {
        for place in value.elements().iter().filter_map(|&atom| domain.place(atom)) {
            self.expose(place, domain);
        }
    }

    /// Records that a value becomes part of an unknown one: a frame address may still be used in that form.
    pub fn lose(&mut self, value: &ValueSet, domain: &Domain) {
        domain.lose(value);
        self.expose_value(value, domain);
    }

    /// Makes every frame address that is stored in the frame known to other code.
    pub fn expose_contents(&mut self, domain: &Domain) {
        let cells = Rc::clone(&self.cells);
        for cell in cells.iter() {
            self.expose_value(&cell.value, domain);
        }
    }

    /// Records that other code wrote to unknown memory.
    pub fn written_by_others(&mut self, domain: &Domain) {
        for &place in Rc::clone(&self.exposed).iter() {
            self.forget_from(place, domain);
        }
    }

    /// See `State::forget_origins`.
    pub(super) fn forget_origins(&mut self, origins: &[OriginId], domain: &Domain) {
        if self.exposed.iter().any(|place| origins.contains(&place.frame)) {
            Rc::make_mut(&mut self.exposed).retain(|place| !origins.contains(&place.frame));
        }
        let from_it = |cell: &Cell| domain.is_made_from(&cell.value, origins);
        if !self.cells.iter().any(|cell| origins.contains(&cell.place.frame) || from_it(cell)) {
            return;
        }
        Rc::make_mut(&mut self.cells).retain_mut(|cell| {
            if from_it(cell) {
                cell.value = ValueSet::Any;
            }
            let needed = cell.value != ValueSet::Any || domain.is_argument(cell.place);
            needed && !origins.contains(&cell.place.frame)
        });
    }

    /// Extends this frame to cover `other`, see `State::join`. `unite` joins two values.
    pub(super) fn join(
        &mut self,
        other: &Frame,
        widen: bool,
        domain: &mut Domain,
        mut unite: impl FnMut(&ValueSet, &ValueSet) -> ValueSet,
    ) {
        if !Rc::ptr_eq(&self.cells, &other.cells) && self.cells != other.cells {
            self.join_cells(other, domain, &mut unite);
        }
        let news = if Rc::ptr_eq(&self.exposed, &other.exposed) { &[] } else { &other.exposed[..] };
        for &place in news {
            let known = self.exposed.contains(&place);
            self.expose(place, domain);
            if widen && !known && !domain.is_argument(place) {
                // An address that moves in every round: expose the whole part of the frame.
                self.expose(Place { offset: i64::MIN, ..place }, domain);
            }
        }
        self.arguments_lost = self.arguments_lost.min(other.arguments_lost);
    }

    /// Joins a cell of another frame with the content of `self` at the same place. `unite` gets this frame's value
    /// first.
    fn with_cell(
        &self,
        cell: &Cell,
        domain: &mut Domain,
        unite: impl FnOnce(&ValueSet, &ValueSet) -> ValueSet,
    ) -> Cell {
        let own = self.load(cell.place, cell.width, domain).unwrap_or(ValueSet::Any);
        let value = if own == cell.value { own } else { unite(&own, &cell.value) };
        Cell { place: cell.place, width: cell.width, value }
    }

    fn join_cells(
        &mut self,
        other: &Frame,
        domain: &mut Domain,
        unite: &mut impl FnMut(&ValueSet, &ValueSet) -> ValueSet,
    ) {
        let key = |cell: &Cell| (cell.place, cell.width);
        let mut cells = Vec::with_capacity(self.cells.len());
        let mut theirs = other.cells.iter().peekable();
        let mut mine = self.cells.iter().peekable();
        while let Some(cell) = match (mine.peek(), theirs.peek()) {
            (Some(a), Some(b)) if key(a) == key(b) => {
                let value = if a.value == b.value { a.value.clone() } else { unite(&a.value, &b.value) };
                let cell = Cell { value, ..**a };
                mine.next();
                theirs.next();
                Some(cell)
            }
            // Stored on one path only, or in other pieces: join with the content on the other path.
            (Some(a), Some(b)) if key(a) > key(b) => {
                theirs.next().map(|cell| self.with_cell(cell, domain, &mut *unite))
            }
            (Some(_), _) => mine.next().map(|cell| other.with_cell(cell, domain, |b, a| unite(a, b))),
            (None, _) => theirs.next().map(|cell| self.with_cell(cell, domain, &mut *unite)),
        } {
            if cell.value != ValueSet::Any || domain.is_argument(cell.place) {
                cells.push(cell);
            }
        }
        cells.dedup_by(|next, cell| next.place.frame == cell.place.frame && next.place.offset < cell.end());
        let mut joined = Frame { cells: Rc::new(cells), exposed: Rc::clone(&self.exposed), ..*self };
        // Arguments stored in other pieces there are unknown as a whole.
        for cell in other.cells.iter().filter(|cell| domain.is_argument(cell.place)) {
            for mine in &self.cells[self.overlapping(cell.place, cell.width)] {
                if (mine.place, mine.width) != (cell.place, cell.width) {
                    joined.store(mine.place, mine.width, ValueSet::Any, domain);
                    joined.store(cell.place, cell.width, ValueSet::Any, domain);
                }
            }
        }
        self.cells = joined.cells;
    }
}

#[cfg(test)]
mod tests {
    use kisa::Reg;

    use super::*;

    fn local(domain: &Domain, offset: i64) -> Place {
        Place { frame: domain.frame, offset }
    }

    #[test]
    fn cells_hold_what_was_stored() {
        let mut domain = Domain::new(4, Reg(4), 8);
        let mut frame = Frame::new();
        let place = local(&domain, -8);
        frame.store(place, 4, ValueSet::number(0x1234_5678), &domain);
        assert_eq!(frame.load(place, 4, &mut domain), Some(ValueSet::number(0x1234_5678)));
        assert_eq!(frame.load(local(&domain, -7), 1, &mut domain), Some(ValueSet::number(0x56)));
        assert_eq!(frame.load(local(&domain, -6), 4, &mut domain), None);
        frame.store(local(&domain, -5), 1, ValueSet::number(0), &domain);
        assert_eq!(frame.load(place, 4, &mut domain), None);
    }

    #[test]
    fn arguments_are_what_they_were_until_they_are_written() {
        let mut domain = Domain::new(4, Reg(4), 8);
        let mut frame = Frame::new();
        let place = local(&domain, 4);
        let argument = frame.load(place, 4, &mut domain).unwrap();
        let mut other = frame.clone();
        other.store(place, 4, ValueSet::number(1), &domain);
        frame.join(&other, false, &mut domain, |a, b| a.join(b));
        assert_eq!(frame.load(place, 4, &mut domain), Some(argument.join(&ValueSet::number(1))));
        frame.store(place, 4, ValueSet::Any, &domain);
        assert_eq!(frame.load(place, 4, &mut domain), None);
    }

    #[test]
    fn exposed_parts_are_written_by_others() {
        let mut domain = Domain::new(4, Reg(4), 8);
        let mut frame = Frame::new();
        for offset in [-12, -8, -4] {
            frame.store(local(&domain, offset), 4, ValueSet::number(7), &domain);
        }
        frame.expose(local(&domain, -8), &domain);
        frame.written_by_others(&domain);
        assert!(frame.load(local(&domain, -12), 4, &mut domain).is_some());
        assert!(frame.load(local(&domain, -8), 4, &mut domain).is_none());
        assert!(frame.load(local(&domain, -4), 4, &mut domain).is_none());
        assert!(frame.load(local(&domain, 4), 4, &mut domain).is_some());
    }
}

//! The stack frame of a function: what it wrote where, and what others may have changed.
//!
//! A frame is not written to by others unless they know an address in it. An address that the function
//! gives away (as an argument, or by storing it in memory) *exposes* everything from there to the end of
//! its part of the frame: objects are passed by their first byte, and where they end is not known. Local
//! variables are one part, the arguments above the return address another.

use crate::values::{Atom, Origin, OriginId, Value, When};

use super::domain::Domain;

/// A place in a stack frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// The stack pointer that offsets count from: the one that the function was entered with, or one that
    /// it aligned.
    pub frame: OriginId,
    /// Bytes from there; negative for local variables.
    pub offset: i64,
}

impl Place {
    fn plus(self, bytes: u8) -> i64 {
        self.offset.saturating_add(bytes.into())
    }
}

/// A part of the frame that was written to.
#[derive(Clone, PartialEq, Debug)]
struct Cell {
    place: Place,
    /// How many bytes.
    width: u8,
    value: Value,
}

impl Cell {
    fn end(&self) -> i64 {
        self.place.plus(self.width)
    }
}

/// What is known about a function's frame.
#[derive(Clone, PartialEq, Debug)]
pub struct Frame {
    /// Sorted by place, without overlaps.
    cells: Vec<Cell>,
    /// From each of these places to the end of its part of the frame, others may write.
    exposed: Vec<Place>,
    /// The arguments, from this offset on, may have changed since the function was entered.
    arguments_lost: i64,
}

impl Frame {
    /// The frame of a function that has not done anything yet.
    pub fn new() -> Frame {
        Frame { cells: Vec::new(), exposed: Vec::new(), arguments_lost: i64::MAX }
    }

    /// The frame of which nothing is known.
    pub fn lost() -> Frame {
        Frame { arguments_lost: 0, ..Frame::new() }
    }

    fn overlapping(&self, place: Place, width: u8) -> std::ops::Range<usize> {
        let first = self.cells.partition_point(|cell| {
            (cell.place.frame, cell.end().saturating_sub(1)) < (place.frame, place.offset)
        });
        let count = self.cells[first..]
            .iter()
            .take_while(|cell| cell.place.frame == place.frame && cell.place.offset < place.plus(width))
            .count();
        first..first + count
    }

    /// The `width` bytes at a place: `None` if the function has not written there since it was entered and
    /// they are not an argument.
    pub fn load(&self, place: Place, width: u8, domain: &mut Domain) -> Option<Value> {
        let cells = &self.cells[self.overlapping(place, width)];
        let Some(cell) = cells.first() else { return self.argument(place, width, domain) };
        if cells.len() > 1 || cell.place.offset > place.offset || cell.end() < place.plus(width) {
            return Some(Value::Any); // pieces of several values
        }
        if cell.place == place && cell.width == width {
            return Some(cell.value.clone());
        }
        let shift = 8 * (place.offset - cell.place.offset) as u32;
        Some(cell.value.map(|atom| match atom.as_number() {
            Some(number) => Some(Atom::number((number >> shift) & super::domain::low_mask(width))),
            None if shift == 0 => domain.low(atom, width, (0, u64::MAX)),
            None => None,
        }))
    }

    /// What the caller left at a place.
    fn argument(&self, place: Place, width: u8, domain: &mut Domain) -> Option<Value> {
        let untouched = domain.is_argument(place) && place.plus(width) <= self.arguments_lost;
        let at = domain.address(place);
        untouched.then(|| domain.value(Origin::Memory { at, width, when: When::Entry }))
    }

    /// Writes to a place.
    pub fn store(&mut self, place: Place, width: u8, value: Value) {
        let range = self.overlapping(place, width);
        // What is left of a cell that is partly overwritten is forgotten, but stays written.
        let rests: Vec<Cell> = self.cells[range.clone()]
            .iter()
            .flat_map(|cell| {
                let part = |from: i64, to: i64| Cell {
                    place: Place { offset: from, ..place },
                    width: (to - from).clamp(0, 255) as u8,
                    value: Value::Any,
                };
                [part(cell.place.offset, place.offset), part(place.plus(width), cell.end())]
            })
            .filter(|cell| cell.width > 0)
            .collect();
        self.cells.splice(range, rests.into_iter().chain([Cell { place, width, value }]));
        self.cells.sort_unstable_by_key(|cell| cell.place);
    }

    /// Forgets everything from a place to the end of its part of the frame.
    pub fn forget_from(&mut self, from: Place, domain: &Domain) {
        let argument = domain.is_argument(from);
        for cell in &mut self.cells {
            let number = cell.value.as_number();
            let spilled = number.is_some() && number == domain.global_offset_table;
            if cell.place.frame == from.frame
                && cell.end() > from.offset
                && domain.is_argument(cell.place) == argument
                && !spilled
            {
                domain.lose(&cell.value);
                cell.value = Value::Any;
            }
        }
        if argument {
            self.arguments_lost = self.arguments_lost.min(from.offset);
        }
    }

    /// Forgets what lies below the stack pointer, where a callee has its frame.
    pub fn forget_below(&mut self, place: Place) {
        self.cells.retain(|cell| cell.place.frame != place.frame || cell.end() > place.offset);
    }

    /// Others get to know the address of this place.
    pub fn expose(&mut self, place: Place, domain: &Domain) {
        let argument = domain.is_argument(place);
        let known = self
            .exposed
            .iter_mut()
            .find(|exposed| exposed.frame == place.frame && domain.is_argument(**exposed) == argument);
        match known {
            Some(exposed) => exposed.offset = exposed.offset.min(place.offset),
            None => self.exposed.push(place),
        }
    }

    /// Others get to know every address in the frame that this value may be.
    pub fn expose_value(&mut self, value: &Value, domain: &Domain) {
        for place in value.atoms().iter().filter_map(|&atom| domain.place(atom)) {
            self.expose(place, domain);
        }
    }

    /// A value becomes part of an unknown one: an address in the frame may still be used by that name.
    pub fn lose(&mut self, value: &Value, domain: &Domain) {
        domain.lose(value);
        self.expose_value(value, domain);
    }

    /// Others get to know every address in the frame that is kept in it.
    pub fn expose_contents(&mut self, domain: &Domain) {
        let values: Vec<Value> = self.cells.iter().map(|cell| cell.value.clone()).collect();
        for value in &values {
            self.expose_value(value, domain);
        }
    }

    /// Others wrote to memory, not known where.
    pub fn written_by_others(&mut self, domain: &Domain) {
        for place in self.exposed.clone() {
            self.forget_from(place, domain);
        }
    }

    /// See `State::forget_origin`.
    pub(super) fn forget_origin(&mut self, origin: OriginId, domain: &Domain) {
        let from_it = |atom: &Atom| domain.origins.root(atom.origin) == origin;
        self.cells.retain(|cell| cell.place.frame != origin);
        self.exposed.retain(|place| place.frame != origin);
        for cell in &mut self.cells {
            if cell.value.atoms().iter().any(from_it) {
                cell.value = Value::Any;
            }
        }
    }

    /// Makes this frame hold for `other` too, see `State::join`. `unite` joins two values.
    pub(super) fn join(
        &mut self,
        other: &Frame,
        widen: bool,
        domain: &mut Domain,
        mut unite: impl FnMut(&Value, &Value) -> Value,
    ) {
        let mut cells = Vec::with_capacity(self.cells.len());
        let only_theirs =
            other.cells.iter().filter(|cell| self.overlapping(cell.place, cell.width).is_empty());
        for cell in self.cells.iter().chain(only_theirs) {
            let mine = self.load(cell.place, cell.width, domain).unwrap_or(Value::Any);
            let theirs = other.load(cell.place, cell.width, domain).unwrap_or(Value::Any);
            // What is written on one way only stays a cell, lest an argument seem untouched.
            cells.push(Cell { value: unite(&mine, &theirs), ..cell.clone() });
        }
        cells.sort_unstable_by_key(|cell| cell.place);
        // Theirs that overlap mine in part make both unknown.
        for cell in &other.cells {
            for mine in &self.cells[self.overlapping(cell.place, cell.width)] {
                let same = mine.place == cell.place && mine.width == cell.width;
                if !same {
                    let from = cell.place.offset.min(mine.place.offset);
                    let width = cell.end().max(mine.end()) - from;
                    let place = Place { offset: from, ..cell.place };
                    let mut joined = Frame { cells, exposed: Vec::new(), arguments_lost: 0 };
                    joined.store(place, width.clamp(0, 255) as u8, Value::Any);
                    cells = joined.cells;
                }
            }
        }
        self.cells = cells;
        for &place in &other.exposed {
            let known = self.exposed.contains(&place);
            self.expose(place, domain);
            if widen && !known && !domain.is_argument(place) {
                // Addresses that move with every round: take the whole part of the frame.
                self.expose(Place { offset: i64::MIN, ..place }, domain);
            }
        }
        self.arguments_lost = self.arguments_lost.min(other.arguments_lost);
    }
}

//! The data that all states of one analysis share: the origins, the word size, and the origin of the frame.

use std::cell::Cell;
use std::ops::Range;

use kflow::values::{Element, Span, Unknowns};
use kisa::{Reg, low_mask, sign_extend};

use super::place::Place;
use crate::image::Addr;
use crate::values::{Atom, Origin, OriginId, Origins, ValueSet};

/// Maximum number of places after a watched pointer that are distinguished.
const MAX_BLENDED: usize = 8;

/// The origins and the arithmetic of a machine's words.
pub struct Domain {
    /// All origins so far.
    pub origins: Origins,
    /// The stack pointer at the function's entry. It points to the return address.
    pub frame: OriginId,
    /// A word of ones.
    pub mask: u64,
    /// The number of registers, see [`kisa::Isa::registers`].
    pub(super) registers: usize,
    /// The addresses of the global offset tables, if i386 code refers to data relative to them. Compilers spill them,
    /// but no variable ever holds them.
    pub global_offset_tables: Vec<u64>,
    /// Addresses in the frame that other code never overwrites, see [`super::Flows::keeping_constants`].
    pub(super) kept: Vec<Range<u64>>,
    /// The address ranges of code.
    pub code: Vec<Range<u64>>,
    /// The pointer that is tracked through the function, see [`crate::follow`].
    pub watched: Option<OriginId>,
    /// An instruction that loads an address, the address, and an unknown that represents it, so that it can be watched.
    pub address_made: Option<(Addr, u64, OriginId)>,
    /// The current instruction.
    pub(super) at: Addr,
    /// The instruction at which the watched value could not be tracked further.
    lost: Cell<Option<Addr>>,
}

impl Domain {
    /// Creates a domain for words of `word` bytes.
    pub fn new(word: u8, stack_pointer: Reg, registers: usize) -> Domain {
        let mut origins = Origins::default();
        let frame = origins.add(Origin::Register(stack_pointer));
        Domain {
            frame: frame.map_or(OriginId::NUMBER, |(id, _)| id),
            origins,
            mask: low_mask(word),
            registers,
            global_offset_tables: Vec::new(),
            kept: Vec::new(),
            code: Vec::new(),
            watched: None,
            address_made: None,
            at: Addr(0),
            lost: Cell::new(None),
        }
    }

    /// Returns whether other code never overwrites a number in the frame.
    pub(super) fn is_kept(&self, number: u64) -> bool {
        self.global_offset_tables.contains(&number) || self.kept.iter().any(|range| range.contains(&number))
    }

    /// Starts or ends watching a value.
    pub fn watch(&mut self, watched: Option<OriginId>) {
        self.watched = watched;
        self.lost.set(None);
    }

    /// Returns the instruction at which the watched value could not be tracked further.
    pub fn lost(&self) -> Option<Addr> {
        self.lost.get()
    }

    /// Returns a value id that replaces other values, joined with the watched pointer if one of them may be the
    /// pointer.
    pub(super) fn blend<'v>(
        &self,
        name: ValueSet,
        others: impl IntoIterator<Item = &'v ValueSet>,
    ) -> ValueSet {
        let Some(watched) = self.watched else { return name };
        let atoms = others.into_iter().flat_map(ValueSet::elements).copied();
        let parts: Vec<Atom> = atoms.filter(|atom| atom.origin == watched).collect();
        if parts.is_empty() {
            return name;
        }
        let name = match name {
            ValueSet::Any => ValueSet::One(Atom::of(OriginId::UNKNOWN)),
            name => name,
        };
        if parts.len() > MAX_BLENDED {
            self.lost.set(Some(self.at));
        }
        name.join(&ValueSet::of(parts))
    }

    /// Records that a value becomes part of an unknown one: if it may be the watched pointer, tracking ends here.
    pub(super) fn lose(&self, value: &ValueSet) {
        if value.elements().iter().any(|atom| Some(atom.origin) == self.watched) {
            self.lost.set(Some(self.at));
        }
    }

    /// Returns whether a value is one of several code addresses. Programs do not compute with code addresses, so that
    /// there are never many.
    pub(super) fn is_addresses_of_code(&self, value: &ValueSet) -> bool {
        let is_code = |number: u64| self.code.iter().any(|range| range.contains(&number));
        value.is_numbers() && value.elements().iter().all(|atom| is_code(atom.offset))
    }

    /// Returns an atom plus a number.
    pub fn plus(&self, atom: Atom, number: u64) -> Atom {
        atom.plus(number, self.mask)
    }

    /// Returns the place in the frame at an address, if it is in the frame.
    pub fn place(&self, address: Atom) -> Option<Place> {
        let in_frame =
            address.origin == self.frame || matches!(self.origins.get(address.origin), Origin::Frame { .. });
        // Offsets are modulo the word; a frame grows down.
        let offset = if self.mask == u64::MAX {
            address.offset as i64
        } else {
            i64::from(address.offset as u32 as i32)
        };
        in_frame.then_some(Place { frame: address.origin, offset })
    }

    /// Returns the address of a place.
    pub fn address(&self, place: Place) -> Atom {
        Atom { origin: place.frame, offset: place.offset as u64 & self.mask }
    }

    /// Returns whether a place belongs to the stack arguments or is the return address below them.
    pub fn is_argument(&self, place: Place) -> bool {
        place.frame == self.frame && place.offset >= 0
    }

    /// Returns whether a value is made from one of these origins. An origin has a higher number than its parts.
    pub(super) fn is_made_from(&self, value: &ValueSet, origins: &[OriginId]) -> bool {
        let is_root =
            |atom: &Atom, root: OriginId| root <= atom.origin && self.origins.root(atom.origin) == root;
        value.elements().iter().any(|atom| origins.iter().any(|&root| is_root(atom, root)))
    }

    /// Returns a value of this origin.
    pub fn value(&mut self, origin: Origin) -> ValueSet {
        self.origins.add(origin).map_or(ValueSet::Any, |(id, _)| ValueSet::One(Atom::of(id)))
    }

    /// Returns an atom's low `width` bytes, zero-extended, as an atom: the atom itself if its range fits.
    pub fn low(&mut self, atom: Atom, width: u8, Span { high, .. }: Span) -> Option<Atom> {
        let mask = low_mask(width) & self.mask;
        match atom.as_number() {
            Some(number) => Some(Atom::number(number & mask)),
            None if high <= mask => Some(atom),
            None => {
                // The low byte of the low half of a value is the low byte of the value itself, and likewise for a
                // sign-extended value.
                let of = match self.origins.get(atom.origin) {
                    Origin::Low { of, width: wider } if width <= wider => self.plus(of, atom.offset),
                    Origin::Signed { of, width: narrow } if width == narrow && atom.offset == 0 => {
                        return Some(of);
                    }
                    _ => atom,
                };
                self.origins.add(Origin::Low { of, width }).map(|(id, _)| Atom::of(id))
            }
        }
    }

    /// Returns the low `from` bytes of an atom in a given range, sign-extended to `width` bytes.
    pub fn sign_extend(&mut self, atom: Atom, from: u8, width: u8, Span { high, .. }: Span) -> Option<Atom> {
        if let Some(number) = atom.as_number() {
            return Some(Atom::number(sign_extend(number, from) & low_mask(width) & self.mask));
        }
        if high <= low_mask(from) / 2 || low_mask(from) & self.mask == self.mask {
            return Some(atom);
        }
        match self.origins.get(atom.origin) {
            Origin::Element { table, stride, width: size, at, .. } if size == from && atom.offset == 0 => {
                let element = Origin::Element { table, stride, width: size, signed: true, at };
                self.origins.add(element).map(|(id, _)| Atom::of(id))
            }
            _ if width == self.mask.count_ones() as u8 / 8 && high <= low_mask(from) => {
                self.origins.add(Origin::Signed { of: atom, width: from }).map(|(id, _)| Atom::of(id))
            }
            _ => None,
        }
    }
}

impl Unknowns<Atom> for Domain {
    fn mask(&self) -> u64 {
        self.mask
    }

    fn fits(&self, unknown: Atom) -> Option<(u8, Option<Atom>)> {
        match self.origins.get(unknown.origin) {
            Origin::Low { of, width } => Some((width, Some(of))),
            Origin::Memory { width, .. } | Origin::Element { width, signed: false, .. } => {
                Some((width, None))
            }
            Origin::Number
            | Origin::Unknown
            | Origin::Register(_)
            | Origin::Made { .. }
            | Origin::Signed { .. }
            | Origin::Frame { .. }
            | Origin::Element { signed: true, .. } => None,
        }
    }

    fn are_copies_equal(&self, unknown: Atom) -> bool {
        unknown.origin != OriginId::UNKNOWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_wrap_and_frames_grow_down() {
        let domain = Domain::new(4, Reg(4), 8);
        let below = domain.plus(Atom::of(domain.frame), (-8i64) as u64);
        assert_eq!(below.offset, 0xffff_fff8);
        let place = domain.place(below).unwrap();
        assert_eq!(place.offset, -8);
        assert_eq!(domain.address(place), below);
        assert!(!domain.is_argument(place));
        assert_eq!(domain.place(Atom::number(8)), None);
    }

    #[test]
    fn extensions() {
        let mut domain = Domain::new(8, Reg(4), 16);
        let atom = Atom::of(domain.frame);
        let low = domain.low(atom, 4, Span::new(0, u64::MAX)).unwrap();
        assert_ne!(low, atom);
        assert_eq!(domain.low(low, 4, Span::new(0, 0xffff_ffff)), Some(low));
        assert_eq!(domain.sign_extend(low, 4, 8, Span::new(0, 5)), Some(low));
        // A value that may be negative becomes another unknown, the same each time.
        let signed = domain.sign_extend(low, 4, 8, Span::new(0, 0xffff_ffff));
        assert_ne!(signed, Some(low));
        assert_eq!(domain.sign_extend(low, 4, 8, Span::new(0, 0xffff_ffff)), signed);
    }
}

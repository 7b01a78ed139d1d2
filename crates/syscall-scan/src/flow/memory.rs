//! Loads and stores.
//!
//! There are three kinds of memory. The function's own frame is tracked cell by cell, and constant memory is read from
//! the file. For all other memory, only the place of the load is recorded, so that a resolver can search for the
//! stores.

use std::rc::Rc;

use kflow::values::{Element, Span};
use kisa::Address;

use super::place::Place;
use super::state::KnownLoad;
use super::step::{MAX_FEW, SLOT_INDEX, SLOT_SCALED, Step};
use crate::image::Addr;
use crate::values::{Atom, Origin, OriginId, ValueSet, When};

/// Maximum number of entries in a table that is read as a whole.
const MAX_ENTRIES: u64 = 1024;

/// Maximum number of loads from outside the frame that are remembered.
const MAX_LOADED: usize = 6;

/// The possible values of an address expression.
enum Pointer {
    /// One of these.
    Known(ValueSet),
    /// A number plus a scaled unknown.
    Indexed { table: Addr, index: Atom, stride: u8 },
    /// Somewhere after this place in the frame.
    Within(Place),
    /// Any address.
    Unknown,
}

impl Step<'_> {
    fn pointer(&mut self, address: &Address) -> Pointer {
        if address.segment.is_some() {
            return Pointer::Unknown;
        }
        let displacement = ValueSet::number(address.displacement as u64 & self.domain.mask);
        let base = match address.base {
            Some(reg) => {
                self.unite(reg);
                let base = self.read(reg);
                base.sum(&displacement, self.domain.mask)
            }
            None => displacement,
        };
        let Some((index, stride)) = address.index else {
            return match base {
                ValueSet::Any => Pointer::Unknown,
                base => Pointer::Known(base),
            };
        };
        let index = self.read(index);
        let scaled = index.map(|atom| {
            if stride == 1 {
                return Some(atom);
            }
            let number = atom.as_number()?.wrapping_mul(stride.into());
            Some(Atom::number(number & self.domain.mask))
        });
        let sum = base.sum(&scaled, self.domain.mask);
        if sum != ValueSet::Any {
            return Pointer::Known(self.in_object(&base, sum));
        }
        let place = |value: &ValueSet| value.single().and_then(|atom| self.domain.place(atom));
        if let Some(place) = place(&base).or_else(|| place(&scaled)) {
            return Pointer::Within(place);
        }
        // `table(%eax,%eax,1)` has entries of two bytes.
        if let (Some(one), Some(other)) = (base.single(), index.single()) {
            if one.origin == other.origin && one.as_number().is_none() {
                let table = one.offset.wrapping_add(other.offset.wrapping_mul(stride.into()));
                let table = Addr(self.image.wrap(table));
                return Pointer::Indexed { table, index: Atom::of(one.origin), stride: stride + 1 };
            }
        }
        let Some(table) = base.as_number().map(Addr) else { return Pointer::Unknown };
        let index = match index {
            ValueSet::One(index) => ValueSet::One(index),
            several => {
                let span = self.state.ranges.of(&several, self.domain);
                self.make_within(SLOT_INDEX, span)
            }
        };
        match index.single() {
            Some(index) => Pointer::Indexed { table, index, stride },
            None => Pointer::Unknown,
        }
    }

    /// Returns the sums of a data address and an index, except those in other objects: a comparison has ruled out such
    /// an index. (The distance between objects is unknown before they are loaded.)
    fn in_object(&self, base: &ValueSet, sum: ValueSet) -> ValueSet {
        let Some(object) = base.as_number().and_then(|base| self.image.object_index(Addr(base))) else {
            return sum;
        };
        let is_own = |atom: &&Atom| {
            atom.as_number().is_none_or(|sum| self.image.object_index(Addr(sum)) == Some(object))
        };
        match &sum {
            ValueSet::Many(atoms) if atoms.iter().any(|atom| is_own(&atom)) => {
                ValueSet::of(atoms.iter().filter(is_own).copied().collect())
            }
            _ => sum,
        }
    }

    /// Returns the address itself, as `lea` computes it.
    pub(super) fn address_of(&mut self, address: &Address) -> ValueSet {
        let value = match self.pointer(&Address { segment: None, ..*address }) {
            Pointer::Known(value) => value,
            Pointer::Within(place) => {
                // A frame address at an unknown offset.
                self.state.frame.expose(place, self.domain);
                ValueSet::Any
            }
            Pointer::Indexed { table, index, stride } => match self.few(address) {
                ValueSet::Any => self.entry_address(table, index, stride),
                few => few,
            },
            Pointer::Unknown => self.few(address),
        };
        if value == ValueSet::Any {
            let registers = address.base.into_iter().chain(address.index.map(|(reg, _)| reg));
            for reg in registers {
                let part = self.read(reg);
                self.state.frame.lose(&part, self.domain);
            }
        }
        value
    }

    /// Returns the address of a table entry; machines without scaled addressing compute it before the load.
    fn entry_address(&mut self, table: Addr, index: Atom, stride: u8) -> ValueSet {
        if !stride.is_power_of_two() {
            return ValueSet::Any;
        }
        let (stride, mask) = (u64::from(stride), self.domain.mask);
        let Span { low, high, step } = self.state.ranges.get(index, self.domain);
        let scaled = match high <= mask / stride {
            true => Span { low: low * stride, high: high * stride, step: step * stride },
            false => Span { low: 0, high: mask / stride * stride, step: stride },
        };
        self.make_within(SLOT_SCALED, scaled).map(|atom| Some(self.domain.plus(atom, table.0)))
    }

    /// Returns the possible numbers of `lea 6(%eax,%eax,8)` if `%eax` is known to be small.
    fn few(&mut self, address: &Address) -> ValueSet {
        let (Some((index, stride)), None) = (address.index, address.segment) else {
            return ValueSet::Any;
        };
        let Some(atom) = self.read(index).single() else { return ValueSet::Any };
        let base = address.base.map(|base| self.read(base));
        let same = base.as_ref().is_some_and(|base| base.single() == Some(atom));
        let first = base.as_ref().and_then(ValueSet::as_number).unwrap_or(0);
        let span = self.state.ranges.get(atom, self.domain);
        if !same && base.is_some_and(|base| base.as_number().is_none()) || span.steps() > MAX_FEW {
            return ValueSet::Any;
        }
        let factor = u64::from(stride) + u64::from(same);
        let number = |number: u64| {
            let sum =
                number.wrapping_mul(factor).wrapping_add(address.displacement as u64).wrapping_add(first);
            Atom::number(sum & self.domain.mask)
        };
        ValueSet::of(span.iter().map(number).collect())
    }

    pub(super) fn load(&mut self, from: &Address, width: u8) -> ValueSet {
        self.loads = self.loads.saturating_add(1);
        let value = match self.pointer(from) {
            Pointer::Known(value) => match value.single() {
                Some(atom) => self.load_unknown_plus_table(atom, width),
                None => {
                    let loaded = value.elements().iter().map(|&atom| self.load_from(atom, width));
                    loaded.reduce(|a, b| a.join(&b)).unwrap_or(ValueSet::Any)
                }
            },
            Pointer::Indexed { table, index, stride } => self.load_entry(table, index, stride, width),
            Pointer::Within(_) => ValueSet::Any,
            Pointer::Unknown => self.load_through_two(from, width),
        };
        if value != ValueSet::Any {
            return value;
        }
        self.make_loaded(width)
    }

    /// Loads through one address. `table(%eax)` is a table entry if `%eax` is known to be small.
    fn load_unknown_plus_table(&mut self, atom: Atom, width: u8) -> ValueSet {
        if atom.as_number().is_none() && self.domain.place(atom).is_none() {
            let (index, table) = (Atom::of(atom.origin), Addr(atom.offset));
            let span = self.state.ranges.get(index, self.domain);
            let steps = span.low == 0 && span.high < self.domain.mask && span.step >= width.into();
            if steps && self.image.constant(table, width).is_some() {
                return self.load_entry(table, index, 1, width);
            }
            let span = self.state.ranges.get(atom, self.domain);
            if span.steps() <= MAX_ENTRIES && self.image.constant(Addr(span.low), width).is_some() {
                return self.load_entry(Addr(0), atom, 1, width);
            }
        }
        self.load_from(atom, width)
    }

    fn load_from(&mut self, address: Atom, width: u8) -> ValueSet {
        if let Some(place) = self.domain.place(address) {
            return self.load_from_frame(place, width);
        }
        if let Some(number) = address.as_number() {
            if let Some(content) = self.image.constant(Addr(number), width) {
                return ValueSet::number(content);
            }
        }
        self.load_once(address, None, width, |step| step.load_from_outside(address, width))
    }

    /// Loads once: `cmpb $5,mode; ja …; movzbl mode,%eax` reads a variable twice and means one value.
    fn load_once(
        &mut self,
        at: Atom,
        index: Option<(Atom, u8)>,
        width: u8,
        load: impl FnOnce(&mut Self) -> ValueSet,
    ) -> ValueSet {
        let is_it = |known: &&KnownLoad| known.at == at && known.index == index && known.width == width;
        if let Some(known) = self.state.loaded.iter().find(is_it) {
            return known.value.clone();
        }
        let value = load(self);
        // In a loop, the new value may reuse the id of an unknown in the address.
        let root = |atom: Atom| self.domain.origins.root(atom.origin);
        let made_of = [Some(at), index.map(|(index, _)| index)].into_iter().flatten().map(root);
        let mut made_of = made_of.filter(|&origin| origin != OriginId::NUMBER);
        let renamed = made_of.any(|origin| value.elements().iter().any(|&atom| root(atom) == origin));
        let is_entry = value.elements().iter().all(|atom| {
            matches!(self.domain.origins.get(atom.origin), Origin::Memory { when: When::Entry, .. })
        });
        if !renamed || is_entry {
            let loaded = Rc::make_mut(&mut self.state.loaded);
            if loaded.len() >= MAX_LOADED {
                loaded.remove(0);
            }
            loaded.push(KnownLoad { at, index, width, value: value.clone() });
        }
        value
    }

    /// Loads from `table(%eax,%ecx,4)` with both registers unknown.
    fn load_through_two(&mut self, from: &Address, width: u8) -> ValueSet {
        let (Some(base), Some((index, stride)), None) = (from.base, from.index, from.segment) else {
            return ValueSet::Any;
        };
        let (base, index) = (self.read(base), self.read(index));
        let (Some(base), Some(index)) = (base.single(), index.single()) else { return ValueSet::Any };
        let at = self.domain.plus(base, from.displacement as u64);
        self.load_once(at, Some((index, stride)), width, |step| step.make_loaded(width))
    }

    fn load_from_outside(&mut self, address: Atom, width: u8) -> ValueSet {
        // A caller cannot interpret an address that the function itself computed.
        let root = self.domain.origins.root(address.origin);
        if matches!(
            self.domain.origins.get(root),
            Origin::Made { .. } | Origin::Element { .. } | Origin::Unknown
        ) {
            return self.make_loaded(width);
        }
        let outside = address.as_number().is_none();
        let untouched = outside && !self.state.dirty;
        let when = if untouched { When::Entry } else { When::Later(self.at) };
        self.name(Origin::Memory { at: address, width, when })
    }

    fn load_from_frame(&mut self, place: Place, width: u8) -> ValueSet {
        if !self.trust_frame {
            return ValueSet::Any;
        }
        match self.state.frame.load(place, width, self.domain) {
            None => {
                let value = self.make_loaded(width);
                if !self.domain.is_argument(place) {
                    self.state.frame.store(place, width, value.clone(), self.domain);
                }
                value
            }
            Some(value) => value,
        }
    }

    /// Gives a variable in the frame a value id, like [`Step::unite`] for registers.
    pub(super) fn unite_cell(&mut self, at: &Address, width: u8) {
        let Pointer::Known(address) = self.pointer(at) else { return };
        let Some(place) = address.single().and_then(|atom| self.domain.place(atom)) else { return };
        let value = self.state.frame.load(place, width, self.domain);
        if let Some(value) = value.filter(|value| self.is_mixed(value)) {
            self.state.frame.lose(&value, self.domain);
            let named = self.make_loaded(width);
            self.state.frame.store(place, width, named, self.domain);
        }
    }

    /// Loads a table entry: the set of all entries within the index range, or an unknown one.
    fn load_entry(&mut self, table: Addr, index: Atom, stride: u8, width: u8) -> ValueSet {
        let span = self.state.ranges.get(index, self.domain);
        // An unknown byte is not a bound: few tables have 256 entries.
        if span.steps() <= MAX_ENTRIES && span.steps() != 0xff {
            let entry = |index: u64| {
                let at = table.0.wrapping_add(index.wrapping_mul(stride.into()));
                self.image.constant(Addr(self.image.wrap(at)), width).map(Atom::number)
            };
            let entries: Option<Vec<Atom>> = span.iter().map(entry).collect();
            return entries.map_or(ValueSet::Any, ValueSet::of);
        }
        let stride = u8::try_from(u64::from(stride).saturating_mul(span.step)).unwrap_or(stride);
        if self.image.constant(table, width).is_none() {
            return ValueSet::Any;
        }
        self.name(Origin::Element { table, stride, width, signed: false, at: self.at })
    }

    /// Writes the low bytes of a value to an address.
    pub(super) fn store_to(&mut self, to: &Address, value: ValueSet, width: u8) {
        let value = if width <= 8 { self.low(value, width) } else { ValueSet::Any };
        match self.pointer(to) {
            Pointer::Known(addresses) => {
                let places = addresses.elements().iter().filter_map(|&atom| self.domain.place(atom));
                let places: Vec<Place> = places.collect();
                let all_in_frame = places.len() == addresses.elements().len();
                if let (true, &[place]) = (all_in_frame, &places[..]) {
                    return self.state.frame.store(place, width, value, self.domain);
                }
                for place in places {
                    self.state.frame.store(place, width, ValueSet::Any, self.domain);
                }
                if all_in_frame {
                    return self.state.frame.expose_value(&value, self.domain);
                }
            }
            Pointer::Within(place) => {
                self.state.frame.lose(&value, self.domain);
                return self.state.frame.forget_from(place, self.domain);
            }
            Pointer::Indexed { .. } | Pointer::Unknown => {}
        }
        self.state.frame.expose_value(&value, self.domain);
        self.state.written_by_others(self.domain);
    }

    /// Writes an unknown number of bytes, from an address on or anywhere.
    pub(super) fn clobber_from(&mut self, from: Option<&Address>) {
        let places = match from.map_or(Pointer::Unknown, |from| self.pointer(from)) {
            Pointer::Known(addresses) => {
                addresses.elements().iter().map(|&atom| self.domain.place(atom)).collect()
            }
            Pointer::Within(place) => vec![Some(place)],
            Pointer::Indexed { .. } | Pointer::Unknown => vec![None],
        };
        for place in places {
            match place {
                Some(place) => self.state.frame.forget_from(place, self.domain),
                None => self.state.written_by_others(self.domain),
            }
        }
    }
}

//! One instruction: applies its effects to a state.

mod effects;

use kisa::{Address, BinaryOp, Effect, Reg, low_bytes, low_mask};
use smallvec::SmallVec;

use super::memory::Place;
use super::names::{Name, Names, Site, Term, TermSet};
use super::ranges::Span;
use super::set::Element;
use super::state::{SLOT_JOINED, State};
use crate::apply;

/// Slots distinguish the results of one instruction: registers that it writes have their own numbers, registers that it
/// reads follow from here,
const SLOT_READ: u8 = 64;
/// and its loads, sums and masks from here.
const SLOT_MADE: u8 = 128;

impl State {
    /// Applies the effects of an instruction.
    pub fn apply(&mut self, names: &mut Names, at: Site, effects: &[Effect]) {
        // No value may still have a name that the instruction is about to reuse.
        if names.makers.contains(&at) {
            self.forget(
                names,
                |name| matches!(name, Name::Made { at: old, .. } | Name::Frame { at: old } if old == at),
            );
        }
        Step::new(self, names, at).run(effects);
    }
}

/// An instruction being applied to a state.
pub(super) struct Step<'s> {
    state: &'s mut State,
    names: &'s mut Names,
    at: Site,
    /// Number of unknowns made so far, except those of registers.
    made: u8,
    /// The slots of the unknowns made so far, as bits, if the state contains no older ones of this instruction; `None`
    /// if it may.
    slots: Option<[u64; 4]>,
    /// Whether the remaining effects may not happen.
    maybe: bool,
}

impl<'s> Step<'s> {
    pub(super) fn new(state: &'s mut State, names: &'s mut Names, at: Site) -> Step<'s> {
        Step { state, names, at, made: 0, slots: None, maybe: false }
    }

    /// Applies effects. The state must contain no earlier results of the instruction.
    pub(super) fn run(mut self, effects: &[Effect]) {
        self.slots = Some([0; 4]);
        effects.iter().for_each(|effect| apply(&mut self, effect));
    }

    fn make(&mut self, slot: u8) -> Term {
        let again = self.slots.as_mut().is_none_or(|slots| {
            let (word, bit) = (&mut slots[usize::from(slot / 64)], 1 << (slot % 64));
            let again = *word & bit != 0;
            *word |= bit;
            again
        });
        self.state.make(Name::Made { at: self.at, slot }, again, self.names)
    }

    fn make_other(&mut self) -> Term {
        let slot = SLOT_MADE + self.made;
        debug_assert!(slot < SLOT_JOINED, "no instruction makes so many values");
        self.made += 1;
        self.make(slot)
    }

    /// Reads a whole register. An unknown without a name gets one, so that its copies are known to be equal.
    fn read(&mut self, reg: Reg) -> TermSet {
        let value = self.state.register(reg);
        if !value.is_any() {
            return value.clone();
        }
        let named = TermSet::One(self.make(SLOT_READ + reg.0));
        self.state.set_register(reg, named.clone());
        named
    }

    fn range(&self, term: Term) -> Span {
        self.state.ranges.get(term, self.names)
    }

    /// Returns the low bytes of a value, zero-extended.
    fn low(&mut self, value: TermSet, width: u8) -> TermSet {
        let mask = low_mask(width);
        if mask >= self.names.mask {
            return value;
        }
        value.map(|term| match term.as_number() {
            Some(number) => Some(Term::number(number & mask)),
            None if self.range(term).high <= mask => Some(term),
            None => {
                // The low byte of the low half of a value is the low byte of the value.
                let of = match self.names.get(term.name) {
                    Name::Low { of, width: wider } if width <= wider => self.names.plus(of, term.offset),
                    _ => term,
                };
                self.state.memory.is_exposed |= self.names.is_frame(of.name);
                Some(Term::of(self.names.add(Name::Low { of, width }).0))
            }
        })
    }

    /// Records that a value becomes part of something unknown. If it is an address in the frame, that may be used
    /// later.
    fn lose(&mut self, value: &TermSet) {
        let framed = value.elements().iter().any(|term| self.names.is_frame(term.name));
        self.state.memory.is_exposed |= framed;
    }

    /// Records the use of an address that is one of several places.
    fn lose_address(&mut self, address: &Address) {
        let parts = [address.base, address.index.map(|(index, _)| index)];
        for reg in parts.into_iter().flatten() {
            let value = self.state.register(reg).clone();
            self.lose(&value);
        }
    }

    /// Returns the place of an address expression; `None` if a part of it is one of several terms.
    pub(super) fn place(&mut self, address: &Address) -> Option<Place> {
        // Read both registers first: naming one may invalidate the other's name.
        let registers = [address.base, address.index.map(|(index, _)| index)];
        registers.into_iter().flatten().for_each(|reg| drop(self.read(reg)));
        let mask = self.names.mask;
        let mut place = Place { parts: SmallVec::new(), displacement: 0, segment: address.segment };
        let mut add = |term: Term, times: u8| {
            place.displacement =
                place.displacement.wrapping_add(term.offset.wrapping_mul(times.into())) & mask;
            if term.as_number().is_none() {
                place.parts.push((term.name, times));
            }
        };
        add(Term::number(address.displacement as u64), 1);
        if let Some(symbol) = address.symbol {
            add(self.names.symbol(symbol, 0), 1);
        }
        if let Some(base) = address.base {
            add(self.read(base).single()?, 1);
        }
        if let Some((index, scale)) = address.index {
            add(self.read(index).single()?, scale);
        }
        place.parts.sort_unstable();
        Some(place)
    }

    /// Returns an address as a value.
    fn address(&mut self, address: &Address) -> TermSet {
        if address.segment.is_some() {
            return TermSet::Any;
        }
        let base = match (address.symbol, address.base) {
            (Some(symbol), None) => TermSet::One(self.names.symbol(symbol, 0)),
            (None, Some(base)) => self.read(base),
            (None, None) => TermSet::number(0),
            (Some(_), Some(base)) => {
                let base = self.read(base);
                self.lose(&base);
                TermSet::Any
            }
        };
        let base = base.map(|term| Some(self.names.plus(term, address.displacement as u64)));
        let Some((index, scale)) = address.index else { return base };
        let scaled = self.read(index);
        let names = &*self.names;
        let times = |index: Term| Some(index.as_number()?.wrapping_mul(scale.into()));
        let sum = base.zip(&scaled, |base, index| match base.as_number() {
            Some(number) if scale == 1 => Some(names.plus(index, number)),
            _ => Some(names.plus(base, times(index)?)),
        });
        if sum.is_any() {
            self.lose(&base);
            self.lose(&scaled);
        }
        sum
    }

    fn load(&mut self, from: &Address, width: u8) -> TermSet {
        let Some(place) = self.place(from) else { return TermSet::Any };
        if let Some((value, known)) = self.state.memory.load(&place, width, self.names) {
            let value = value.clone();
            return if known == width { value } else { self.low(value, width) };
        }
        if let Some(constant) = self.constant(&place, width) {
            return constant;
        }
        let loaded = self.make_other();
        let range = Span::new(0, low_mask(width) & self.names.mask);
        self.state.ranges.limit(loaded, range, self.names);
        self.state.memory.note(place, width, TermSet::One(loaded), self.names);
        TermSet::One(loaded)
    }

    /// Returns the content of constant memory at a place.
    fn constant(&mut self, place: &Place, width: u8) -> Option<TermSet> {
        let constant = self.names.constant_at(place, width)?;
        Some(match constant.symbol {
            Some(symbol) => TermSet::One(self.names.symbol(symbol, constant.number as i64)),
            None => TermSet::number(constant.number),
        })
    }

    /// Applies a mask to a value.
    fn masked(&mut self, value: &TermSet, mask: u64) -> TermSet {
        if matches!(mask, 0xff | 0xffff | 0xffff_ffff) {
            return self.low(value.clone(), (mask.count_ones() / 8) as u8);
        }
        let masked = self.make_other();
        self.state.ranges.limit(masked, Span::new(0, mask), self.names);
        TermSet::One(masked)
    }

    /// Computes an operation of `width` bytes on two values. `dst` is the register for the result.
    fn computed(&mut self, op: BinaryOp, dst: Reg, (left, right): (TermSet, TermSet), width: u8) -> TermSet {
        let names = &*self.names;
        let whole = low_mask(width) >= names.mask;
        let result = match op {
            BinaryOp::Add if whole => left.sum(&right, names.mask),
            BinaryOp::Sub if whole => left.difference(&right, names),
            _ => left.zip(&right, |a, b| op.compute(a.as_number()?, b.as_number()?, width).map(Term::number)),
        };
        if !result.is_any() {
            return result;
        }
        let framed = |value: &TermSet| value.elements().iter().any(|term| names.is_frame(term.name));
        if dst == self.names.stack_pointer && (framed(&left) || framed(&right)) {
            // The stack pointer is aligned, or moved to allocate an array.
            let moved = self.state.make(Name::Frame { at: self.at }, true, self.names);
            return TermSet::One(moved);
        }
        self.lose(&left);
        self.lose(&right);
        match (op, left.as_number(), right.as_number()) {
            (BinaryOp::And, None, Some(mask)) => self.masked(&left, low_bytes(mask, width)),
            (BinaryOp::And, Some(mask), None) => self.masked(&right, low_bytes(mask, width)),
            (BinaryOp::Shr, None, Some(bits)) if bits < 64 => {
                let Span { low, high, .. } = self.state.ranges.of(&left, self.names);
                let high = high.min(low_mask(width));
                let shifted = self.make_other();
                self.state.ranges.limit(shifted, Span::new(low.min(high) >> bits, high >> bits), self.names);
                TermSet::One(shifted)
            }
            _ => TermSet::Any,
        }
    }
}

//! A function's values in the terms of its callers.

use kflow::values::Element;

use super::Resolver;
use crate::flow::State;
use crate::image::Addr;
use crate::values::{Atom, Origin, OriginId, ValueSet, When};

impl Resolver<'_, '_> {
    /// Translates an atom of a function into the terms of its caller. `state` is the caller's state at the call.
    pub(crate) fn translate(&mut self, atom: Atom, state: &State, at: Addr) -> ValueSet {
        let value = self.translate_origin(atom.origin, state, at);
        let domain = &self.flows.domain;
        value.map(|found| Some(domain.plus(found, atom.offset)))
    }

    fn translate_origin(&mut self, origin: OriginId, state: &State, here: Addr) -> ValueSet {
        match self.flows.domain.origins.get(origin) {
            Origin::Number => ValueSet::number(0),
            Origin::Register(reg) => state.register(reg).clone(),
            Origin::Memory { at, width, when } => {
                let addresses = self.translate(at, state, here);
                let loaded = addresses.elements().iter();
                let loaded = loaded.map(|&address| self.load(address, width, when, state, here));
                loaded.reduce(|a, b| a.join(&b)).unwrap_or(ValueSet::Any)
            }
            origin @ (Origin::Signed { of, width } | Origin::Low { of, width }) => {
                let value = self.translate(of, state, here);
                let domain = &mut self.flows.domain;
                let word = domain.mask.count_ones() as u8 / 8;
                value.map(|atom| match (origin, state.ranges.get(atom, domain)) {
                    (Origin::Low { .. }, range) => domain.low(atom, width, range),
                    (_, range) => domain.sign_extend(atom, width, word, range),
                })
            }
            _ => ValueSet::Any,
        }
    }

    /// Returns the caller's value at an address.
    fn load(&mut self, address: Atom, width: u8, when: When, state: &State, at: Addr) -> ValueSet {
        let domain = &mut self.flows.domain;
        if let Some(place) = domain.place(address) {
            return match when {
                When::Entry => state.frame.load(place, width, domain).unwrap_or(ValueSet::Any),
                When::Later(_) => ValueSet::Any,
            };
        }
        if let Some(number) = address.as_number() {
            if let Some(content) = self.flows.code.image.constant(Addr(number), width) {
                return ValueSet::number(content);
            }
        }
        let when = if state.dirty { When::Later(at) } else { when };
        domain.value(Origin::Memory { at: address, width, when })
    }
}

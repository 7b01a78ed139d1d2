//! Encoding code, split into instructions, as the symbols of its pages.

use super::choose::{Atom, Matcher, Template};
use super::{Code, MORE, RAW_BYTE};

/// A unit of code: an instruction, or something else.
pub trait Unit {
    /// The templates of opcode symbols.
    type Template: Template;

    /// Number of literal bytes after one opcode symbol.
    const RAW_BYTES: usize;

    /// Its size in bytes.
    fn size(&self) -> usize;

    /// Appends its atoms, at least one.
    fn atoms(&self, out: &mut Vec<Atom<Self::Template>>);
}

/// Encodes units with a model, as the symbols that its decoder reads.
pub trait Encode<U: Unit> {
    /// The context at a place of a page.
    type State;

    /// The templates of the model.
    fn templates(&self) -> &Matcher<U::Template>;

    /// Returns the context at the start of the page at an address.
    fn start(&self, page: u32) -> Self::State;

    /// Encodes the unit at an address, except its first `known` atoms.
    fn rest(&self, unit: &U, known: usize, address: u32, state: &mut Self::State, out: &mut Vec<u32>);
}

/// A piece of code, split into units.
pub struct Units<'b, U> {
    /// The code.
    pub code: Code<'b>,
    /// Its units without gaps, each with its offset.
    pub units: Vec<(u32, U)>,
}

impl<U: Unit> Units<'_, U> {
    /// Iterates over the units with their addresses.
    pub fn by_address(&self) -> impl Iterator<Item = (u32, &U)> {
        self.units.iter().map(|(at, unit)| (self.code.address.wrapping_add(*at), unit))
    }

    /// Returns the symbols of the pages, as input of [`crate::codec::symbols::Recorder`].
    pub fn pages<E: Encode<U>>(&self, encoder: &E, page_size: usize) -> Vec<Vec<u32>> {
        let count = self.code.bytes.len().div_ceil(page_size);
        (0..count).map(|page| self.page(encoder, page * page_size, page_size)).collect()
    }

    fn page<E: Encode<U>>(&self, encoder: &E, start: usize, page_size: usize) -> Vec<u32> {
        let end = (start + page_size).min(self.code.bytes.len());
        let first = self.units.partition_point(|(at, _)| (*at as usize) < start);
        let behind = self.units.partition_point(|(at, _)| (*at as usize) < end);
        let head = self.units.get(first).map_or(end, |(at, _)| (*at as usize).min(end)) - start;
        let mut out = vec![head as u32];
        out.extend(self.code.bytes[start..start + head].iter().map(|&byte| u32::from(byte)));
        let mut state = encoder.start(self.code.address.wrapping_add(start as u32));
        let units = &self.units[first..behind];
        let mut atoms = Vec::new();
        // The index of each unit's first atom.
        let places: Vec<usize> = units
            .iter()
            .map(|(_, unit)| {
                let place = atoms.len();
                unit.atoms(&mut atoms);
                place
            })
            .collect();
        let mut index = 0;
        while let Some((at, unit)) = units.get(index) {
            let Some((symbol, count)) = encoder.templates().longest(&atoms[places[index]..]) else {
                let at = *at as usize;
                for bytes in self.code.bytes[at..end.min(at + unit.size())].chunks(U::RAW_BYTES) {
                    out.push(u32::from(RAW_BYTE));
                    // Bytes after the page are encoded as 0.
                    out.extend(
                        (0..U::RAW_BYTES).map(|byte| bytes.get(byte).map_or(0, |&byte| u32::from(byte))),
                    );
                }
                index += 1;
                continue;
            };
            match symbol.checked_sub(u16::from(MORE)) {
                None => out.push(u32::from(symbol)),
                Some(more) => out.extend([u32::from(MORE), u32::from(more)]),
            }
            let behind = places[index] + count;
            // The last unit that the template covers in part.
            index = places.partition_point(|&place| place < behind) - 1;
            let (at, unit) = &units[index];
            let address = self.code.address.wrapping_add(*at);
            encoder.rest(unit, behind - places[index], address, &mut state, &mut out);
            index += 1;
        }
        out
    }
}

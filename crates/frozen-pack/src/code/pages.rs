//! From code, cut into instructions, to the symbols of its pages.

use super::choose::{Atom, Matcher, Template};
use super::{Code, MORE, RAW_BYTE};

/// What stands at a place of the code: an instruction, or something else.
pub trait Unit {
    /// What opcode symbols stand for.
    type Template: Template;

    /// How many bytes of what is no instruction stand behind one opcode symbol.
    const RAW_BYTES: usize;

    /// Its size in bytes.
    fn size(&self) -> usize;

    /// Appends its atoms, at least one.
    fn atoms(&self, out: &mut Vec<Atom<Self::Template>>);
}

/// Encodes units by a model: the symbols from which its decoder makes them again.
pub trait Encode<U: Unit> {
    /// What is known of a page when a part of it is encoded.
    type State;

    /// The templates of the model.
    fn templates(&self) -> &Matcher<U::Template>;

    /// What is known at the start of the page at an address.
    fn start(&self, page: u32) -> Self::State;

    /// Encodes what of the unit at an address stands behind its first `known` atoms.
    fn rest(&self, unit: &U, known: usize, address: u32, state: &mut Self::State, out: &mut Vec<u32>);
}

/// A piece of code, cut into units.
pub struct Units<'b, U> {
    /// The code.
    pub code: Code<'b>,
    /// Its units without a gap, each with where it begins, as an offset.
    pub units: Vec<(u32, U)>,
}

impl<U: Unit> Units<'_, U> {
    /// The units, each with its address.
    pub fn by_address(&self) -> impl Iterator<Item = (u32, &U)> {
        self.units.iter().map(|(at, unit)| (self.code.address.wrapping_add(*at), unit))
    }

    /// The symbols of the pages, as a [`crate::symbols::Recorder`] takes them.
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
        // Where the atoms of each unit begin.
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
            // The last unit of which the template has something.
            index = places.partition_point(|&place| place < behind) - 1;
            let (at, unit) = &units[index];
            let address = self.code.address.wrapping_add(*at);
            encoder.rest(unit, behind - places[index], address, &mut state, &mut out);
            index += 1;
        }
        out
    }
}

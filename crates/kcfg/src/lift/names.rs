//! The symbols in each section of an object, and the referenced sections.

use fixedbitset::FixedBitSet;
use kelf::{Machine, Object, Place, SectionIndex, Symbol};

use crate::mapping::{Mapping, content_behind};

/// The symbols of an object by section.
pub(super) struct SectionNames<'o> {
    machine: Machine,
    symbols: &'o [Symbol<'o>],
    /// Numbers of symbols, section by section, each in the order of the object.
    numbers: Vec<u32>,
    /// Start of each section in `numbers`.
    starts: Vec<u32>,
    /// The sections with a symbol that a relocation refers to.
    referenced: FixedBitSet,
}

impl<'o> SectionNames<'o> {
    /// Collects the symbols.
    pub fn of(object: &'o Object<'o>) -> SectionNames<'o> {
        let symbols = &object.symbols[..];
        let placed = || {
            symbols.iter().enumerate().filter_map(|(i, symbol)| match symbol.place {
                Place::Section(section) => Some((section.get(), i as u32)),
                _ => None,
            })
        };
        let mut starts = vec![0u32; object.sections.len() + 1];
        placed().for_each(|(section, _)| starts[section + 1] += 1);
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut at = starts.clone();
        let mut numbers = vec![0; starts[object.sections.len()] as usize];
        for (section, number) in placed() {
            numbers[at[section] as usize] = number;
            at[section] += 1;
        }
        let mut referenced = FixedBitSet::with_capacity(object.sections.len());
        for reloc in object.sections.iter().flat_map(|section| &section.relocs) {
            if let Place::Section(section) = symbols[reloc.symbol.get()].place {
                referenced.insert(section.get());
            }
        }
        SectionNames { machine: object.machine, symbols, numbers, starts, referenced }
    }

    /// Returns the symbols in a section, in the order of the object, except mapping symbols.
    pub fn symbols(&self, section: SectionIndex) -> impl Iterator<Item = &'o Symbol<'o>> + use<'o, '_> {
        let machine = self.machine;
        self.all(section).filter(move |symbol| content_behind(machine, symbol.name).is_none())
    }

    /// Reads the mapping from the symbols of a section. Machines without mapping symbols have one encoding and no data
    /// in code.
    pub fn mapping(&self, section: SectionIndex) -> Mapping {
        let content = |symbol: &Symbol<'_>| content_behind(self.machine, symbol.name);
        let symbols = self.all(section);
        let mut found: Vec<_> =
            symbols.filter_map(|symbol| Some((symbol.value as u32, content(symbol)?))).collect();
        found.sort_by_key(|&(offset, _)| offset);
        Mapping::new(found)
    }

    fn all(&self, section: SectionIndex) -> impl Iterator<Item = &'o Symbol<'o>> + use<'o, '_> {
        let (start, end) = (self.starts[section.get()], self.starts[section.get() + 1]);
        let symbols = self.symbols;
        self.numbers[start as usize..end as usize].iter().map(move |&number| &symbols[number as usize])
    }

    /// Whether the section has a named symbol, or a relocation refers to it, so that it is needed even if empty.
    pub fn any(&self, section: SectionIndex) -> bool {
        self.referenced.contains(section.get()) || self.symbols(section).any(|symbol| !symbol.name.is_empty())
    }
}

//! Takes sections out of an object, and joins sections of one name, as `ld -r` does.

use goblin::elf::section_header::{SHT_NOBITS, SHT_PROGBITS};
use goblin::elf::sym::{STT_NOTYPE, STT_SECTION};
use rustc_hash::FxHashMap;

use crate::index::SectionIndex;
use crate::object::{Object, Place, Section};

/// The name of the empty section in the place of one that was taken out. The linker scripts of kernels discard it.
const GONE: &str = ".discard.kshrink";

/// The name of symbols that kshrink adds. It begins like compilers' labels, which the kernel's symbol table omits
/// (scripts/mksysmap).
pub const OWN_SYMBOL: &str = ".Lkshrink";

impl<'a> Object<'a> {
    /// Takes a section out, and leaves an empty one, in which symbols may still be.
    pub fn take_section(&mut self, section: SectionIndex) -> Section<'a> {
        let gone = Section { name: GONE, kind: SHT_PROGBITS, ..Section::null() };
        std::mem::replace(&mut self.sections[section.get()], gone)
    }

    /// Joins sections of the same name, if `is_joined` returns true for the name. The first section gets the content, the
    /// relocations and the symbols of all. Sections and symbols keep their numbers. Sections without content, and
    /// sections that are ordered by others (`SHF_LINK_ORDER`), are left alone.
    pub fn join_sections(&mut self, is_joined: impl Fn(&str) -> bool) {
        let mut first: FxHashMap<&str, usize> = FxHashMap::default();
        let mut moved: FxHashMap<SectionIndex, (SectionIndex, u64)> = FxHashMap::default();
        for i in 0..self.sections.len() {
            let section = &self.sections[i];
            if !is_joined(section.name) || section.kind == SHT_NOBITS || section.link_order.is_some() {
                continue;
            }
            let to = *first.entry(section.name).or_insert(i);
            if to == i {
                continue;
            }
            let part = self.take_section(SectionIndex::from(i));
            let joined = &mut self.sections[to];
            let offset = joined.size.next_multiple_of(part.align.max(1));
            let data = joined.data.to_mut();
            data.resize(offset as usize, 0);
            data.extend_from_slice(&part.data);
            joined.size = data.len() as u64;
            joined.align = joined.align.max(part.align);
            let relocs = part.relocs.into_iter().map(|mut reloc| {
                reloc.offset += offset;
                reloc
            });
            joined.relocs.extend(relocs);
            moved.insert(SectionIndex::from(i), (SectionIndex::from(to), offset));
        }
        for symbol in &mut self.symbols {
            let Place::Section(section) = symbol.place else { continue };
            let Some(&(to, offset)) = moved.get(&section) else { continue };
            symbol.place = Place::Section(to);
            symbol.value += offset;
            if symbol.kind == STT_SECTION {
                symbol.kind = STT_NOTYPE;
                symbol.name = OWN_SYMBOL;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use goblin::elf::reloc::R_X86_64_PC32;

    use super::*;
    use crate::index::SymbolIndex;
    use crate::machine::Machine;
    use crate::object::Symbol;
    use crate::reloc::{Reloc, RelocClass};

    #[test]
    fn the_first_section_gets_everything() {
        let section = |name, align, data: &'static [u8], offset| {
            let (class, width) = (RelocClass::Relative, 4);
            let reloc =
                Reloc { offset, r_type: R_X86_64_PC32, class, width, symbol: SymbolIndex(1), addend: 0 };
            let size = data.len() as u64;
            Section {
                name,
                kind: SHT_PROGBITS,
                align,
                size,
                data: data.into(),
                relocs: vec![reloc],
                ..Section::null()
            }
        };
        let own = |index| Symbol {
            kind: STT_SECTION,
            place: Place::Section(SectionIndex(index)),
            ..Symbol::null()
        };
        let mut object = Object {
            name: String::new(),
            machine: Machine::X86_64,
            flags: 0,
            sections: vec![
                Section::null(),
                section("table", 1, &[1; 5], 1),
                section("other", 1, &[2; 8], 0),
                section("table", 4, &[3; 6], 2),
            ],
            symbols: vec![Symbol::null(), own(1), own(3)],
            groups: Vec::new(),
        };
        object.join_sections(|name| name == "table");
        let table = &object.sections[1];
        assert_eq!(*table.data, [1, 1, 1, 1, 1, 0, 0, 0, 3, 3, 3, 3, 3, 3]);
        assert_eq!((table.size, table.align), (14, 4));
        assert_eq!(table.relocs.iter().map(|reloc| reloc.offset).collect::<Vec<_>>(), [1, 10]);
        let places: Vec<(Place, u64)> =
            object.symbols[1..].iter().map(|symbol| (symbol.place, symbol.value)).collect();
        assert_eq!(places, [(Place::Section(SectionIndex(1)), 0), (Place::Section(SectionIndex(1)), 8)]);
        assert_eq!((object.sections[2].size, object.sections[3].size), (8, 0));
    }
}

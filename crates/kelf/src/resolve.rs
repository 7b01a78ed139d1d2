//! The global symbols of a link, and the rules that select one of several symbols with the same name.
//!
//! | entered ↓, so far → | undefined | common | weak definition | strong definition |
//! | --- | --- | --- | --- | --- |
//! | reference | undefined, weak if all are | - | - | - |
//! | common | common | larger size, larger alignment | common | - |
//! | weak definition | it | - | - | - |
//! | strong definition | it | it | it | error, unless both are the same absolute value |
//!
//! (`-`: no change.) This is the table in `bfd/linker.c` without the rows for shared libraries and warnings, plus ELF's
//! rule that a weak definition does not displace a common one. Visibility merges to the most restrictive (gABI, chapter
//! 4, "Symbol Table"). A symbol in a section that is dropped, because an earlier object holds the same COMDAT group, is
//! treated as a reference.

use goblin::elf::sym::STT_SECTION;
use indexmap::IndexMap;
use indexmap::map::Entry;
use rustc_hash::{FxBuildHasher, FxHashSet};

use crate::index::{GlobalIndex, ObjectIndex, SectionIndex, SymbolIndex};
use crate::object::{GRP_COMDAT, Object, Place, Symbol};

/// A global symbol of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// The definition.
    pub definition: Definition,
    /// Whether the definition is weak; for an undefined symbol, whether all references are.
    pub weak: bool,
    /// The most restrictive visibility of all its symbols, `STV_*`.
    pub visibility: u8,
    /// Whether an object that the final link adds ([`Program::beside`](crate::Program::beside)) refers to it.
    pub used_beside: bool,
}

/// The definition of a global symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Definition {
    /// No object defines it: the linker script does, or nothing.
    Undefined,
    /// This symbol of this object.
    In(ObjectIndex, SymbolIndex),
    /// The linker allocates it (`SHN_COMMON`).
    Common {
        /// Size in bytes, the largest of all.
        size: u64,
        /// Alignment in bytes, the largest of all.
        align: u64,
    },
    /// An object that the final link adds.
    Beside,
}

/// Symbols and section groups of the objects entered so far.
#[derive(Default)]
pub(crate) struct Resolver<'a> {
    pub globals: IndexMap<&'a str, Global, FxBuildHasher>,
    /// Values of absolute strong definitions, which may be repeated.
    absolute: IndexMap<GlobalIndex, u64, FxBuildHasher>,
    /// Names of COMDAT groups and of `.gnu.linkonce` sections.
    groups: FxHashSet<&'a str>,
}

/// The owner of the definitions that are entered.
#[derive(Clone, Copy)]
pub(crate) enum Definer {
    Object(ObjectIndex),
    Beside,
}

/// The result of entering an object.
pub(crate) struct Entered {
    /// The global of each symbol.
    pub globals: Vec<Option<GlobalIndex>>,
    /// Sections that an earlier object already holds.
    pub discarded: Vec<SectionIndex>,
}

impl<'a> Resolver<'a> {
    /// Records a reference from outside to this name.
    pub fn need(&mut self, name: &'a str) {
        let needed =
            Global { definition: Definition::Undefined, weak: false, visibility: 0, used_beside: true };
        self.globals.insert(name, needed);
    }

    /// Enters an object, or returns the symbol that it defines for the second time.
    pub fn enter(&mut self, object: &Object<'a>, definer: Definer) -> Result<Entered, GlobalIndex> {
        let discarded = self.enter_groups(object);
        let mut globals = vec![None; object.symbols.len()];
        for (index, symbol) in object.symbols.iter().enumerate().skip(1) {
            if symbol.is_local() {
                continue;
            }
            let dropped = matches!(symbol.place, Place::Section(section)
                if discarded.binary_search(&section).is_ok());
            let definition = match (symbol.place, definer) {
                (Place::Undefined, _) => Definition::Undefined,
                _ if dropped => Definition::Undefined,
                (Place::Common, _) => Definition::Common { size: symbol.size, align: symbol.value.max(1) },
                (_, Definer::Beside) => Definition::Beside,
                (_, Definer::Object(object)) => Definition::In(object, SymbolIndex::from(index)),
            };
            let beside = matches!(definer, Definer::Beside);
            globals[index] = Some(self.enter_symbol(symbol, definition, beside)?);
        }
        Ok(Entered { globals, discarded })
    }

    /// Enters the section groups of an object, and returns the sections that are already there.
    fn enter_groups(&mut self, object: &Object<'a>) -> Vec<SectionIndex> {
        let mut discarded = Vec::new();
        for group in object.groups.iter().filter(|group| group.flags & GRP_COMDAT != 0) {
            let signature = object.symbol(group.signature);
            // gas may name a group by its section's symbol.
            let name = match signature.place {
                Place::Section(section) if signature.kind == STT_SECTION => object.section(section).name,
                _ => signature.name,
            };
            if !self.groups.insert(name) {
                discarded.extend(&group.members);
            }
        }
        for (index, section) in object.sections.iter().enumerate() {
            if section.name.starts_with(".gnu.linkonce.") && !self.groups.insert(section.name) {
                discarded.push(SectionIndex::from(index));
            }
        }
        discarded.sort_unstable();
        discarded.dedup();
        discarded
    }

    fn enter_symbol(
        &mut self,
        symbol: &Symbol<'a>,
        definition: Definition,
        beside: bool,
    ) -> Result<GlobalIndex, GlobalIndex> {
        let weak = symbol.is_weak();
        let used_beside = beside && definition == Definition::Undefined;
        let (index, global) = match self.globals.entry(symbol.name) {
            Entry::Vacant(entry) => {
                let index = GlobalIndex::from(entry.index());
                let visibility = symbol.visibility();
                entry.insert(Global { definition, weak, visibility, used_beside });
                self.note_absolute(index, symbol, definition);
                return Ok(index);
            }
            Entry::Occupied(entry) => (GlobalIndex::from(entry.index()), entry.into_mut()),
        };
        global.used_beside |= used_beside;
        global.visibility = most_restrictive(global.visibility, symbol.visibility());
        let wins = match (definition, global.definition) {
            (Definition::Undefined, Definition::Undefined) => {
                global.weak &= weak;
                false
            }
            (Definition::Undefined, _) => false,
            (_, Definition::Undefined) => true,
            (Definition::Common { size, align }, Definition::Common { size: s, align: a }) => {
                global.definition = Definition::Common { size: size.max(s), align: align.max(a) };
                false
            }
            (Definition::Common { .. }, _) => global.weak,
            _ if weak => false,
            (_, Definition::Common { .. }) => true,
            (_, _) if global.weak => true,
            _ => {
                let same =
                    symbol.place == Place::Absolute && self.absolute.get(&index) == Some(&symbol.value);
                return if same { Ok(index) } else { Err(index) };
            }
        };
        if wins {
            global.definition = definition;
            global.weak = weak;
            self.note_absolute(index, symbol, definition);
        }
        Ok(index)
    }

    fn note_absolute(&mut self, index: GlobalIndex, symbol: &Symbol<'_>, definition: Definition) {
        if symbol.place == Place::Absolute && definition != Definition::Undefined {
            self.absolute.insert(index, symbol.value);
        }
    }
}

/// Merges visibilities: `STV_INTERNAL` (1) is the most restrictive, then hidden (2), protected (3) and default (0).
fn most_restrictive(one: u8, other: u8) -> u8 {
    match (one, other) {
        (0, visibility) | (visibility, 0) => visibility,
        (one, other) => one.min(other),
    }
}

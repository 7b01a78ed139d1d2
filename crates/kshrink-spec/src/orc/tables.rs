//! The tables of an object, and their packed form.

use std::cmp::Reverse;
use std::fmt;
use std::ops::Range;
use std::path::Path;

use frozen_pack::codec::unwind::{Entry, Region, pack};
use goblin::elf::reloc::R_X86_64_PC32;
use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_PROGBITS};
use kcli::Failure;
use kelf::{Object, Place, Reloc, RelocClass, Section, SectionIndex, SymbolIndex};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::edits::define;
use crate::linked::{self, Purpose};

/// The table of addresses, each as the distance from its own place, in 4 bytes (`orc_ip` of
/// arch/x86/kernel/unwind_orc.c).
const ADDRESSES: &str = ".orc_unwind_ip";
/// The table of states, in the same order.
const STATES: &str = ".orc_unwind";

/// The size of a state in bytes (`struct orc_entry` of arch/x86/include/asm/orc_types.h).
const STATE: usize = 6;
/// The state of code that cannot be unwound. It also marks the end of a section, where the entry of a function at the same
/// address takes precedence (`orc_sort_cmp` of scripts/sorttable.c).
const UNDEFINED: [u8; STATE] = [0; STATE];

/// The section of the packed tables, which the linker script places in read-only data.
const ROOM: &str = ".rodata.kshrink.orc";
/// The first of these bytes.
pub const FIRST: &str = "kshrink_unwind_states";

/// The code that the function tracer copies. The kernel looks up its states for copies (`orc_ftrace_find`).
const COPIED: [[&str; 2]; 2] =
    [["ftrace_caller", "ftrace_caller_end"], ["ftrace_regs_caller", "ftrace_regs_caller_end"]];

/// The symbols of the linker script at the bounds of the kernel's text and of its init text, and [`FIRST`].
const BOUNDS: [&str; 5] = ["_stext", "_etext", "_sinittext", "_einittext", FIRST];

/// The tables of an object, which has small ones instead, and room for the packed form.
pub struct Tables {
    /// Of each entry, the number of the state.
    numbers: Vec<u16>,
    /// Whether each state marks the end of a section, where it may.
    ends: Vec<bool>,
    /// The section for the packed form.
    room: SectionIndex,
}

/// The sizes of tables for unwinding.
#[derive(Clone, Debug, Serialize)]
pub struct Sizes {
    /// Of the tables that objtool made, in bytes.
    pub tables: usize,
    /// Of their packed form, in bytes.
    pub packed: usize,
    /// Number of different states.
    pub states: usize,
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sizes { tables, packed, states } = self;
        let [tables, packed, states] = [tables, packed, states].map(|&size| kcli::human(size as u64));
        write!(f, "unwind tables: {tables} bytes, packed into {packed}; {states} states")
    }
}

impl Tables {
    /// Takes the tables out of an object whose symbols for them the runtime refers to. The bytes that stand for states go to
    /// a section with the name `bytes_in`, which must be part of the kernel's text.
    ///
    /// # Errors
    /// If the object has no such tables, or lacks the runtime.
    pub fn take(object: &mut Object<'_>, bytes_in: &'static str) -> Result<Tables, Failure> {
        let wrong = |problem: &str| Failure::job(format!("{ADDRESSES}, {STATES}: {problem}"));
        let find = |name: &str| {
            let mut all = (0..object.sections.len()).filter(|&i| object.sections[i].name == name);
            match (all.next(), all.next()) {
                (Some(section), None) => Ok(section),
                _ => Err(wrong("expected one section of each name, made by objtool")),
            }
        };
        let (addresses, states) = (find(ADDRESSES)?, find(STATES)?);
        let relocs: Vec<Reloc> = std::mem::take(&mut object.sections[addresses].relocs);
        let data = std::mem::take(&mut object.sections[states].data).into_owned();
        let is_whole = data.len() % STATE == 0 && data.len() / STATE == relocs.len();
        let is_listed = |(i, reloc): (usize, &Reloc)| {
            reloc.offset == 4 * i as u64 && reloc.class == RelocClass::Relative && reloc.width == 4
        };
        if !is_whole
            || !relocs.iter().enumerate().all(is_listed)
            || !object.sections[states].relocs.is_empty()
        {
            return Err(wrong("expected one distance of 4 bytes for each state of 6 bytes"));
        }
        let all: Vec<&[u8]> = data.chunks_exact(STATE).collect();
        let states_of = by_frequency(&all);
        let number_of: FxHashMap<&[u8], u16> =
            states_of.iter().zip(0..).map(|(&state, number)| (state, number)).collect();
        if states_of.len() > usize::from(u16::MAX) {
            return Err(wrong("there are too many different states"));
        }
        let numbers: Vec<u16> = all.iter().map(|state| number_of[state]).collect();
        let ends = states_of.iter().map(|state| **state == UNDEFINED).collect();

        let copied: Vec<usize> = copied(object, &relocs)?;
        let bytes = add(object, bytes_in, SHF_ALLOC | SHF_EXECINSTR, 1, vec![0xcc; states_of.len()]);
        let symbol = define(object, FIRST, Place::Section(bytes), 0)?;
        let here = relocs.iter().map(|reloc| (reloc.symbol, reloc.addend));
        let own = (0..states_of.len()).map(|number| ((symbol, number as i64), states_of[number]));
        let kept = copied.iter().map(|&i| ((relocs[i].symbol, relocs[i].addend), all[i]));
        let (targets, kept): (Vec<(SymbolIndex, i64)>, Vec<&[u8]>) = own.chain(kept).unzip();
        let bounds = BOUNDS.map(|name| object.symbols.iter().position(|symbol| symbol.name == name));
        if bounds.contains(&None) {
            return Err(Failure::job("the runtime for unwinding does not refer to the bounds of text"));
        }
        let bounds = bounds.into_iter().flatten().map(|symbol| (SymbolIndex::from(symbol), 0));
        let machine = object.machine;
        let words = bounds.chain(here).enumerate();
        let words = words.map(|(number, (symbol, addend))| linked::word(machine, number, symbol, addend));
        let words: Vec<Reloc> = words.collect();
        replace(&mut object.sections[states], kept.concat(), Vec::new());
        let distance = |(i, (symbol, addend)): (usize, (SymbolIndex, i64))| Reloc {
            offset: 4 * i as u64,
            r_type: R_X86_64_PC32,
            class: RelocClass::Relative,
            width: 4,
            symbol,
            addend,
        };
        let relocs: Vec<Reloc> = targets.into_iter().enumerate().map(distance).collect();
        replace(&mut object.sections[addresses], vec![0; 4 * relocs.len()], relocs);
        linked::add(object, Purpose::Unwinding, words);
        let room = add(object, ROOM, SHF_ALLOC, 4, Vec::new());
        define(object, "kshrink_unwind_tables", Place::Section(room), 0)?;
        Ok(Tables { numbers, ends, room })
    }

    /// Returns the packed tables of a linked kernel, whose frozen code has these addresses.
    ///
    /// # Errors
    /// If the kernel was not linked from the object.
    pub fn pack(&self, vmlinux: &Path, frozen: Range<u32>) -> Result<Vec<u8>, Failure> {
        let words = linked::read(vmlinux, Purpose::Unwinding, BOUNDS.len() + self.numbers.len())?;
        let (bounds, addresses) = words.split_at(BOUNDS.len());
        let mut sorted: Vec<(u32, bool, u16)> = addresses
            .iter()
            .zip(&self.numbers)
            .map(|(&address, &number)| (address, !self.ends[usize::from(number)], number))
            .collect();
        sorted.sort_unstable();
        let regions = [bounds[0]..bounds[1], bounds[2]..bounds[3], frozen];
        let last = bounds[4] + self.states() as u32;
        if bounds[4] < regions[0].start || last > regions[0].end {
            return Err(Failure::job(format!(
                "{}: the linker script does not place {FIRST} in text; omit --pack-unwind",
                vmlinux.display()
            )));
        }
        let mut packed = regions.into_iter().map(|range| region(&sorted, range));
        let regions = std::array::from_fn(|_| packed.next().unwrap_or_else(|| Ok(Region::default())));
        let [text, init, frozen] = regions;
        let packed = pack(self.states(), &[text?, init?, frozen?]);
        packed.map_err(Failure::job)
    }

    /// Number of different states.
    pub fn states(&self) -> usize {
        self.ends.len()
    }

    /// Puts packed tables into the object.
    pub fn put(&self, object: &mut Object<'_>, packed: &[u8]) {
        replace(&mut object.sections[self.room.get()], packed.to_vec(), Vec::new());
    }

    /// Checks that a linked kernel has these packed tables, and that they are about its code.
    ///
    /// # Errors
    /// If they are not.
    pub fn check(&self, vmlinux: &Path, frozen: Range<u32>, packed: &[u8]) -> Result<(), Failure> {
        if self.pack(vmlinux, frozen)? == packed {
            return Ok(());
        }
        Err(Failure::job(
            "two links of the same object gave different distances within text; nothing was packed",
        ))
    }

    /// Returns the sizes, given the packed tables.
    pub fn sizes(&self, packed: &[u8]) -> Sizes {
        let tables = self.numbers.len() * (STATE + 4);
        Sizes { tables, packed: packed.len(), states: self.states() }
    }
}

/// Returns the different states, most frequent first.
fn by_frequency<'s>(all: &[&'s [u8]]) -> Vec<&'s [u8]> {
    let mut counts: FxHashMap<&[u8], usize> = FxHashMap::default();
    all.iter().for_each(|state| *counts.entry(state).or_default() += 1);
    let mut sorted: Vec<(Reverse<usize>, &[u8])> =
        counts.into_iter().map(|(state, count)| (Reverse(count), state)).collect();
    sorted.sort_unstable();
    sorted.into_iter().map(|(_, state)| state).collect()
}

/// Returns the entries about [`COPIED`] code.
fn copied(object: &Object<'_>, relocs: &[Reloc]) -> Result<Vec<usize>, Failure> {
    let place = |symbol: &kelf::Symbol<'_>, addend: i64| match symbol.place {
        Place::Section(section) => Some((section, symbol.value.wrapping_add_signed(addend))),
        _ => None,
    };
    let named = |name: &str| {
        let symbol = object.symbols.iter().find(|symbol| symbol.name == name && !symbol.is_undefined());
        symbol.and_then(|symbol| place(symbol, 0))
    };
    let mut kept = Vec::new();
    for [first, end] in COPIED {
        let Some((section, first_at)) = named(first) else { continue };
        let Some((_, end_at)) = named(end).filter(|&(other, at)| other == section && at > first_at) else {
            return Err(Failure::job(format!(
                "{first} does not end at {end}, so the unwind states of its copies are not known; omit --pack-unwind"
            )));
        };
        kept.extend((0..relocs.len()).filter(|&i| {
            let target = place(object.symbol(relocs[i].symbol), relocs[i].addend);
            target.is_some_and(|(other, at)| other == section && (first_at..end_at).contains(&at))
        }));
    }
    Ok(kept)
}

/// Returns the region of code at a range of addresses. Before its first entry, the last one before the region counts, as
/// for the kernel.
fn region(
    sorted: &[(u32, bool, u16)],
    range: Range<u32>,
) -> Result<Region, frozen_pack::codec::error::Damaged> {
    if range.is_empty() {
        return Ok(Region::default());
    }
    let from = sorted.partition_point(|&(address, ..)| address <= range.start);
    let to = sorted.partition_point(|&(address, ..)| address < range.end);
    let before = sorted.get(from.saturating_sub(1)).map(|&(.., state)| Entry { distance: 0, state });
    let inside =
        sorted[from..to].iter().map(|&(address, _, state)| Entry { distance: address - range.start, state });
    Region::new(&before.into_iter().chain(inside).collect::<Vec<Entry>>(), range.len() as u32)
}

/// Adds a section.
fn add(object: &mut Object<'_>, name: &'static str, flags: u32, align: u64, data: Vec<u8>) -> SectionIndex {
    let index = SectionIndex::from(object.sections.len());
    let mut section = Section { name, kind: SHT_PROGBITS, flags: u64::from(flags), align, ..Section::null() };
    replace(&mut section, data, Vec::new());
    object.sections.push(section);
    index
}

/// Replaces the content of a section.
fn replace(section: &mut Section<'_>, data: Vec<u8>, relocs: Vec<Reloc>) {
    section.size = data.len() as u64;
    section.data = data.into();
    section.relocs = relocs;
}

#[cfg(test)]
mod tests {
    use kelf::Machine;

    use super::*;
    use crate::freeze::handmade::{self, of_section, section};

    const CALL: [u8; STATE] = [8, 0, 0, 0, 5, 2];
    const PUSHED: [u8; STATE] = [16, 0, 0, 0, 5, 2];

    fn distance(number: u64, addend: i64) -> Reloc {
        let class = RelocClass::Relative;
        Reloc { offset: 4 * number, r_type: R_X86_64_PC32, class, width: 4, symbol: SymbolIndex(1), addend }
    }

    /// A function with a push and a pop.
    fn object() -> Object<'static> {
        let states = [CALL, PUSHED, CALL, UNDEFINED].concat();
        let places = [0, 1, 9, 12].into_iter().zip(0..).map(|(addend, number)| distance(number, addend));
        let mut object = handmade::object(
            vec![
                section(".text", SHF_EXECINSTR, 16, vec![0x90; 12], Vec::new()),
                section(ADDRESSES, 0, 1, vec![0; 16], places.collect()),
                section(STATES, 0, 1, states, Vec::new()),
            ],
            vec![of_section(1)],
            &["_stext", "_etext", "_sinittext", "_einittext", FIRST, "kshrink_unwind_tables"],
        );
        object.machine = Machine::X86_64;
        object
    }

    #[test]
    fn small_tables_are_left() {
        let mut object = object();
        let tables =
            Tables::take(&mut object, ".head.text").unwrap_or_else(|failure| panic!("{}", failure.message()));
        // The most frequent state has number 0.
        assert_eq!((tables.states(), &tables.numbers[..]), (3, &[0, 2, 0, 1][..]));
        assert_eq!(tables.ends, [false, true, false]);
        let named =
            |name: &str| object.symbols.iter().find(|symbol| symbol.name == name).expect("the symbol");
        let Place::Section(bytes) = named(FIRST).place else { panic!("the bytes have no place") };
        assert_eq!(
            (object.section(bytes).name, &*object.section(bytes).data),
            (".head.text", &[0xcc; 3][..])
        );
        let states = object.sections.iter().find(|section| section.name == STATES).expect("states");
        assert_eq!(&*states.data, &[CALL, UNDEFINED, PUSHED].concat()[..]);
        let addresses = object.sections.iter().find(|section| section.name == ADDRESSES).expect("addresses");
        let targets: Vec<(&str, i64)> =
            addresses.relocs.iter().map(|reloc| (object.symbol(reloc.symbol).name, reloc.addend)).collect();
        assert_eq!(targets, [(FIRST, 0), (FIRST, 1), (FIRST, 2)]);
        let words = object.sections.iter().find(|section| section.name == Purpose::Unwinding.section());
        assert_eq!(words.expect("words").relocs.len(), 5 + 4);
    }

    #[test]
    fn code_that_the_tracer_copies_keeps_its_entries() {
        let mut object = object();
        let mut label = |name: &'static str, value: u64| {
            let place = Place::Section(SectionIndex(1));
            object.symbols.push(kelf::Symbol { name, value, place, ..kelf::Symbol::null() });
        };
        label("ftrace_caller", 1);
        label("ftrace_caller_end", 9);
        Tables::take(&mut object, ".head.text").unwrap_or_else(|failure| panic!("{}", failure.message()));
        let addresses = object.sections.iter().find(|section| section.name == ADDRESSES).expect("addresses");
        let kept = addresses.relocs.last().expect("entries");
        assert_eq!((addresses.relocs.len(), kept.symbol, kept.addend), (4, SymbolIndex(1), 1));
    }

    #[test]
    fn other_tables_are_refused() {
        let refuses = |change: &dyn Fn(&mut Object<'static>), expected: &str| {
            let mut object = object();
            change(&mut object);
            let message =
                Tables::take(&mut object, ".head.text").err().expect("a refusal").message().to_owned();
            assert!(message.contains(expected), "{message}");
        };
        refuses(&|object| object.sections[2].name = ".orc", "expected one section of each name");
        refuses(&|object| object.sections[2].relocs.truncate(3), "expected one distance of 4 bytes");
        refuses(&|object| object.symbols.retain(|symbol| symbol.name != FIRST), "does not refer to");
        refuses(&|object| object.symbols.retain(|symbol| symbol.name != "_etext"), "bounds of text");
    }

    #[test]
    fn the_entry_before_a_region_counts() {
        let sorted = [(90, true, 1), (100, false, 0), (100, true, 2), (110, true, 3)];
        let of = |entries: &[(u32, u16)], size| {
            let entries: Vec<Entry> =
                entries.iter().map(|&(distance, state)| Entry { distance, state }).collect();
            Region::new(&entries, size).unwrap()
        };
        assert_eq!(region(&sorted, 95..120).unwrap(), of(&[(0, 1), (5, 2), (15, 3)], 25));
        assert_eq!(region(&sorted, 100..110).unwrap(), of(&[(0, 2)], 10));
        assert_eq!(region(&sorted, 80..95).unwrap(), of(&[(0, 1)], 15));
        assert_eq!(region(&sorted, 0..0).unwrap(), Region::default());
    }
}

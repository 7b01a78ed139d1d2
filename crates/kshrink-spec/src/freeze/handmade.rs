//! Handmade objects for tests.

use std::ops::Range;

use goblin::elf::section_header::{SHF_ALLOC, SHT_PROGBITS};
use goblin::elf::sym::{STB_GLOBAL, STT_SECTION};
use kcli::Failure;
use kelf::{Machine, Object, Place, Reloc, RelocClass, Section, SectionIndex, Symbol, SymbolIndex, reloc};

use super::layout::Layout;
use super::runtime::FrozenPlace;
use super::split::{Split, split};

/// The end of frozen addresses.
pub const LIMIT: u32 = 0xff7f_e000;

/// The range of frozen addresses.
pub const RANGE: Range<u32> = 0xfb7f_e000..LIMIT;

/// The place of the frozen parts of an object, as the runtime for its machine has it.
pub fn frozen_place(machine: Machine, range: Range<u32>) -> FrozenPlace {
    let is_arm = machine == Machine::Arm;
    FrozenPlace { range, by_table: if is_arm { 2 << 20 } else { 4 << 20 }, has_window: is_arm }
}

/// Lays out an object successfully.
#[track_caller]
pub fn lay_out(object: &Object<'static>) -> Layout {
    let layout = Layout::of(object, &frozen_place(object.machine, RANGE));
    layout.unwrap_or_else(|failure| panic!("{}", failure.message()))
}

/// A section with these flags and the flag for memory.
pub fn section(
    name: &'static str,
    flags: u32,
    align: u64,
    bytes: Vec<u8>,
    relocs: Vec<Reloc>,
) -> Section<'static> {
    let size = bytes.len() as u64;
    let (flags, data) = (u64::from(SHF_ALLOC | flags), bytes.into());
    Section { name, kind: SHT_PROGBITS, flags, align, size, data, relocs, ..Section::null() }
}

/// The distance in a branch to the start of a symbol.
pub fn branch(offset: u64, symbol: u32) -> Reloc {
    field(offset, (reloc::branch(Machine::I386), RelocClass::Branch), symbol, -4)
}

/// A relocation for a distance.
pub fn distance(offset: u64, symbol: u32, addend: i64) -> Reloc {
    field(offset, (reloc::relative_32(Machine::I386), RelocClass::Relative), symbol, addend)
}

/// A relocation for an address.
pub fn address(offset: u64, symbol: u32, addend: i64) -> Reloc {
    field(offset, (reloc::absolute_word(Machine::I386), RelocClass::Absolute), symbol, addend)
}

fn field(offset: u64, (r_type, class): (u32, RelocClass), symbol: u32, addend: i64) -> Reloc {
    Reloc { offset, r_type, class, width: 4, symbol: SymbolIndex(symbol), addend }
}

/// The place of a symbol, given the number of its section.
pub fn place(section: u32) -> Place {
    Place::Section(SectionIndex(section))
}

/// The symbol of a section.
pub fn of_section(number: u32) -> Symbol<'static> {
    Symbol { kind: STT_SECTION, place: place(number), ..Symbol::null() }
}

/// A global symbol.
pub fn global(name: &'static str, value: u64, place: Place) -> Symbol<'static> {
    Symbol { name, value, binding: STB_GLOBAL, place, ..Symbol::null() }
}

/// An object with the empty section and these, and with the empty symbol, these, and undefined symbols of these names.
pub fn object(
    sections: Vec<Section<'static>>,
    symbols: Vec<Symbol<'static>>,
    undefined: &[&'static str],
) -> Object<'static> {
    let undefined = undefined.iter().map(|name| global(name, 0, Place::Undefined));
    Object {
        name: "test.o".to_owned(),
        machine: Machine::I386,
        flags: 0,
        sections: [vec![Section::null()], sections].concat(),
        symbols: [Symbol::null()].into_iter().chain(symbols).chain(undefined).collect(),
        groups: Vec::new(),
    }
}

/// Lays out and splits an object successfully.
#[track_caller]
pub fn split_up(object: Object<'static>) -> (Layout, Split<'static>) {
    let layout = lay_out(&object);
    let split = split(object, &layout).unwrap_or_else(|failure| panic!("{}", failure.message()));
    (layout, split)
}

/// Checks that a changed object is refused, and that the message contains a text.
#[track_caller]
pub fn refuses(
    mut object: Object<'static>,
    range: &Range<u32>,
    change: impl FnOnce(&mut Object<'static>),
    expected: &str,
) {
    change(&mut object);
    let place = frozen_place(object.machine, range.clone());
    let result: Result<(), Failure> =
        Layout::of(&object, &place).and_then(|layout| split(object, &layout).map(drop));
    let message = result.expect_err("an error").message();
    assert!(message.contains(expected), "{message}");
}

//! Absurdly large sizes, offsets and alignments in objects: each is refused by an error that names it, without
//! allocating memory for it.

mod common;

use std::fs;

use common::Dir;
use goblin::elf::section_header::{SHF_ALLOC, SHF_COMPRESSED};
use kelf::{Machine, Object, Place, Symbol};

/// Returns an object after a change.
fn changed(machine: Machine, change: impl Fn(&mut Object<'_>)) -> Vec<u8> {
    let dir = Dir::new();
    let bytes = fs::read(dir.compile(machine, "features.c", "a.o")).unwrap();
    let mut object = Object::read("a.o", &bytes).unwrap();
    change(&mut object);
    let written = object.write().unwrap();
    assert!(written.len() < 1 << 20, "{} bytes", written.len());
    written
}

/// Returns the error for such an object.
fn error(machine: Machine, change: impl Fn(&mut Object<'_>)) -> String {
    let written = changed(machine, change);
    Object::read("a.o", &written).expect_err("a damaged object").to_string()
}

fn section<'o, 'a>(object: &'o mut Object<'a>, name: &str) -> &'o mut kelf::Section<'a> {
    object.sections.iter_mut().find(|section| section.name == name).unwrap()
}

fn check(message: &str, place: &str, problem: &str) {
    assert!(
        message.starts_with("a.o: ") && message.contains(place) && message.contains(problem),
        "{message}"
    );
}

#[test]
fn alignments() {
    let message = error(Machine::I386, |object| section(object, ".data").align = 1 << 31);
    check(&message, "(.data)", "alignment 2147483648; expected a power of two up to 1073741824");
}

#[test]
fn sizes() {
    for machine in [Machine::I386, Machine::X86_64] {
        let message = error(machine, |object| section(object, ".bss").size = 1 << 31);
        check(&message, "(.bss)", "2147483648 bytes; kshrink handles sections of up to 2147483647");
    }
}

#[test]
fn places_of_symbols() {
    let message = error(Machine::I386, |object| {
        let placed = |symbol: &&mut kelf::Symbol<'_>| matches!(symbol.place, Place::Section(_));
        let symbol = object.symbols.iter_mut().filter(|symbol| !symbol.is_local()).find(placed).unwrap();
        symbol.value = 0x1234_5678;
    });
    check(&message, ": symbol ", "lies at 0x12345678 of section ");
    check(&message, ": symbol ", ", which has 0x");
}

#[test]
fn anchors_lie_behind_their_sections() {
    let with_anchor = |section_name: &'static str, distance: u64| {
        move |object: &mut Object<'_>| {
            let at = object.sections.iter().position(|section| section.name == section_name).unwrap();
            let value = object.sections[at].size + distance;
            let label =
                Symbol { name: ".LANCHOR1", value, place: Place::Section(at.into()), ..Symbol::null() };
            let locals = object.symbols.iter().take_while(|symbol| symbol.is_local()).count();
            object.symbols.insert(locals, label);
            object.sections.iter_mut().for_each(|section| section.relocs.clear());
        }
    };
    Object::read("a.o", &changed(Machine::Arm, with_anchor(".data", 4 << 10))).unwrap();
    for (machine, section, distance) in
        [(Machine::Arm, ".data", (4 << 10) + 1), (Machine::Arm, ".text", 4), (Machine::I386, ".data", 4)]
    {
        let message = error(machine, with_anchor(section, distance));
        check(&message, "(.LANCHOR1)", "of section ");
    }
}

#[test]
fn alignments_of_common_symbols() {
    let message = error(Machine::I386, |object| {
        object.symbols.iter_mut().find(|symbol| symbol.place == Place::Common).unwrap().value = 3;
    });
    check(&message, ": symbol ", "alignment 3 of a common symbol; expected a power of two");
}

#[test]
fn addends() {
    for addend in [i64::MAX, i64::MIN] {
        let message = error(Machine::X86_64, |object| {
            let text = object.sections.iter_mut().find(|section| !section.relocs.is_empty()).unwrap();
            text.relocs[0].addend = addend;
        });
        check(&message, ", offset 0x", "a relocation has the addend ");
    }
}

#[test]
fn compressed_sections_are_not_loaded() {
    let message = error(Machine::I386, |object| {
        section(object, ".data").flags |= u64::from(SHF_COMPRESSED | SHF_ALLOC);
    });
    check(&message, "(.data)", "is compressed");
}

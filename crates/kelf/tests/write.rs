//! Writing objects: reading the written file gives the same object, and `ld` links it to the same file.

mod common;

use std::borrow::Cow;
use std::fs;

use common::{Dir, MACHINES, normalised, sources};
use kelf::reloc::{absolute_word, describe};
use kelf::{Error, Machine, Object, Place, Reloc, Section, SectionIndex, Symbol, SymbolIndex};

#[test]
fn what_is_written_reads_the_same() {
    for machine in MACHINES {
        let dir = Dir::new();
        for source in sources(machine) {
            let bytes = fs::read(dir.compile(machine, &source, "a.o")).unwrap();
            let object = Object::read("a.o", &bytes).unwrap();
            let written = object.write().unwrap();
            let again = Object::read("a.o", &written).unwrap();
            assert_eq!(normalised(&again), normalised(&object), "{machine} {source}");
        }
    }
}

#[test]
fn ld_sees_no_difference() {
    for machine in MACHINES {
        let dir = Dir::new();
        for source in sources(machine) {
            let bytes = fs::read(dir.compile(machine, &source, "a.o")).unwrap();
            let before = dir.ld(machine, &["-r", "a.o", "-o", "before.o"]);
            dir.write("a.o", Object::read("a.o", &bytes).unwrap().write().unwrap());
            let after = dir.ld(machine, &["-r", "a.o", "-o", "after.o"]);
            assert_eq!(after, before, "{machine} {source}: what ld prints");
            let (before, after) = (fs::read(dir.path("before.o")), fs::read(dir.path("after.o")));
            assert!(before.unwrap() == after.unwrap(), "{machine} {source}: what ld writes");
        }
    }
}

/// Creates an object in memory.
fn fresh(machine: Machine) -> Object<'static> {
    Object {
        name: "fresh.o".into(),
        machine,
        // EABI 5, which ARM's ld requires.
        flags: if machine == Machine::Arm { 0x0500_0000 } else { 0 },
        sections: vec![Section::null()],
        symbols: vec![Symbol::null()],
        groups: Vec::new(),
    }
}

fn text(data: Vec<u8>) -> Section<'static> {
    let size = data.len() as u64;
    // Allocated and executable, PROGBITS.
    Section { name: ".text", kind: 1, flags: 6, size, data: Cow::Owned(data), ..Section::null() }
}

fn function(name: &'static str, section: SectionIndex) -> Symbol<'static> {
    let place = Place::Section(section);
    Symbol { name, binding: 1, kind: 2, size: 4, place, ..Symbol::null() }
}

fn word(machine: Machine, symbol: SymbolIndex, addend: i64) -> Reloc {
    let r_type = absolute_word(machine);
    let (class, width) = describe(machine, r_type).unwrap();
    Reloc { offset: 0, r_type, class, width, symbol, addend }
}

#[test]
fn sections_of_one_name_stay_in_order() {
    for machine in MACHINES {
        let dir = Dir::new();
        let mut object = fresh(machine);
        for byte in 0..100 {
            object.sections.push(text(vec![byte; 4]));
        }
        dir.write("a.o", object.write().unwrap());
        dir.ld(machine, &["-Ttext=0x10000", "-e0", "a.o", "-o", "a"]);
        let linked = fs::read(dir.path("a")).unwrap();
        let expected: Vec<u8> = (0..100).flat_map(|byte| [byte; 4]).collect();
        assert!(linked.windows(400).any(|window| window == expected), "{machine}");
    }
}

#[test]
fn more_sections_than_sixteen_bits_count() {
    for machine in [Machine::I386, Machine::X86_64] {
        let dir = Dir::new();
        let mut object = fresh(machine);
        const COUNT: u32 = 70_000;
        for number in 1..=COUNT {
            // The addend is already in place, so that the object that is read compares equal.
            let in_place = if machine.is_rela() { 0 } else { 1 };
            let mut section = text(vec![in_place, 0, 0, 0, 0, 0, 0, 0]);
            // Each word holds the address of the next section's symbol.
            let next = SymbolIndex(number % COUNT + 1);
            section.relocs.push(word(machine, next, 1));
            object.sections.push(section);
            // Local symbols may share a name.
            let local = Symbol { binding: 0, ..function("f", SectionIndex(number)) };
            object.symbols.push(local);
        }
        let bytes = object.write().unwrap();
        let again = Object::read("fresh.o", &bytes).unwrap();
        assert!(normalised(&again) == normalised(&object), "{machine}");
        dir.write("a.o", bytes);
        assert_eq!(dir.ld(machine, &["-Ttext=0x100000", "-e0", "a.o", "-o", "a"]), "");
        let linked = fs::read(dir.path("a")).unwrap();
        let first = (0x10_0008u64 + 1).to_le_bytes();
        let second = (0x10_0010u64 + 1).to_le_bytes();
        let words = [first, second].concat();
        assert!(linked.windows(16).any(|window| window == words), "{machine}");
    }
}

#[test]
fn global_symbols_may_come_before_local_ones() {
    for machine in MACHINES {
        let mut object = fresh(machine);
        let mut section = text(vec![0; 8]);
        section.relocs.push(word(machine, SymbolIndex(1), 0));
        object.sections.push(section);
        object.symbols.push(function("global", SectionIndex(1)));
        object.symbols.push(Symbol { binding: 0, ..function("local", SectionIndex(1)) });
        let bytes = object.write().unwrap();
        let again = Object::read("a.o", &bytes).unwrap();
        let names: Vec<_> = again.symbols.iter().map(|symbol| symbol.name).collect();
        assert_eq!(names, ["", "local", "global"]);
        let target = again.sections[1].relocs[0].symbol;
        assert_eq!(again.symbol(target).name, "global");
    }
}

#[test]
fn addends_replace_what_is_in_place() {
    let mut object = fresh(Machine::I386);
    let mut section = text(vec![0xff; 8]);
    section.relocs.push(word(Machine::I386, SymbolIndex(1), 0x1234));
    object.sections.push(section);
    object.symbols.push(function("f", SectionIndex(1)));
    let bytes = object.write().unwrap();
    let again = Object::read("a.o", &bytes).unwrap();
    assert_eq!(again.sections[1].data[..], [0x34, 0x12, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(again.sections[1].relocs[0].addend, 0x1234);
}

#[test]
fn what_elf_cannot_express_is_refused() {
    let good = || {
        let mut object = fresh(Machine::I386);
        let mut section = text(vec![0; 8]);
        section.relocs.push(word(Machine::I386, SymbolIndex(1), 0));
        object.sections.push(section);
        object.symbols.push(function("f", SectionIndex(1)));
        object
    };
    assert!(good().write().is_ok());
    let refused = |change: &dyn Fn(&mut Object<'static>), expected: &str| {
        let mut object = good();
        change(&mut object);
        let error = object.write().unwrap_err();
        assert!(matches!(error, Error::Unwritable { .. }), "{error}");
        let message = error.to_string();
        assert!(message.contains(expected), "{message}");
    };
    refused(&|o| o.sections[1].relocs[0].symbol = SymbolIndex(7), "R_386_32 at 0x0: names symbol 7");
    refused(&|o| o.sections[1].relocs[0].offset = 5, "reaches beyond the 8 bytes");
    refused(&|o| o.sections[1].relocs[0].addend = 1 << 40, "32 bits cannot hold the addend");
    refused(&|o| o.sections[1].relocs[0].r_type = 200, "R_386_200 (unknown)");
    refused(&|o| o.sections[1].size = 9, "section 1 (.text): its size is 9, but it has 8 bytes");
    refused(&|o| o.sections[1].align = 3, "alignment 3");
    refused(&|o| o.sections[1].link_order = Some(SectionIndex(5)), "ordered by section 5");
    refused(&|o| o.symbols[1].place = Place::Section(SectionIndex(9)), "symbol 1 (f): is in section 9");
    refused(&|o| o.symbols[1].name = "a\0b", "contains a zero byte");
    refused(&|o| o.symbols[1].value = 1 << 33, "value 0x200000000 in a 32-bit object");
    refused(&|o| o.sections.clear(), "section 0");
    refused(&|o| o.symbols.clear(), "symbol 0");
}

//! Reading objects of every machine, whole and damaged.

mod common;

use std::fs;
use std::process::Command;

use common::{Dir, MACHINES, sources};
use kelf::{Error, Machine, Object, Place, RelocClass, reloc};
use kshrink_tests::process::run;

/// Finds a section by name.
fn section<'o, 'a>(object: &'o Object<'a>, name: &str) -> &'o kelf::Section<'a> {
    let found = object.sections.iter().find(|section| section.name == name);
    found.unwrap_or_else(|| panic!("{} has no section {name}", object.name))
}

/// Finds a symbol by name.
fn symbol<'o, 'a>(object: &'o Object<'a>, name: &str) -> &'o kelf::Symbol<'a> {
    let found = object.symbols.iter().find(|symbol| symbol.name == name);
    found.unwrap_or_else(|| panic!("{} has no symbol {name}", object.name))
}

/// Returns the name and addend of each relocation in `.text`.
fn relocations(machine: Machine) -> Vec<(String, i64)> {
    let dir = Dir::new();
    let path = dir.compile(machine, &format!("{machine}.S"), "a.o");
    let bytes = fs::read(path).unwrap();
    let object = Object::read("a.o", &bytes).unwrap();
    let relocs = section(&object, ".text").relocs.iter();
    relocs.map(|r| (reloc::name(machine, r.r_type), r.addend)).collect()
}

fn expect(machine: Machine, expected: &[(&str, i64)]) {
    let expected: Vec<_> = expected.iter().map(|&(name, addend)| (name.into(), addend)).collect();
    assert_eq!(relocations(machine), expected);
}

#[test]
fn i386_relocations() {
    expect(
        Machine::I386,
        &[
            ("R_386_32", 16),
            ("R_386_PC32", 8),
            ("R_386_16", 2),
            ("R_386_PC16", -2),
            ("R_386_8", 1),
            ("R_386_PC8", 0),
            ("R_386_PC32", -4),
            ("R_386_PLT32", -4),
            ("R_386_GOT32X", 0),
            ("R_386_GOTOFF", 0),
            ("R_386_GOTPC", 2),
            ("R_386_TLS_LE", 0),
            ("R_386_TLS_IE", 0),
            ("R_386_TLS_GD", 0),
        ],
    );
}

#[test]
fn x86_64_relocations() {
    expect(
        Machine::X86_64,
        &[
            ("R_X86_64_64", 16),
            ("R_X86_64_32", -16),
            ("R_X86_64_PC64", 0),
            ("R_X86_64_PC32", 0),
            ("R_X86_64_16", 0),
            ("R_X86_64_8", 0),
            ("R_X86_64_PLT32", -4),
            ("R_X86_64_32", 0),
            ("R_X86_64_32S", 1),
            ("R_X86_64_PC32", -4),
            ("R_X86_64_REX_GOTPCRELX", -4),
            ("R_X86_64_GOTPCRELX", -4),
            ("R_X86_64_TPOFF32", 0),
            ("R_X86_64_GOTTPOFF", -4),
            ("R_X86_64_PC32", -5),
        ],
    );
}

#[test]
fn arm_relocations() {
    expect(
        Machine::Arm,
        &[
            ("R_ARM_ABS32", 16),
            ("R_ARM_REL32", 8),
            ("R_ARM_CALL", -8),
            ("R_ARM_JUMP24", 24),
            ("R_ARM_JUMP24", -8),
            ("R_ARM_MOVW_ABS_NC", 0),
            ("R_ARM_MOVT_ABS", 0),
            ("R_ARM_MOVW_PREL_NC", -8),
            ("R_ARM_GOT_PREL", 0),
            ("R_ARM_TLS_LE32", 0),
            ("R_ARM_THM_CALL", -4),
            ("R_ARM_THM_JUMP24", -4),
            ("R_ARM_THM_JUMP19", -4),
            ("R_ARM_THM_MOVW_ABS_NC", 0),
            ("R_ARM_THM_MOVT_ABS", 0),
            ("R_ARM_LDR_PC_G0", -20),
        ],
    );
}

#[test]
fn aarch64_relocations() {
    expect(
        Machine::Aarch64,
        &[
            ("R_AARCH64_ABS64", 16),
            ("R_AARCH64_ABS32", 0),
            ("R_AARCH64_PREL64", 0),
            ("R_AARCH64_PREL32", 4),
            ("R_AARCH64_CALL26", 0),
            ("R_AARCH64_JUMP26", 8),
            ("R_AARCH64_CONDBR19", 0),
            ("R_AARCH64_TSTBR14", 0),
            ("R_AARCH64_ADR_PREL_PG_HI21", 0),
            ("R_AARCH64_ADD_ABS_LO12_NC", 0),
            ("R_AARCH64_LDST64_ABS_LO12_NC", 0),
            ("R_AARCH64_LDST8_ABS_LO12_NC", 0),
            ("R_AARCH64_MOVW_UABS_G0", 0),
            ("R_AARCH64_ADR_GOT_PAGE", 0),
            ("R_AARCH64_LD64_GOT_LO12_NC", 0),
            ("R_AARCH64_TLSLE_ADD_TPREL_HI12", 0),
        ],
    );
}

#[test]
fn what_a_compiler_writes() {
    for machine in MACHINES {
        let dir = Dir::new();
        let bytes = fs::read(dir.compile(machine, "features.c", "a.o")).unwrap();
        let object = Object::read("a.o", &bytes).unwrap();
        assert_eq!(object.machine, machine);
        assert!(symbol(&object, "overridable").is_weak());
        assert_eq!(symbol(&object, "maybe").place, Place::Undefined);
        assert!(symbol(&object, "maybe").is_weak());
        assert!(symbol(&object, "local_zeroed").is_local());
        assert_eq!(symbol(&object, "hidden_helper").visibility(), 2);
        let common = symbol(&object, "common_block");
        assert_eq!((common.place, common.value), (Place::Common, 32));
        assert_eq!(section(&object, ".data..page_aligned").align, 4096);
        let zeroed = section(&object, ".bss");
        assert!(zeroed.size >= 400 && zeroed.data.is_empty());
        let strings = object.sections.iter().find(|s| s.name.starts_with(".rodata.str")).unwrap();
        assert_eq!(strings.entsize, 1);
        assert!(section(&object, ".init.text").is_code());
        let text = section(&object, ".text");
        assert!(text.is_code() && text.is_allocated());
        let relocs = &text.relocs;
        assert!(relocs.windows(2).all(|pair| pair[0].offset <= pair[1].offset));
        assert!(object.sections.iter().any(|s| s.name == ".note.GNU-stack"));
    }
}

#[test]
fn groups_and_order() {
    for machine in MACHINES {
        let dir = Dir::new();
        let bytes = fs::read(dir.compile(machine, "group.S", "a.o")).unwrap();
        let object = Object::read("a.o", &bytes).unwrap();
        let [group] = &object.groups[..] else { panic!("{:?}", object.groups) };
        assert_eq!(group.flags, kelf::GRP_COMDAT);
        assert_eq!(object.symbol(group.signature).name, "shared");
        let members: Vec<_> = group.members.iter().map(|&m| object.section(m).name).collect();
        assert_eq!(members, [".text.shared", ".data.shared"]);
        let orders = object.sections.iter().filter_map(|section| section.link_order);
        let orders: Vec<_> = orders.map(|target| object.section(target).name).collect();
        assert_eq!(orders, [".text.kept", ".text.shared"]);
        assert_eq!(symbol(&object, "absolute").place, Place::Absolute);
        let data = section(&object, ".data.absolute");
        let addends: Vec<_> = data.relocs.iter().map(|r| (r.class, r.addend)).collect();
        assert_eq!(addends[..2], [(RelocClass::Absolute, 16), (RelocClass::Absolute, -4)]);
    }
}

#[test]
fn compressed_debug_sections_are_given_uncompressed() {
    for machine in [Machine::I386, Machine::X86_64] {
        let dir = Dir::new();
        let plain = dir.compile_with(machine, "features.c", "plain.o", &["-g", "-gz=none"]);
        let packed = dir.path("packed.o");
        let mut objcopy = Command::new("objcopy");
        objcopy.arg("--compress-debug-sections=zlib").arg(&plain).arg(&packed);
        run(&mut objcopy);
        let (plain, packed) = (fs::read(plain).unwrap(), fs::read(packed).unwrap());
        let plain = Object::read("plain.o", &plain).unwrap();
        let packed = Object::read("packed.o", &packed).unwrap();
        let content = |object: &Object<'_>| {
            let section = section(object, ".debug_info");
            let relocs = section.relocs.iter();
            let relocs: Vec<_> = relocs.map(|r| (r.offset, r.r_type, r.addend)).collect();
            (section.flags, section.data.to_vec(), relocs)
        };
        assert!(content(&plain) == content(&packed), "{machine}");
    }
}

#[test]
fn other_files_are_refused_by_name() {
    let dir = Dir::new();
    let bytes = fs::read(dir.compile(Machine::X86_64, "features.c", "a.o")).unwrap();
    let message = |bytes: &[u8]| {
        let error = Object::read("x.o", bytes).unwrap_err();
        assert!(error.is_bad_input());
        let message = error.to_string();
        assert!(message.starts_with("x.o: this is "), "{message}");
        message
    };
    assert!(message(b"").contains("an empty file"));
    assert!(message(b"hello").contains("not an ELF file"));
    assert!(message(b"!<arch>\n").contains("an archive"));
    for bitcode in [&b"BC\xc0\xde"[..], b"\xde\xc0\x17\x0b\0\0\0\0"] {
        let message = message(bitcode);
        assert!(
            message.contains("LLVM bitcode") && message.ends_with("; compile it without -flto"),
            "{message}"
        );
    }
    let mut changed = bytes.clone();
    changed[5] = 2;
    assert!(message(&changed).contains("big-endian; expected a little-endian"));
    changed = bytes.clone();
    changed[18] = 8;
    assert!(message(&changed).contains("machine number 8 of class 64"));
    changed = bytes.clone();
    changed[16] = 2;
    assert!(message(&changed).contains("a linked executable; expected a little-endian relocatable object"));
}

#[test]
fn slim_lto_object_is_refused_and_fat_one_read() {
    let dir = Dir::new();
    let compile = |machine, option: &str| {
        fs::read(dir.compile_with(machine, "features.c", "a.o", &["-flto", option])).unwrap()
    };
    for machine in MACHINES {
        let slim = compile(machine, "-fno-fat-lto-objects");
        let message = Object::read("slim.o", &slim).unwrap_err().to_string();
        assert!(message.starts_with("slim.o: this is a slim LTO object"), "{message}");
        assert!(message.ends_with("compile it without -flto, or with -ffat-lto-objects"), "{message}");
        let fat = compile(machine, "-ffat-lto-objects");
        assert!(Object::read("fat.o", &fat).is_ok());
    }
}

#[test]
fn names_that_are_not_utf8_are_quoted() {
    let dir = Dir::new();
    let bytes = fs::read(dir.compile(Machine::I386, "features.c", "a.o")).unwrap();
    for (name, place) in [("\0.comment\0", "section "), ("\0features.c\0", "symbol 1: ")] {
        let mut latin = bytes.clone();
        let at = latin.windows(name.len()).position(|part| part == name.as_bytes()).expect("the name");
        // An ä in Latin-1.
        latin[at + 3] = 0xe4;
        let error = Object::read("a.o", &latin).unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        let quoted =
            format!("its name \"{}\" is not UTF-8", latin[at + 1..at + name.len() - 1].escape_ascii());
        let message = error.to_string();
        assert!(message.starts_with(&format!("a.o: {place}")) && message.contains(&quoted), "{message}");
    }
}

#[test]
fn every_truncation_is_an_error() {
    for machine in MACHINES {
        let dir = Dir::new();
        for source in sources(machine) {
            let bytes = fs::read(dir.compile(machine, &source, "a.o")).unwrap();
            for length in 0..bytes.len() {
                let result = Object::read("a.o", &bytes[..length]);
                let error = result.expect_err("a truncated file").to_string();
                assert!(error.starts_with("a.o: "), "{error}");
            }
        }
    }
}

#[test]
fn no_damage_makes_the_reader_panic() {
    // A linear congruential generator: the damage is reproducible.
    let mut state = 12345u64;
    let mut random = move |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % limit
    };
    for machine in MACHINES {
        let dir = Dir::new();
        for source in sources(machine) {
            let bytes = fs::read(dir.compile(machine, &source, "a.o")).unwrap();
            for _ in 0..3000 {
                let mut damaged = bytes.clone();
                for _ in 0..1 + random(3) {
                    // Mostly in the headers and tables, which are at both ends.
                    let at = match random(3) {
                        0 => random(64),
                        1 => damaged.len() - 1 - random(1200.min(damaged.len())),
                        _ => random(damaged.len()),
                    };
                    damaged[at] = [0, 1, 0x7f, 0xff, random(256) as u8][random(5)];
                }
                // An object that was read must be written, or refused, without a panic as well.
                if let Ok(object) = Object::read("a.o", &damaged) {
                    let _ = object.write();
                }
            }
        }
    }
}

#[test]
fn bad_references_are_named() {
    let dir = Dir::new();
    let bytes = fs::read(dir.compile(Machine::I386, "i386.S", "a.o")).unwrap();
    let header = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    // The section header of the only REL section, found by its type.
    let (table, count) = (header(&bytes, 32), u16::from_le_bytes([bytes[48], bytes[49]]));
    let rel = (0..usize::from(count)).map(|n| table + 40 * n);
    let rel = rel.into_iter().find(|&at| header(&bytes, at + 4) == 9).unwrap();
    let first = header(&bytes, rel + 16);
    let error = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut changed = bytes.clone();
        change(&mut changed);
        Object::read("a.o", &changed).unwrap_err()
    };
    let unknown = error(&|bytes| bytes[first + 4] = 200);
    assert!(matches!(unknown, Error::Unsupported { .. }));
    let message = unknown.to_string();
    assert!(message.contains("(.text), offset 0x0: relocation R_386_200 (unknown)"), "{message}");
    let symbol = error(&|bytes| bytes[first + 6] = 9).to_string();
    assert!(symbol.contains("(.text), offset 0x0: a relocation names symbol"), "{symbol}");
    let offset = error(&|bytes| bytes[first + 1] = 9).to_string();
    assert!(offset.contains("(.text), offset 0x900"), "{offset}");
    assert!(offset.contains("reaches beyond the"), "{offset}");
    let target = error(&|bytes| bytes[rel + 28] = 99).to_string();
    assert!(target.contains("(.rel.text): relocates section 99"), "{target}");
}

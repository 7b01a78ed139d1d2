//! The functions of small linked files, for every machine.

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::{Dir, MACHINES};
use goblin::elf::section_header::SHT_SYMTAB;
use kelf::{Error, Function, Functions, Machine};

/// Links `functions/global.S`, and `functions/local.c` twice from objects of different names.
fn kernel(dir: &Dir, machine: Machine) -> PathBuf {
    dir.compile(machine, "functions/global.S", "global.o");
    dir.compile(machine, "functions/local.c", "one/local.o");
    dir.compile(machine, "functions/local.c", "two/local.o");
    let layout = ["-Ttext=0x10000", "--section-start=.init.text=0x20000", "-Tdata=0x30000"];
    let inputs = ["global.o", "one/local.o", "two/local.o", "--build-id=0x0123abcd", "-e0x10000"];
    dir.ld(machine, &[&layout[..], &inputs, &["--no-warn-rwx-segments", "-o", "vmlinux"]].concat());
    dir.path("vmlinux")
}

/// Returns the meaning of a symbol, as its function's name and the offset in it.
fn place(functions: &Functions, name: &str, file: Option<&str>, nth: u32) -> Option<(String, u64)> {
    let (index, offset) = functions.find(name, file, nth)?;
    Some((functions.function(index).name.clone(), offset))
}

/// Returns the name picked for the function at 0x10004. Linkers put global symbols in an order of their own.
fn shared(functions: &Functions) -> &str {
    let (index, _) = functions.at(0x10004).unwrap();
    let name = &functions.function(index).name;
    assert!(name == "shared" || name == "also_shared", "{name}");
    name
}

fn some(name: &str, offset: u64) -> Option<(String, u64)> {
    Some((name.into(), offset))
}

#[test]
fn code_is_cut_into_functions_and_labels() {
    let dir = Dir::new();
    for machine in MACHINES {
        let functions = Functions::read(&kernel(&dir, machine)).unwrap();
        assert_eq!(functions.machine, machine);
        assert_eq!(functions.build_id.as_deref(), Some("0123abcd"));
        let list: Vec<_> = functions.functions.iter().map(|f| (&f.name[..], f.size, f.is_label)).collect();
        let shared = shared(&functions);
        let expected = [
            (shared, 32, false),
            ("hand_written", 12, true),
            ("hand_written_local", 4, true),
            ("helper", 20, false),
        ];
        assert_eq!(list[..4], expected, "{machine}");
        assert_eq!(list.last(), Some(&("helper_2", 4, false)), "{machine}");
        let named = |address: u64| {
            let (index, offset) = functions.at(address)?;
            Some((functions.function(index).name.clone(), offset))
        };
        assert_eq!(named(0x10000), None);
        assert_eq!(named(0x10004), some(shared, 0));
        assert_eq!(named(0x10023), some(shared, 31));
        assert_eq!(named(0x10024), None);
        assert_eq!(named(0x10034), some("hand_written", 0));
        assert_eq!(named(0x10043), some("hand_written_local", 3));
        let helper = functions.at(0x20000).unwrap().0;
        assert_eq!(functions.section_of(functions.function(helper)).name, ".init.text");
        assert_eq!(functions.address_of("table"), Some(0x30000));
        assert_eq!(functions.address_of("missing"), None);
    }
}

#[test]
fn any_of_its_names_finds_a_function() {
    let dir = Dir::new();
    for machine in MACHINES {
        let functions = Functions::read(&kernel(&dir, machine)).unwrap();
        let shared = shared(&functions);
        for name in ["shared", "also_shared"] {
            assert_eq!(place(&functions, name, None, 0), some(shared, 0), "{machine}");
        }
        assert_eq!(place(&functions, "local_name", Some("global.c"), 0), some(shared, 0));
        assert_eq!(place(&functions, "inner", Some("global.c"), 0), some(shared, 24));
        assert_eq!(place(&functions, "shared", Some("global.c"), 0), None);
        assert_eq!(place(&functions, "table", None, 0), None);
    }
}

#[test]
fn functions_of_one_name_are_told_apart() {
    let dir = Dir::new();
    for machine in MACHINES {
        let functions = Functions::read(&kernel(&dir, machine)).unwrap();
        let find = |file, nth| functions.find("helper", Some(file), nth).map(|(index, _)| index);
        let of: Vec<_> = [("global.c", 0), ("local.c", 0), ("local.c", 1)]
            .map(|(file, nth)| find(file, nth).unwrap_or_else(|| panic!("{machine} {file} {nth}")))
            .to_vec();
        assert_eq!(functions.named("helper"), of);
        let first: &Function = functions.function(of[1]);
        let second = functions.function(of[2]);
        assert_eq!((first.nth, second.nth), (0, 1));
        assert!(first.address < second.address);
        assert_eq!(find("local.c", 2), None);
    }
}

/// Linker scripts attach symbols to a section whose values are elsewhere, such as `__stubs_lma` of ARM kernels.
#[test]
fn a_symbol_outside_of_its_section_is_no_function() {
    let dir = Dir::new();
    let vmlinux = kernel(&dir, Machine::I386);
    let mut bytes = std::fs::read(&vmlinux).unwrap();
    let elf = goblin::elf::Elf::parse(&bytes).unwrap();
    let number =
        elf.syms.iter().position(|symbol| elf.strtab.get_at(symbol.st_name) == Some("hand_written_local"));
    let table = elf.section_headers.iter().find(|header| header.sh_type == SHT_SYMTAB).unwrap();
    let value = table.sh_offset as usize + number.unwrap() * table.sh_entsize as usize + 4;
    bytes[value..value + 4].copy_from_slice(&0x9000u32.to_le_bytes());
    std::fs::write(&vmlinux, bytes).unwrap();
    let functions = Functions::read(&vmlinux).unwrap();
    let is_within = |function: &Function| {
        let section = functions.section_of(function).addresses();
        section.start <= function.address && function.addresses().end <= section.end
    };
    assert!(functions.functions.iter().all(is_within), "{:?}", functions.functions);
    assert_eq!(functions.named("hand_written_local"), []);
}

#[test]
fn what_has_no_symbols_is_refused() {
    let dir = Dir::new();
    let vmlinux = kernel(&dir, Machine::I386);
    let object = Functions::read(&dir.path("global.o")).unwrap_err();
    assert!(matches!(object, Error::WrongKind { .. }), "{object}");
    kshrink_tests::process::run(Command::new("strip").arg(&vmlinux));
    let stripped = Functions::read(&vmlinux).unwrap_err().to_string();
    assert!(stripped.contains("vmlinux: has no symbols of code; use the vmlinux that"), "{stripped}");
}

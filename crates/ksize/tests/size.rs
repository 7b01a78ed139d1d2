//! `kelf size`, run as a command.

#[path = "../../kelf/tests/common/mod.rs"]
mod common;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::{Dir, fixture};
use kelf::Machine;
use ksize::{FrozenSizes, KernelMemory, SizeTable};

/// Links a miniature kernel.
fn kernel(dir: &Dir, name: &str) -> PathBuf {
    dir.compile(Machine::X86_64, "size/kernel.S", "kernel.o");
    let script = fixture("size/kernel.lds").display().to_string();
    dir.ld(Machine::X86_64, &["--no-warn-rwx-segments", "-T", &script, "kernel.o", "-o", name]);
    dir.path(name)
}

fn kelf(arguments: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kelf"));
    command.arg("size").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn sections_are_counted_where_they_are_loaded() {
    let dir = Dir::new();
    let table = SizeTable::of(&kernel(&dir, "vmlinux")).unwrap();
    assert_eq!(table.text, 100);
    // .rodata, the part of .straddling before __init_begin, and .bss, but not .brk.
    assert_eq!(table.data, 50 + 24 + 1000);
    assert_eq!(table.init_text, 30);
    // The rest of .straddling, .data..percpu by its load address, .init.data.
    assert_eq!(table.init_data, 40 + 48 + 20);
    assert_eq!(table.image, 100 + 50 + 64 + 48 + 30 + 20);
    assert!(table.compressed_image > 0 && table.compressed_image < table.image);
    assert_eq!(table.boot_image, None);
    assert_eq!(table.footprint, table.text + table.data);
    assert_eq!(table.init_footprint, table.footprint + table.init_text + table.init_data);
}

#[test]
fn resident_memory_is_counted_in_pages() {
    let dir = Dir::new();
    let kernel = kernel(&dir, "vmlinux");
    // One page, of which the init sections free nothing, with all sections but .brk.
    let sections = 100 + 50 + 64 + 48 + 30 + 20 + 1000;
    let expected = KernelMemory { resident: 4096, padding: 4096 - sections };
    assert_eq!(SizeTable::of(&kernel).unwrap().memory, Some(expected));

    // Two pages of fill without a symbol, and one page of fill that is a function; whole pages of init.
    let source = "\
        .text\n.fill 8192, 1, 0xcc\n.globl real\nreal: .fill 4096, 1, 0xc3\n.size real, 4096\nnop\n\
        .section .init.data, \"aw\"\n.fill 3 * 4096\n\
        .globl kshrink_split_sections, __start_rodata\n\
        kshrink_split_sections = 0x80001000\n__start_rodata = 0x80001000\n";
    let source = dir.write("more.s", source);
    dir.compile(Machine::X86_64, &source.display().to_string(), "more.o");
    let script = fixture("size/kernel.lds").display().to_string();
    dir.ld(Machine::X86_64, &["--no-warn-rwx-segments", "-T", &script, "kernel.o", "more.o", "-o", "more"]);
    let table = SizeTable::of(&dir.path("more")).unwrap();
    let memory = table.memory.unwrap();
    // Three pages of code and the page before; a page table for the three bounds in one pair of sections.
    assert_eq!(memory.resident, (4 + 1 + 1) * 4096, "{table:?}");
    assert!((8192 + 2000..8192 + 2 * 4096).contains(&memory.padding), "{memory:?}");
}

#[test]
fn frozen_parts_are_columns_of_their_own() {
    let dir = Dir::new();
    let vmlinux = kernel(&dir, "vmlinux");
    let plain = SizeTable::of(&vmlinux).unwrap();
    assert_eq!(plain.frozen, None);
    // Two pages of code and one of data.
    let frozen = |end: &str| {
        let source = dir.write(
            "frozen.s",
            format!(
                ".globl kshrink_frozen_text, kshrink_frozen_data, kshrink_frozen_end, kshrink_packed\n\
                 kshrink_frozen_text = 0xff3fe000\nkshrink_frozen_data = 0xff400000\nkshrink_frozen_end = {end}\n\
                 .size kshrink_frozen_text, 7000\n.size kshrink_frozen_data, 300\n\
                 .section .rodata\nkshrink_packed: .fill 2000\n.size kshrink_packed, 1990\n"
            ),
        );
        dir.compile(Machine::X86_64, &source.display().to_string(), "frozen.o");
        let script = fixture("size/kernel.lds").display().to_string();
        let ld = ["--no-warn-rwx-segments", "-T", &script, "kernel.o", "frozen.o", "-o", "with"];
        dir.ld(Machine::X86_64, &ld);
        SizeTable::of(&dir.path("with"))
    };
    let table = frozen("0xff401000").unwrap();
    let expected = FrozenSizes { text: 7000, data: 300, packed: 1990 };
    assert_eq!(table.frozen, Some(expected));
    assert_eq!(table.data, plain.data + 2000);
    let output = text(&kelf(&[&vmlinux, &dir.path("with")]).stdout);
    let line = output.lines().find(|line| line.starts_with("frozen text")).unwrap();
    assert_eq!(line.split_whitespace().collect::<Vec<_>>(), ["frozen", "text", "7,000"]);
    assert!(frozen("0xff3ff000").is_err());
}

#[test]
fn one_file() {
    let dir = Dir::new();
    let vmlinux = kernel(&dir, "vmlinux");
    let output = kelf(&[&vmlinux]);
    assert!(output.status.success() && output.stderr.is_empty());
    let text = text(&output.stdout);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split("  ").collect()).collect();
    let names: Vec<&str> = lines.iter().map(|line| line[0]).collect();
    let expected = [
        "",
        "resident",
        "padding",
        "text",
        "data",
        "init text",
        "init data",
        "image",
        "compressed image",
        "init footprint",
        "footprint",
    ];
    assert_eq!(names, expected);
    assert_eq!(lines[4].last().unwrap().trim(), "1,074");
}

#[test]
fn files_are_compared_with_the_first() {
    let dir = Dir::new();
    let before = kernel(&dir, "before");
    let after = dir.path("after");
    let mut objcopy = Command::new("objcopy");
    objcopy.args(["--remove-section=.rodata"]).arg(&before).arg(&after);
    kshrink_tests::process::run(&mut objcopy);
    let output = text(&kelf(&[&before, &after]).stdout);
    let line = |name: &str| output.lines().find(|line| line.starts_with(name)).unwrap().to_string();
    assert!(line("text").ends_with(" 0.0 %"), "{output}");
    assert!(line("data").ends_with("1,024   -4.7 %"), "{output}");
}

#[test]
fn json_reads_back() {
    let dir = Dir::new();
    let vmlinux = kernel(&dir, "vmlinux");
    dir.write("arch/x86/boot/bzImage", vec![0; 12345]);
    let output = kelf(&[&vmlinux, &vmlinux, Path::new("--json")]);
    let tables: Vec<SizeTable> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(tables.len(), 2);
    assert_eq!(tables[0], SizeTable::of(&vmlinux).unwrap());
    assert_eq!(tables[0].boot_image, Some(12345));
}

#[test]
fn programs_have_no_init_sections() {
    let own = Path::new(env!("CARGO_BIN_EXE_kelf"));
    let table = SizeTable::of(own).unwrap();
    assert_eq!((table.init_text, table.init_data), (0, 0));
    assert!(table.text > 0 && table.footprint == table.init_footprint);
}

#[test]
fn errors_name_the_file_and_set_the_exit_code() {
    let dir = Dir::new();
    let vmlinux = kernel(&dir, "vmlinux");
    let check = |path: &Path, code: i32, expected: &str| {
        let output = kelf(&[path]);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{message}");
        assert!(message.starts_with("kelf: error: "), "{message}");
        assert!(message.contains(&path.display().to_string()), "{message}");
        assert!(message.contains(expected), "{message}");
        assert!(output.stdout.is_empty());
    };
    check(&dir.path("missing"), 1, "No such file or directory");
    check(&dir.path("kernel.o"), 2, "this is a relocatable object; expected a linked kernel");
    check(&dir.write("text", "hello"), 2, "not an ELF file");
    let bytes = fs::read(&vmlinux).unwrap();
    check(&dir.write("half", &bytes[..bytes.len() / 2]), 2, "damaged or not finished");
    kshrink_tests::process::run(Command::new("strip").arg(&vmlinux));
    check(&vmlinux, 2, "a kernel without the symbols __init_begin and __init_end");
    assert_eq!(kelf(&[]).status.code(), Some(2));
}

#[test]
fn every_truncation_is_an_error() {
    let dir = Dir::new();
    let bytes = fs::read(kernel(&dir, "vmlinux")).unwrap();
    let lengths = (0..64).chain((64..bytes.len()).step_by(37));
    for length in lengths {
        assert!(SizeTable::of(&dir.write("half", &bytes[..length])).is_err(), "{length}");
    }
}

#[test]
fn no_damage_makes_it_panic() {
    let dir = Dir::new();
    let bytes = fs::read(kernel(&dir, "vmlinux")).unwrap();
    let headers = (0..240).chain(bytes.len() - 64 * 13..bytes.len());
    for at in headers {
        for value in [0, 1, 0x7f, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            let _ = SizeTable::of(&dir.write("damaged", damaged));
        }
    }
}

#[test]
fn closed_pipe_is_success() {
    let dir = Dir::new();
    let vmlinux = kernel(&dir, "vmlinux");
    // The output exceeds a pipe's capacity, so a write finds it closed.
    let mut command = Command::new(env!("CARGO_BIN_EXE_kelf"));
    command.args(["size", "--json"]).args(vec![&vmlinux; 500]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut message = String::new();
    child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    assert_eq!(message, "");
    assert!(child.wait().unwrap().success());
}

//! The kernel's tables about code, on each machine and in each version.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Dir, fixture};
use kcfg::lift::{Lifter, Options};
use kcfg::roots::Roots;
use kcfg::script::LinkerScript;
use kcfg::special::{Detail, RootReason, Rule, TableKind, World};
use kelf::{InputFiles, KernelVersion, Machine, Object, Program};
use kshrink_tests::process::run;

fn kernel(machine: Machine, version: Option<KernelVersion>) -> World {
    World::kernel(LinkerScript::read(&fixture("kernel.lds")).unwrap(), machine, version)
}

/// Returns the section, the kind and the size of an entry in bytes of every table about code.
fn tables(object: &Path) -> Vec<(String, TableKind, u32)> {
    let bytes = std::fs::read(object).unwrap();
    let object = Object::read("tables.o", &bytes).unwrap();
    let world = kernel(object.machine, None);
    let tables = object.sections.iter().filter_map(|section| {
        let Rule::Weak(kind) = world.rule(section.name, section.kind, section.flags) else { return None };
        let layout = kind.layout(object.machine, None, section).unwrap();
        Some((section.name.to_owned(), kind, layout.size))
    });
    tables.collect()
}

fn assemble(dir: &Dir, prefix: &str, source: &str, options: &[&str]) -> PathBuf {
    let object = dir.path("tables.o");
    run(Command::new(format!("{prefix}as")).args(options).arg(fixture(source)).arg("-o").arg(&object));
    object
}

#[test]
fn entries_of_arm() {
    let dir = Dir::new();
    let expected = [
        ("__ex_table", TableKind::ExceptionTable, 8),
        ("__bug_table", TableKind::Bug, 12),
        ("__jump_table", TableKind::StaticKey, 12),
        (".pv_table", TableKind::PhysicalOffset, 4),
        ("_kprobe_blacklist", TableKind::FunctionList, 4),
        ("_error_injection_whitelist", TableKind::ErrorInjection, 8),
    ];
    let expected = expected.map(|(name, kind, size)| (name.to_owned(), kind, size));
    assert_eq!(tables(&assemble(&dir, "arm-linux-gnueabihf-", "../special/arm.S", &[])), expected);
}

#[test]
fn entries_of_aarch64() {
    let dir = Dir::new();
    for (options, bug) in [(&["--defsym", "VERBOSE=1"][..], 12), (&[], 8)] {
        let expected = [
            ("__ex_table", TableKind::ExceptionTable, 12),
            ("__bug_table", TableKind::Bug, bug),
            ("__jump_table", TableKind::StaticKey, 16),
            (".altinstructions", TableKind::Alternative, 12),
            ("_kprobe_blacklist", TableKind::FunctionList, 8),
            ("_error_injection_whitelist", TableKind::ErrorInjection, 16),
        ];
        let expected = expected.map(|(name, kind, size)| (name.to_owned(), kind, size));
        assert_eq!(tables(&assemble(&dir, "aarch64-linux-gnu-", "../special/aarch64.S", options)), expected);
    }
}

#[test]
fn bugs_of_x86_64_have_a_text_since_linux_6_19() {
    let dir = Dir::new();
    let detail = |options: &[&str], version: Option<KernelVersion>| {
        let path = assemble(&dir, "x86_64-linux-gnu-", "../special/x86_64.S", options);
        let bytes = std::fs::read(path).unwrap();
        let object = Object::read("tables.o", &bytes).unwrap();
        let section = object.sections.iter().find(|section| section.name == "__bug_table").unwrap();
        TableKind::Bug.layout(Machine::X86_64, version, section).map(|layout| layout.detail)
    };
    let (old, new) = (KernelVersion::new(6, 18), KernelVersion::new(6, 19));
    assert_eq!(detail(&[], Some(old)), Ok(Detail::BugFlags(10)));
    assert_eq!(detail(&[], Some(new)), Ok(Detail::BugFlags(8)));
    let named = &["--defsym", "NAMED=1"];
    assert_eq!(detail(named, Some(new)), Ok(Detail::BugFlags(14)));
    assert!(detail(named, Some(old)).unwrap_err().contains("as in Linux 6.19 and later, but"));
    assert_eq!(detail(named, None), Ok(Detail::BugFlags(14)));
    assert!(detail(&[], None).unwrap_err().contains("tells the version"));
}

#[test]
fn names_of_another_machine_mean_nothing() {
    let unknown = Rule::Root(RootReason::UnknownSection);
    let alloc = u64::from(goblin::elf::section_header::SHF_ALLOC);
    let rule = |machine, name| kernel(machine, None).rule(name, 1, alloc);
    for machine in [Machine::Arm, Machine::Aarch64] {
        for name in [".smp_locks", ".parainstructions", ".return_sites", "runtime_ptr_x"] {
            assert_eq!(rule(machine, name), unknown, "{name} on {machine}");
        }
    }
    for machine in [Machine::I386, Machine::X86_64, Machine::Aarch64] {
        for name in [".pv_table", ".arch.info.init"] {
            assert_eq!(rule(machine, name), unknown, "{name} on {machine}");
        }
    }
}

#[test]
fn a_layout_of_another_version_is_refused() {
    let dir = Dir::new();
    let (old, new) = (KernelVersion::new(6, 1), KernelVersion::new(6, 12));
    let lift = |options: &[&str], version| {
        let files = InputFiles::of_objects(&[dir.compile("alternatives.c", options)]).unwrap();
        let program = Program::link(&files).unwrap();
        let options = Options { world: kernel(Machine::I386, Some(version)), keep_exports: false };
        let lifted = Lifter::new(&program, options, Roots::of_entries(&[]));
        lifted.map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(lift(&["-Os", "-DLINUX_6_1"], old), Ok(()));
    assert_eq!(lift(&["-Os"], new), Ok(()));
    let message = lift(&["-Os", "-DLINUX_6_1"], new).unwrap_err();
    let expected = "section .altinstructions: its entries have 12 bytes with relocations at 0, 4, as in Linux before \
                    6.3, but include/config/kernel.release says Linux 6.12";
    assert!(message.contains(expected), "{message}");
    let message = lift(&["-Os"], old).unwrap_err();
    assert!(message.contains("as in Linux 6.3 and later, but"), "{message}");
}

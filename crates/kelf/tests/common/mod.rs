//! Compiles fixtures; if that fails, names the missing package.

// Each test binary uses a different part of this.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kelf::{Group, Machine, Object, Place, Section, SectionIndex, SymbolIndex};
use kshrink_tests::process::run;

pub const MACHINES: [Machine; 4] = [Machine::I386, Machine::X86_64, Machine::Arm, Machine::Aarch64];

/// A directory for one test, removed at its end.
pub struct Dir(tempfile::TempDir);

impl Dir {
    pub fn new() -> Dir {
        Dir(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    /// Compiles `fixtures/elf/<source>` to `<output>` in this directory.
    pub fn compile(&self, machine: Machine, source: &str, output: &str) -> PathBuf {
        self.compile_with(machine, source, output, &[])
    }

    pub fn compile_with(&self, machine: Machine, source: &str, output: &str, options: &[&str]) -> PathBuf {
        let path = self.path(output);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let (compiler, mode): (_, &[&str]) = match machine {
            Machine::I386 => ("gcc", &["-m32"]),
            Machine::X86_64 => ("gcc", &["-m64"]),
            Machine::Arm => ("arm-linux-gnueabihf-gcc", &[]),
            Machine::Aarch64 => ("aarch64-linux-gnu-gcc", &[]),
        };
        let mut command = Command::new(compiler);
        command.args(mode).args(["-O2", "-ffreestanding", "-fno-pic", "-c"]).args(options);
        command.arg(fixture(source)).arg("-o").arg(&path);
        run(&mut command);
        path
    }

    /// Runs `ld` for `machine` in this directory and returns what it printed.
    pub fn ld(&self, machine: Machine, arguments: &[&str]) -> String {
        let (linker, mode): (_, &[&str]) = match machine {
            Machine::I386 => ("ld", &["-m", "elf_i386"]),
            Machine::X86_64 => ("ld", &["-m", "elf_x86_64"]),
            Machine::Arm => ("arm-linux-gnueabihf-ld", &[]),
            Machine::Aarch64 => ("aarch64-linux-gnu-ld", &[]),
        };
        run(Command::new(linker).args(mode).args(arguments).current_dir(self.0.path()))
    }

    /// Runs `ar` in this directory.
    pub fn ar(&self, arguments: &[&str]) {
        run(Command::new("ar").args(arguments).current_dir(self.0.path()));
    }
}

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/elf").join(name)
}

/// Returns the sources that every machine compiles, and one of its own with all kinds of relocations.
pub fn sources(machine: Machine) -> [String; 3] {
    ["features.c".into(), "group.S".into(), format!("{machine}.S")]
}

/// Returns the object without its tables and with its local symbols first, renumbered: the part that the writer keeps.
pub fn normalised<'a>(object: &Object<'a>) -> Object<'a> {
    let count = object.sections.len();
    let mut numbers = vec![SectionIndex(0); count];
    let mut sections = vec![Section::null()];
    let groups = (0..count).filter(|&index| object.sections[index].kind == 17);
    for (number, index) in groups.enumerate() {
        // A section symbol of a group keeps its group.
        numbers[index] = SectionIndex(1_000_000 + number as u32);
    }
    for (index, section) in object.sections.iter().enumerate() {
        if !section.is_table() {
            numbers[index] = SectionIndex::from(sections.len());
            sections.push(section.clone());
        }
    }
    let (mut order, global): (Vec<usize>, Vec<usize>) =
        (0..object.symbols.len()).partition(|&index| object.symbols[index].is_local());
    order.extend(global);
    let mut new = vec![SymbolIndex(0); order.len()];
    for (number, &index) in order.iter().enumerate() {
        new[index] = SymbolIndex::from(number);
    }
    let renumbered = |symbol: SymbolIndex| new[symbol.get()];
    for section in &mut sections {
        section.link_order = section.link_order.map(|target| numbers[target.get()]);
        for reloc in &mut section.relocs {
            reloc.symbol = renumbered(reloc.symbol);
        }
    }
    let symbols = order.iter().map(|&index| {
        let mut symbol = object.symbols[index].clone();
        if let Place::Section(section) = symbol.place {
            symbol.place = Place::Section(numbers[section.get()]);
        }
        symbol
    });
    let groups = object.groups.iter().map(|group| Group {
        flags: group.flags,
        signature: renumbered(group.signature),
        members: group.members.iter().map(|member| numbers[member.get()]).collect(),
    });
    Object {
        name: object.name.clone(),
        machine: object.machine,
        flags: object.flags,
        sections,
        symbols: symbols.collect(),
        groups: groups.collect(),
    }
}

//! Lowering: the resulting program behaves like the original.
//!
//! The program of `fixtures/cfg/run/` is freestanding, prints what it computes and runs natively. It goes through
//! lifting and lowering in three ways. As assembled, it must give the same image. The second time, branches are
//! relaxed. The third time, everything is removed that its entry does not reach, which shows a missing edge.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Dir, View, lift, lift_program, lift_reachable};
use goblin::elf::Elf;
use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS};
use goblin::elf::sym::{STT_FUNC, STT_NOTYPE};
use kcfg::graph::Graph;
use kcfg::lower::{Relax, lower};
use kelf::{Place, SectionIndex};

const PARTS: [&str; 5] = ["main", "control", "data", "labels", "sites"];

/// The optimization levels of the program.
const LEVELS: [&str; 3] = ["-Os", "-O2", "-O0"];

fn compile(dir: &Dir, level: &str) -> Vec<PathBuf> {
    PARTS.iter().map(|part| dir.compile(&format!("run/{part}.c"), &[level])).collect()
}

/// Lowers and links; returns the path of the program.
fn relink(dir: &Dir, graph: &Graph, relax: Relax, name: &str) -> PathBuf {
    let object = dir.path(&format!("{name}.o"));
    fs::write(&object, lower(graph, relax).unwrap().object.write().unwrap()).unwrap();
    dir.link(&[object], name)
}

/// Returns a program's output, line by line; it ends with status 42.
fn output(program: &Path) -> Vec<String> {
    let finished = Command::new(program).output().unwrap();
    let text = String::from_utf8_lossy(&finished.stdout);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.push(format!("{}", finished.status));
    lines
}

fn expected(dir: &Dir, objects: &[PathBuf]) -> Vec<String> {
    let expected = output(&dir.link(objects, "original"));
    assert_eq!(expected.last().unwrap(), "exit status: 42", "{expected:?}");
    expected
}

/// Returns the addresses of the functions of a program.
fn functions(program: &Path) -> Vec<Range<u64>> {
    let bytes = fs::read(program).unwrap();
    let elf = Elf::parse(&bytes).unwrap();
    let functions = elf.syms.iter().filter(|symbol| symbol.st_type() == STT_FUNC);
    functions.map(|symbol| symbol.st_value..symbol.st_value + symbol.st_size).collect()
}

/// Returns the loaded bytes of a program by address: data, and code of these functions without padding.
fn image(program: &Path, functions: &[Range<u64>]) -> BTreeMap<u64, u8> {
    let bytes = fs::read(program).unwrap();
    let elf = Elf::parse(&bytes).unwrap();
    let mut image = BTreeMap::new();
    for section in &elf.section_headers {
        if section.sh_flags & u64::from(SHF_ALLOC) == 0 || section.sh_type == SHT_NOBITS {
            continue;
        }
        let code = section.sh_flags & u64::from(SHF_EXECINSTR) != 0;
        let content = &bytes[section.file_range().unwrap()];
        for (address, &byte) in (section.sh_addr..).zip(content) {
            if !code || functions.iter().any(|function| function.contains(&address)) {
                image.insert(address, byte);
            }
        }
    }
    image
}

#[test]
fn as_assembled_is_the_identity() {
    let dir = Dir::new();
    for level in LEVELS {
        let objects = compile(&dir, level);
        let expected = expected(&dir, &objects);
        let graph = lift(&objects);
        let program = relink(&dir, &graph, Relax::AsAssembled, "identity");
        let functions = functions(&dir.path("original"));
        let (before, after) = (image(&dir.path("original"), &functions), image(&program, &functions));
        let changed = before.iter().find(|&(address, byte)| after.get(address) != Some(byte));
        assert_eq!(changed, None, "{level}: first byte that is not the same");
        assert_eq!(before.len(), after.len(), "{level}");
        assert_eq!(output(&program), expected, "{level}");
    }
}

#[test]
fn relaxed_branches_go_where_they_went() {
    let dir = Dir::new();
    for level in LEVELS {
        let objects = compile(&dir, level);
        let expected = expected(&dir, &objects);
        let graph = lift(&objects);
        let program = relink(&dir, &graph, Relax::Shortest, "relaxed");
        assert_eq!(output(&program), expected, "{level}");
    }
}

#[test]
fn what_the_entry_does_not_reach_is_not_needed() {
    let dir = Dir::new();
    for level in LEVELS {
        let objects = compile(&dir, level);
        let expected = expected(&dir, &objects);
        let graph = lift_reachable(&objects, "_start");
        for name in ["dead", "choose_dead", "checked_dead"] {
            // Without optimization, a load that is not followed keeps its table.
            if (level, name) == ("-O0", "choose_dead") {
                continue;
            }
            let (node, _) = View::of(&graph).symbol(name);
            assert!(!graph.node(node).live, "{level}: {name} is dead");
        }
        let program = relink(&dir, &graph, Relax::Shortest, "reached");
        assert_eq!(output(&program), expected, "{level}");
    }
}

#[test]
fn dead_entries_of_weak_tables_go() {
    let dir = Dir::new();
    let objects = compile(&dir, "-Os");
    let graph = lift_reachable(&objects, "_start");
    let view = View::of(&graph);
    let entries = |section: &str| {
        let entries = view.chunks(section);
        (entries.len(), entries.iter().filter(|&&node| graph.node(node).live).count())
    };
    assert_eq!(entries("__bug_table"), (2, 1));
    assert_eq!(entries("__ex_table"), (1, 1));
}

#[test]
fn names_of_sections_that_a_linker_script_knows_stay() {
    let dir = Dir::new();
    let objects = [dir.compile("names.c", &["-Os"])];
    let names = |graph: &Graph, relax| -> Vec<String> {
        let lowered = lower(graph, relax).unwrap();
        let data = lowered.object.sections.iter().filter(|section| section.name.starts_with(".data"));
        let mut names: Vec<String> = data.map(|section| section.name.to_owned()).collect();
        names.sort();
        names
    };
    for relax in [Relax::AsAssembled, Relax::Shortest] {
        let kernel = names(&lift(&objects), relax);
        assert_eq!(kernel, [".data", ".data.once", ".data.rel.ro.local"], "{relax:?}");
        let program = names(&lift_program(&objects), relax);
        assert_eq!(program, [".data.counter", ".data.once", ".data.rel.ro.local"], "{relax:?}");
    }
}

#[test]
fn an_overridden_definition_has_no_symbol() {
    let dir = Dir::new();
    let objects = [dir.compile("weak.c", &["-Os"]), dir.compile("strong.c", &["-Os"])];
    let graph = lift(&objects);
    let lowered = lower(&graph, Relax::AsAssembled).unwrap();
    let symbols = lowered.object.symbols.iter();
    let named: Vec<_> = symbols.filter(|symbol| symbol.name == "chosen").map(|s| s.binding).collect();
    assert_eq!(named, [goblin::elf::sym::STB_GLOBAL]);
    assert_eq!(graph.symbols().iter().filter(|symbol| symbol.name == "chosen").count(), 2);
}

#[test]
fn distances_to_merged_strings_are_named_by_symbols() {
    let dir = Dir::new();
    let graph = lift(&[dir.compile("names.c", &["-Os"])]);
    let lowered = lower(&graph, Relax::AsAssembled).unwrap();
    let exports = lowered.object.sections.iter().find(|section| section.name == "___ksymtab+once").unwrap();
    let strings =
        lowered.object.sections.iter().position(|section| section.name == "__ksymtab_strings").unwrap();
    let places: Vec<_> = exports.relocs[1..]
        .iter()
        .map(|reloc| {
            let symbol = &lowered.object.symbols[reloc.symbol.get()];
            assert_eq!(symbol.place, Place::Section(SectionIndex::from(strings)));
            (symbol.kind, symbol.value, reloc.addend)
        })
        .collect();
    // Not the section's symbol: the linker would look for the string elsewhere.
    assert_eq!(places, [(STT_NOTYPE, 0, 0), (STT_NOTYPE, 5, 0)]);
}

//! The cases in which an edge is easily missed.
//!
//! A missing edge is the worst defect of a graph: code that is only reachable through it is removed, and the program
//! fails long after. Each fixture here reaches something in a way that neither a plain relocation nor a plain branch
//! shows. The tests require that it is reached, whether its function is split into blocks or opaque.

mod common;

use std::collections::BTreeSet;

use common::{Dir, View, lift, lift_fixture, lift_reachable};
use kcfg::edges::{Destination, EdgeKind};
use kcfg::index::NodeId;
use kcfg::lower::{Relax, lower};
use kelf::{Object, RelocClass};

/// Returns the names outside of the program that are reachable from a symbol.
fn outside(view: &View<'_>, symbol: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut pending: Vec<NodeId> = vec![view.symbol(symbol).0];
    while let Some(node) = pending.pop() {
        if !seen.insert(node) {
            continue;
        }
        for edge in view.edges(node) {
            match edge.1 {
                Destination::Node(to) => pending.push(to),
                Destination::Outside(_) => {
                    names.insert(view.named(edge).1);
                }
                Destination::Unknown => {}
            }
        }
    }
    names
}

#[track_caller]
fn assert_reaches(view: &View<'_>, symbol: &str, expected: &[&str]) {
    let names = outside(view, symbol);
    for name in expected {
        assert!(names.contains(*name), "{symbol} does not reach {name}, only {names:?}");
    }
}

#[test]
fn differences_of_labels() {
    let dir = Dir::new();
    for options in [&["-Os"][..], &["-Os", "-mindirect-branch=thunk-extern"]] {
        let graph = lift(&[dir.compile("hard.c", options)]);
        assert_reaches(&View::of(&graph), "by_difference", &["at_a", "at_b", "at_c"]);
    }
}

#[test]
fn transactions() {
    let graph = lift_fixture("hard.c");
    assert_reaches(&View::of(&graph), "transaction", &["at_start", "at_abort"]);
}

#[test]
fn a_symbol_and_a_distance() {
    let graph = lift_fixture("hard.c");
    let view = View::of(&graph);
    assert_reaches(&view, "late", &["at_late"]);
    // The block there is not the entry, if there are blocks.
    let (entry, _) = view.symbol("early");
    let (data, _) = view.symbol("late");
    if graph.block(entry).is_some() {
        assert!(!view.to(data, EdgeKind::Data).contains(&entry));
    }
}

#[test]
fn odd_branches_keep_their_encoding() {
    let dir = Dir::new();
    let path = dir.compile("hard.c", &["-Os"]);
    let bytes = std::fs::read(&path).unwrap();
    let original = Object::read("hard.o", &bytes).unwrap();
    let graph = lift(&[path]);
    let lowered = lower(&graph, Relax::AsAssembled).unwrap().object;
    let text = |object: &Object<'_>, symbol: &str| {
        let symbol = object.symbols.iter().find(|s| s.name == symbol).unwrap();
        let kelf::Place::Section(section) = symbol.place else { panic!("{symbol:?}") };
        let start = symbol.value as usize;
        object.section(section).data[start..start + symbol.size as usize].to_vec()
    };
    for function in ["half_counter", "transaction"] {
        // The opcodes at the start; the fields of calls hold addends.
        assert_eq!(text(&lowered, function)[..3], text(&original, function)[..3], "{function}");
        assert_eq!(text(&lowered, function).len(), text(&original, function).len(), "{function}");
    }
}

#[test]
fn ends_of_variables() {
    let dir = Dir::new();
    for level in ["-Os", "-O1", "-O2", "-O3"] {
        let graph = lift(&[dir.compile("ends.c", &[level])]);
        let view = View::of(&graph);
        let data: BTreeSet<NodeId> =
            view.blocks("down").iter().flat_map(|&block| view.to(block, EdgeKind::Data)).collect();
        assert!(data.contains(&view.symbol("downward").0), "{level}: down() needs its table");
        let (pointer, _) = view.symbol("stack_pointer");
        let kept = view.to(pointer, EdgeKind::Data);
        assert!(kept.contains(&view.symbol("stack").0), "{level}: the pointer needs its stack");
    }
}

#[test]
fn labels_behind_data() {
    let dir = Dir::new();
    let graph = lift_reachable(&[dir.compile("blob.c", &["-Os", "-fno-toplevel-reorder"])], "entry");
    let lowered = lower(&graph, Relax::Shortest).unwrap().object;
    let symbol = |name: &str| lowered.symbols.iter().find(|symbol| symbol.name == name).unwrap();
    let (start, end) = (symbol("blob"), symbol("blob_end"));
    assert_eq!(start.place, end.place);
    assert_eq!(end.value - start.value, 12);
    let kelf::Place::Section(section) = start.place else { panic!("{start:?}") };
    let data = &lowered.section(section).data;
    assert_eq!(&data[start.value as usize..end.value as usize], b"123456789012");
}

#[test]
#[ignore = "x86-64 is lifted for reading only; rewriting it is refused"]
fn addresses_that_the_assembler_resolved() {
    let dir = Dir::new();
    for options in [&["-Os"][..], &["-Os", "-mcmodel=small", "-fPIE"]] {
        let graph = lift(&[dir.compile_64("hard_64.c", options)]);
        let view = View::of(&graph);
        let taken: Vec<NodeId> =
            view.blocks("takes_address").iter().flat_map(|&block| view.to(block, EdgeKind::Data)).collect();
        assert!(taken.contains(&view.symbol("callback").0), "{options:?}");
    }
}

#[test]
fn tables_of_position_independent_code() {
    let dir = Dir::new();
    let cases = ["case_0", "case_1", "case_2", "otherwise", "case_4", "case_5", "case_6"];
    for options in [&["-O2", "-fPIC"][..], &["-Os", "-fPIC"]] {
        let graph = lift(&[dir.compile("switch.c", options)]);
        assert_reaches(&View::of(&graph), "compared", &cases);
    }
    for options in [&["-O2", "-mcmodel=small", "-fPIE"][..], &["-Os", "-mcmodel=small", "-fPIE"]] {
        let graph = lift(&[dir.compile_64("switch.c", options)]);
        assert_reaches(&View::of(&graph), "compared", &cases);
    }
}

#[test]
#[ignore = "x86-64 is lifted for reading only; rewriting it is refused"]
fn tables_of_distances() {
    let dir = Dir::new();
    let graph = lift(&[dir.compile_64("hard_64.c", &["-Os"])]);
    assert_reaches(&View::of(&graph), "by_table", &["at_a", "at_b"]);
}

#[test]
fn variables_of_threads_keep_their_entries() {
    let dir = Dir::new();
    let graph = lift(&[dir.compile("tls.c", &["-Os", "-fPIC"])]);
    let lowered = lower(&graph, Relax::AsAssembled).unwrap().object;
    let relocs = lowered.sections.iter().flat_map(|section| &section.relocs);
    let entries: BTreeSet<_> = relocs
        .filter(|reloc| reloc.class == RelocClass::Tls && reloc.r_type == goblin::elf::reloc::R_386_TLS_GD)
        .map(|reloc| {
            // The linker makes an entry for a symbol, and ignores an offset from it.
            assert_eq!(reloc.addend, 0);
            lowered.symbols[reloc.symbol.get()].value
        })
        .collect();
    assert_eq!(entries.len(), 3, "{entries:?}");
}

/// Assembles a source for i386 as if a compiler had written it.
fn assembled(dir: &Dir, source: &str) -> std::path::PathBuf {
    let path = dir.path("sound.o");
    let source = format!("{source}\n\t.file \"sound.c\"\n");
    kshrink_tests::Run::new("as").args(["--32", "-o"]).arg(&path).arg("-").stdin(source).succeed();
    path
}

#[test]
fn a_branch_that_ends_a_section_is_refused() {
    let dir = Dir::new();
    let source = "
        .section .text.last, \"ax\"
        .globl  f
        .type   f, @function
f:      testl   %eax, %eax
        jne     g
        .size   f, . - f";
    let files = kelf::InputFiles::of_objects(&[assembled(&dir, source)]).unwrap();
    let program = kelf::Program::link(&files).unwrap();
    let error =
        kcfg::lift::Lifter::of_objects(&program, &[]).unwrap().graph().map(drop).unwrap_err().to_string();
    let expected = "section .text.last: the conditional branch at 0x2 falls through into the code";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn symbols_that_are_only_declared_stay_declared() {
    let dir = Dir::new();
    let graph = lift(&[assembled(&dir, ".globl plugin")]);
    let object = lower(&graph, Relax::Shortest).unwrap().object;
    let plugin = object.symbols.iter().find(|symbol| symbol.name == "plugin").expect("it is declared");
    assert_eq!((plugin.place, plugin.binding), (kelf::Place::Undefined, goblin::elf::sym::STB_GLOBAL));
}

/// A linker script may refer to one (`kexec_control_code_size` in that of Linux 6.1 for x86).
#[test]
fn global_symbols_that_are_numbers_stay() {
    let dir = Dir::new();
    let graph = lift(&[assembled(&dir, ".globl size\n .set size, 462\n .set other, 17")]);
    let object = lower(&graph, Relax::Shortest).unwrap().object;
    let numbers = object.symbols.iter().filter(|symbol| symbol.place == kelf::Place::Absolute);
    let numbers = numbers.filter(|symbol| symbol.kind != goblin::elf::sym::STT_FILE);
    assert_eq!(numbers.map(|symbol| (symbol.name, symbol.value)).collect::<Vec<_>>(), [("size", 462)]);
}

#[test]
fn variables_up_to_the_head_of_a_list_stay_together() {
    let dir = Dir::new();
    let graph = lift(&[dir.compile("heads.c", &["-Os", "-fno-toplevel-reorder"])]);
    let view = View::of(&graph);
    let node = |name| view.symbol(name).0;
    assert_eq!(node("before_small"), node("small"));
    assert_ne!(node("in_front"), node("small"));
    assert_eq!(node("before_large"), node("large"));
    // Read-only data holds no list head.
    assert_ne!(node("constant"), node("other_constant"));
}

/// The assembler resolves a jump within a section, so that no relocation names the function.
#[test]
fn jumps_of_the_definer_lead_to_the_wrapper() {
    let dir = Dir::new();
    let files = kelf::InputFiles::of_objects(&[assembled(
        &dir,
        "
        .globl  step
        .type   step, @function
step:   decl    %eax
        jne     step
        ret
        .size   step, . - step
        .globl  start
        .type   start, @function
start:  incl    %eax
        jmp     step
        .size   start, . - start",
    )]);
    let wrapper = dir.path("wrapper.o");
    let source = "
        .globl  __wrap_step
        .type   __wrap_step, @function
__wrap_step:
        incl    %eax
        jmp     __real_step
        .size   __wrap_step, . - __wrap_step
        .file   \"wrapper.c\"\n";
    kshrink_tests::Run::new("as").args(["--32", "-o"]).arg(&wrapper).arg("-").stdin(source).succeed();
    let wrapper = ("wrapper.o".to_owned(), std::fs::read(&wrapper).unwrap());
    let files = files.unwrap().with_objects([wrapper]).wrapping_everywhere(&["step"]);
    let program = kelf::Program::link(&files).unwrap();
    let graph = kcfg::lift::Lifter::of_objects(&program, &[]).unwrap().fine_graph().unwrap();
    let view = View::of(&graph);
    let end = |function: &str| {
        let first = view.blocks(function)[0];
        let kcfg::graph::Terminator::Jump(to) = &graph.block(first).unwrap().end else {
            panic!("{function}")
        };
        graph.resolve_node(to.target)
    };
    let [wrapper, definition] = ["step", "__real_step"].map(|name| Some(view.symbol(name).0));
    assert_eq!([end("start"), end("step")], [wrapper, definition]);
    let loops = &graph.block(definition.unwrap()).unwrap().end;
    assert!(
        matches!(loops, kcfg::graph::Terminator::Branch { taken, .. } if graph.resolve_node(taken.target) == definition)
    );
}

//! Lifts small programs and checks their graphs.
//!
//! Each test compiles a fixture of `fixtures/cfg/` with `gcc -m32`, like the kernel, and checks the edges that must
//! exist and those that must not.

mod common;

use std::collections::BTreeSet;

use common::{Dir, View, lift, lift_fixture, lift_program, of_kernel};
use kcfg::edges::{Destination, EdgeKind};
use kcfg::graph::{Life, SymbolPlace, Terminator};
use kcfg::index::NodeId;
use kcfg::special::TableKind;
use kelf::{InputFiles, Program};
use kisa::BranchKind;

/// Returns the block of `function` that ends with a jump through a resolved table.
fn switch(view: &View<'_>, function: &str) -> NodeId {
    let ends = |node: &NodeId| matches!(view.graph.block(*node).unwrap().end, Terminator::Switch(_));
    let found: Vec<NodeId> = view.blocks(function).into_iter().filter(ends).collect();
    assert_eq!(found.len(), 1, "{function} has one jump table");
    found[0]
}

/// Returns the function that a block calls first.
fn first_callee(view: &View<'_>, node: NodeId) -> String {
    let control = view.control(node);
    assert!(matches!(control[0].0, EdgeKind::Call), "{control:?}");
    control[0].1.clone()
}

#[test]
fn switch_goes_where_its_table_says() {
    let graph = lift_fixture("switch.c");
    let view = View::of(&graph);
    let node = switch(&view, "compared");
    let cases: Vec<String> =
        view.to(node, EdgeKind::Switch).iter().map(|&to| first_callee(&view, to)).collect();
    assert_eq!(cases, ["case_0", "case_1", "case_2", "otherwise", "case_4", "case_5", "case_6"]);

    let node = switch(&view, "covered");
    let cases: BTreeSet<String> =
        view.to(node, EdgeKind::Switch).iter().map(|&to| first_callee(&view, to)).collect();
    // One of the eight is the default, and is reached by a branch.
    assert!(cases.len() >= 7 && cases.iter().all(|case| case.starts_with("case_")), "{cases:?}");
}

#[test]
fn resolved_tables_keep_nothing_alive_by_themselves() {
    let graph = lift_fixture("switch.c");
    let view = View::of(&graph);
    let resolved: BTreeSet<NodeId> =
        ["compared", "covered"].iter().flat_map(|function| view.blocks(function)).collect();
    for chunk in view.chunks(".rodata") {
        let kept = view.to(chunk, EdgeKind::Data);
        assert!(kept.iter().all(|node| !resolved.contains(node)), "{}", view.name(chunk));
    }
}

#[test]
fn function_with_an_unbounded_switch_is_whole() {
    let graph = lift_fixture("switch.c");
    let view = View::of(&graph);
    let (node, _) = view.symbol("unbounded");
    let opaque = graph.opaque().iter().find(|opaque| opaque.node == node).unwrap();
    assert!(opaque.reason.contains("a pointer into the middle"), "{}", opaque.reason);
    let names: Vec<String> = view.edges(node).into_iter().map(|edge| view.named(edge).1).collect();
    for case in 0..6 {
        assert!(names.contains(&format!("case_{case}")), "{names:?}");
    }
    assert!(view.blocks("compared").len() > 1 && view.blocks("covered").len() > 1);
}

#[test]
fn calls_that_do_not_come_back() {
    let graph = lift_fixture("calls.c");
    let view = View::of(&graph);
    for (function, callee) in [("calls_spins", "spins"), ("calls_ping", "ping"), ("ping", "pong")] {
        let entry = view.blocks(function)[0];
        assert_eq!(view.control(entry), [(EdgeKind::NoReturn, callee.to_owned())], "{function}");
    }
    // A function outside is not known to return or not, and hand-written code may continue in the next function.
    let entry = view.blocks("calls_noreturn")[0];
    let next = (EdgeKind::Return, "tail_local".to_owned());
    assert_eq!(view.control(entry), [(EdgeKind::Call, "outside_noreturn".to_owned()), next]);
    // The block after such a call has no incoming edge.
    let behind = view.blocks("calls_spins")[1];
    let leads = |node: NodeId| view.edges(node).iter().any(|(_, to)| *to == Destination::Node(behind));
    assert!(!graph.node_ids().any(leads));
}

#[test]
fn calls_that_come_back() {
    let graph = lift_fixture("calls.c");
    let view = View::of(&graph);
    for (function, callee) in
        [("calls_perhaps", "perhaps"), ("calls_outside", "outside"), ("calls_pointer", "unknown")]
    {
        let blocks = view.blocks(function);
        let expected = [(EdgeKind::Call, callee.to_owned()), (EdgeKind::Return, view.name(blocks[1]))];
        assert_eq!(view.control(blocks[0]), expected, "{function}");
    }
}

#[test]
fn tail_calls_are_no_loops() {
    let graph = lift_fixture("calls.c");
    let view = View::of(&graph);
    let last = |function| view.control(*view.blocks(function).last().unwrap());
    assert_eq!(last("tail_local"), [(EdgeKind::TailCall, "local".to_owned())]);
    assert_eq!(last("tail_outside"), [(EdgeKind::TailCall, "outside".to_owned())]);
    assert_eq!(last("tail_pointer"), [(EdgeKind::Jump, "unknown".to_owned())]);
    let kinds: BTreeSet<EdgeKind> =
        view.blocks("loops").iter().flat_map(|&node| view.control(node)).map(|(kind, _)| kind).collect();
    assert!(kinds.contains(&EdgeKind::Jump) && !kinds.contains(&EdgeKind::TailCall), "{kinds:?}");
}

/// Returns the block of `function` that ends with a trap, and the kinds of edges out of it.
fn trap(view: &View<'_>, function: &str) -> (NodeId, Vec<EdgeKind>) {
    let ends = |node: &NodeId| matches!(view.graph.block(*node).unwrap().end, Terminator::Trap { .. });
    let node = view.blocks(function).into_iter().find(ends).unwrap();
    (node, view.edges(node).into_iter().map(|(kind, _)| kind).collect())
}

#[test]
fn warnings_resume_and_bugs_do_not() {
    let graph = lift_fixture("traps.c");
    let view = View::of(&graph);
    assert_eq!(trap(&view, "warns").1, [EdgeKind::FallThrough, EdgeKind::Site]);
    assert_eq!(trap(&view, "bugs").1, [EdgeKind::Site]);
    // A signal handler may.
    assert_eq!(trap(&view, "traps").1, [EdgeKind::FallThrough]);
}

#[test]
fn a_bug_entry_lives_with_its_trap_and_keeps_its_file_name() {
    let graph = lift_fixture("traps.c");
    let view = View::of(&graph);
    let (node, _) = trap(&view, "warns");
    let [entry] = view.to(node, EdgeKind::Site)[..] else { panic!("one entry") };
    assert_eq!(graph.chunk(entry).unwrap().life, Life::Site(TableKind::Bug));
    assert_eq!(graph.node(entry).size, 12);
    let [name] = view.to(entry, EdgeKind::Data)[..] else { panic!("the entry names its file, not its code") };
    assert!(graph.bytes_of(name).ends_with(b"fixtures/cfg/traps.c\0"));
}

#[test]
fn faults_lead_to_their_fixups() {
    let graph = lift_fixture("faults.c");
    let view = View::of(&graph);
    let blocks = view.blocks("reads");
    let site = blocks.iter().copied().find(|&node| !view.to(node, EdgeKind::Site).is_empty()).unwrap();
    let [entry] = view.to(site, EdgeKind::Site)[..] else { panic!("one entry") };
    assert_eq!(graph.chunk(entry).unwrap().life, Life::Site(TableKind::ExceptionTable));
    let [fixup] = view.to(entry, EdgeKind::Data)[..] else { panic!("the entry keeps its fixup alone") };
    let goes = view.control(fixup);
    assert!(goes.iter().any(|(_, name)| name == "handled"), "{goes:?}");
    // Nothing else leads there, so the fixup is alive exactly if the instruction is.
    let leads = |node: NodeId| view.edges(node).iter().any(|(_, to)| *to == Destination::Node(fixup));
    let leading: Vec<NodeId> = graph.node_ids().filter(|&node| leads(node)).collect();
    assert_eq!(leading, [entry]);
}

#[test]
fn a_fixup_from_which_a_length_is_found_stays_where_it_is() {
    let graph = lift_fixture("faults.c");
    let view = View::of(&graph);
    let fixup = |function: &str| {
        let blocks = view.blocks(function);
        let site = blocks.into_iter().find(|&node| !view.to(node, EdgeKind::Site).is_empty()).unwrap();
        let [entry] = view.to(site, EdgeKind::Site)[..] else { panic!("one entry") };
        (site, graph.resolve_node(graph.refs_of(entry)[1].target).unwrap())
    };
    let (site, behind) = fixup("pads");
    assert_eq!(behind, NodeId(site.0 + 1));
    assert!(graph.node(behind).glued_to.is_some());
    for function in ["reads", "skips"] {
        assert!(graph.node(fixup(function).1).glued_to.is_none(), "{function}");
    }
}

#[test]
fn static_keys() {
    let graph = lift_fixture("keys.c");
    let view = View::of(&graph);
    let site = |function: &str| {
        let blocks = view.blocks(function);
        blocks.into_iter().find(|&node| !view.to(node, EdgeKind::Site).is_empty()).unwrap()
    };
    // The `nop` has the length that the kernel patches.
    let node = site("with_nop");
    let block = graph.block(node).unwrap();
    assert!(block.is_fixed() && matches!(block.end, Terminator::Patched { next: Some(_) }));
    assert_eq!(graph.bytes_of(node), [0x0f, 0x1f, 0x44, 0, 0]);
    // The `jmp` may change its length, which the kernel reads from its opcode, but must keep the fall-through for when
    // it is patched away.
    let node = site("with_jmp");
    let block = graph.block(node).unwrap();
    let Terminator::Branch { branch, next, .. } = block.end else { panic!("{:?}", block.end) };
    assert_eq!(branch.kind, BranchKind::Jump);
    assert!(!block.is_fixed());
    assert_eq!(next, NodeId(node.0 + 1));

    for (function, callee) in [("with_nop", "unlikely"), ("with_jmp", "likely")] {
        let [entry] = view.to(site(function), EdgeKind::Site)[..] else { panic!("one entry") };
        let kept = view.to(entry, EdgeKind::Data);
        let target = kept.iter().find(|&&node| graph.block(node).is_some()).unwrap();
        assert_eq!(first_callee(&view, *target), callee);
        let key = if function == "with_nop" { "off" } else { "on" };
        assert!(kept.contains(&view.symbol(key).0), "{function} keeps its key");
    }
}

#[test]
fn alternatives_live_with_their_originals() {
    let graph = lift_fixture("alternatives.c");
    let view = View::of(&graph);
    // The original and its padding are one block with unchanged bytes.
    let fence = view.blocks("fences")[1];
    assert!(graph.block(fence).unwrap().is_fixed());
    assert_eq!(graph.bytes_of(fence), b"\xf0\x83\x44\x24\xfc\0\x90\x90\x90");
    let replacement = |node: NodeId| {
        let [entry] = view.to(node, EdgeKind::Site)[..] else { panic!("one entry") };
        assert_eq!(graph.chunk(entry).unwrap().life, Life::Site(TableKind::Alternative));
        assert_eq!(graph.node(entry).size, 14);
        let [replacement] = view.to(entry, EdgeKind::Data)[..] else { panic!("one replacement") };
        replacement
    };
    assert_eq!(graph.bytes_of(replacement(fence)), b"\x0f\xae\xf0\x0f\xae\xe8\x0f\xae\xf0");
    // A call keeps both callees.
    let call = view.blocks("calls")[0];
    let named = |node: NodeId| -> Vec<String> {
        view.edges(node).into_iter().map(|edge| view.named(edge).1).collect()
    };
    assert!(named(call).contains(&"helper".to_owned()));
    assert_eq!(named(replacement(call)), ["replaced_helper"]);
    // Even an empty replacement of nothing has an entry.
    let nothing = view.blocks("nothing")[0];
    replacement(nothing);
}

#[test]
fn alternatives_of_linux_6_1() {
    let dir = Dir::new();
    let graph = lift(&[dir.compile("alternatives.c", &["-Os", "-DLINUX_6_1"])]);
    let view = View::of(&graph);
    let fence = view.blocks("fences")[1];
    assert_eq!(graph.bytes_of(fence), b"\xf0\x83\x44\x24\xfc\0\x90\x90\x90");
    let [entry] = view.to(fence, EdgeKind::Site)[..] else { panic!("one entry") };
    assert_eq!(graph.node(entry).size, 12);
    let [replacement] = view.to(entry, EdgeKind::Data)[..] else { panic!("one replacement") };
    assert_eq!(graph.bytes_of(replacement), b"\x0f\xae\xf0\x0f\xae\xe8\x0f\xae\xf0");
}

#[test]
fn tables_of_other_kernels_are_refused() {
    let dir = Dir::new();
    let files = InputFiles::of_objects(&[dir.compile("tables.S", &[])]).unwrap();
    let program = Program::link(&files).unwrap();
    let message = of_kernel(&program, &[]).map(|_| ()).unwrap_err().to_string();
    let expected = "section .altinstructions: its 13 bytes with 2 relocations are not whole entries of 12 \
                    bytes with relocations at 0, 4, or 14 bytes with relocations at 0, 4";
    assert!(message.contains(expected), "{message}");
}

#[test]
fn a_user_program_may_use_the_names_of_the_kernel_s_tables() {
    let dir = Dir::new();
    let graph = lift_program(&[dir.compile("faults.c", &["-Os"]), dir.compile("alternatives.c", &["-Os"])]);
    let view = View::of(&graph);
    for section in ["__ex_table", ".altinstructions", ".altinstr_replacement"] {
        let [chunk] = view.chunks(section)[..] else { panic!("{section} is one") };
        assert_eq!(graph.chunk(chunk).unwrap().life, Life::Referenced, "{section}");
        assert!(graph.roots().iter().any(|root| root.node == chunk), "{section}");
    }
    // Its code is not patched.
    assert!(graph.node_ids().all(|node| graph.block(node).is_none_or(|block| !block.is_fixed())));
}

#[test]
fn static_cpu_has_goes_four_ways() {
    let graph = lift_fixture("alternatives.c");
    let view = View::of(&graph);
    let blocks = view.blocks("has_feature");
    let site = *blocks.iter().find(|&&node| graph.block(node).unwrap().is_fixed()).unwrap();
    // Through the table, through the code after the functions, and after itself.
    let mut reached: BTreeSet<NodeId> = BTreeSet::new();
    let mut pending = vec![site];
    while let Some(node) = pending.pop() {
        if reached.insert(node) {
            for kind in
                [EdgeKind::Data, EdgeKind::Site, EdgeKind::FallThrough, EdgeKind::Jump, EdgeKind::TailCall]
            {
                pending.extend(view.to(node, kind));
            }
        }
    }
    for callee in ["fast", "slow"] {
        let calls = |node: &NodeId| view.control(*node).contains(&(EdgeKind::Call, callee.to_owned()));
        assert!(reached.iter().any(calls), "{callee}");
    }
    // The out-of-line test of the feature is ordinary code.
    let aux = reached.iter().find(|&&node| *graph.section_of(node).name == *".altinstr_aux").unwrap();
    assert!(graph.block(*aux).is_some());
}

#[test]
fn what_does_not_fit_is_opaque_by_reason() {
    let dir = Dir::new();
    let objects = [dir.compile("opaque.c", &["-Os"]), dir.compile("hand_written.S", &[])];
    let graph = lift(&objects);
    let view = View::of(&graph);
    for (symbol, reason) in [
        ("no_function", "top-level asm"),
        ("no_code", "not instructions"),
        ("middle", "middle of an instruction"),
        ("__SCT__call", "trampoline"),
        ("by_hand", "hand-written"),
    ] {
        let (node, _) = view.symbol(symbol);
        assert!(graph.chunk(node).is_some_and(|chunk| chunk.code), "{symbol}");
        let opaque = graph.opaque().iter().find(|opaque| opaque.node == node).unwrap();
        assert!(opaque.reason.contains(reason), "{symbol}: {}", opaque.reason);
    }
    // Others are not.
    assert!(view.blocks("plain").len() > 1);
    assert_eq!(view.control(view.blocks("beside")[0]), [(EdgeKind::TailCall, "outside".to_owned())]);
    // Opaque code keeps its targets.
    for symbol in ["no_function", "middle", "by_hand", "__SCT__call"] {
        let (node, _) = view.symbol(symbol);
        let names: Vec<String> = view.edges(node).into_iter().map(|edge| view.named(edge).1).collect();
        assert!(names.contains(&"outside".to_owned()), "{symbol}: {names:?}");
    }
    let (middle, (data, _)) = (view.symbol("middle").0, view.symbol("into_middle"));
    assert_eq!(view.to(data, EdgeKind::Data), [middle]);
}

#[test]
fn strings_are_apart() {
    let graph = lift_fixture("strings.c");
    let view = View::of(&graph);
    let string = |function: &str| {
        let entry = view.blocks(function)[0];
        let [string] = view.to(entry, EdgeKind::Data)[..] else { panic!("{function} names one thing") };
        graph.bytes_of(string)
    };
    assert_eq!(string("first"), b"first string\0");
    assert_eq!(string("second"), b"second string\0");
    // From its middle, and still the whole string.
    assert_eq!(string("tail"), b"third string\0");
    // A constant that the linker may merge, of 2.5.
    assert_eq!(string("number"), 2.5f32.to_le_bytes());
}

#[test]
fn the_strong_definition_is_called() {
    let dir = Dir::new();
    let objects = [dir.compile("weak.c", &["-Os"]), dir.compile("strong.c", &["-Os"])];
    let graph = lift(&objects);
    let view = View::of(&graph);
    let calls: Vec<NodeId> =
        view.blocks("use_weak").into_iter().flat_map(|node| view.to(node, EdgeKind::Call)).collect();
    let objects: Vec<&str> =
        calls.iter().map(|&node| graph.input_of(node).unwrap().object.rsplit('/').next().unwrap()).collect();
    assert_eq!(objects, ["strong.c.o", "weak.c.o"]);
    assert!(view.callees("use_weak").contains(&"nowhere".to_owned()));
    let nowhere = graph.symbols().iter().find(|symbol| symbol.name == "nowhere").unwrap();
    assert_eq!((nowhere.place, nowhere.binding), (SymbolPlace::Undefined, goblin::elf::sym::STB_WEAK));
}

#[test]
fn x86_64_lifts_the_same_fixtures() {
    let dir = Dir::new();
    let graph = lift(&[dir.compile_64("switch.c", &["-Os"])]);
    let view = View::of(&graph);
    let node = switch(&view, "compared");
    let cases: Vec<String> =
        view.to(node, EdgeKind::Switch).iter().map(|&to| first_callee(&view, to)).collect();
    assert_eq!(cases, ["case_0", "case_1", "case_2", "otherwise", "case_4", "case_5", "case_6"]);

    let graph = lift(&[dir.compile_64("calls.c", &["-Os"])]);
    let view = View::of(&graph);
    let entry = view.blocks("calls_spins")[0];
    assert_eq!(view.control(entry), [(EdgeKind::NoReturn, "spins".to_owned())]);
}

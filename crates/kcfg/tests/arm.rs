//! Code of 32-bit ARM: literals, tables of distances, conditions, and data that is code.

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::{Dir, lift, lift_reachable};
use kcfg::graph::{Graph, NodeKind, Terminator};
use kcfg::index::NodeId;
use kcfg::lower::{Relax, lower};
use kelf::RelocClass;
use kisa::Encoding;
use kshrink_tests::process::run;

/// Assembles a text.
fn assemble(dir: &Dir, name: &str, text: &str) -> PathBuf {
    let (source, object) = (dir.path(&format!("{name}.s")), dir.path(&format!("{name}.o")));
    std::fs::write(&source, format!(".syntax unified\n.arch armv7-a\n.file \"{name}.c\"\n{text}")).unwrap();
    run(Command::new("arm-linux-gnueabihf-as").arg("-o").arg(&object).arg(&source));
    object
}

/// The blocks of a function.
fn blocks<'g>(graph: &'g Graph, name: &str) -> &'g [NodeId] {
    let function = graph.functions.iter().find(|function| function.name == name);
    &function.unwrap_or_else(|| panic!("no function {name}: {:?}", opaque(graph))).blocks
}

fn opaque(graph: &Graph) -> Vec<(&str, &str)> {
    graph.opaque.iter().map(|opaque| (opaque.name.as_str(), opaque.reason)).collect()
}

fn end(graph: &Graph, node: NodeId) -> &Terminator {
    &graph.block(node).unwrap().end
}

const LITERALS: &str = "
    .text
    .thumb
    .global f
    .type f, %function
f:  ldr r0, .L1
    cmp r0, #0
    beq 1f
    bx lr
1:  ldr r1, .L2
    bx r1
    .align 2
.L1: .word one
.L2: .word two
    .size f, . - f
    .global g
    .type g, %function
g:  ldr r0, .L3
    bx lr
    .align 2
.L3: .word three
    .size g, . - g
    .data
    .global one, two, three
    .type one, %object
    .type two, %object
    .type three, %object
one: .word 1
two: .word 2
three: .word 3
";

#[test]
fn each_literal_is_a_chunk_that_its_loads_keep() {
    let dir = Dir::new();
    let graph = lift(&[assemble(&dir, "literals", LITERALS)]);
    assert_eq!(opaque(&graph), []);
    let entry = blocks(&graph, "f")[0];
    assert_eq!(graph.encoding(entry), Encoding::Thumb);
    let literals: Vec<NodeId> = graph
        .node_ids()
        .filter(|&node| graph.chunk(node).is_some_and(|chunk| chunk.function.is_some()))
        .collect();
    assert_eq!(literals.iter().map(|&node| graph.node(node).size).collect::<Vec<_>>(), [4, 4, 4]);
    let loads: Vec<_> =
        graph.refs_of(entry).iter().filter(|load| load.class == RelocClass::Literal).collect();
    assert_eq!(loads.len(), 1);
    assert_eq!(graph.resolve_node(loads[0].target), Some(literals[0]));
    assert_eq!(graph.owner(literals[1]), graph.function_of(entry));
}

#[test]
fn identity_keeps_the_bytes_of_the_code() {
    let dir = Dir::new();
    let object = assemble(&dir, "literals", LITERALS);
    let graph = lift(std::slice::from_ref(&object));
    let bytes = std::fs::read(&object).unwrap();
    let before = kelf::Object::read("before.o", &bytes).unwrap();
    let lowered = lower(&graph, Relax::AsAssembled).unwrap().object;
    let text = |object: &kelf::Object<'_>| {
        object.sections.iter().find(|section| section.name == ".text").unwrap().data.to_vec()
    };
    assert_eq!(text(&lowered), text(&before));
    let functions = |object: &kelf::Object<'_>| -> Vec<(String, u64, u64, bool)> {
        let named = object.symbols.iter().filter(|symbol| ["f", "g"].contains(&symbol.name));
        named.map(|symbol| (symbol.name.to_owned(), symbol.value, symbol.size, symbol.thumb)).collect()
    };
    assert_eq!(functions(&lowered), functions(&before));
    assert!(functions(&lowered).iter().all(|function| function.3));
    let mapping =
        |object: &kelf::Object<'_>| object.symbols.iter().filter(|symbol| symbol.name == "$d").count();
    assert!(mapping(&lowered) >= 2);
    // The attributes say which instructions the linker may make.
    assert!(lowered.sections.iter().any(|section| section.name == kelf::ATTRIBUTES && section.size > 0));
}

#[test]
fn what_is_left_is_moved_together() {
    let dir = Dir::new();
    let graph = lift_reachable(&[assemble(&dir, "literals", LITERALS)], "g");
    let lowered = lower(&graph, Relax::Shortest).unwrap().object;
    let text = lowered.sections.iter().find(|section| section.name == ".text").unwrap();
    // ldr r0, [pc, #0]; bx lr; .word three
    assert_eq!(text.data[..], [0x00, 0x48, 0x70, 0x47, 0, 0, 0, 0]);
    assert_eq!(text.relocs.len(), 1);
}

#[test]
fn a_table_of_distances_is_a_switch() {
    let text = "
    .text
    .thumb
    .global f
    .type f, %function
f:  cmp r0, #2
    bhi 9f
    tbb [pc, r0]
.Lt: .byte (1f - .Lt) / 2, (9f - .Lt) / 2, (2f - .Lt) / 2
    .align 1
1:  movs r0, #1
    bx lr
2:  movs r0, #2
9:  bx lr
    .size f, . - f
";
    let dir = Dir::new();
    let graph = lift(&[assemble(&dir, "table", text)]);
    assert_eq!(opaque(&graph), []);
    let blocks = blocks(&graph, "f");
    let switch = blocks.iter().find_map(|&block| match end(&graph, block) {
        Terminator::Switch(table) => Some(*table),
        _ => None,
    });
    let slots = graph.slots(switch.expect("a switch"));
    let targets: Vec<_> = slots.iter().filter_map(|slot| graph.resolve_node(slot.target)).collect();
    assert_eq!(targets, [blocks[2], blocks[4], blocks[3]]);
    graph.verify().unwrap();
}

#[test]
fn conditional_returns_and_calls_fall_through() {
    let text = "
    .text
    .arm
    .global f
    .type f, %function
f:  cmp r0, #0
    bxeq lr
    cmp r0, #1
    blne h
    pop {r4, pc}
    .size f, . - f
";
    let dir = Dir::new();
    let graph = lift(&[assemble(&dir, "conditions", text)]);
    assert_eq!(opaque(&graph), []);
    let blocks = blocks(&graph, "f");
    assert_eq!(graph.encoding(blocks[0]), Encoding::Main);
    for pair in blocks.windows(2) {
        assert_eq!(end(&graph, pair[0]), &Terminator::Conditional { next: Some(pair[1]) });
    }
    assert_eq!((blocks.len(), end(&graph, blocks[2])), (3, &Terminator::Return));
}

#[test]
fn a_trap_that_is_written_as_data_is_code() {
    let text = "
    .text
    .thumb
    .global f
    .type f, %function
f:  cbz r0, 1f
    bx lr
1:  .short 0xde02
    .size f, . - f
";
    let dir = Dir::new();
    let graph = lift(&[assemble(&dir, "trap", text)]);
    assert_eq!(opaque(&graph), []);
    let last = *blocks(&graph, "f").last().unwrap();
    assert!(matches!(end(&graph, last), Terminator::Trap { .. }), "{:?}", end(&graph, last));
}

/// What computes with its own address stays as it is.
#[test]
fn code_that_reads_its_address_is_carried_whole() {
    for body in [
        "ldr r0, .L1\n add r0, pc\n bx lr\n .align 2\n.L1: .word 8",
        "mov r0, pc\n bx lr",
        "adr r0, 1f\n bx r0\n nop\n1: bx lr",
        "ldr r0, .L1\n bx lr\n .align 2\n .word 1, 2, 3, 4\n.L1: .word 1",
    ] {
        let text = format!(".text\n.thumb\n.global f\n.type f, %function\nf: {body}\n.size f, . - f\n");
        let dir = Dir::new();
        let graph = lift(&[assemble(&dir, "own", &text)]);
        assert_eq!(graph.opaque.len(), 1, "{body}");
        assert!(matches!(graph.node(graph.opaque[0].node).kind, NodeKind::Chunk(_)));
    }
}

//! Code of 32-bit ARM: literals, tables of distances, conditions, and data in code.

mod common;

use common::{Dir, assemble, lift, lift_reachable};
use kcfg::graph::{Contents, Editor, Graph, NodeKind, Terminator};
use kcfg::index::NodeId;
use kcfg::lower::{Relax, bring_near, lower};
use kelf::RelocClass;
use kisa::Encoding;

/// Returns the blocks of a function.
fn blocks<'g>(graph: &'g Graph, name: &str) -> &'g [NodeId] {
    let function = graph.functions().iter().find(|function| function.name == name);
    &function.unwrap_or_else(|| panic!("no function {name}: {:?}", opaque(graph))).blocks
}

fn opaque(graph: &Graph) -> Vec<(&str, &str)> {
    graph.opaque().iter().map(|opaque| (opaque.name.as_str(), opaque.reason)).collect()
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
    // The attributes give the instructions that the linker may use.
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

/// Compilers leave a branch after a trap that they know does not return.
#[test]
fn a_branch_behind_a_trap_may_lead_to_a_literal() {
    for (front, opaque_code) in [(".short 0xde02", 0), ("nop", 1)] {
        let text = format!(
            "
    .text
    .thumb
    .global f
    .type f, %function
f:  ldr r0, .L1
    cbz r0, 1f
    bx lr
1:  {front}
    b .L1
    .align 2
.L1: .word 27
    .size f, . - f
"
        );
        let dir = Dir::new();
        let graph = lift(&[assemble(&dir, "left", &text)]);
        assert_eq!(graph.opaque().len(), opaque_code, "{:?}", opaque(&graph));
        graph.verify().unwrap();
        lower(&graph, Relax::Shortest).unwrap();
    }
}

/// The bytes of two further slots would be a trap, which is a branch target.
#[test]
fn a_table_of_distances_ends_where_a_branch_leads() {
    let text = "
    .text
    .thumb
    .global f
    .type f, %function
f:  cmp r0, #1
    bhi 9f
    tbb [pc, r0]
.Lt: .byte (1f - .Lt) / 2, (2f - .Lt) / 2
9:  .short 0xde02
1:  movs r0, #1
    bx lr
2:  movs r0, #2
    bx lr
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
    assert_eq!(graph.slots(switch.expect("a switch")).len(), 2);
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

/// Code that computes with its own address is not changed.
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
        assert_eq!(graph.opaque().len(), 1, "{body}");
        assert!(matches!(graph.node(graph.opaque()[0].node).kind, NodeKind::Chunk(_)));
    }
}

/// Returns the literals of a function.
fn literals(graph: &Graph) -> Vec<NodeId> {
    let is_literal = |node: &NodeId| {
        graph.node(*node).live && graph.chunk(*node).is_some_and(|chunk| chunk.function.is_some())
    };
    graph.node_ids().filter(is_literal).collect()
}

#[test]
fn a_literal_that_is_too_far_is_copied_behind_its_load() {
    let dir = Dir::new();
    let mut graph = lift(&[assemble(&dir, "literals", LITERALS)]);
    let old = literals(&graph);
    let text = graph.sections()[graph.node(old[0]).section].clone();
    let mut editor = Editor::new(&mut graph, "test");
    let elsewhere = editor.add_section(text);
    editor.place(&old[..2], elsewhere);
    editor.finish();
    assert!(lower(&graph, Relax::Shortest).is_err());
    bring_near(&mut graph);
    graph.verify().unwrap();
    assert!(!graph.node(old[0]).live && !graph.node(old[1]).live && graph.node(old[2]).live);
    let new = literals(&graph);
    assert_eq!(new.len(), 3);
    for &copy in new.iter().filter(|&&node| node != old[2]) {
        assert_eq!(graph.owner(copy), graph.function_of(blocks(&graph, "f")[0]));
        assert_ne!(graph.node(copy).section, elsewhere);
    }
    let lowered = lower(&graph, Relax::Shortest).unwrap().object;
    let text = lowered.sections.iter().find(|section| section.name == ".text").unwrap();
    assert_eq!(text.relocs.iter().filter(|reloc| reloc.class == RelocClass::Absolute).count(), 3);
    // Nothing more to do.
    let before = graph.nodes().len();
    bring_near(&mut graph);
    assert_eq!(graph.nodes().len(), before);
}

#[test]
fn a_table_of_bytes_gets_wider_slots() {
    let text = "
    .text
    .thumb
    .global f
    .type f, %function
f:  cmp r0, #1
    bhi 9f
    tbb [pc, r0]
.Lt: .byte (1f - .Lt) / 2, (9f - .Lt) / 2
1:  movs r0, #1
    bx lr
9:  bx lr
    .size f, . - f
";
    let dir = Dir::new();
    let mut graph = lift(&[assemble(&dir, "table", text)]);
    let first = blocks(&graph, "f")[2];
    let mut nops = Vec::new();
    graph.isa().encode_nops(Encoding::Thumb, 1000, &mut nops);
    let mut editor = Editor::new(&mut graph, "test");
    editor.prepend(first, Contents { bytes: nops, refs: Vec::new() });
    editor.finish();
    assert!(lower(&graph, Relax::Shortest).is_err());
    bring_near(&mut graph);
    graph.verify().unwrap();
    let lowered = lower(&graph, Relax::Shortest).unwrap().object;
    let text = lowered.sections.iter().find(|section| section.name == ".text").unwrap();
    let table = text.data.windows(4).position(|bytes| bytes == [0xdf, 0xe8, 0x10, 0xf0]).expect("tbh") + 4;
    let slot = |i: usize| usize::from(u16::from_le_bytes([text.data[table + i], text.data[table + i + 1]]));
    // After the table, and after 1000 bytes, `movs` and `bx`.
    assert_eq!((slot(0) * 2, slot(2) * 2), (4, 4 + 1000 + 4));
}

/// A table of addresses that a jump finds through a computed address is not a computed goto.
#[test]
fn tables_of_addresses_among_the_instructions() {
    let thumb = "
    .thumb
    .global f
    .type f, %function
f:  cmp r0, #2
    bhi 9f
    adr r1, .Lt
    ldr pc, [r1, r0, lsl #2]
    .align 2
.Lt: .word 1f + 1, 9f + 1, 2f + 1
1:  movs r0, #1
    bx lr
2:  movs r0, #2
9:  bx lr
    .size f, . - f
";
    let main = "
    .arm
    .global f
    .type f, %function
f:  cmp r0, #2
    ldrls pc, [pc, r0, lsl #2]
    b 9f
.Lt: .word 1f, 9f, 2f
1:  mov r0, #1
    bx lr
2:  mov r0, #2
9:  bx lr
    .size f, . - f
";
    for text in [thumb, main] {
        let dir = Dir::new();
        let object = assemble(&dir, "addresses", &format!(".text\n{text}"));
        let mut graph = lift(std::slice::from_ref(&object));
        assert_eq!(opaque(&graph), []);
        let table = literals(&graph)[0];
        let slots = graph.refs_of(table).iter().filter_map(|slot| graph.resolve_node(slot.target));
        let own = graph.owner(table);
        assert_eq!(slots.map(|block| graph.function_of(block)).collect::<Vec<_>>(), [own; 3]);
        let bytes = std::fs::read(&object).unwrap();
        let before = kelf::Object::read("before.o", &bytes).unwrap();
        let data = |object: &kelf::Object<'_>| {
            object.sections.iter().find(|section| section.name == ".text").unwrap().data.to_vec()
        };
        let same = lower(&graph, Relax::AsAssembled).unwrap().object;
        assert_eq!(data(&same).len(), data(&before).len());
        // A block before a case changes the place of the case, and the Thumb bit is kept.
        let case = graph.resolve_node(graph.refs_of(table)[2].target).unwrap();
        let mut nops = Vec::new();
        graph.isa().encode_nops(graph.encoding(case), 8, &mut nops);
        let mut editor = Editor::new(&mut graph, "test");
        editor.prepend(case, Contents { bytes: nops, refs: Vec::new() });
        editor.finish();
        let slot = graph.refs_of(table)[2];
        let bit = i64::from(graph.encoding(case) == Encoding::Thumb);
        assert_eq!((graph.resolve_node(slot.target), slot.addend), (Some(case), bit));
        bring_near(&mut graph);
        graph.verify().unwrap();
        lower(&graph, Relax::Shortest).unwrap();
    }
}

/// A table of addresses that must follow its jump forms one node with the literals after it. A load that is then too
/// far away gets a copy.
#[test]
fn a_literal_behind_a_table_gets_near() {
    let text = "
    .text
    .arm
    .global f
    .type f, %function
f:  cmp r0, #1
    ldrls pc, [pc, r0, lsl #2]
    b 9f
    .word 1f, 2f
.L1: .word one
1:  mov r0, #1
    bx lr
2:  mov r0, #2
    bx lr
9:  ldr r0, .L1
    bx lr
    .size f, . - f
";
    let dir = Dir::new();
    let mut graph = lift(&[assemble(&dir, "behind", text)]);
    let table = literals(&graph)[0];
    let case = graph.resolve_node(graph.refs_of(table)[1].target).unwrap();
    let mut nops = Vec::new();
    graph.isa().encode_nops(Encoding::Main, 5000, &mut nops);
    let mut editor = Editor::new(&mut graph, "test");
    editor.prepend(case, Contents { bytes: nops, refs: Vec::new() });
    editor.finish();
    assert!(lower(&graph, Relax::Shortest).is_err());
    bring_near(&mut graph);
    graph.verify().unwrap();
    let [first, copy] = literals(&graph)[..] else { panic!("a table and its copy") };
    assert_eq!((first, graph.bytes_of(copy).len(), graph.node(copy).glued_to), (table, 12, None));
    lower(&graph, Relax::Shortest).unwrap();
}

/// The register may hold another address if other code jumps there.
#[test]
fn a_jump_by_a_table_that_others_lead_to_is_a_computed_goto() {
    let text = "
    .text
    .thumb
    .global f
    .type f, %function
f:  cbz r0, 1f
    adr r1, .Lt
1:  ldr pc, [r1, r0, lsl #2]
    .align 2
.Lt: .word 1b + 1
    .size f, . - f
";
    let dir = Dir::new();
    let graph = lift(&[assemble(&dir, "goto", text)]);
    assert_eq!(opaque(&graph), [("f", "a computed goto")]);
}

//! Edits of a graph: after each, every reference to a moved place still refers to the same instruction or byte, and
//! nothing else has changed.

mod common;

use common::View;
use common::small::{
    address, blocks, data_naming, empty_section, listed, named, nops, origin, place, program, symbol,
};
use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHT_NOBITS, SHT_PROGBITS};
use kcfg::graph::{Contents, Editor, Graph, Provenance, Ref, Target, Terminator};
use kcfg::index::NodeId;

const MAIN_SPLIT: &str = "\
main:  # global; aligned to 16
    inc %eax
main+0x1:
    dec %edx
main+0x2:
    mov 0,%ecx  # counter
    call f
main+0xd:
    inc %ecx
    test %eax,%eax
    jne main
main+0x12:
    ret
f:  # aligned to 16
    add $1,%ecx
f+0x3:
    mov (%ecx),%eax
f+0x5:
    inc %eax
    ret
";

#[test]
fn a_block_is_split() {
    let mut graph = program();
    let [first, behind, ..] = blocks(&graph, "main")[..] else { panic!() };
    let (counter, _) = place(&graph, "counter");
    let mut editor = Editor::new(&mut graph, "test");
    let data = data_naming(&mut editor, counter, first, &[0, 1, 2, 8]);
    editor.add_symbol(symbol("inside", first, 2));
    editor.add_symbol(symbol("end", first, 13));
    let second = editor.split_block(first, 2);
    let third = editor.split_block(behind, 1);
    editor.finish();
    let expected = MAIN_SPLIT
        .replace("main+0x1:\n", "")
        .replace("main+0x2:", "main+0x2:  # global inside; global end at +0xb");
    let expected = expected.replace("    test", "main+0xe:\n    test");
    assert_eq!(listed(&graph, ".text"), expected);
    let to = |node, offset| (Target::Node(node), offset);
    assert_eq!(named(&graph, data), [to(first, 0), to(first, 1), to(second, 0), to(second, 6)]);
    assert_eq!((place(&graph, "inside"), place(&graph, "end")), ((second, 0), (second, 11)));
    // Each part is at its place in the input, and the branch is in the last part.
    let sizes = |node| (origin(&graph, node).offset, origin(&graph, node).size, graph.branch_len(node));
    assert_eq!(
        [sizes(first), sizes(second), sizes(behind), sizes(third)],
        [(0, 2, 0), (2, 11, 0), (13, 1, 0), (14, 4, 2)]
    );
}

#[test]
fn a_part_is_split_again() {
    let splits: [fn(&mut Editor<'_>, NodeId); 2] = [
        |editor, block| {
            let second = editor.split_block(block, 1);
            editor.split_block(second, 1);
        },
        |editor, block| {
            editor.split_block(block, 2);
            editor.split_block(block, 1);
        },
    ];
    for split in splits {
        let mut graph = program();
        let first = blocks(&graph, "main")[0];
        let (counter, _) = place(&graph, "counter");
        let mut editor = Editor::new(&mut graph, "test");
        let data = data_naming(&mut editor, counter, first, &[0, 1, 2, 8]);
        split(&mut editor, first);
        editor.finish();
        assert_eq!(listed(&graph, ".text"), MAIN_SPLIT);
        let [_, second, third, ..] = blocks(&graph, "main")[..] else { panic!() };
        let to = |node, offset| (Target::Node(node), offset);
        assert_eq!(named(&graph, data), [to(first, 0), to(second, 0), to(third, 0), to(third, 6)]);
        assert_eq!(graph.callee(third).map(|callee| callee.offset), Some(7));
    }
}

#[test]
fn a_lengthened_block_does_not_say_what_its_parts_were() {
    let mut graph = program();
    let first = blocks(&graph, "main")[0];
    let mut editor = Editor::new(&mut graph, "test");
    editor.edit_block(first, with_nops(editor.graph(), first, 3), &[(0, 3)]);
    editor.finish();
    let mut editor = Editor::new(&mut graph, "test");
    let second = editor.split_block(first, 3);
    editor.finish();
    graph.verify().unwrap();
    assert_eq!((origin(&graph, first).offset, origin(&graph, first).size), (0, 13));
    assert_eq!(graph.node(second).provenance, Provenance::Made("test"));
}

#[test]
fn places_in_a_block_move_with_its_instructions() {
    let mut graph = program();
    let [first, faults, behind] = blocks(&graph, "f")[..] else { panic!() };
    let (counter, _) = place(&graph, "counter");
    let table = View::of(&graph).chunks("__ex_table")[0];
    let mut editor = Editor::new(&mut graph, "test");
    let data = data_naming(&mut editor, counter, behind, &[0, 1, 2]);
    editor.add_symbol(symbol("inside", behind, 1));
    // `nop`, `inc %eax`, `nop`, `nop`, `ret`: both of its instructions have moved.
    let bytes = vec![0x90, 0x40, 0x90, 0x90, 0xc3];
    editor.edit_block(behind, Contents { bytes, refs: Vec::new() }, &[(0, 1), (1, 4)]);
    // The instruction that may fault is after two others, and uses of its block refer to the first of these.
    let bytes = vec![0x90, 0x90, 0x8b, 0x01];
    editor.edit_block(faults, Contents { bytes, refs: Vec::new() }, &[(0, 2)]);
    editor.finish();
    let expected = "\
f:  # aligned to 16
    add $1,%ecx
f+0x3:
    nop
    nop
    mov (%ecx),%eax
f+0x5:  # global inside at +0x4
    nop
    inc %eax
    nop
    nop
    ret
";
    let text = listed(&graph, ".text");
    assert_eq!(&text[text.find("f:").unwrap()..], expected);
    assert_eq!(named(&graph, data), [0, 4, 5].map(|offset| (Target::Node(behind), offset)));
    assert_eq!(graph.site(table).map(|site| (site.target, site.addend)), Some((Target::Node(faults), 2)));
    assert_eq!(graph.block(first).unwrap().end, Terminator::FallThrough(faults));
}

#[test]
fn several_edits_of_one_block() {
    let mut graph = program();
    let main = blocks(&graph, "main")[0];
    let (counter, _) = place(&graph, "counter");
    let mut editor = Editor::new(&mut graph, "test");
    let data = data_naming(&mut editor, counter, main, &[0, 1, 2, 8]);
    editor.edit_block(main, with_nops(editor.graph(), main, 2), &[(0, 2)]);
    let second = editor.split_block(main, 4);
    editor.edit_block(second, with_nops(editor.graph(), second, 1), &[(0, 1)]);
    let new = editor.add_block(main, nops(3), Terminator::FallThrough(main));
    editor.replace_uses(main, new);
    let third = editor.split_block(second, 7);
    editor.finish();
    let expected = "\
main (made by test):  # global main; aligned to 16; made by test
    nop
    nop
    nop
main+0x0:
    nop
    nop
    inc %eax
    dec %edx
main (made by test):  # made by test
    nop
    mov 0,%ecx  # counter
main (made by test):  # made by test
    call f
main+0xd:
    inc %ecx
    test %eax,%eax
    jne main (made by test)
";
    assert_eq!(listed(&graph, ".text").split("main+0x12").next(), Some(expected));
    let to = |node, offset| (Target::Node(node), offset);
    // References to the start of a block now refer to everything inserted there.
    assert_eq!(named(&graph, data), [to(new, 0), to(main, 3), to(second, 0), to(third, 0)]);
    assert_eq!(blocks(&graph, "main")[..4], [new, main, second, third]);
}

/// Returns a block's contents, with `nop`s before them.
fn with_nops(graph: &Graph, block: NodeId, count: usize) -> Contents {
    let Contents { mut bytes, .. } = nops(count);
    bytes.extend_from_slice(graph.bytes_of(block));
    let refs = graph.refs_of(block).iter().map(|r| Ref { offset: r.offset + count as u32, ..*r }).collect();
    Contents { bytes, refs }
}

#[test]
fn nodes_are_placed_in_another_section() {
    let mut graph = program();
    let (main, f) = (blocks(&graph, "main"), blocks(&graph, "f"));
    let old = graph.node(f[0]).section;
    let mut editor = Editor::new(&mut graph, "test");
    let init = editor.add_section(empty_section(".init.text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR));
    editor.place(&[f[0], f[1], f[2]], init);
    editor.place(&[main[2]], init);
    editor.finish();
    assert_eq!(graph.sections()[old].nodes, main[..2]);
    assert_eq!(graph.sections()[init].nodes, [f[0], f[1], f[2], main[2]]);
    assert!(listed(&graph, ".text").ends_with("    jne main\n    [continues at main+0x12]\n"));
    assert!(listed(&graph, ".init.text").starts_with("f:"));
}

#[test]
fn a_function_is_placed_with_its_new_blocks() {
    let mut graph = program();
    let f = blocks(&graph, "f");
    let mut editor = Editor::new(&mut graph, "test");
    editor.split_block(f[2], 1);
    let new = editor.add_block(f[0], nops(1), Terminator::FallThrough(f[0]));
    editor.replace_uses(f[0], new);
    editor.finish();
    let f = blocks(&graph, "f");
    let mut editor = Editor::new(&mut graph, "test");
    let init = editor.add_section(empty_section(".init.text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR));
    editor.place(&f, init);
    editor.finish();
    assert_eq!(graph.sections()[init].nodes, f);
    assert_eq!(f.len(), 5);
    assert!(listed(&graph, ".text").ends_with("main+0x12:\n    ret\n"));
}

/// Added and split blocks can be moved like others, even by the same editor, and can then be split again and have
/// blocks added before them.
#[test]
fn new_blocks_are_placed_by_the_editor_that_made_them() {
    let mut graph = program();
    let (main, f) = (blocks(&graph, "main"), blocks(&graph, "f"));
    let mut editor = Editor::new(&mut graph, "test");
    let init = editor.add_section(empty_section(".init.text", SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR));
    let rest = editor.split_block(f[2], 1);
    let new = editor.add_block(f[0], nops(1), Terminator::FallThrough(f[0]));
    editor.replace_uses(f[0], new);
    editor.place(&[new, f[0], f[1], f[2], rest], init);
    let second = editor.add_block(new, nops(2), Terminator::FallThrough(new));
    editor.replace_uses(new, second);
    // One part of a block keeps its place.
    let part = editor.split_block(main[0], 1);
    editor.place(&[part], init);
    let last = editor.split_block(part, 1);
    editor.finish();
    graph.verify().unwrap();
    assert_eq!(graph.sections()[init].nodes, [second, new, f[0], f[1], f[2], rest, part, last]);
    assert_eq!(blocks(&graph, "f"), [second, new, f[0], f[1], f[2], rest]);
    assert_eq!(blocks(&graph, "main"), [main[0], part, last, main[1], main[2]]);
    assert_eq!(place(&graph, "f"), (second, 0));
    let text = listed(&graph, ".text");
    assert!(
        text.starts_with("main:  # global; aligned to 16\n    inc %eax\n    [continues at main+0x1]\n"),
        "{text}"
    );
    assert!(listed(&graph, ".init.text").starts_with("f (made by test):"));
}

#[test]
fn data_is_added() {
    let mut graph = program();
    let f = blocks(&graph, "f")[0];
    let mut editor = Editor::new(&mut graph, "test");
    let data = editor.add_section(empty_section(".data", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE));
    let bss = editor.add_section(empty_section(".bss", SHT_NOBITS, SHF_ALLOC | SHF_WRITE));
    let pointers = Contents { bytes: vec![0; 8], refs: vec![address(0, f, 0), address(4, f, 3)] };
    let pointers = editor.add_data(data, pointers, 4);
    let zeros = editor.add_zeros(bss, 100, 32);
    editor.add_symbol(symbol("zeros", zeros, 0));
    // Contents use places from before the edits, whenever these were made.
    let ret = blocks(editor.graph(), "f")[2];
    let rest = editor.split_block(ret, 1);
    let late = Contents { bytes: vec![0; 8], refs: vec![address(0, ret, 0), address(4, ret, 1)] };
    let late = editor.add_data(data, late, 4);
    editor.finish();
    assert_eq!(named(&graph, pointers), [(Target::Node(f), 0), (Target::Node(f), 3)]);
    assert_eq!(named(&graph, late), [(Target::Node(ret), 0), (Target::Node(rest), 0)]);
    assert_eq!((graph.bytes_of(late).len(), graph.bytes_of(zeros).len()), (8, 0));
    assert_eq!(graph.sections()[data].nodes, [pointers, late]);
    assert_eq!(listed(&graph, ".bss"), "zeros:  # global; 100 bytes; aligned to 32; made by test\n");
}

#[test]
fn a_block_is_merged_into_one_that_holds_the_same() {
    let mut graph = program();
    let all = blocks(&graph, "f");
    let last = all[all.len() - 1];
    let (counter, _) = place(&graph, "counter");
    let held = Contents { bytes: graph.bytes_of(last).to_vec(), refs: graph.refs_of(last).to_vec() };
    let mut editor = Editor::new(&mut graph, "test");
    let twin = editor.add_block(all[0], held, Terminator::Return);
    let data = data_naming(&mut editor, counter, last, &[0, 1]);
    editor.add_symbol(symbol("inside", last, 1));
    editor.merge(last, twin);
    editor.finish();
    graph.remove(last);
    graph.verify().unwrap();
    assert_eq!(named(&graph, data), [(Target::Node(twin), 0), (Target::Node(twin), 1)]);
    assert_eq!(place(&graph, "inside"), (twin, 1));
    let before = graph.block(all[all.len() - 2]).unwrap();
    assert_eq!(before.end, Terminator::FallThrough(twin));
}

#[test]
fn a_block_jumps_instead() {
    let mut graph = program();
    let [first, .., last] = blocks(&graph, "main")[..] else { panic!() };
    let mut editor = Editor::new(&mut graph, "test");
    editor.jump_instead(first, last);
    editor.finish();
    graph.verify().unwrap();
    assert!(listed(&graph, ".text").starts_with("main:  # global; aligned to 16\n    jmp main+0x12\n"));
    assert_eq!(place(&graph, "main"), (first, 0));
}

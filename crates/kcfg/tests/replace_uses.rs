//! Blocks that are added before others: uses of those are redirected to the new blocks, with exceptions.

mod common;

use common::View;
use common::small::{blocks, listed, named, nops, place, program, symbol};
use kcfg::graph::{Editor, Target, Terminator};
use kcfg::index::NodeId;

#[test]
fn a_block_comes_in_front_of_another() {
    let mut graph = program();
    let (main, f) = (blocks(&graph, "main")[0], blocks(&graph, "f")[0]);
    let mut editor = Editor::new(&mut graph, "test");
    let new = editor.add_block(f, nops(1), Terminator::FallThrough(f));
    editor.replace_uses(f, new);
    let other = editor.add_block(main, nops(2), Terminator::FallThrough(main));
    editor.replace_uses(main, other);
    editor.finish();
    let expected = "\
main (made by test):  # global main; aligned to 16; made by test
    nop
    nop
main+0x0:
    inc %eax
    dec %edx
    mov 0,%ecx  # counter
    call f (made by test)
main+0xd:
    inc %ecx
    test %eax,%eax
    jne main (made by test)
main+0x12:
    ret
f (made by test):  # f; aligned to 16; made by test
    nop
f+0x0:
    add $1,%ecx
f+0x3:
    mov (%ecx),%eax
f+0x5:
    inc %eax
    ret
";
    assert_eq!(listed(&graph, ".text"), expected);
    assert_eq!(named(&graph, place(&graph, "pointer").0), [(Target::Node(new), 0)]);
    assert_eq!(place(&graph, "f"), (new, 0));
    assert_eq!((graph.function(graph.function_of(f).unwrap()).entry(), graph.node(f).align), (new, 1));
}

/// Table entries about an instruction keep referring to it, whatever symbol they use.
#[test]
fn uses_of_an_instruction_are_not_replaced() {
    let mut graph = program();
    let [entry, faults, ..] = blocks(&graph, "f")[..] else { panic!() };
    let table = View::of(&graph).chunks("__ex_table")[0];
    let mut editor = Editor::new(&mut graph, "test");
    let by_name = editor.add_symbol(symbol("faults", faults, 0));
    editor.redirect(table, 0, Target::Symbol(by_name), 0);
    editor.finish();
    let mut editor = Editor::new(&mut graph, "test");
    let new = editor.add_block(faults, nops(1), Terminator::FallThrough(faults));
    editor.replace_uses(faults, new);
    editor.finish();
    graph.verify().unwrap();
    assert_eq!(place(&graph, "faults"), (new, 0));
    assert_eq!(graph.site(table).map(|site| (site.target, site.addend)), Some((Target::Node(faults), 0)));
    let next = |node| graph.block(node).map(|block| block.end.clone());
    assert_eq!(next(entry), Some(Terminator::FallThrough(new)));
}

#[test]
fn uses_are_replaced_in_the_order_of_the_edits() {
    let pointed = |replace: fn(&mut Editor<'_>, NodeId, NodeId, NodeId)| {
        let mut graph = program();
        let (a, b, c) = (blocks(&graph, "f")[0], blocks(&graph, "f")[1], blocks(&graph, "f")[2]);
        let mut editor = Editor::new(&mut graph, "test");
        replace(&mut editor, a, b, c);
        editor.finish();
        let to = graph.resolve_node(graph.refs_of(place(&graph, "pointer").0)[0].target);
        blocks(&graph, "f").iter().position(|&block| Some(block) == to).unwrap()
    };
    let one_after_another = pointed(|editor, a, b, c| {
        editor.replace_uses(a, b);
        editor.replace_uses(b, c);
    });
    let too_early = pointed(|editor, a, b, c| {
        editor.replace_uses(b, c);
        editor.replace_uses(a, b);
    });
    let to_and_fro = pointed(|editor, a, b, _| {
        editor.replace_uses(a, b);
        editor.replace_uses(b, a);
    });
    assert_eq!([one_after_another, too_early, to_and_fro], [2, 1, 0]);
}

/// A block and the parts split off it still refer to the block that it was added before.
#[test]
fn a_new_block_is_split() {
    for split_first in [false, true] {
        let mut graph = program();
        let f = blocks(&graph, "f")[0];
        let mut editor = Editor::new(&mut graph, "test");
        let new = editor.add_block(f, nops(2), Terminator::FallThrough(f));
        if !split_first {
            editor.replace_uses(f, new);
        }
        let rest = editor.split_block(new, 1);
        if split_first {
            editor.replace_uses(f, new);
        }
        editor.finish();
        graph.verify().unwrap();
        assert_eq!(blocks(&graph, "f")[..3], [new, rest, f]);
        assert_eq!(graph.block(new).unwrap().end, Terminator::FallThrough(rest));
        assert_eq!(graph.block(rest).unwrap().end, Terminator::FallThrough(f));
    }
}

#[test]
fn two_blocks_come_in_front_of_one() {
    let mut graph = program();
    let f = blocks(&graph, "f")[0];
    let mut editor = Editor::new(&mut graph, "test");
    let one = editor.add_block(f, nops(1), Terminator::FallThrough(f));
    editor.replace_uses(f, one);
    let two = editor.add_block(one, nops(2), Terminator::FallThrough(one));
    editor.replace_uses(one, two);
    editor.finish();
    graph.verify().unwrap();
    assert_eq!(blocks(&graph, "f")[..3], [two, one, f]);
    assert_eq!(graph.block(two).unwrap().end, Terminator::FallThrough(one));
    assert_eq!(graph.block(one).unwrap().end, Terminator::FallThrough(f));
    assert_eq!((place(&graph, "f"), graph.node(two).align), ((two, 0), 16));
}

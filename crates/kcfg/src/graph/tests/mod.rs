//! Tests of graphs that no sequence of edits makes.

#[path = "../../../tests/common/mod.rs"]
mod common;
mod verify;

use common::small::{blocks, nops, program};
use common::{Dir, lift, of_kernel};

use super::{Dest, Editor, Root, Target, Terminator};
use crate::special::RootReason;

#[test]
fn what_is_glued_to_a_block_stays_behind_its_last_part() {
    let mut graph = program();
    let [first, behind, ..] = blocks(&graph, "main")[..] else { panic!() };
    graph.nodes[behind].glued_to = Some(first);
    let mut editor = Editor::new(&mut graph, "test");
    let second = editor.split_block(first, 2);
    editor.split_block(first, 1);
    let last = editor.split_block(second, 6);
    editor.finish();
    graph.verify().unwrap();
    assert_eq!(graph.node(behind).glued_to, Some(last));
    assert_eq!(blocks(&graph, "main")[3..5], [last, behind]);
}

/// The slots of a jump table, and the range of a root, follow their targets.
#[test]
fn slots_and_roots_follow() {
    let dir = Dir::new();
    let source = "
	.file \"a.c\"
	.text
	.globl main
	.type main, @function
main:	cmpl $1, %eax
	ja .Lnone
	jmp *.Ltable(,%eax,4)
.Lone:	movl $1, %eax
	ret
.Ltwo:	movl $2, %eax
	ret
.Lnone:	ret
	.size main, .-main
	.section .rodata, \"a\"
	.align 4
.Ltable:	.long .Lone, .Ltwo
";
    let mut graph = lift(&[dir.assemble("switch", source)]);
    let [_, jump, one, two, none] = blocks(&graph, "main")[..] else { panic!() };
    let Terminator::Switch(table) = graph.block(jump).unwrap().end else { panic!() };
    graph.roots.push(Root { node: two, range: 5..6, reason: RootReason::Kept });
    let mut editor = Editor::new(&mut graph, "test");
    let new = editor.add_block(one, nops(1), Terminator::FallThrough(one));
    editor.replace_uses(one, new);
    let rest = editor.split_block(two, 5);
    editor.replace_uses(none, rest);
    editor.finish();
    graph.verify().unwrap();
    let slots: Vec<Target> = graph.slots(table).iter().map(|slot| slot.target).collect();
    assert_eq!(slots, [Target::Node(new), Target::Node(two)]);
    let root = graph.roots.last().unwrap();
    assert_eq!((root.node, root.range.clone()), (rest, 0..1));
    let entry = graph.block(blocks(&graph, "main")[0]).unwrap();
    let taken = Dest { target: Target::Node(rest), offset: 0 };
    assert!(matches!(entry.end, Terminator::Branch { taken: to, .. } if to == taken), "{:?}", entry.end);
}

/// The claims about references hold for the split data as before: nothing more is split, unless another edit changed
/// it.
#[test]
fn data_that_was_cut_is_not_cut_again() {
    let dir = Dir::new();
    let files = kelf::InputFiles::of_objects(&[dir.compile("ends.c", &["-Os"])]).unwrap();
    let program = kelf::Program::link(&files).unwrap();
    let mut lifter = of_kernel(&program, &[]).unwrap();
    let mut graph = lifter.graph().unwrap();
    assert!(lifter.refine(&mut graph), "nothing was cut");
    assert!(!lifter.refine(&mut graph));
    let glued = graph.nodes.position(|node| node.glued_to.is_some()).expect("an end-of-stack pointer");
    graph.nodes[glued].glued_to = None;
    assert!(lifter.refine(&mut graph), "a lost glue is not found");
    assert!(graph.nodes[glued].glued_to.is_some());
}

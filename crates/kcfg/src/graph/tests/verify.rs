//! For every invariant of `Graph::verify`, a graph that breaks it, and the resulting message.

use goblin::elf::section_header::SHT_NOBITS;

use super::common::small::{blocks, place};
use super::common::{Dir, View, lift};
use crate::graph::{
    Contents, Counters, Dest, Editor, Graph, Node, NodeKind, Opaque, Provenance, Ref, Role, Root,
    SymbolPlace, Target, Terminator,
};
use crate::index::{FunctionId, InputId, NodeId, SectionId, SymbolId, TableId};
use crate::special::RootReason;

/// A static key, a jump table, an instruction that may fault, calls, and data.
const SOURCE: &str = r#"
	.file "a.c"
	.text
	.globl main
	.type main, @function
main:
1:	.byte 0x0f, 0x1f, 0x44, 0, 0
	.pushsection __jump_table, "aw"
	.long 1b - ., .Lnone - ., counter - .
	.popsection
	cmpl $1, %eax
	ja .Lnone
	jmp *.Ltable(,%eax,4)
.Lone:	call f
	ret
.Ltwo:	movl $2, %eax
	ret
.Lnone:	ret
	.size main, .-main
	.globl f
	.type f, @function
f:	movl $1, %ecx
1:	movl (%ecx), %eax
	ret
2:	ret
	.pushsection __ex_table, "a"
	.long 1b - ., 2b - ., 3
	.popsection
	.size f, .-f
	.globl alone
	.type alone, @function
alone:	incl %eax
	decl %edx
	ret
	.size alone, .-alone
	.section .rodata, "a"
	.align 4
.Ltable:	.long .Lone, .Ltwo
	.data
	.align 4
	.globl counter
	.type counter, @object
counter:	.long 0
	.size counter, 4
	.globl pointer
	.type pointer, @object
pointer:	.long f
	.size pointer, 4
	.local zeros
	.comm zeros, 8, 4
"#;

/// An edit that breaks an invariant, and the whole message: the node and the problem.
type Case = (fn(&mut Graph), &'static str);

const CASES: &[Case] = &[
    // Ids are within their lists, ranges within their arenas.
    (|graph| symbol(graph, "counter", |_| (NodeId(1000), 0)), "counter: symbol in node 1000, of "),
    (|graph| block(graph, "f", 0).section = SectionId(90), "a block: in section 90, of "),
    (|graph| data_mut(graph, "counter").glued_to = Some(NodeId(90)), "a chunk: glued to node 90, of "),
    (
        |graph| {
            let Provenance::Input(origin) = &mut block(graph, "main", 0).provenance else { panic!() };
            origin.section = InputId(90);
        },
        "a block: from input section 90, of ",
    ),
    (
        |graph| {
            let NodeKind::Block(block) = &mut block(graph, "main", 0).kind else { panic!() };
            block.function = FunctionId(90);
        },
        "a block: of function 90, of 3 that there are",
    ),
    (|graph| end(graph, "main", 2, Terminator::Switch(TableId(1))), "a block: uses jump table 1, of 1 "),
    (|graph| end(graph, "alone", 0, Terminator::FallThrough(NodeId(90))), "a block: leads to node 90, of "),
    (
        |graph| {
            let dest = Dest { target: Target::Node(NodeId(90)), offset: 0 };
            end(graph, "alone", 0, Terminator::Jump(dest));
        },
        "a block: refers to node 90, of ",
    ),
    (
        |graph| reference(graph, "pointer").target = Target::Symbol(SymbolId(90)),
        "a chunk: refers to symbol 90, of ",
    ),
    (
        |graph| reference(graph, "pointer").role = Role::Slot(TableId(1)),
        "a chunk: uses jump table 1, of 1 that there are",
    ),
    (|graph| function(graph, "f").push(NodeId(90)), "f: lists node 90, of "),
    (|graph| function(graph, "f").clear(), "f: begins with block 0, of 0 that there are"),
    (
        |graph| {
            let first = blocks(graph, "f")[0];
            section_of(graph, first).push(NodeId(90));
        },
        ".text: lists node 90, of ",
    ),
    (
        |graph| {
            let section = data(graph, "counter").section;
            graph.sections[section].group = Some(SymbolId(90));
        },
        ".data: group of symbol 90, of ",
    ),
    (|graph| graph.tables[TableId(0)].chunk = NodeId(90), "a jump table: in node 90, of "),
    (
        |graph| graph.roots.push(Root { node: NodeId(90), range: 0..1, reason: RootReason::Kept }),
        "a root: is node 90, of ",
    ),
    (
        |graph| graph.opaque.push(Opaque { node: NodeId(90), name: "odd".to_owned(), reason: "it is" }),
        "odd: is node 90, of ",
    ),
    (|graph| count(graph, SymbolId(90), NodeId(0)), "the counters: at symbol 90, of "),
    (
        |graph| {
            let counter = symbol_id(graph, "counter");
            count(graph, counter, NodeId(90));
        },
        "the counters: count node 90, of ",
    ),
    // Instrumented blocks have their counters.
    (
        |graph| {
            let (zeros, alone) = (symbol_id(graph, "zeros"), blocks(graph, "alone")[0]);
            count(graph, zeros, alone);
            graph.verify().unwrap();
            data_mut(graph, "zeros").live = false;
        },
        "alone: its counter, number 0, was removed",
    ),
    (
        |graph| {
            let (zeros, alone) = (symbol_id(graph, "zeros"), blocks(graph, "alone")[0]);
            graph.counters = Some(Counters { symbol: zeros, blocks: vec![alone; 9] });
        },
        "alone: its counter, number 8, was removed",
    ),
    // Sections and functions list their nodes.
    (
        |graph| {
            let counter = data(graph, "counter");
            block(graph, "f", 0).section = counter.section;
        },
        "f: .text lists it",
    ),
    (
        |graph| {
            let first = blocks(graph, "main")[0];
            section_of(graph, first).push(first);
        },
        "main: listed twice",
    ),
    (
        |graph| {
            let last = *blocks(graph, "alone").last().unwrap();
            section_of(graph, last).pop();
        },
        "alone: no section lists it",
    ),
    (
        |graph| {
            let other = blocks(graph, "main")[0];
            block(graph, "alone", 0).glued_to = Some(other);
        },
        "alone: glued to a node that is not directly before it",
    ),
    (
        |graph| {
            let other = blocks(graph, "alone")[0];
            function(graph, "f").push(other);
        },
        "alone: function f lists it",
    ),
    (
        |graph| {
            let own = blocks(graph, "f")[0];
            function(graph, "f").push(own);
        },
        "f: listed twice",
    ),
    (
        |graph| {
            let other = blocks(graph, "f")[0];
            let last = function(graph, "f").pop().unwrap();
            assert_ne!(last, other);
        },
        "f+0x8: no function lists it",
    ),
    // Jump tables consist of slots.
    (|graph| graph.tables[TableId(0)].range.end += 4, ".rodata: jump table 0 at 0..12 is not made of slots"),
    (|graph| graph.tables[TableId(0)].range = 0..0, ".rodata: jump table 0 at 0..0 is not made of slots"),
    (
        |graph| reference(graph, "pointer").role = Role::Slot(TableId(0)),
        ".data+0x4: the reference at 0 is not a slot of its table",
    ),
    // Contents fit.
    (|graph| data_mut(graph, "counter").size += 1, ".data: 4 bytes for a size of 5"),
    (|graph| data_mut(graph, "counter").align = 3, ".data: alignment 3"),
    (|graph| reference(graph, "pointer").offset = 1, ".data+0x4: a reference after its end"),
    (
        |graph| {
            let entry = entry(graph, "__ex_table");
            refs(graph, entry).swap(0, 1);
        },
        "__ex_table: references out of order",
    ),
    // Nothing refers to removed nodes.
    (|graph| block(graph, "f", 0).live = false, "main+0x11: refers to f, which was removed"),
    (|graph| block(graph, "main", 4).live = false, "main+0x11: leads to main+0x16, which was removed"),
    // Blocks agree with their terminators.
    (
        |graph| {
            let call = blocks(graph, "main")[3];
            refs(graph, call)[0].role = Role::Address;
        },
        "main+0x11: 0 callees, ends with Call",
    ),
    (|graph| end(graph, "main", 3, Terminator::IndirectJump), "main+0x11: 1 callees, ends with IndirectJump"),
    (
        |graph| end(graph, "alone", 0, Terminator::Unreachable),
        "alone: ends with Some(Some(Return)), which is not",
    ),
    (|graph| edit(graph, "alone", &[0x0f]), "alone: its bytes are not instructions"),
    (|graph| edit(graph, "alone", &[0x40]), "alone: ends with Some(Some(Next)), which is not Return"),
    (
        |graph| block(graph, "main", 0).provenance = Provenance::Made("test"),
        "main (made by test): fixed, but made by a pass",
    ),
    (
        |graph| {
            let Provenance::Input(origin) = &mut block(graph, "main", 0).provenance else { panic!() };
            origin.size -= 1;
        },
        "main: fixed, but longer than in the input",
    ),
    // Entries are about instructions.
    (
        |graph| {
            let entry = entry(graph, "__ex_table");
            refs(graph, entry)[0].addend += 1;
        },
        "__ex_table: is about byte 1 of f+0x5, where no instruction begins",
    ),
    // Symbols and roots.
    (|graph| symbol(graph, "counter", |(node, _)| (node, 5)), ".data: symbol counter lies 5 bytes into it"),
    (
        |graph| {
            let node = blocks(graph, "alone")[0];
            graph.roots.push(Root { node, range: 0..1, reason: RootReason::Kept });
            graph.nodes[node].live = false;
        },
        "alone: removed, although it is a root (Kept)",
    ),
];

fn block<'g>(graph: &'g mut Graph, function: &str, number: usize) -> &'g mut Node {
    let id = blocks(graph, function)[number];
    &mut graph.nodes[id]
}

fn end(graph: &mut Graph, function: &str, number: usize, end: Terminator) {
    let NodeKind::Block(block) = &mut block(graph, function, number).kind else { panic!() };
    block.end = end;
}

/// Replaces the bytes of a function's first block.
fn edit(graph: &mut Graph, function: &str, bytes: &[u8]) {
    let first = blocks(graph, function)[0];
    let mut editor = Editor::new(graph, "test");
    editor.edit_block(first, Contents { bytes: bytes.to_vec(), refs: Vec::new() }, &[]);
    editor.finish();
}

fn function<'g>(graph: &'g mut Graph, name: &str) -> &'g mut Vec<NodeId> {
    &mut graph.functions.iter_mut().find(|function| function.name == name).unwrap().blocks
}

fn section_of(graph: &mut Graph, node: NodeId) -> &mut Vec<NodeId> {
    let section = graph.node(node).section;
    &mut graph.sections[section].nodes
}

fn data<'g>(graph: &'g Graph, symbol: &str) -> &'g Node {
    graph.node(place(graph, symbol).0)
}

fn data_mut<'g>(graph: &'g mut Graph, symbol: &str) -> &'g mut Node {
    let (node, _) = place(graph, symbol);
    &mut graph.nodes[node]
}

fn reference<'g>(graph: &'g mut Graph, symbol: &str) -> &'g mut Ref {
    let (node, _) = place(graph, symbol);
    &mut refs(graph, node)[0]
}

fn refs(graph: &mut Graph, node: NodeId) -> &mut [Ref] {
    let range = graph.node(node).refs.clone();
    &mut graph.refs[range.start as usize..range.end as usize]
}

fn entry(graph: &Graph, section: &str) -> NodeId {
    View::of(graph).chunks(section)[0]
}

fn symbol_id(graph: &Graph, name: &str) -> SymbolId {
    graph.symbols.position(|symbol| symbol.name == name).unwrap()
}

/// Makes a symbol the array of counters of one block.
fn count(graph: &mut Graph, symbol: SymbolId, block: NodeId) {
    graph.counters = Some(Counters { symbol, blocks: vec![block] });
}

fn symbol(graph: &mut Graph, name: &str, change: fn((NodeId, u32)) -> (NodeId, u32)) {
    let (node, offset) = change(place(graph, name));
    graph.symbols.iter_mut().find(|symbol| symbol.name == name).unwrap().place =
        SymbolPlace::Node(node, offset);
}

#[test]
fn broken_rules_are_named() {
    let dir = Dir::new();
    let object = dir.assemble("a", SOURCE);
    let mut wrong = Vec::new();
    for (number, (break_it, expected)) in CASES.iter().enumerate() {
        let mut graph = lift(std::slice::from_ref(&object));
        graph.verify().unwrap();
        break_it(&mut graph);
        let broken = graph.verify().expect_err(expected);
        // The name of the object is its path.
        let name = broken.name.rsplit_once(".o:").map_or(&*broken.name, |(_, section)| section);
        let message = format!("{name}: {}", broken.problem);
        if !message.starts_with(expected) {
            wrong.push(format!("case {number}: {message}; expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Removed nodes break no invariant, wherever they were and whatever they refer to.
#[test]
fn what_was_removed_may_be_anything() {
    let dir = Dir::new();
    let mut graph = lift(&[dir.assemble("a", SOURCE)]);
    let other = blocks(&graph, "main")[0];
    let alone = block(&mut graph, "alone", 0);
    alone.live = false;
    alone.glued_to = Some(other);
    graph.verify().unwrap();
    end(&mut graph, "alone", 0, Terminator::IndirectCall { next: None });
    graph.verify().unwrap();
    // A table without its jump leads to code that is removed as well.
    let main = blocks(&graph, "main");
    let Terminator::Switch(table) = graph.block(main[2]).unwrap().end else { panic!() };
    main.iter().for_each(|node| graph.nodes[*node].live = false);
    let keys = entry(&graph, "__jump_table");
    graph.nodes[keys].live = false;
    // The counters of removed blocks are removed.
    let zeros = symbol_id(&graph, "zeros");
    count(&mut graph, zeros, main[0]);
    data_mut(&mut graph, "zeros").live = false;
    assert!(graph.slots(table).iter().all(|slot| matches!(slot.target, Target::Node(_))));
    graph.verify().unwrap();
    let zeros = data(&graph, "zeros");
    assert_eq!(graph.sections[zeros.section].kind, SHT_NOBITS);
    assert_eq!(zeros.size, 8);
}

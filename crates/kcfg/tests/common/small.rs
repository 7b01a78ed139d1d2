//! A small program whose graph is edited or broken by tests.

use goblin::elf::sym::{STB_GLOBAL, STT_NOTYPE};
use kcfg::graph::{Contents, Editor, Graph, Origin, Ref, Role, Section, Symbol, SymbolPlace, Target};
use kcfg::index::NodeId;
use kcfg::lower::{Relax, lower};
use kcfg::print::{Printer, Selection, listing};
use kelf::RelocClass;

use super::{Dir, View, lift};

/// A function with a loop, and one that is called, is the target of a pointer, and may fault.
const SOURCE: &str = r#"
	.file "a.c"
	.text
	.globl main
	.type main, @function
main:
	incl %eax
	decl %edx
	movl counter, %ecx
	call f
	incl %ecx
	testl %eax, %eax
	jne main
	ret
	.size main, .-main
	.p2align 4
	.type f, @function
f:
	addl $1, %ecx
1:	movl (%ecx), %eax
2:	incl %eax
	ret
	.pushsection __ex_table, "a"
	.long 1b - ., 2b - ., 3
	.popsection
	.size f, .-f
	.data
	.align 4
	.type counter, @object
counter:	.long 0
	.size counter, 4
	.type pointer, @object
pointer:	.long f
	.size pointer, 4
"#;

/// Returns the graph of [`SOURCE`].
pub fn program() -> Graph {
    let dir = Dir::new();
    lift(&[dir.assemble("a", SOURCE)])
}

/// Returns the blocks of a function.
pub fn blocks(graph: &Graph, function: &str) -> Vec<NodeId> {
    View::of(graph).blocks(function)
}

/// Returns the listing of a section, after verifying and lowering the graph.
pub fn listed(graph: &Graph, section: &str) -> String {
    graph.verify().unwrap();
    lower(graph, Relax::Shortest).unwrap();
    lower(graph, Relax::AsAssembled).unwrap();
    let mut text = Vec::new();
    listing::write(&Printer::new(graph), &Selection::All, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let of_section = |line: &&str| line.split(' ').next() == Some(section);
    let mut lines = text.lines().skip_while(|line| !of_section(line));
    lines.next();
    // The next section begins at a line that is neither indented nor a node's label.
    let inside = |line: &&str| line.starts_with(' ') || line.split("  # ").next().unwrap().ends_with(':');
    lines.take_while(inside).map(|line| format!("{line}\n")).collect()
}

/// Creates this number of `nop`s.
pub fn nops(count: usize) -> Contents {
    Contents { bytes: vec![0x90; count], refs: Vec::new() }
}

/// Creates a reference of data to a place in a node.
pub fn address(offset: u32, node: NodeId, addend: i64) -> Ref {
    Ref {
        offset,
        r_type: goblin::elf::reloc::R_386_32,
        class: RelocClass::Absolute,
        width: 4,
        bias: 0,
        target: Target::Node(node),
        addend,
        role: Role::Address,
    }
}

pub fn symbol(name: &str, node: NodeId, offset: u32) -> Symbol {
    Symbol {
        name: name.to_owned(),
        file: None,
        binding: STB_GLOBAL,
        kind: STT_NOTYPE,
        other: 0,
        thumb: false,
        size: 0,
        place: SymbolPlace::Node(node, offset),
        unlinked: false,
    }
}

/// Returns the targets of the references of some data, with offsets in bytes from there.
pub fn named(graph: &Graph, data: NodeId) -> Vec<(Target, i64)> {
    graph.refs_of(data).iter().map(|reference| (reference.target, reference.addend)).collect()
}

/// Adds data that refers to places in a node, in the section of another node.
pub fn data_naming(editor: &mut Editor<'_>, beside: NodeId, node: NodeId, offsets: &[i64]) -> NodeId {
    let refs = offsets.iter().enumerate().map(|(i, &offset)| address(i as u32 * 4, node, offset)).collect();
    let section = editor.graph().node(beside).section;
    editor.add_data(section, Contents { bytes: vec![0; offsets.len() * 4], refs }, 4)
}

pub fn empty_section(name: &str, kind: u32, flags: u32) -> Section {
    Section {
        name: name.into(),
        kind,
        flags: u64::from(flags),
        align: 1,
        entsize: 0,
        group: None,
        order: None,
        whole: false,
        nodes: Vec::new(),
    }
}

pub fn origin(graph: &Graph, node: NodeId) -> Origin {
    *graph.node(node).origin().unwrap()
}

/// Returns the place of a symbol.
pub fn place(graph: &Graph, name: &str) -> (NodeId, u32) {
    View::of(graph).symbol(name)
}

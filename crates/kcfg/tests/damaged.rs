//! Objects that contradict themselves: each is refused with an error that gives the place, or is opaque.

mod common;

use std::path::PathBuf;

use common::{Dir, View, lift, of_kernel};
use kcfg::lift::Lifter;
use kelf::{InputFiles, Program};
use kshrink_tests::Run;

/// Assembles an object for i386 that is treated as compiler-made.
fn assemble(dir: &Dir, source: &str) -> PathBuf {
    let path = dir.path("damaged.o");
    let source = format!("{source}\n\t.file \"damaged.c\"\n");
    Run::new("i686-linux-gnu-as").args(["--32", "-o"]).arg(&path).arg("-").stdin(source).succeed();
    path
}

/// Returns the error for an object that cannot be lifted.
fn error(source: &str) -> String {
    let dir = Dir::new();
    let files = InputFiles::of_objects(&[assemble(&dir, source)]).unwrap();
    let program = Program::link(&files).unwrap();
    match of_kernel(&program, &[]).and_then(Lifter::fine_graph) {
        Ok(_) => panic!("lifted:\n{source}"),
        Err(error) => error.to_string(),
    }
}

const ALTERNATIVE: &str = "
        .type   f, @function
f:      nop
        ret
        .size   f, . - f
        .section .altinstr_replacement, \"ax\"
other:  nop
        .section .altinstructions, \"a\"
        .long   f - .
";

#[test]
fn replacements_lie_within_their_section() {
    let long = format!("{ALTERNATIVE}\n .long other - .\n .long 7\n .byte 1, 200");
    let message = error(&long);
    assert!(message.contains("section .altinstructions: the replacement of the entry at 0x0"), "{message}");
    assert!(message.contains("200 bytes, is not in a section"), "{message}");
    // Before it, where there is no section.
    let before = format!("{ALTERNATIVE}\n .long other - 16 - .\n .long 7\n .byte 1, 1");
    let message = error(&before);
    assert!(message.contains("section .altinstructions: the replacement of the entry at 0x0"), "{message}");
}

#[test]
fn what_was_carried_whole_has_a_place() {
    let carried = |entry: &str| format!("f: ret\n .section .comment.kshrink, \"e\", @progbits\n{entry}");
    for (entry, problem) in [
        (".long f, 1", "8 bytes; expected entries of 12 bytes"),
        (".long 0, 1, 0", "the entry at 0x0 has no absolute relocation to a place in a section"),
        (".long f - ., 1, 0", "the entry at 0x0 has no absolute relocation to a place in a section"),
        (".long f - 1, 1, 0", "the entry at 0x0 has no absolute relocation to a place in a section"),
        (
            ".long f, 1, 0, outside, 1, 0",
            "the entry at 0xc has no absolute relocation to a place in a section",
        ),
        (".long f, 2, 0", "the entry at 0x0 ends outside of the section"),
        (".long f, -1, 0", "the entry at 0x0 ends outside of the section"),
        (".long f, 1, 4", "the entry at 0x0 has a reason above 3"),
    ] {
        let message = error(&carried(entry));
        assert!(message.contains(&format!("section .comment.kshrink: {problem}")), "{entry}: {message}");
    }
}

/// An object with hand-written code in the middle of a section, as left by a pass.
#[test]
fn carried_code_stays_whole_in_the_middle_of_a_section() {
    let dir = Dir::new();
    let source = "
        .type   f, @function
f:      jmp     0f
        nop
0:      ret
        .size   f, . - f
label:  .byte   0xff, 0xff, 0xff, 0xff
        .type   g, @function
g:      jmp     0f
        nop
0:      ret
        .size   g, . - g
        .section .comment.kshrink, \"e\", @progbits
        .long   label, 4, 0";
    let graph = lift(&[assemble(&dir, source)]);
    let view = View::of(&graph);
    let (node, offset) = view.symbol("label");
    let opaque = graph.opaque().iter().find(|opaque| opaque.node == node).expect("it is opaque");
    assert_eq!((offset, graph.node(node).size, opaque.reason), (0, 4, "hand-written"));
    // Without the entry, bytes that are not instructions would make the other functions opaque, too.
    assert_eq!((graph.opaque().len(), view.blocks("f").len(), view.blocks("g").len()), (1, 3, 3));
}

/// Two replacements that are parts of a third, and do not overlap one another: all of them are one piece.
#[test]
fn replacements_within_another_are_not_cut_off() {
    let dir = Dir::new();
    let source = "
        .type   f, @function
f:      nop
        ret
        .size   f, . - f
        .section .altinstr_replacement, \"ax\"
other:  .fill   10, 1, 0x90
        .macro  entry at, length
        .section .altinstructions, \"a\"
        .long   f - ., other + \\at - ., 7
        .byte   1, \\length
        .endm
        entry   0, 10
        entry   2, 1
        entry   5, 1";
    let graph = lift(&[assemble(&dir, source)]);
    let [whole] = View::of(&graph).chunks(".altinstr_replacement")[..] else { panic!("more than one piece") };
    assert_eq!(graph.node(whole).size, 10);
}

#[test]
fn tables_have_slots_that_do_not_overlap() {
    let source = "
        .type   f, @function
f:      cmpl    $2, %eax
        ja      4f
        jmp     *.Ltable(, %eax, 4)
1:      nop
2:      nop
3:      nop
4:      ret
        .size   f, . - f
        .section .rodata
.Ltable:  .long   1b, 2b, 3b, 0";
    let tables = |source: &str| {
        let dir = Dir::new();
        let graph = lift(&[assemble(&dir, source)]);
        graph.verify().expect("a valid graph");
        graph.tables().len()
    };
    assert_eq!(tables(source), 1);
    for at in [".Ltable + 3", ".Ltable + 8", ".Ltable + 9"] {
        assert_eq!(tables(&format!("{source}\n .reloc {at}, R_386_32, f")), 0, "{at}");
    }
}

#[test]
fn sites_lie_within_their_section() {
    for place in ["f + 100", "f - 100"] {
        let source = ALTERNATIVE.replace("f - .", &format!("{place} - ."));
        let message = error(&format!("{source}\n .long other - .\n .long 7\n .byte 1, 1"));
        assert!(
            message.contains("section .altinstructions: the site of the entry at 0x0 is not in this object"),
            "{message}"
        );
    }
}

#[test]
fn tables_have_content() {
    let message = error(".section __ex_table, \"a\", @nobits\n .skip 0x7ffffff8");
    assert!(message.contains("section __ex_table: it has no content"), "{message}");
}

#[test]
fn table_entries_of_the_linker_lie_within_a_section() {
    let message = error(".data\nx: .long 1\n .text\n .long x@got\n .long x@got + 0x100000");
    assert!(message.contains("refers to a place outside of every variable of section .data"), "{message}");
}

/// A relocation over the opcode: only the linker knows the instruction, so nothing may be derived from it.
#[test]
fn a_relocation_over_an_opcode_keeps_the_function_whole() {
    let dir = Dir::new();
    let source = "
        .globl  f
        .type   f, @function
f:      movl    $table, %eax
        movl    $1, %ecx
        .reloc  f + 5, R_386_32, outside
        movl    table(,%ecx,4), %edx
        ret
        .size   f, . - f
        .globl  g
        .type   g, @function
g:      movl    table, %eax
        ret
        .size   g, . - g
        .data
        .type   table, @object
table:  .long   1, 2
        .size   table, . - table
        .type   other, @object
other:  .long   3
        .size   other, . - other";
    let graph = lift(&[assemble(&dir, source)]);
    let view = View::of(&graph);
    let opaque = view.opaque("f").expect("f is opaque");
    assert!(opaque.reason.contains("not an operand of an instruction"), "{}", opaque.reason);
    assert_eq!(view.blocks("g").len(), 1);
}

#[test]
fn sections_without_content_are_carried_whole() {
    let dir = Dir::new();
    let source = "
        .section .text.nothing, \"ax\", @nobits
        .globl  code
        .type   code, @function
code:   .skip   16
        .size   code, . - code
        .section .rodata.nothing, \"aM\", @nobits, 4
        .globl  constant
        .type   constant, @object
constant: .skip 16";
    let graph = lift(&[assemble(&dir, source)]);
    let view = View::of(&graph);
    for (symbol, size) in [("code", 16), ("constant", 16)] {
        let (node, offset) = view.symbol(symbol);
        assert_eq!((offset, graph.node(node).size), (0, size), "{symbol}");
        assert!(graph.bytes_of(node).is_empty());
    }
    assert_eq!(view.opaque("code").expect("code is opaque").reason, "code without content");
}

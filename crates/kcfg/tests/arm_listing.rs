//! Listings of 32-bit ARM code.

#[path = "common/command.rs"]
mod command;
mod common;

use std::path::PathBuf;

use command::{array, on_objects};
use common::{Dir, assemble};
use kshrink_tests::process::parse;

/// Returns the lines of a listing of an object for one function, or for the opaque code at a symbol.
fn listed(object: &PathBuf, name: &str) -> Vec<String> {
    let text = on_objects(std::slice::from_ref(object), &["--listing", "--function", name]);
    let lines = text.lines().filter_map(|line| line.strip_prefix("    "));
    lines.map(str::to_owned).collect()
}

/// Hand-written code is opaque, but its places have names, and its data has the size of its items.
#[test]
fn opaque_code_is_listed_with_names_and_sizes() {
    let text = "
    .file \"hand.S\"
    .text
    .thumb
    .global hand
    .type hand, %function
hand: adr r1, table
    adr.w lr, back + 1
    subw r2, pc, #8
    cmp r0, #3
    bhi.w back
    tbh [pc, r0, lsl #1]
table: .hword (back - table) / 2, (back - table) / 2, (back - table) / 2
back: rfeia sp!
    ldr.w r0, [pc, #-12]
    ldr r3, numbers
    .short 0xf3de, 0x8f00
    srsdb sp!, #19
    b outside
    .short 0x1234
numbers: .word 5, outside
    .byte 1
odd: .byte 2
    .hword 0x1234
    .hword 0x5678
after: .hword 0x9abc
    .arm
in_arm: adr r1, in_arm
    bne in_arm
    rfeia r0!
    b in_arm
";
    let dir = Dir::new();
    let expected = [
        "adr r1, table",
        "adr.w lr, back+0x1",
        "adr.w r2, hand",
        "cmp r0, #3",
        "bhi.w back",
        "tbh [pc, r0, lsl #1]",
        ".hword 0x3",
        ".hword 0x3",
        ".hword 0x3",
        "rfeia sp!",
        "ldr.w r0, table",
        "ldr.w r3, numbers",
        ".hword 0xf3de",
        ".hword 0x8f00",
        "srsdb sp!, #0x13",
        "b.w outside",
        ".hword 0x1234",
        ".word 0x5",
        ".word outside",
        ".byte 0x1",
        ".byte 0x2",
        ".hword 0x1234",
        ".hword 0x5678",
        ".hword 0x9abc",
        "adr r1, in_arm",
        "bne in_arm",
        "rfeia r0!",
        "b in_arm",
    ];
    let lines = listed(&assemble(&dir, "hand", text), "hand");
    assert_eq!(lines, expected);
}

/// Blocks end with their instructions, not after the literals; a literal before its load is named as well.
#[test]
fn literals_are_no_part_of_blocks() {
    let text = "
    .text
    .thumb
    .global f
    .type f, %function
f:  cbz r0, 1f
    ldr r0, .L1
    b 2f
    .align 2
.L1: .word one
1:  ldr.w r0, .L1
2:  ldr r1, .L2
    bx lr
    .align 2
.L2: .word two
    .size f, . - f
";
    let dir = Dir::new();
    let object = assemble(&dir, "blocks", text);
    let document = parse(&on_objects(std::slice::from_ref(&object), &[]));
    let [function] = array(&document, "functions") else { panic!("one function: {document}") };
    let places: Vec<_> = array(function, "blocks")
        .iter()
        .map(|block| (block["offset"].as_u64().unwrap(), block["size"].as_u64().unwrap()))
        .collect();
    assert_eq!((function["size"].as_u64(), places), (Some(24), vec![(0, 2), (2, 4), (12, 4), (16, 4)]));
    let name = format!("{}:.text", object.display());
    let lines = listed(&object, "f");
    assert!(lines.contains(&format!("ldr.w r0, {name}+0x8")), "{lines:?}");
    assert!(lines.contains(&format!("ldr r1, {name}+0x14")), "{lines:?}");
}

//! Debugging information that is written by hand in assembly.

use std::fs;
use std::process::Command;

use super::*;

/// A unit with these entries. `struct` is entry 2 (name, size), `member` is 3 (name, type, offset), an unnamed member is
/// 4 (type, offset), and a number of 4 bytes is 5.
fn read(entries: &str) -> Layouts {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        ".section .debug_abbrev
         .uleb128 1, 0x11; .byte 1; .uleb128 0, 0
         .uleb128 2, 0x13; .byte 1; .uleb128 0x03, 0x08, 0x0b, 0x0b, 0, 0
         .uleb128 3, 0x0d; .byte 0; .uleb128 0x03, 0x08, 0x49, 0x13, 0x38, 0x0b, 0, 0
         .uleb128 4, 0x0d; .byte 0; .uleb128 0x49, 0x13, 0x38, 0x0b, 0, 0
         .uleb128 5, 0x24; .byte 0; .uleb128 0x0b, 0x0b, 0, 0
         .uleb128 6, 0x3b; .byte 0; .uleb128 0, 0
         .byte 0
         .section .debug_info
         unit: .long end - start
         start: .short 4; .long 0; .byte 4; .byte 1
         {entries}
         .byte 0
         end:\n"
    );
    fs::write(dir.path().join("a.s"), text).unwrap();
    let status = Command::new("gcc").args(["-c", "a.s"]).current_dir(dir.path()).status().unwrap();
    assert!(status.success());
    Layouts::read("a.o", &fs::read(dir.path().join("a.o")).unwrap()).unwrap().unwrap()
}

#[test]
fn structure_within_itself_has_no_members() {
    let layouts = read(
        "page: .byte 2; .asciz \"page\"; .byte 8
         .byte 3; .asciz \"flags\"; .long word - unit; .byte 0
         .byte 4; .long page - unit; .byte 0
         .byte 4; .long page - unit; .byte 4
         .byte 0
         word: .byte 5, 4",
    );
    let error = layouts.field("page", "flags").unwrap_err().to_string();
    assert!(error.contains("no member flags of struct page"), "{error}");
}

#[test]
fn members_need_a_size_of_1_to_8_bytes() {
    let layouts = read(
        ".byte 2; .asciz \"inner\"; .byte 4
         .byte 0
         inner: .byte 2; .asciz \"\"; .byte 16
         .byte 3; .asciz \"index\"; .long word - unit; .byte 4
         .byte 0
         .byte 2; .asciz \"page\"; .byte 64
         .byte 3; .asciz \"flags\"; .long word - unit; .byte 0
         .byte 4; .long inner - unit; .byte 8
         .byte 3; .asciz \"large\"; .long inner - unit; .byte 32
         .byte 3; .asciz \"unknown\"; .long none - unit; .byte 48
         .byte 0
         none: .byte 6
         word: .byte 5, 4",
    );
    let field = |name: &str| layouts.field("page", name).map(|field| (field.offset, field.size));
    assert_eq!(field("flags").unwrap(), (0, 4));
    assert_eq!(field("index").unwrap(), (12, 4));
    assert_eq!(layouts.offset("page", "large").unwrap(), 32);
    for name in ["large", "unknown"] {
        assert!(layouts.field("page", name).is_err() && layouts.optional_field("page", name).is_err());
    }
    assert!(layouts.array("page", "unknown").is_err());
    assert_eq!(layouts.optional_field("page", "absent").unwrap(), None);
}

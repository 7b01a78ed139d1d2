//! The side table and the accessors as a program, compared with plain members.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::accessors::Compressed;
use super::helper::Helper;
use super::runtime::{DROP, HEADER, TABLE, members};
use super::structure::Type;
use crate::document::{Scheme, Value};
use crate::scan::MemberKind;

/// The headers of the kernel that the side table includes; the shim replaces all of them.
const HEADERS: [&str; 16] = [
    "asm/barrier",
    "linux/build_bug",
    "linux/cache",
    "linux/compiler",
    "linux/hash",
    "linux/init",
    "linux/kernel",
    "linux/limits",
    "linux/moduleparam",
    "linux/proc_fs",
    "linux/rcupdate",
    "linux/seq_file",
    "linux/slab",
    "linux/spinlock",
    "linux/types",
    "linux/workqueue",
];

/// A member of the test: name, type, size, kind, scheme, and a value that depends on the random number `r` in C.
type Sample = (&'static str, &'static str, u64, MemberKind, Scheme, &'static str);

fn samples() -> Vec<Sample> {
    let narrow = |width, signed| Scheme::Narrow { width, signed };
    let numbers = [5, 0o100_644, 0xffff_ffff].map(Value::Number).to_vec();
    vec![
        ("narrow", "unsigned int", 4, MemberKind::Unsigned, narrow(1, false), "r % 3 ? r % 256 : r"),
        ("two", "unsigned int", 4, MemberKind::Unsigned, narrow(2, false), "r % 3 ? r % 65537 : r"),
        ("half", "unsigned short", 2, MemberKind::Unsigned, narrow(1, false), "r % 300"),
        ("sign", "int", 4, MemberKind::Signed, narrow(1, true), "(int)(r % 300) - 150"),
        ("long_sign", "s64", 8, MemberKind::Signed, narrow(4, true), "r % 3 ? (s64)(r % 9) - 4 : -(s64)r"),
        ("never_negative", "int", 4, MemberKind::Signed, narrow(1, false), "(int)(r % 300) - 20"),
        ("wide", "u64", 8, MemberKind::Unsigned, narrow(4, false), "r % 3 ? r % 99 : r << 7"),
        (
            "prefix",
            "u64",
            8,
            MemberKind::Unsigned,
            Scheme::Prefix { width: 2, base: 0xc100_0000, shift: 3 },
            "r % 3 ? 0xc1000000 + r % 70000 * 8 : r",
        ),
        (
            "known",
            "unsigned int",
            4,
            MemberKind::Unsigned,
            Scheme::Table { width: 1, values: numbers, slots: 0 },
            "r % 4 == 0 ? 5 : r % 4 == 1 ? 0100644 : r % 4 == 2 ? ~0 : r",
        ),
        (
            "learned",
            "void *",
            8,
            MemberKind::Pointer,
            Scheme::Table { width: 1, values: vec![Value::Symbol("jiffies".into())], slots: 20 },
            "(void *)(r % 40 * 64)",
        ),
        (
            "pages",
            "const char *",
            8,
            MemberKind::Pointer,
            Scheme::PageTable { width: 2, bits: 9, shift: 3, slots: 127 },
            "(void *)(r % 5 ? r % 200 << 12 | (r >> 20) % 512 << 3 : r)",
        ),
    ]
}

/// Writes the program to a directory.
fn write_program(dir: &Path, rounds: u32, seed: u64) {
    let mut compressed = Vec::new();
    let (mut object, mut plain, mut list, mut values) =
        (String::new(), String::new(), String::new(), String::new());
    for (number, (name, type_text, bytes, kind, scheme, value)) in samples().into_iter().enumerate() {
        let member = Compressed {
            of: "object".into(),
            name: name.into(),
            field: name.into(),
            of_value: Type::Name(type_text.into()),
            bytes,
            word: 8,
            kind,
            scheme,
            limit: None,
            helpers: vec![Helper::Exchange, Helper::MaskBits].into_iter().filter(|_| bytes == 4).collect(),
        };
        let code = member.code().unwrap().unwrap();
        let _ = writeln!(object, "\t{code} kf_{name};");
        let _ = writeln!(plain, "\t{type_text} {name};");
        let _ = write!(list, " X({name}, {number})");
        let _ = writeln!(values, "\tcase {number}: return (u64)({value});");
        compressed.push(member);
    }
    let accessors: String =
        compressed.iter().map(|member| member.accessors(member.code().unwrap())).collect();
    let count = compressed.len();
    let generated = format!(
        "\
struct object {{\n{object}}};\nstruct plain {{\n{plain}}};\n{accessors}
#define COUNT {count}\n#define ROUNDS {rounds}\n#define SEED {seed}UL\n#define CHOICES 6\n#define MEMBERS(X){list}
static u64 value(unsigned int index, u64 r)\n{{\n\tswitch (index) {{\n{values}\t}}\n\treturn 0;\n}}
static u64 choices(unsigned int index, unsigned int choice)
{{\n\treturn value(index, choice % 2 ? choice * 3 : (choice + 1) * 123456789);\n}}
"
    );
    for part in ["asm", "linux"] {
        fs::create_dir(dir.join(part)).unwrap();
    }
    for header in HEADERS {
        fs::write(dir.join(format!("{header}.h")), "#include \"shim.h\"\n").unwrap();
    }
    for (name, text) in [
        ("linux/kshrink_fields.h", HEADER),
        ("slab.h", "#include \"shim.h\"\n"),
        ("shim.h", include_str!("../../tests/runtime/shim.h")),
        ("model.c", include_str!("../../tests/runtime/model.c")),
        ("table.c", TABLE),
        ("members.c", &members(&compressed)),
        ("generated.h", &generated),
    ] {
        fs::write(dir.join(name), text).unwrap();
    }
}

/// Compiles the program of [`write_program`].
fn compile(dir: &Path, options: &[&str]) {
    compile_sources(dir, &[options, &["model.c", "table.c", "members.c"]].concat());
}

/// Compiles a program.
fn compile_sources(dir: &Path, arguments: &[&str]) {
    let mut command = Command::new("gcc");
    command.current_dir(dir).args(["-std=gnu11", "-g", "-Wall", "-Werror", "-I.", "-o", "model", "-pthread"]);
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn run(dir: &Path, arguments: &[&str]) -> Output {
    Command::new(dir.join("model")).args(arguments).output().unwrap()
}

fn succeeds(dir: &Path, arguments: &[&str]) {
    let output = run(dir, arguments);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text == "ok\n", "{}: {text}{errors}", output.status);
}

#[test]
fn codes_equal_plain_members() {
    for seed in 1..=5 {
        let dir = tempfile::tempdir().unwrap();
        write_program(dir.path(), 40_000, seed);
        compile(dir.path(), &["-Os", "-fsanitize=address,undefined", "-fno-sanitize-recover"]);
        succeeds(dir.path(), &[]);
    }
}

#[test]
fn threads_race_without_wrong_values() {
    let dir = tempfile::tempdir().unwrap();
    write_program(dir.path(), 20_000, 6);
    compile(dir.path(), &["-O2", "-fsanitize=thread"]);
    succeeds(dir.path(), &[]);
}

#[test]
fn missing_memory_stops_or_keeps_the_old_value() {
    let dir = tempfile::tempdir().unwrap();
    write_program(dir.path(), 1, 7);
    compile(dir.path(), &["-O2"]);
    succeeds(dir.path(), &["warn"]);
    let output = run(dir.path(), &["panic"]);
    assert_eq!(output.status.code(), Some(42));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "kshrink: no memory for a value of object.narrow\n");
}

#[test]
fn freed_objects_of_marked_caches_drop_their_values() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("drop.h"), DROP).unwrap();
    fs::write(dir.path().join("slab.c"), include_str!("../../tests/runtime/slab.c")).unwrap();
    compile_sources(dir.path(), &["-O2", "-fsanitize=address,undefined", "-fno-sanitize-recover", "slab.c"]);
    succeeds(dir.path(), &[]);
}

use std::fs;
use std::process::Command;

use super::*;

const SOURCE: &str = "
typedef struct { int counter; } atomic_t;
typedef struct { unsigned val; } kuid_t;
struct list { struct list *next, *prev; };
struct __attribute__((aligned(8))) wide { long long value; };
struct object {
    unsigned short mode;
    const signed char level;
    struct list links;
    union { struct { unsigned hash, length; }; unsigned long long both; };
    unsigned first : 3, second : 5;
    atomic_t count;
    int (*call)(void);
    long long size;
    struct wide version;
    char name[12] __attribute__((aligned(16)));
    kuid_t owner;
    struct object *parent[];
};
struct object object;
";

fn compiled(source: &str, flags: &[&str]) -> Structures {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.c"), source).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-g", "-c", "a.c", "-fno-eliminate-unused-debug-types"]).args(flags).current_dir(dir.path());
    let output = gcc.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    read("a.o", &fs::read(dir.path().join("a.o")).unwrap()).unwrap()
}

#[test]
fn members_have_offset_alignment_kind_and_group() {
    let structures = compiled(SOURCE, &["-m32"]);
    let object = &structures["object"];
    let rows: Vec<_> = object
        .members
        .iter()
        .map(|member| {
            let group = member.group.as_deref().unwrap_or("");
            (&member.name[..], member.offset, member.bytes, member.align, member.kind, group, member.union)
        })
        .collect();
    let expected = [
        ("mode", 0, 2, 2, Kind::Unsigned, "", false),
        ("level", 2, 1, 1, Kind::Signed, "", false),
        ("links", 4, 8, 4, Kind::Structure, "", false),
        ("hash", 12, 4, 4, Kind::Unsigned, "hash", true),
        ("length", 16, 4, 4, Kind::Unsigned, "hash", true),
        ("both", 12, 8, 4, Kind::Unsigned, "hash", true),
        ("first", 20, 4, 4, Kind::Bits, "first", false),
        ("second", 20, 4, 4, Kind::Bits, "first", false),
        ("count", 24, 4, 4, Kind::Structure, "", false),
        ("call", 28, 4, 4, Kind::Function, "", false),
        ("size", 32, 8, 4, Kind::Signed, "", false),
        ("version", 40, 8, 8, Kind::Structure, "", false),
        ("name", 48, 12, 16, Kind::Array, "", false),
        ("owner", 60, 4, 4, Kind::Unsigned, "", false),
        ("parent", 64, 0, 4, Kind::Array, "", false),
    ];
    assert_eq!(rows, expected);
    assert_eq!((object.size, object.align), (64, 16));
    assert_eq!(object.members[13].wrapped.as_deref(), Some("val"));
    assert_eq!(object.members[7].bits, Some((3, 5)));
    let structure =
        |name: &str| object.members.iter().find(|member| member.name == name).unwrap().structure.clone();
    assert_eq!([structure("links"), structure("count")], [Some("list".into()), Some("atomic_t".into())]);
    assert_eq!(structures["atomic_t"].members[0].name, "counter");
    assert_eq!(object.members[14].of, "struct object *[]");
}

#[test]
fn file_without_debugging_information_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.c"), "int a;").unwrap();
    assert!(Command::new("gcc").args(["-c", "a.c"]).current_dir(dir.path()).status().unwrap().success());
    let error = read("a.o", &fs::read(dir.path().join("a.o")).unwrap()).unwrap_err().to_string();
    assert!(error.contains("a.o: its debugging information cannot be read (there is none)"), "{error}");
}

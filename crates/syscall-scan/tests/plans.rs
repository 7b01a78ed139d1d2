//! Uses of plans other than printing: assumptions, differences, filters, chains.

mod common;

use std::fs;
use std::process::{Output, Stdio};

use common::{Machine, command, compile, scan};
use serde_json::{Value, json};
use tempfile::TempDir;

const BARE: &str = "-nostdlib -ffreestanding -static -O2";

fn program(directory: &TempDir, machine: Machine, fixture: &str) -> String {
    let path = directory.path().join(format!("{}-{fixture}", machine.abi()));
    compile(machine, fixture, BARE, &path);
    path.to_str().unwrap().to_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Checks for status 2, a one-line error apart from warnings, and no output.
fn refused(output: &Output, message: &str) {
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(output.stdout.is_empty());
    let errors: Vec<&str> = errors.lines().filter(|line| !line.contains("warning:")).collect();
    assert!(errors.len() == 1 && errors[0].contains(message), "{errors:?}");
}

#[test]
fn assumptions_settle_places() {
    let directory = tempfile::tempdir().unwrap();
    let program = program(&directory, Machine::X86_64, "unknown.c");
    let plan: Value = serde_json::from_slice(&scan(&[&program]).stdout).unwrap();
    let address = plan["syscalls"]["x86_64"]["unresolved"][0]["address"].as_str().unwrap().to_owned();

    let output = scan(&[&program, "--sites", "--assume", &format!("read,39@{program}:{address}")]);
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    let section = &plan["syscalls"]["x86_64"];
    assert_eq!(section["complete"], true);
    assert!(section["calls"].as_array().unwrap().contains(&json!({"nr": 39, "name": "getpid"})));
    let sites = section["sites"].as_array().unwrap();
    assert!(sites.iter().any(|site| site["address"] == *address && site["calls"] == json!([0, 39])));

    let unresolved = format!("no unresolved place there; unresolved: {program}:{address}");
    refused(&scan(&[&program, "--assume", "read@0x10"]), &unresolved);
    refused(
        &scan(&[&program, "--assume", &format!("raed@{address}")]),
        "raed is not a system call of x86_64",
    );
    assert_eq!(scan(&[&program, "--assume", "read"]).status.code(), Some(2));
}

#[test]
fn no_filter_of_an_incomplete_plan() {
    let directory = tempfile::tempdir().unwrap();
    let program = program(&directory, Machine::X86_64, "unknown.c");
    for format in ["seccomp", "systemd"] {
        refused(&scan(&[&program, "-f", format]), "the calls for x86_64 are incomplete");
        let output = scan(&[&program, "-f", format, "--allow-incomplete"]);
        assert!(output.status.success() && text(&output.stdout).contains("exit"));
        assert!(text(&output.stderr).contains("1 unresolved"));
    }
}

#[test]
fn filters() {
    let directory = tempfile::tempdir().unwrap();
    let program = program(&directory, Machine::I386, "wrappers.c");
    let profile: Value = serde_json::from_slice(&scan(&[&program, "-f", "seccomp"]).stdout).unwrap();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    assert_eq!(profile["architectures"], json!(["SCMP_ARCH_X86"]));
    let names = profile["syscalls"][0]["names"].as_array().unwrap();
    for name in ["getpid", "exit", "execve", "restart_syscall", "clock_gettime64"] {
        assert!(names.contains(&json!(name)), "{name}");
    }
    assert!(!names.contains(&json!("read")));
    let with = scan(&[&program, "-f", "seccomp", "--action", "log", "--also", "read,close"]);
    let profile: Value = serde_json::from_slice(&with.stdout).unwrap();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_LOG");
    assert!(profile["syscalls"][0]["names"].as_array().unwrap().contains(&json!("close")));

    refused(&scan(&[&program, "-f", "seccomp", "--also", "raed"]), "raed: no system call of this name");

    // A filter can be made from a plan as well as from a program.
    let plan = directory.path().join("plan.json");
    fs::write(&plan, scan(&[&program]).stdout).unwrap();
    let piped = command(&["-f", "systemd"]).stdin(fs::File::open(&plan).unwrap()).output().unwrap();
    let unit = text(&piped.stdout);
    assert!(unit.starts_with("SystemCallFilter=alarm clock_getres "), "{unit}");
    assert!(unit.ends_with("\nSystemCallErrorNumber=EPERM\nSystemCallArchitectures=x86\n"), "{unit}");
    assert_eq!(unit, text(&scan(&[&program, "-f", "systemd"]).stdout));
    refused(&command(&[]).stdin(Stdio::null()).output().unwrap(), "nothing to do: name a program");
}

#[test]
fn differences() {
    let directory = tempfile::tempdir().unwrap();
    let (one, other) =
        (program(&directory, Machine::I386, "wrappers.c"), program(&directory, Machine::I386, "stack.c"));
    let write = |name: &str, output: Output| {
        let path = directory.path().join(name);
        fs::write(&path, output.stdout).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (one, other) = (write("one.json", scan(&[&one])), write("other.json", scan(&[&other])));
    let same = scan(&["diff", &one, &one]);
    assert_eq!((same.status.code(), same.stdout.len(), same.stderr.len()), (Some(0), 0, 0));
    let different = scan(&["diff", &one, &other]);
    assert_eq!(different.status.code(), Some(1));
    let alarm = "!     27  alarm argument 0: 0 -> anything\n";
    assert_eq!(text(&different.stdout), format!("i386:\n-     36  sync\n-     41  dup\n{alarm}"));
    let json = scan(&["diff", "--format", "json", &other, &one]);
    assert_eq!(json.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["i386"]["added"], json!([{"nr": 36, "name": "sync"}, {"nr": 41, "name": "dup"}]));
    let piped = command(&["diff", &one, "-"]).stdin(fs::File::open(&other).unwrap()).output().unwrap();
    assert_eq!(piped.stdout, different.stdout);

    let none = write("none.json", command(&["diff", &one, &one]).output().unwrap());
    refused(&scan(&["diff", &one, &none]), "none.json: empty, expected a plan");
    let missing = scan(&["diff", &one, "/nonexistent"]);
    assert_eq!((missing.status.code(), missing.stdout.len()), (Some(2), 0));
    assert!(text(&missing.stderr).contains("cannot read /nonexistent"));
    let other_plan = directory.path().join("other.json");
    fs::write(&other_plan, "{\"schema\": \"kshrink/1\", \"limits\": {}}").unwrap();
    refused(&scan(&["diff", &one, other_plan.to_str().unwrap()]), "a plan without system calls");
}

#[test]
fn chains() {
    let directory = tempfile::tempdir().unwrap();
    for machine in Machine::ALL {
        let program = program(&directory, machine, "wrappers.c");
        // _start calls enter, which calls program, which calls invoke_later, which calls invoke with `sync`.
        let output = scan(&["--why", "sync", &program]);
        let lines = text(&output.stdout);
        let names: Vec<&str> =
            lines.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(names.first(), Some(&"_start"), "{lines}");
        assert_eq!(names[names.len() - 3..][..2], ["invoke_later", "invoke"], "{lines}");
        assert!(lines.lines().last().unwrap().contains(" sync ("), "{lines}");
        assert!(lines.contains("the program starts here") && lines.contains("called at 0x"), "{lines}");
        let output = scan(&["--why", "getpid", &program]);
        let lines = text(&output.stdout);
        assert!(!lines.contains("invoke_later") && lines.contains("getpid ("), "{lines}");
        let output = scan(&["--why", "read", &program]);
        assert_eq!(text(&output.stdout), format!("{program}: no known place makes read\n"));
    }
    refused(&scan(&["--why", "raed", "/bin/true"]), "raed: no system call of this name");
    // A wrapper that is reachable only through a pointer.
    let program = program(&directory, Machine::X86_64, "callbacks.c");
    let output = scan(&["--why", "exit", &program]);
    assert!(text(&output.stdout).contains("_start"));
}

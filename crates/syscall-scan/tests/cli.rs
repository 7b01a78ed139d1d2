//! The command line: input, output and refusals.

mod common;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use common::{Machine, command, compile, fixture, scan};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Creates a directory with a small program for each machine.
fn programs() -> (TempDir, String, String) {
    let directory = tempfile::tempdir().unwrap();
    let program = |machine: Machine| {
        let path = directory.path().join(machine.abi());
        compile(machine, "wrappers.c", "-nostdlib -ffreestanding -static -O2", &path);
        path.to_str().unwrap().to_owned()
    };
    let (small, large) = (program(Machine::I386), program(Machine::X86_64));
    (directory, small, large)
}

fn with_plan(arguments: &[&str], plan: &str) -> Output {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that fails early does not read.
    let _ = child.stdin.take().unwrap().write_all(plan.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Checks for status 2, a one-line error and no output.
fn refused(output: &Output, message: &str) {
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(output.stdout.is_empty());
    assert!(errors.starts_with("syscall-scan: error: ") && errors.contains(message), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

#[test]
fn formats() {
    let (_directory, program, _) = programs();
    let plan: Value = serde_json::from_slice(&scan(&[&program]).stdout).unwrap();
    let section = &plan["syscalls"]["i386"];
    assert_eq!(section["programs"], json!([program]));
    assert_eq!(section["complete"], true);
    assert!(section["calls"].as_array().unwrap().contains(&json!({"nr": 20, "name": "getpid"})));
    let alarm = json!({"nr": 27, "name": "alarm", "args": {"0": [{"value": 0}]}});
    assert!(section["calls"].as_array().unwrap().contains(&alarm));
    let restart = json!({"nr": 0, "name": "restart_syscall", "via": "kernel"});
    assert!(section["calls"].as_array().unwrap().contains(&restart));
    assert!(section.get("sites").is_none());

    let output = scan(&[&program, "--format", "nr"]);
    let numbers: Vec<u32> = text(&output.stdout).lines().map(|line| line.parse().unwrap()).collect();
    assert!(numbers.is_sorted() && numbers.contains(&20) && numbers.contains(&0));

    let output = scan(&[&program, "--format", "text", "--sites"]);
    let lines = text(&output.stdout);
    assert!(lines.starts_with("i386: 13 system calls, complete; constant arguments: 1\n"), "{lines}");
    assert!(
        lines.contains("    20  getpid\n    27  alarm  0={0}\n") && lines.contains("(by the vDSO)"),
        "{lines}"
    );
    assert!(lines.contains("(invoke): sync getpid alarm") || lines.contains("(invoke): getpid"), "{lines}");
    assert!(output.stderr.is_empty());
}

#[test]
fn plans_are_read_and_added_to() {
    let (directory, program, other) = programs();
    let first = text(&scan(&[&other]).stdout).replace("\"schema\"", "\"limits\": {\"a\": 1}, \"schema\"");
    let output = with_plan(&[&program], &first);
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan["limits"], json!({"a": 1}));
    assert_eq!(plan["syscalls"]["x86_64"]["programs"], json!([other]));
    assert_eq!(plan["syscalls"]["i386"]["programs"], json!([program]));

    // Two programs at once give the same result.
    let both: Value = serde_json::from_slice(&scan(&[&other, &program]).stdout).unwrap();
    assert_eq!(both["syscalls"], plan["syscalls"]);
    refused(&scan(&[&other, &program, "-f", "nr"]), "several ABIs");

    // Write to a file; an empty pipe is not a plan.
    let file = directory.path().join("plan.json");
    let output = with_plan(&[&program, "-o", file.to_str().unwrap()], "");
    assert!(output.status.success() && output.stdout.is_empty());
    let plan: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(plan["syscalls"]["i386"]["complete"], true);
}

#[test]
fn bad_plans_are_refused() {
    let (_directory, program, _) = programs();
    refused(&with_plan(&[&program], "{"), "standard input: not JSON: EOF while parsing");
    refused(&with_plan(&[&program], "{\"schema\": \"x/2\"}"), "expected schema kshrink/1, found x/2");
    refused(&with_plan(&[&program], "{}"), "no \"schema\"");
    let fields = "{\"schema\": \"kshrink/1\", \"syscalls\": {\"i386\": {}}}";
    refused(&with_plan(&[&program], fields), "missing field `complete` at line 1");
}

#[test]
fn what_is_no_program_is_refused() {
    let (directory, program, _) = programs();
    let path = |name: &str| directory.path().join(name);
    let write = |name: &str, bytes: &[u8]| -> PathBuf {
        std::fs::write(path(name), bytes).unwrap();
        path(name)
    };
    let refuse = |path: &Path, message: &str| refused(&scan(&[path.to_str().unwrap()]), message);
    let bytes = std::fs::read(&program).unwrap();

    let missing = "script: needs /nonexistent/sh (named by the script)";
    refuse(&write("script", b"#!/nonexistent/sh\n"), missing);
    refuse(&write("empty-script", b"#!\n"), "a script that names no interpreter");
    refuse(&write("empty", b""), "empty: not an ELF file");
    refuse(&write("text", b"hello"), "text: not an ELF file");
    refuse(&write("header", &bytes[..20]), "truncated or damaged");
    refuse(&write("half", &bytes[..bytes.len() / 3]), "truncated");
    let mut other = bytes.clone();
    other[18] = 8;
    refuse(&write("other", &other), ", expected i386, x86_64, arm or aarch64");
    let mut lost = bytes.clone();
    lost[24..28].copy_from_slice(&[0; 4]);
    refuse(&write("lost", &lost), "its entry point 0x0 is not in executable memory");

    let object = path("object");
    compile(Machine::I386, "wrappers.c", "-c -O2", &object);
    refuse(&object, "a relocatable object, expected an executable");

    // One bad program makes the command fail.
    let script = path("script");
    refused(&scan(&[&program, script.to_str().unwrap()]), "/nonexistent/sh");
}

#[test]
fn files_that_cannot_be_used_are_failures() {
    let (_directory, program, _) = programs();
    let output = scan(&["/nonexistent/program"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot read /nonexistent/program"));
    let output = scan(&[&program, "-o", "/nonexistent/plan"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/nonexistent/"));
    assert_eq!(scan(&[]).status.code(), Some(2));
    assert_eq!(scan(&["--nonsense"]).status.code(), Some(2));
}

#[test]
fn what_is_unresolved_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    compile(Machine::X86_64, "unknown.c", "-nostdlib -ffreestanding -static -O2", &program);
    let output = scan(&[program.to_str().unwrap()]);
    assert!(output.status.success());
    let errors = text(&output.stderr);
    assert!(errors.contains("warning: x86_64: 1 unresolved, the plan is incomplete"), "{errors}");
    assert!(errors.contains("(guess): the number is an argument of _start"), "{errors}");
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    let site = &plan["syscalls"]["x86_64"]["unresolved"][0];
    assert_eq!(site["function"], "guess");
    assert!(site["address"].as_str().unwrap().starts_with("0x"));
}

#[test]
fn help_has_examples() {
    let help = scan(&["--help"]);
    assert!(text(&help.stdout).contains("Examples:\n  syscall-scan busybox"));
    let version = scan(&["--version"]);
    assert!(text(&version.stdout).starts_with("syscall-scan "));
    assert!(fixture("entry.h").exists());
}

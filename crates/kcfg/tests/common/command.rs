//! Runs `kcfg` as a process.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::Dir;

/// The command, without standard input.
pub fn kcfg() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kcfg"));
    command.stdin(Stdio::null());
    command
}

/// Runs it; gives its status, output and messages.
#[track_caller]
pub fn finish(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

/// Runs it on objects; it has to succeed without a word on standard error.
#[track_caller]
pub fn on_objects(objects: &[PathBuf], arguments: &[&str]) -> String {
    let (status, output, messages) = finish(kcfg().args(arguments).arg("--objects").args(objects));
    assert_eq!((status, messages.as_str()), (0, ""));
    output
}

/// Runs it and expects a failure with one line that says this.
#[track_caller]
pub fn fails(command: &mut Command, status: i32, words: &str) {
    let (found, output, messages) = finish(command);
    assert_eq!((found, output.as_str()), (status, ""), "{messages}");
    assert!(messages.starts_with("kcfg: error: ") && messages.contains(words), "{messages}");
    assert_eq!(messages.lines().count(), 1, "{messages}");
}

/// The objects of the program of `fixtures/cfg/run/`.
pub fn program(dir: &Dir) -> Vec<PathBuf> {
    ["main", "control", "data", "labels", "sites"]
        .iter()
        .map(|part| dir.compile(&format!("run/{part}.c"), &["-Os"]))
        .collect()
}

/// Parses JSON.
pub fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

/// An array of a JSON object.
pub fn array<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("no array {name} in {value}"))
}

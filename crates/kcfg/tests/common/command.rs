//! Runs `kcfg` as a process.

// Each test binary uses a different part of this.
#![allow(dead_code)]

use std::path::PathBuf;
use std::process::{Command, Stdio};

use kshrink_tests::process::finish;
use serde_json::Value;

use crate::common::Dir;

/// Returns the command, without standard input.
pub fn kcfg() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kcfg"));
    command.stdin(Stdio::null());
    command
}

/// Runs it on objects; it must succeed with an empty standard error.
#[track_caller]
pub fn on_objects(objects: &[PathBuf], arguments: &[&str]) -> String {
    let (status, output, messages) = finish(kcfg().args(arguments).arg("--objects").args(objects));
    assert_eq!((status, messages.as_str()), (0, ""));
    output
}

/// Returns the objects of the program of `fixtures/cfg/run/`.
pub fn program(dir: &Dir) -> Vec<PathBuf> {
    ["main", "control", "data", "labels", "sites"]
        .iter()
        .map(|part| dir.compile(&format!("run/{part}.c"), &["-Os"]))
        .collect()
}

/// Returns an array of a JSON object.
pub fn array<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().unwrap_or_else(|| panic!("no array {name} in {value}"))
}

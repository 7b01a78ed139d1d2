//! BusyBox for ARM and AArch64 under qemu-user's `-strace`: the plan must contain every system call observed in an
//! applet.
//!
//! The commands are those of `applets.sh` that need no shell, each run by itself: the emulator does not follow a
//! process into another program.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use kshrink_tests::process::require;

use common::{Machine, all_calls, busybox, fixture, plain, section};

/// Characters that exclude a command of the script.
const SHELL: &[char] =
    &['|', '<', '>', '$', '&', '\'', '"', '`', '(', ')', '{', '}', '*', '?', '[', ']', '=', '#', '!', '\\'];

/// Commands that run for long or need absent resources.
const LEFT_OUT: [&str; 8] = ["set", "cd", "trap", "for", "do", "done", "wait", "reset"];

#[test]
fn nothing_that_arm_applets_do_is_missing() {
    compare(Machine::Thumb, "qemu-arm");
}

#[test]
fn nothing_that_aarch64_applets_do_is_missing() {
    compare(Machine::Aarch64, "qemu-aarch64");
}

fn compare(machine: Machine, emulator: &str) {
    let busybox = busybox(machine);
    let section = section(&busybox, machine.abi());
    assert_eq!(section["complete"], true, "{:#}", section["unresolved"]);
    let listed = all_calls(&section);
    require(emulator);
    let mut seen = BTreeMap::new();
    for command in commands() {
        for call in trace(emulator, &busybox, &command) {
            seen.entry(call).or_insert(command.join(" "));
        }
    }
    assert!(seen.len() > 60, "only {} calls were seen", seen.len());
    let names = listed.iter().filter_map(|&number| syscall_scan::abi::name(machine.kplan(), number as u32));
    let names: BTreeSet<&str> = names.map(plain).collect();
    let missing: Vec<_> = seen.iter().filter(|(call, _)| !names.contains(plain(call))).collect();
    assert!(missing.is_empty(), "{}: seen but not listed: {missing:?}", machine.abi());
}

/// Returns the simple commands of the script.
fn commands() -> Vec<Vec<String>> {
    let script = std::fs::read_to_string(fixture("applets.sh")).unwrap();
    let simple = |command: &&str| !command.is_empty() && !command.contains(SHELL) && !command.ends_with(')');
    let commands = script.lines().flat_map(|line| line.split(';')).map(str::trim).filter(simple);
    let words = commands.map(|command| command.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    words.filter(|words| !LEFT_OUT.contains(&words[0].as_str())).collect()
}

/// Returns the names of the calls that a command makes.
fn trace(emulator: &str, busybox: &Path, command: &[String]) -> BTreeSet<String> {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    std::fs::create_dir(directory.path().join("a")).unwrap();
    std::fs::write(directory.path().join("a/f"), "text\n").unwrap();
    Command::new("timeout")
        .args(["-s", "KILL", "10", emulator, "-strace", "-D"])
        .arg(&log)
        .arg(busybox)
        .args(command)
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap_or_else(|error| panic!("timeout: {error}"));
    let log = std::fs::read(&log).unwrap_or_default();
    String::from_utf8_lossy(&log).lines().filter_map(call).map(str::to_owned).collect()
}

/// Returns the name in `1234 openat(AT_FDCWD,…) = 3`.
fn call(line: &str) -> Option<&str> {
    let (process, rest) = line.split_once(' ')?;
    let (name, _) = rest.split_once('(')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (process.parse::<u32>().is_ok() && is_name).then_some(name)
}

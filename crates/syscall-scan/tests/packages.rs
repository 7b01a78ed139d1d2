//! Programs of Debian's coreutils on four machines, linked to the C library: the plan must contain every observed
//! system call, and on i386 and AArch64 the plans are complete.
//!
//! The x86 programs run under `strace`, through the dynamic linker of their own root; the others run under qemu-user's
//! `-strace`.

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kshrink_tests::process::require;

use common::{Machine, own_calls, package, plain, scan};

/// The machines.
const MACHINES: [Machine; 4] = [Machine::I386, Machine::X86_64, Machine::Thumb, Machine::Aarch64];

/// A command for each program, in a directory with the file `f` in it.
const COMMANDS: [&str; 20] = [
    "true",
    "ls -la .",
    "cp f g",
    "mv f g",
    "rm f",
    "mkdir -p a/b",
    "cat f",
    "sort f",
    "wc f",
    "date",
    "id",
    "touch -d 2000-01-01 f",
    "ln -s f l",
    "stat f",
    "df .",
    "du -s .",
    "chmod 600 f",
    "dd if=f of=g",
    "tail -n1 f",
    "sha256sum f",
];

/// Maximum number of calls in the plan of a program that does nothing.
const MOST_OF_TRUE: usize = 200;

/// i386 programs with incomplete plans: libgmp has jumps into unrolled code.
const INCOMPLETE: [&str; 2] = ["expr", "factor"];

#[test]
fn true_is_complete_and_small() {
    for machine in [Machine::I386, Machine::Aarch64] {
        let section = section(&package("coreutils", machine), machine, "true");
        assert_eq!(section["complete"], true, "{machine:?}: {:#}", section["unresolved"]);
        let calls = own_calls(&section).len();
        assert!(calls <= MOST_OF_TRUE, "{machine:?}: {calls} calls");
    }
}

#[test]
#[ignore = "scans all of coreutils twice, minutes: make test-rest"]
fn coreutils_are_complete() {
    for machine in [Machine::I386, Machine::Aarch64] {
        let root = package("coreutils", machine);
        for entry in std::fs::read_dir(root.join("usr/bin")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let output = Command::new(root.join("usr/bin").join(&name)).arg("--version").output();
            if output.is_err() && machine == Machine::I386 || INCOMPLETE.contains(&name.as_str()) {
                continue; // a script, or a program named above
            }
            let section = section(&root, machine, &name);
            assert_eq!(section["complete"], true, "{machine:?} {name}: {:#}", section["unresolved"]);
        }
    }
}

#[test]
#[ignore = "downloads packages, minutes: make test-rest"]
fn nothing_seen_is_missing() {
    let mut compared = 0;
    for machine in MACHINES {
        let root = package("coreutils", machine);
        for command in COMMANDS {
            let words: Vec<&str> = command.split(' ').collect();
            let section = section(&root, machine, words[0]);
            let numbers = common::all_calls(&section);
            let names = numbers.iter().filter_map(|&nr| syscall_scan::abi::name(machine.kplan(), nr as u32));
            let mut listed: BTreeSet<String> = names.map(|name| plain(name).to_owned()).collect();
            // `strace` shows the calls that `socketcall` multiplexes.
            let calls = section["calls"].as_array().unwrap().iter();
            let operations = calls.filter_map(|call| call["operations"].as_array()).flatten();
            let operations = operations.filter_map(|operation| operation["name"].as_str());
            listed.extend(operations.map(|name| name.trim_start_matches("SYS_").to_lowercase()));
            let seen = trace(&root, machine, &words);
            assert!(seen.len() > 5, "{machine:?} {command}: only {seen:?} were seen");
            let missing: Vec<&String> = seen.iter().filter(|name| !listed.contains(plain(name))).collect();
            assert!(missing.is_empty(), "{machine:?} {command}: seen but not listed: {missing:?}");
            compared += 1;
        }
    }
    assert!(compared >= 60);
}

/// Returns the section that the command prints for a program of the package.
fn section(root: &Path, machine: Machine, program: &str) -> serde_json::Value {
    let output = scan(&["--root", root.to_str().unwrap(), &format!("/usr/bin/{program}")]);
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    plan["syscalls"][machine.abi()].clone()
}

/// Returns the names of the calls that a command makes, except those that start it.
fn trace(root: &Path, machine: Machine, words: &[&str]) -> BTreeSet<String> {
    let directory = tempfile::tempdir().unwrap();
    let (log, work) = (directory.path().join("log"), directory.path().join("work"));
    std::fs::create_dir(&work).unwrap();
    std::fs::write(work.join("f"), "text\nmore\n").unwrap();
    let program = root.join("usr/bin").join(words[0]);
    let mut tracer = Command::new("timeout");
    tracer.args(["-s", "KILL", "20"]);
    let (linker, libraries) = match machine {
        Machine::I386 => ("usr/lib/ld-linux.so.2", "usr/lib/i386-linux-gnu"),
        _ => ("usr/lib64/ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu"),
    };
    match machine {
        Machine::I386 | Machine::X86_64 => {
            require("strace");
            let libraries: PathBuf = root.join(libraries);
            tracer.args(["strace", "-f", "-qq", "-o"]).arg(&log).arg(resolve(root, linker));
            tracer.arg("--library-path").arg(libraries);
        }
        _ => {
            let emulator = if machine == Machine::Aarch64 { "qemu-aarch64" } else { "qemu-arm" };
            require(emulator);
            tracer.arg(emulator).arg("-L").arg(root).arg("-strace").arg("-D").arg(&log);
        }
    }
    tracer.arg(program).args(&words[1..]).current_dir(&work);
    tracer.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    tracer.status().unwrap_or_else(|error| panic!("timeout: {error}"));
    let log = std::fs::read(&log).unwrap_or_default();
    String::from_utf8_lossy(&log)
        .lines()
        .filter_map(call)
        .filter(|name| *name != "execve")
        .map(str::to_owned)
        .collect()
}

/// Returns a file of a root with links resolved; absolute links lead to places in the root.
fn resolve(root: &Path, file: &str) -> PathBuf {
    let path = root.join(file);
    match std::fs::read_link(&path) {
        Ok(target) if target.is_absolute() => root.join(target.strip_prefix("/").unwrap()),
        _ => path,
    }
}

/// Returns the name in `1234 openat(AT_FDCWD,…) = 3`.
fn call(line: &str) -> Option<&str> {
    let (process, rest) = line.split_once(' ')?;
    let (name, _) = rest.trim_start().split_once('(')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (process.parse::<u32>().is_ok() && is_name).then_some(name)
}

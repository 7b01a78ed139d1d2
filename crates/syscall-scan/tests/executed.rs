//! Execution of static 32-bit ARM programs under qemu-user: the scan must have found every executed instruction.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Machine, busybox, compile};
use syscall_scan::image::{Addr, Image, Object, Process};
use syscall_scan::reach::reach;

/// The commands that BusyBox runs.
const APPLETS: [&str; 8] = [
    "sh -c x=3;case$IFS$x$IFSin$IFS?)echo$IFS$x;;esac;kill$IFS-0$IFS$$",
    "awk BEGIN{printf(\"%d,%5.2f,%s\",3,sin(4.5),toupper(\"x\"))}",
    "sort -n /proc/self/status",
    "sha256sum /proc/self/maps",
    "ls -la /proc/self",
    "printf %5d-%s-%x 3 a 4",
    "date -d @77 +%c",
    "vi --help",
];

#[test]
fn busybox_executes_only_code_that_was_found() {
    let commands = APPLETS.map(|applet| applet.split(' ').collect::<Vec<_>>());
    compare(&busybox(Machine::Thumb), &commands);
}

/// Programs with their own copy of the C library, exceptions, threads and all kinds of jumps.
#[test]
fn compiled_programs_execute_only_code_that_was_found() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    for machine in [Machine::Arm, Machine::Thumb] {
        for options in ["-static -O2 -s", "-static -fPIC -Os"] {
            compile(machine, "threads.c", &format!("{options} -pthread"), &program);
            compare(&program, &[Vec::new()]);
        }
    }
}

fn compare(program: &Path, commands: &[Vec<&str>]) {
    let object = Object::read(&std::fs::read(program).unwrap()).unwrap();
    let image = Image::link(&Process::single(object, "program")).unwrap();
    let code = reach(&image).code;
    let mut missing = BTreeMap::new();
    for command in commands {
        let executed = execute(program, command);
        // The kernel starts the program at its first instruction, wherever it is loaded.
        let start = image.first_byte(image.entry).0;
        let base = executed.first().map_or(0, |&first| start.wrapping_sub(first));
        let places = executed.iter().map(|&at| Addr(at.wrapping_add(base)));
        let found = |at: &Addr| code.length(*at).is_some() || code.length(at.plus(1)).is_some();
        let is_own = |at: &Addr| image.is_code(at.plus(1));
        let new = places.filter(|at| is_own(at) && !found(at));
        missing.extend(new.map(|at| (at.to_string(), command.join(" "))));
        assert!(executed.len() > 1000, "{command:?}: only {} instructions", executed.len());
    }
    assert!(
        missing.is_empty(),
        "{}: {} executed but not found: {missing:?}",
        program.display(),
        missing.len()
    );
}

/// Returns the addresses of the translated instructions in the order of their first execution.
fn execute(program: &Path, arguments: &[&str]) -> Vec<u64> {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    Command::new("qemu-arm")
        .args(["-d", "in_asm", "-D"])
        .arg(&log)
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap_or_else(|error| panic!("qemu-arm: {error}; it is in Debian's package qemu-user"));
    let log = std::fs::read_to_string(&log).unwrap();
    let address = |line: &str| u64::from_str_radix(line.strip_prefix("0x")?.split_once(':')?.0, 16).ok();
    log.lines().filter_map(address).collect()
}

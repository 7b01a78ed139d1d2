//! BusyBox under `strace -f`: the plan must contain every system call observed in any applet.
//!
//! The script `applets.sh` runs as many applets as possible without harm. On x86-64, where every site makes its call
//! itself, the instruction is compared as well: each observed call comes from a listed site, and is among the calls
//! listed for it.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use kshrink_tests::strace::replay;
use syscall_scan::arguments::Prototype;

use common::{Machine, all_calls, busybox, fixture, own_calls, section};

/// A call in the strace log.
struct Seen {
    /// The address after the instruction.
    behind: u64,
    number: u64,
    name: String,
    /// The registers with its arguments, if strace prints these as numbers.
    arguments: Vec<u64>,
}

#[test]
fn nothing_that_i386_applets_do_is_missing() {
    let seen = trace(Machine::I386);
    compare(Machine::I386, &seen);
}

#[test]
fn nothing_that_x86_64_applets_do_is_missing() {
    let seen = trace(Machine::X86_64);
    let section = compare(Machine::X86_64, &seen);
    let listed = section["sites"].as_array().unwrap().iter().map(|site| {
        let address = site["address"].as_str().unwrap().trim_start_matches("0x");
        let calls = site["calls"].as_array().unwrap().iter().map(|call| call.as_u64().unwrap());
        (u64::from_str_radix(address, 16).unwrap(), calls.collect::<BTreeSet<u64>>())
    });
    let sites: BTreeMap<u64, BTreeSet<u64>> = listed.collect();
    let mut used = BTreeSet::new();
    // Higher addresses belong to the vDSO.
    for seen in seen.iter().filter(|seen| seen.behind < 1 << 32) {
        let site = seen.behind - 2;
        let calls = sites.get(&site).unwrap_or_else(|| panic!("{} at {site:#x}: no site", seen.name));
        assert!(calls.contains(&seen.number), "{} at {site:#x}: listed are {calls:?}", seen.name);
        used.insert(site);
    }
    assert!(used.len() > 80, "only {} sites were used", used.len());
}

/// Scans BusyBox and searches the result for every observed call.
fn compare(machine: Machine, seen: &[Seen]) -> serde_json::Value {
    let section = section(&busybox(machine), machine.abi());
    assert_eq!(section["complete"], true, "{:#}", section["unresolved"]);
    let listed = all_calls(&section);
    let names: BTreeMap<u64, &str> = seen.iter().map(|seen| (seen.number, seen.name.as_str())).collect();
    let missing: BTreeMap<_, _> = names.iter().filter(|(number, _)| !listed.contains(number)).collect();
    assert!(missing.is_empty(), "{}: seen but not listed: {missing:?}", machine.abi());
    assert!(names.len() > 70, "only {} different calls were seen", names.len());
    let compared = seen.iter().map(|seen| compare_arguments(machine, &section, seen)).sum::<usize>();
    assert!(compared > 100, "only {compared} known arguments were seen");
    let own = own_calls(&section);
    eprintln!("{}: {} calls found, {} of them seen", machine.abi(), own.len(), names.len());
    section
}

/// Compares the arguments of a call with the values in the plan. Returns the number of arguments that the plan has.
fn compare_arguments(machine: Machine, section: &serde_json::Value, seen: &Seen) -> usize {
    let calls = section["calls"].as_array().unwrap();
    let mut call = calls.iter().find(|call| call["nr"] == seen.number).unwrap();
    if call["name"] == "ipc" {
        return 0; // strace shows the equivalent call, with its arguments in another order.
    }
    if call["name"] == "socketcall" {
        let name = format!("SYS_{}", seen.name.to_uppercase());
        let operations = call["operations"].as_array().unwrap();
        call = operations.iter().find(|operation| operation["name"] == name).unwrap();
    }
    let Some(known) = call["args"].as_object() else { return 0 };
    let prototype = Prototype::named(machine.kplan(), &seen.name).unwrap();
    for (index, values) in known {
        let index: usize = index.parse().unwrap();
        let Some(&register) = seen.arguments.get(index) else { continue };
        let value = prototype.seen(index, register);
        let listed = values.as_array().unwrap().iter().any(|listed| listed["value"] == value);
        let what = format!("{} {:x?}: argument {index}", seen.name, seen.arguments);
        assert!(listed, "{what} is {value:#x}, listed are {values}");
    }
    known.len()
}

/// Runs the applets and returns the calls of BusyBox itself.
fn trace(machine: Machine) -> Vec<Seen> {
    let busybox = busybox(machine);
    let directory = tempfile::tempdir().unwrap();
    let (applets, work) = (directory.path().join("bin"), directory.path().join("work"));
    fs::create_dir(&applets).unwrap();
    fs::create_dir(&work).unwrap();
    let list = Command::new(&busybox).arg("--list").output().unwrap_or_else(|error| {
        panic!("{}: {error}; programs for {} do not run here", busybox.display(), machine.abi())
    });
    for applet in String::from_utf8(list.stdout).unwrap().lines() {
        symlink(&busybox, applets.join(applet)).unwrap();
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let log = directory.path().join("strace.log");
    let mut strace = Command::new("strace")
        .args(["-f", "-n", "-i", "-qq", "-e", "raw=!execve,fork,vfork,clone,clone3", "-o"])
        .arg(&log)
        .arg("-E")
        .arg(format!("PATH={}", applets.display()))
        .arg(&busybox)
        .arg("sh")
        .arg(fixture("applets.sh"))
        .arg(port.to_string())
        .current_dir(&work)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("strace: {error}; it is in Debian's package strace"));
    strace.wait().unwrap();
    let log = fs::read(&log).expect("strace wrote no log: may it trace processes here?");
    parse(&String::from_utf8_lossy(&log), &busybox, &applets)
}

/// Returns the calls of processes running BusyBox in a log of `strace -f -n -i`. The script starts other programs too
/// (`/bin/sh` through `system()`).
fn parse(log: &str, busybox: &Path, applets: &Path) -> Vec<Seen> {
    let mut seen = Vec::new();
    let mut started = false;
    let enter = |path: &str, _: &bool| {
        let path = Path::new(path);
        path == busybox || path.starts_with(applets) || path.ends_with("self/exe")
    };
    replay(log, true, enter, |call, &own| {
        // The first call is strace's own, which starts the program.
        if let (Some(behind), true, false) = (call.behind, own && started, call.resumed) {
            let (number, name) = (call.number.into(), call.name.to_owned());
            seen.push(Seen { behind, number, name, arguments: arguments(call.rest) });
        }
        started = true;
    });
    seen
}

/// Returns the arguments in the text after a call's name: `(0x1, 0xff9c <unfinished ...>`.
fn arguments(rest: &str) -> Vec<u64> {
    let list = rest.trim_start_matches('(').split([')', '<']).next().unwrap_or_default();
    let number = |word: &str| match word.trim().strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => word.trim().parse(),
    };
    list.split(',').map_while(|word| number(word).ok()).collect()
}

#[test]
fn logs_are_understood() {
    let log = "1 [  59] [00007f00] execve(\"/x/busybox\", [\"busybox\"], 0x7 /* 1 var */) = 0\n\
        1 [  20] [08049002] getpid() = 1\n\
        1 [   2] [08049004] vfork( <unfinished ...>\n\
        2 [  11] [08049006] execve(\"/bin/sh\", [\"sh\"], 0x7 /* 1 var */) = 0\n\
        2 [  39] [00401000] getpid() = 2\n\
        2 [  59] [00401002] execve(\"/x/bin/ls\", [\"ls\"], 0x7 /* 1 var */) = 0\n\
        1 [   2] [08049004] <... vfork resumed>) = 2\n\
        2 [   6] [08049008] close(3) = 0\n\
        2 [ 252] [08049008] +++ exited with 0 +++\n\
        1 [   6] [08049008] --- SIGCHLD {si_signo=SIGCHLD} ---\n";
    let seen = parse(log, Path::new("/x/busybox"), Path::new("/x/bin"));
    let calls: Vec<_> = seen.iter().map(|seen| (seen.behind, seen.number, seen.name.as_str())).collect();
    let expected = [
        (0x8049002, 20, "getpid"),
        (0x8049004, 2, "vfork"),
        (0x8049006, 11, "execve"),
        (0x8049008, 6, "close"),
    ];
    assert_eq!(calls, expected);
}

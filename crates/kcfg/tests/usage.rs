//! Unusual uses of the command `kcfg`: its messages, its status, and the files that it leaves.

#[path = "common/command.rs"]
mod command;
mod common;

use std::fs;
use std::io::Read;
use std::process::Stdio;

use command::{kcfg, on_objects, program};
use common::Dir;
use kshrink_tests::process::{fails, finish};

#[test]
fn a_file_appears_whole_or_not_at_all() {
    let dir = Dir::new();
    let objects = program(&dir);
    let path = dir.path("graph.json");
    let printed = on_objects(&objects, &[]);
    on_objects(&objects, &["-o", path.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(&path).unwrap(), printed);
    fs::remove_file(&path).unwrap();
    let mut command = kcfg();
    command.args(["-o", path.to_str().unwrap(), "--function", "nothing", "--objects"]);
    fails(command.args(&objects), 2, "no function is called nothing");
    assert!(!path.exists());
    let unwritable = dir.path("missing/graph.json");
    fails(kcfg().arg("-o").arg(&unwritable).arg("--objects").args(&objects), 1, unwritable.to_str().unwrap());
}

#[test]
fn a_closed_pipe_is_no_error() {
    let dir = Dir::new();
    let objects = program(&dir);
    // The output exceeds a pipe's capacity.
    assert!(on_objects(&objects, &["--instructions"]).len() > 1 << 16);
    let mut running = kcfg()
        .args(["--instructions", "--objects"])
        .args(&objects)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    running.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let finished = running.wait_with_output().unwrap();
    assert!(finished.status.success() && finished.stderr.is_empty(), "{finished:?}");
}

#[test]
fn names_that_are_nearly_right() {
    let dir = Dir::new();
    let objects = program(&dir);
    let with = |name: &str| {
        let mut command = kcfg();
        command.args(["--function", name, "--objects"]).args(&objects);
        command
    };
    fails(&mut with("fibonaci"), 2, "did you mean fibonacci?");
    fails(&mut with("stack_pointer"), 2, "stack_pointer is data");
    fails(&mut with("xyzzyxyzzy"), 2, "no function is called xyzzyxyzzy");
}

#[test]
fn bad_input_is_one_clear_error() {
    let dir = Dir::new();
    let object = dir.compile("calls.c", &["-Os"]);
    let bytes = fs::read(&object).unwrap();
    let truncated = dir.path("truncated.o");
    fs::write(&truncated, &bytes[..bytes.len() / 2]).unwrap();
    fails(kcfg().arg("--objects").arg(&truncated), 2, "truncated.o");
    let text = dir.path("text.o");
    fs::write(&text, "no object\n").unwrap();
    fails(kcfg().arg("--objects").arg(&text), 2, "text.o");
    fails(kcfg().arg("--objects").arg(dir.path("missing.o")), 1, "missing.o");
    // An object of another machine: e_machine is at byte 18.
    let other = dir.path("sparc.o");
    let mut sparc = bytes.clone();
    sparc[18] = 2;
    fs::write(&other, sparc).unwrap();
    fails(kcfg().arg("--objects").arg(&other), 2, "sparc.o");
    let long = dir.compile_64("calls.c", &["-Os"]);
    fails(kcfg().arg("--objects").args([&object, &long]), 2, "i386");
    // A kernel without its build directory.
    fails(kcfg().arg(&object), 2, "calls.c.o");
    let vmlinux = dir.link(&program(&dir), "vmlinux");
    fails(kcfg().arg(&vmlinux), 2, "vmlinux");
}

#[test]
fn damaged_objects_do_not_panic() {
    let dir = Dir::new();
    let object = dir.compile("run/sites.c", &["-Os"]);
    let bytes = fs::read(&object).unwrap();
    let damaged = dir.path("damaged.o");
    // Every header field of the file, and some of every table.
    for at in (0..bytes.len()).step_by(1 + bytes.len() / 300) {
        for value in [0x00, 0xff] {
            let mut copy = bytes.clone();
            copy[at] = value;
            fs::write(&damaged, copy).unwrap();
            let (status, _, messages) = finish(kcfg().arg("--objects").arg(&damaged));
            assert!(status <= 2, "byte {at} = {value:#x}: {messages}");
        }
    }
}

#[test]
fn help_shows_examples_and_exit_codes() {
    let (status, help, _) = finish(kcfg().arg("--help"));
    assert_eq!(status, 0);
    for words in ["kcfg build/vmlinux --summary", "--dot | dot -Tsvg", "Exit status:"] {
        assert!(help.contains(words), "{words} in {help}");
    }
    let (status, version, _) = finish(kcfg().arg("--version"));
    assert_eq!((status, version.trim_end()), (0, concat!("kcfg ", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn options_that_contradict_are_refused() {
    for arguments in [
        &["vmlinux", "--dot", "--summary"][..],
        &["vmlinux", "--summary", "--function", "main"],
        &["vmlinux", "--dot", "--json"],
        &["vmlinux", "--listing", "--json"],
        &["vmlinux", "--listing", "--dot"],
        &["vmlinux", "--entry", "main"],
        &["vmlinux", "--objects", "main.o"],
        &[],
    ] {
        let (status, output, _) = finish(kcfg().args(arguments));
        assert_eq!((status, output.as_str()), (2, ""), "{arguments:?}");
    }
}

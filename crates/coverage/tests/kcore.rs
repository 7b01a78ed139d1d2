//! `coverage kcore`, with QEMU's dumps of a kernel in miniature.

mod common;

use std::fs;
use std::process::Command;

use common::{Traced, functions, plan, refused, text};
use kshrink_tests::process::run;

/// Three counters, the first and the last of which are set, and two blocks without a counter: `start_kernel` calls
/// `half`, and nothing leads to the first function.
const BLOCKS: &str = r#"{"schema": "kshrink-blocks/1",
    "functions": [{"name": "start_kernel", "size": 57}, {"name": "never", "size": 8}, {"name": "half", "size": 11},
        {"name": "helper", "file": "kernel.c", "size": 4}],
    "blocks": [[3222274111, 4, 3, 0, 4], [3222274115, 29, 0, 0, 29], [3222274144, 28, 0, 29, 28], [3222274172, 11, 2, 0, 11],
        [3222274183, 8, 1, 0, 8]],
    "counters": {"symbol": "counters", "blocks": [1, 4, 2]}}"#;

const RAW: &str = "raw: not an ELF file; expected an ELF core (/proc/kcore, or QEMU's dump-guest-memory); raw memory \
                   needs --base";
const RAN: [&str; 2] = ["start_kernel 0+57", "half 0+11"];

#[test]
fn counters_are_read_from_every_kind_of_dump() {
    let traced = Traced::new();
    traced.write("blocks.json", BLOCKS);
    // An ELF core by physical address, one by virtual address, and raw memory.
    let dumps: [&[&str]; 4] = [&["dump"], &["paged"], &["raw", "--base", "0"], &["raw", "--base=0x0"]];
    for dump in dumps {
        let output = traced.coverage(&[&["kcore", "vmlinux", "--blocks", "blocks.json"], dump].concat());
        let plan = plan(&output);
        assert_eq!(functions(&plan), RAN, "{dump:?}");
        let run = &plan.coverage.unwrap().runs[0];
        assert_eq!((&run.source[..], run.unordered), ("kcore", true));
        let warning = format!(
            "coverage: warning: {}: 2 of 5 blocks have no counter (early boot code, hand-written code, patch sites); 1 of \
             these count as run",
            dump[0]
        );
        assert!(text(&output.stderr).starts_with(&warning), "{}", text(&output.stderr));
    }
}

#[test]
fn dumps_that_do_not_fit_are_refused() {
    let traced = Traced::new();
    let blocks = traced.write("blocks.json", BLOCKS);
    let blocks = blocks.to_str().unwrap();
    let kcore = |kernel: &str, dump: &[&str]| {
        traced.coverage(&[&["kcore", kernel, "--blocks", blocks], dump].concat())
    };
    let dump = fs::read(traced.path("dump")).unwrap();
    traced.write("short", &dump[..1 << 16]);
    traced.write("headers", &dump[..100]);
    traced.write("text", "hello");
    refused(&kcore("vmlinux", &["raw"]), 2, RAW);
    refused(&kcore("vmlinux", &["vmlinux"]), 2, "vmlinux: an ELF file of type 2, not a core");
    refused(&kcore("vmlinux", &["text"]), 2, "text: not an ELF file");
    refused(&kcore("vmlinux", &["headers"]), 2, "headers: its program headers cannot be read");
    refused(&kcore("vmlinux", &["short"]), 2, "short: it has 65536 bytes, but its headers describe");
    refused(&kcore("vmlinux", &["missing"]), 1, "cannot read missing");
    refused(
        &kcore("vmlinux", &["raw", "--base", "0x800000"]),
        2,
        "raw: it does not hold the 3 counters at 0xc01",
    );
    // Somebody else's memory.
    refused(&kcore("vmlinux", &["raw", "--base", "4096"]), 2, "raw: of another kernel than vmlinux: ");
    assert_eq!(kcore("vmlinux", &["raw", "--base", "x"]).status.code(), Some(2));
}

/// The linker has dropped the code of a counter, so it can only be 0.
#[test]
fn counters_of_dropped_code_are_not_set() {
    let traced = Traced::new();
    let kcore = |counters: &str| {
        traced.write("blocks.json", BLOCKS.replace("[1, 4, 2]", counters));
        traced.coverage(&["kcore", "vmlinux", "--blocks", "blocks.json", "dump"])
    };
    assert_eq!(functions(&plan(&kcore("[1, null, 2]"))), RAN);
    let problem = "counter 2 of blocks.json is set, but its block was dropped by the link";
    refused(&kcore("[1, 4, null]"), 2, &format!("dump: of another kernel than vmlinux: {problem}"));
}

#[test]
fn counters_that_are_none_are_refused() {
    let traced = Traced::new();
    let refuse = |blocks: String, message: &str| {
        traced.write("blocks.json", blocks);
        refused(&traced.coverage(&["kcore", "vmlinux", "--blocks", "blocks.json", "dump"]), 2, message);
    };
    // Another part of the kernel.
    refuse(
        BLOCKS.replace(r#""counters", "#, r#""start_kernel", "#),
        "of another kernel than vmlinux: counter 0 of blocks.json is",
    );
    refuse(
        BLOCKS.replace(r#""counters", "#, r#""missing", "#),
        "vmlinux: it has no symbol missing; expected the vmlinux that blocks.json was written for",
    );
    refuse(BLOCKS.replace("[1, 4, 2]", "[]"), "none of the 0 counters of blocks.json is set");
    let (without, _) = BLOCKS.split_once(",\n    \"counters\"").unwrap();
    refuse(
        format!("{without}}}"),
        "blocks.json: a map of blocks without counters; expected the map of a kernel that was rewritten",
    );
}

/// A kernel for ARM in miniature: it begins in ARM code, and continues in Thumb code.
const ARM_KERNEL: &str = "\
    .syntax unified
    .arch armv7-a
    .text
    .arm
    .globl stext
    .type stext, %function
stext:	bx lr
    .size stext, .-stext
    .thumb
    .globl start_kernel
    .thumb_func
    .type start_kernel, %function
start_kernel:
    bl half
    bx lr
    .size start_kernel, .-start_kernel
    .globl half
    .thumb_func
    .type half, %function
half:
    movs r0, #1
    bx lr
    .size half, .-half
    .globl never
    .thumb_func
    .type never, %function
never:	bx lr
    .size never, .-never
    .data
    .globl counters
counters: .byte 1
";

/// `start_kernel` has a counter, which is set, and calls `half`; nothing leads to `never`.
const ARM_BLOCKS: &str = r#"{"schema": "kshrink-blocks/1",
    "functions": [{"name": "stext", "size": 4}, {"name": "start_kernel", "size": 6}, {"name": "half", "size": 4},
        {"name": "never", "size": 2}],
    "blocks": [[3221258240, 4, 0, 0, 4], [3221258244, 6, 1, 0, 6], [3221258250, 4, 2, 0, 4], [3221258254, 2, 3, 0, 2]],
    "counters": {"symbol": "counters", "blocks": [1]}}"#;

#[test]
fn calls_in_thumb_code_are_followed_to_code_without_counters() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("kernel.s"), ARM_KERNEL).unwrap();
    fs::write(dir.path().join("blocks.json"), ARM_BLOCKS).unwrap();
    let tool = |name: &str, arguments: &str| {
        let mut command = Command::new(format!("arm-linux-gnueabihf-{name}"));
        run(command.args(arguments.split(' ')).current_dir(dir.path()))
    };
    tool("as", "kernel.s -o kernel.o");
    tool("ld", "-Ttext=0xc0008000 -Tdata=0xc0009000 -e stext kernel.o -o vmlinux");
    tool("objcopy", "-O binary vmlinux raw");
    // Code that runs at 0xc0008000 was loaded at 0x40008000, which the kernel's file does not record.
    let coverage = |load: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coverage"));
        let arguments = ["kcore", "vmlinux", "--blocks", "blocks.json", "raw", "--base", "0x40008000"];
        command.args(arguments).args(load).current_dir(dir.path()).output().unwrap()
    };
    let output = coverage(&["--load-address", "0x40008000"]);
    assert_eq!(functions(&plan(&output)), ["stext 0+4", "start_kernel 0+6", "half 0+4"]);
    refused(&coverage(&[]), 2, "raw: it does not hold the 1 counters at 0xc0009000");
}

//! gdb on rewritten kernels, with the file that `--keep-debug` writes.

use std::path::Path;

use kshrink_tests::{Kernel, KernelTest, RewrittenKernel, Run, Scenario};

use crate::{arm, busybox_plan};

/// A function that init calls early, its file, and its arguments there.
const FUNCTION: &str = "do_sys_openat2";
const FILE: &str = "fs/open.c";
const ARGUMENTS: [&str; 3] = ["dfd = -100", "filename = ", "how = "];

/// Returns what gdb prints for some commands about a file.
fn ask(file: &Path, commands: &[&str]) -> String {
    let run = Run::new("gdb-multiarch").args(["-nx", "-batch"]);
    let run = commands.iter().fold(run, |run, command| run.arg("-ex").arg(command));
    run.arg(file).succeed().text()
}

/// Returns the line of the function's first statement: a breakpoint on the function stops there.
fn first_line(vmlinux: &Path) -> u32 {
    let answer = ask(vmlinux, &[&format!("break {FUNCTION}")]);
    let line = answer.split(" line ").nth(1).and_then(|rest| rest.split('.').next()?.trim().parse().ok());
    line.unwrap_or_else(|| panic!("no line in {answer}"))
}

/// Stops a kernel at a line by gdb, and returns gdb's output.
fn stop(
    test: &mut KernelTest<'_>,
    scenario: &Scenario,
    kernel: &Kernel,
    symbols: &Path,
    line: u32,
) -> String {
    let commands = format!(
        "file {}\nhbreak {FILE}:{line}\ncontinue\nframe\ninfo args\nbacktrace\nprint system_state\ndelete\ndetach\n",
        symbols.display()
    );
    test.write("script.gdb", commands);
    test.passes(scenario, kernel, &["--gdb", "script.gdb"]);
    test.read(&format!("{}.log.gdb", kernel.name))
}

/// Returns the functions of a backtrace of gdb: `#1  0xc10a1234 in do_sys_open (dfd=-100, ...) at fs/open.c:1420`.
fn callers(output: &str) -> Vec<&str> {
    let frames = output.lines().filter(|line| line.starts_with('#'));
    frames.filter_map(|frame| frame.split(" (").next()?.split(' ').next_back()).collect()
}

/// Checks that gdb stops at a line of a shrunk kernel, prints arguments and variables, and finds the same callers as in
/// the original.
fn gdb_stops_at_a_line(
    test: &mut KernelTest<'_>,
    kernel: &Kernel,
    scenario: &Scenario,
    plan: &str,
    options: &[&str],
) {
    let line = first_line(&kernel.vmlinux);
    let original = stop(test, scenario, kernel, &kernel.vmlinux, line);
    let plain = test.rewritten(kernel, "plain", plan, options);
    let small = test.rewritten(kernel, "small", plan, &[options, &["--keep-debug"]].concat());
    for column in ["text", "data", "footprint"] {
        assert_eq!(plain.size("after", column), small.size("after", column), "{column}");
    }
    let symbols = small.dir.join("vmlinux.debug");
    let found = stop(test, scenario, &small.kernel, &symbols, line);
    let place = format!("{FILE}:{line}");
    for expected in [&ARGUMENTS[..], &[&place, "$1 = SYSTEM_"]].concat() {
        assert!(original.contains(expected), "no {expected} in the original:\n{original}");
        assert!(found.contains(expected), "no {expected} in\n{found}");
    }
    assert_eq!(callers(&original), callers(&found), "{original}\n{found}");
    has_lines(&small);
}

/// Checks that `kelf where` prints the line of a function's first instruction. (gdb would name the line after it if
/// both have the same address.)
fn has_lines(small: &RewrittenKernel) {
    let symbols = small.dir.join("vmlinux.debug");
    let answer = ask(&symbols, &[&format!("print/x (long) &{FUNCTION}")]);
    let address = answer.trim().split_once(" = ").expect("an address").1;
    let line = Run::new("addr2line").arg("-e").arg(&symbols).arg(address).succeed().text();
    let line = line.trim().rsplit_once('/').expect("a file and a line").1.to_owned();
    let place = format!("{FUNCTION}+0x0");
    let told = Run::kshrink("kelf").arg("where").arg(&small.dir).arg(place).succeed().text();
    assert!(
        line.starts_with("open.c:") && told.contains(&format!("fs/{line})")),
        "{told}, but addr2line: {line}"
    );
}

#[test]
#[ignore = "builds one more kernel"]
fn gdb_stops_at_a_line_of_the_shrunk_kernel() {
    KernelTest::check("gdb_stops_at_a_line_of_the_shrunk_kernel", |test| {
        let kernel = test.kernel("web-i386-debug");
        let scenario = test.web();
        gdb_stops_at_a_line(test, &kernel, &scenario, &busybox_plan(), &[]);
    });
}

#[test]
#[ignore = "builds one more kernel"]
fn gdb_stops_at_a_line_of_the_shrunk_arm_kernel() {
    KernelTest::check("gdb_stops_at_a_line_of_the_shrunk_arm_kernel", |test| {
        let kernel = test.kernel("arm-virt-debug");
        let scenario = test.web_on_arm();
        gdb_stops_at_a_line(test, &kernel, &scenario, &arm::busybox_plan(), &arm::MAKE);
    });
}

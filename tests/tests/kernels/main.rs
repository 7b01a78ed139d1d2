//! Real kernels: built from Debian's source, rewritten, relinked by their own build, booted in QEMU.
//!
//! Tests run in parallel, on one thread for each core. A QEMU machine and a link take one core each. The build of a
//! kernel takes all cores, and a test that needs the same kernel waits for it.

mod again;
mod arm;
mod backtraces;
mod build_dir;
mod census;
mod config;
mod counters;
mod debugger;
mod fields;
mod frozen;
mod html;
mod memory;
mod operations;
mod parameters;
mod patched;
mod paths;
mod x86_64;

use std::fs;
use std::path::Path;

use kshrink_tests::{Chain, Kernel, KernelTest, Run, Scenario, elf, recipe};
use serde_json::Value;

use build_dir::Snapshot;

/// Returns `syscall-scan`'s plan for BusyBox.
fn busybox_plan() -> String {
    Run::kshrink("syscall-scan")
        .arg(recipe("package.sh", &["busybox-static", "i386"]).join("bin/busybox"))
        .succeed()
        .text()
}

/// Makes a build directory of links into another one, with a `vmlinux` of its own: the rewriter follows links, and uses
/// the directory of that file as the build directory.
fn link_build(chain: &mut Chain, build: &Path, copy: &str) {
    let vmlinux = format!("{copy}/vmlinux");
    chain.succeed(Run::new("cp").arg("-as").arg(build).arg(copy));
    chain.succeed(Run::new("rm").arg(&vmlinux));
    chain.succeed(Run::new("cp").arg(build.join("vmlinux")).arg(&vmlinux));
}

/// Number of functions of a kernel that share their address with another function.
fn shared_names(map: &Path) -> usize {
    let map = fs::read_to_string(map).expect("System.map");
    let code = map.lines().filter_map(|line| {
        let (address, rest) = line.split_once(' ')?;
        rest.starts_with(['t', 'T']).then_some(address)
    });
    let code: Vec<&str> = code.collect();
    code.windows(2).filter(|pair| pair[0] == pair[1]).count()
}

#[test]
fn identity_keeps_every_size_and_boots() {
    KernelTest::check("identity_keeps_every_size_and_boots", |test| {
        let kernel = test.kernel("web-i386");
        let same = test.rewritten(&kernel, "same", "", &["--passes", "none"]);
        for column in ["text", "data", "init_text", "init_data", "footprint"] {
            assert_eq!(same.size("before", column), same.size("after", column), "{column}");
        }
        let code = |path: &Path| elf::Contents::of(path).code_bytes;
        assert_eq!(code(&same.kernel.vmlinux), code(&kernel.vmlinux));
        assert!(same.assumptions().is_empty(), "{:?}", same.assumptions());
        let scenario = test.web();
        test.passes(&scenario, &same.kernel, &[]);
    });
}

#[test]
fn the_web_kernel_shrinks_and_still_serves() {
    KernelTest::check("the_web_kernel_shrinks_and_still_serves", |test| {
        let kernel = test.kernel("web-i386");
        let before = Snapshot::of(&kernel.build);
        let scenario = test.web();
        let plan = busybox_plan();
        let small = test.rewritten(&kernel, "small", &plan, &[]);
        test.passes(&scenario, &small.kernel, &[]);
        html::agrees(test, &kernel, &small, &[], "tcp_v4_connect");
        assert!(small.dir.join("System.map").is_file());
        assert!(small.cut("footprint") >= 13.9, "the footprint fell by only {:.2} %", small.cut("footprint"));
        let folded = shared_names(&small.dir.join("System.map"));
        assert!(folded >= 600, "only {folded} functions have the address of another one");
        before.check("kshrink-spec");
        // Constants folded, functions in the place of their only call, all identical code merged, and every kind of edit.
        let passes = "syscalls,reach,fold,icf,initmotion,inline,merge,exercise";
        let edited = test.rewritten(&kernel, "edited", &plan, &["--passes", passes, "--merge", "all"]);
        test.passes(&scenario, &edited.kernel, &[]);
        for name in ["bugs-are-fatal", "plan-is-complete", "init-code-is-done-when-it-is-freed"] {
            assert!(small.assumptions().contains(&name), "no {name} in {:?}", small.assumptions());
        }
    });
}

#[test]
#[ignore = "builds one more kernel"]
fn the_web_kernel_with_a_section_a_variable_shrinks_more() {
    KernelTest::check("the_web_kernel_with_a_section_a_variable_shrinks_more", |test| {
        let (kernel, data) = (test.kernel("web-i386"), test.kernel("web-i386-data"));
        let scenario = test.web();
        let plan = busybox_plan();
        let small = test.rewritten(&kernel, "small", &plan, &[]);
        let smaller = test.rewritten(&data, "data", &plan, &["--make", "KCFLAGS=-fdata-sections"]);
        test.passes(&scenario, &smaller.kernel, &[]);
        let (small, smaller) = (small.size("after", "footprint"), smaller.size("after", "footprint"));
        assert!(smaller < small, "-fdata-sections leaves {smaller} bytes, {small} without");
    });
}

#[test]
#[ignore = "builds one more kernel"]
fn the_web_kernel_of_linux_6_1_shrinks_and_still_serves() {
    KernelTest::check("the_web_kernel_of_linux_6_1_shrinks_and_still_serves", |test| {
        stays_the_same_or_shrinks(test, "web-i386-6.1", 64, 11.0);
    });
}

#[test]
#[ignore = "builds one more kernel"]
fn web_kernel_of_linux_7_2_shrinks_and_serves() {
    KernelTest::check("web_kernel_of_linux_7_2_shrinks_and_serves", |test| {
        stays_the_same_or_shrinks(test, "web-i386-7.2", 0, 15.0);
    });
}

#[test]
#[ignore = "builds one more kernel"]
fn web_kernel_of_clang_shrinks_and_serves() {
    KernelTest::check("web_kernel_of_clang_shrinks_and_serves", |test| {
        stays_the_same_or_shrinks(test, "web-i386-clang19", 0, 14.0);
    });
}

#[test]
#[ignore = "builds one more kernel"]
fn web_kernel_of_gcc_16_shrinks_and_serves() {
    KernelTest::check("web_kernel_of_gcc_16_shrinks_and_serves", |test| {
        stays_the_same_or_shrinks(test, "web-i386-gcc16", 64, 14.0);
    });
}

/// Rewrites a kernel twice, and checks that both results serve. Without passes, only gaps in its data change
/// (docs/i386-kernels.md), by up to `gaps` bytes. For BusyBox, the footprint falls by at least `cut` per cent.
fn stays_the_same_or_shrinks(test: &mut KernelTest<'_>, name: &str, gaps: u64, cut: f64) {
    let kernel = test.kernel(name);
    let scenario = test.web();
    let same = test.rewritten(&kernel, "same", "", &["--passes", "none"]);
    for column in ["text", "init_text", "init_data"] {
        assert_eq!(same.size("before", column), same.size("after", column), "{column}");
    }
    let (before, after) = (same.size("before", "data"), same.size("after", "data"));
    assert!(before.abs_diff(after) <= gaps, "{before} bytes of data, then {after}");
    let code = |path: &Path| elf::Contents::of(path).code_bytes;
    assert_eq!(code(&same.kernel.vmlinux), code(&kernel.vmlinux));
    test.passes(&scenario, &same.kernel, &[]);
    let small = test.rewritten(&kernel, "small", &busybox_plan(), &[]);
    test.passes(&scenario, &small.kernel, &[]);
    assert!(small.cut("footprint") >= cut, "the footprint fell by only {:.2} %", small.cut("footprint"));
}

#[test]
#[ignore = "builds one more kernel"]
fn smp_kernel_with_modules_and_run_time_patching() {
    let name = "smp_kernel_with_modules_and_run_time_patching";
    KernelTest::check(name, |test| modules_and_run_time_patching(test, "websmp-i386"));
}

#[test]
#[ignore = "builds one more kernel"]
fn smp_kernel_of_linux_6_1_with_modules_and_run_time_patching() {
    let name = "smp_kernel_of_linux_6_1_with_modules_and_run_time_patching";
    KernelTest::check(name, |test| modules_and_run_time_patching(test, "websmp-i386-6.1"));
}

fn modules_and_run_time_patching(test: &mut KernelTest<'_>, kernel: &str) {
    let kernel = test.kernel(kernel);
    let scenario = test.smp(&kernel);
    let same = test.rewritten(&kernel, "same", "", &["--passes", "none"]);
    for column in ["text", "data", "init_text", "init_data", "footprint"] {
        assert_eq!(same.size("before", column), same.size("after", column), "{column}");
    }
    test.passes(&scenario, &same.kernel, &[]);
    let small = test.rewritten(&kernel, "small", &busybox_plan(), &[]);
    assert!(small.cut("footprint") > 2.0, "the footprint fell by only {:.2} %", small.cut("footprint"));
    test.passes(&scenario, &small.kernel, &[]);
    let edited = test.rewritten(&kernel, "edited", "", &["--passes", "exercise,instrument"]);
    test.passes(&scenario, &edited.kernel, &[]);
}

#[test]
#[ignore = "builds one more kernel"]
fn smp_kernel_that_exports_what_its_modules_use() {
    let name = "smp_kernel_that_exports_what_its_modules_use";
    KernelTest::check(name, |test| exports_what_modules_use(test, "websmp-i386"));
}

#[test]
#[ignore = "builds one more kernel"]
fn smp_kernel_of_linux_6_1_that_exports_what_its_modules_use() {
    let name = "smp_kernel_of_linux_6_1_that_exports_what_its_modules_use";
    KernelTest::check(name, |test| exports_what_modules_use(test, "websmp-i386-6.1"));
}

/// Only the imports of `dummy.ko` are exported: it is loaded, and another module is refused with the name of a missing
/// symbol.
fn exports_what_modules_use(test: &mut KernelTest<'_>, kernel: &str) {
    let kernel = test.kernel(kernel);
    // As installed, compressed.
    let module = kernel.build.join("drivers/net/dummy.ko");
    test.chain.succeed(Run::new("install").arg("-D").arg(module).arg("lib/modules/kernel/dummy.ko"));
    test.chain.succeed(Run::new("xz").args(["--check=crc32", "lib/modules/kernel/dummy.ko"]));
    let small = test.rewritten(&kernel, "small", &busybox_plan(), &["--modules", "lib/modules"]);
    assert!(small.cut("footprint") >= 10.0, "the footprint fell by only {:.2} %", small.cut("footprint"));
    assert!(small.assumptions().contains(&"names-that-are-looked-up-are-strings"));
    let scenario = test.modules(&kernel);
    test.passes(&scenario, &small.kernel, &[]);
}

#[test]
fn shrunk_kernel_survives_stress() {
    KernelTest::check("shrunk_kernel_survives_stress", |test| {
        let kernel = test.kernel("web-i386");
        let scenario = test.stress();
        let small = test.rewritten(&kernel, "small", "", &["--passes", "reach"]);
        test.passes(&scenario, &small.kernel, &[]);
    });
}

/// Boots a kernel with a trace, and returns a plan (none if it is empty) with its coverage added.
fn coverage(test: &mut KernelTest<'_>, scenario: &Scenario, kernel: &Kernel, plan: &str) -> String {
    let trace = format!("{}.trace", kernel.name);
    test.passes(scenario, kernel, &["--icount", "yes", "--trace", &trace]);
    let run = Run::kshrink("coverage").arg("qemu").arg(&kernel.vmlinux).arg(&trace);
    let run = if plan.is_empty() { run } else { run.stdin(plan) };
    test.chain.succeed(run).text()
}

/// Returns the touched text pages of a kernel, and the minimum for whole functions.
fn pages(vmlinux: &Path, plan: &str) -> (u64, u64) {
    let run = Run::kshrink("reorder").args(["pages", "--json"]).arg(vmlinux).stdin(plan);
    let pages: Value = serde_json::from_slice(&run.succeed().stdout).expect("JSON");
    let number = |name: &str| pages["text"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {pages}"));
    (number("touched"), number("minimum_by_function"))
}

#[test]
fn what_ran_lies_together_and_serves() {
    KernelTest::check("what_ran_lies_together_and_serves", |test| {
        let kernel = test.kernel("web-i386");
        let scenario = test.web();
        let plan = coverage(test, &scenario, &kernel, "");
        let reorder = Run::kshrink("reorder").args(["--granularity", "block", "--vmlinux"]);
        let order = reorder.arg(&kernel.vmlinux).stdin(plan.as_str()).succeed().text();
        let ordered = test.rewritten(&kernel, "ordered", &order, &["--passes", "layout"]).kernel;
        let ran = coverage(test, &scenario, &ordered, "");
        let (touched, _) = pages(&ordered.vmlinux, &ran);
        let (before, minimum) = pages(&kernel.vmlinux, &plan);
        // After one training; `make pages` makes seventeen, under different conditions. Further code runs depending on
        // the timing of requests, and each function that was not seen may cost a page.
        let is_dense = 10 * touched < 9 * minimum && 2 * touched < before;
        assert!(is_dense, "{touched} pages touched, {before} before, {minimum} for whole functions");
    });
}

//! Kernels for x86-64.

use std::collections::BTreeSet;

use kshrink_tests::elf::functions;
use kshrink_tests::{Kernel, KernelTest, Run, Scenario, recipe, unwind_states};

pub(super) fn busybox_plan() -> String {
    let busybox = recipe("package.sh", &["busybox-static", "amd64"]).join("bin/busybox");
    Run::kshrink("syscall-scan").arg(busybox).succeed().text()
}

/// Checks that at most so many thousandths of a kernel's code are opaque.
fn is_mostly_lifted(kernel: &Kernel, most: u64) {
    let summary = Run::kshrink("kcfg").args(["--summary", "--json"]).arg(&kernel.vmlinux).succeed().text();
    let summary: serde_json::Value = serde_json::from_str(&summary).unwrap();
    let bytes = |key: &str| summary[key].as_u64().unwrap_or_else(|| panic!("no {key} in {summary}"));
    let (opaque, lifted) = (bytes("code_chunk_bytes"), bytes("block_bytes"));
    assert!(opaque * 1000 <= (opaque + lifted) * most, "{opaque} bytes of code are opaque beside {lifted}");
}

/// Returns the functions before which the kernel may write: objtool names their room `__pfx_NAME`.
fn functions_with_room(kernel: &Kernel) -> BTreeSet<String> {
    let names = Run::new("nm").arg("--format=just-symbols").arg(&kernel.vmlinux).succeed().text();
    names.lines().filter_map(|name| name.strip_prefix("__pfx_")).map(str::to_owned).collect()
}

/// Rewrites a kernel without a pass, and checks that its sections have their sizes, that every function is unwound as
/// before, and that it boots. Only the gaps between sections change, by up to `gaps` bytes.
fn stays_the_same(test: &mut KernelTest<'_>, kernel: &Kernel, scenario: &Scenario, gaps: u64) {
    let same = test.rewritten(kernel, "same", "", &["--passes", "none"]);
    for column in ["text", "init_text", "data", "init_data"] {
        let (before, after) = (same.size("before", column), same.size("after", column));
        assert!(before.abs_diff(after) <= gaps, "{before} bytes of {column}, then {after}");
    }
    let (before, after) = (unwind_states(&kernel.vmlinux), unwind_states(&same.kernel.vmlinux));
    assert!(before.len() > 10_000, "only {} functions", before.len());
    let changed: Vec<&String> = before
        .iter()
        .filter(|(name, states)| after.get(*name) != Some(states))
        .map(|(name, _)| name)
        .collect();
    assert!(changed.is_empty(), "unwound in another way: {changed:?}");
    test.passes(scenario, &same.kernel, &[]);
}

/// Boots a kernel without a program to run, and returns the functions of the backtrace that it prints, from the innermost
/// one on. The frozen part of a function has the function's name.
fn panic(test: &mut KernelTest<'_>, scenario: &Scenario, kernel: &Kernel) -> Vec<String> {
    test.complains(scenario, kernel, &["--append", "rdinit=/none", "--timeout", "60"]);
    let functions = functions(&kernel.vmlinux);
    let console = test.console(kernel);
    let trace = console.split_once("Call Trace:").and_then(|(_, trace)| trace.split_once("</TASK>"));
    let (trace, _) = trace.unwrap_or_else(|| panic!("no backtrace:\n{console}"));
    // Other addresses on the stack are marked.
    let addresses =
        trace.lines().filter_map(|line| u64::from_str_radix(line.trim().strip_prefix("0x")?, 16).ok());
    let name = |address: u64| {
        let (_, name) = functions.range(..address).next_back().expect("a function");
        name.trim_end_matches(".frozen").to_owned()
    };
    addresses.map(name).collect()
}

#[test]
#[ignore = "builds one more kernel"]
fn the_64_bit_kernel_stays_the_same_or_shrinks_and_serves() {
    shrinks_and_serves("the_64_bit_kernel_stays_the_same_or_shrinks_and_serves", "web-x86_64", 67.0, 10);
}

/// Its warnings carry their texts, and its startup code has names of its own.
#[test]
#[ignore = "builds one more kernel"]
fn the_64_bit_kernel_of_linux_7_2_stays_the_same_or_shrinks_and_serves() {
    let name = "the_64_bit_kernel_of_linux_7_2_stays_the_same_or_shrinks_and_serves";
    // More of it is hand-written: hashes.
    shrinks_and_serves(name, "web-x86_64-7.2", 45.0, 16);
}

/// With packed segments and unwind tables, the footprint falls by more than `least_cut` per cent.
/// At most `opaque` thousandths of the code are opaque.
fn shrinks_and_serves(name: &str, kernel: &str, least_cut: f64, opaque: u64) {
    KernelTest::check(name, |test| {
        let kernel = test.kernel(kernel);
        let scenario = test.web_on_x86_64();
        is_mostly_lifted(&kernel, opaque);
        stays_the_same(test, &kernel, &scenario, 512);
        let small = test.rewritten(&kernel, "small", &busybox_plan(), &[]);
        test.passes(&scenario, &small.kernel, &[]);
        let options = ["--pack-segments", "--pack-unwind"];
        let packed = test.rewritten(&kernel, "packed", &busybox_plan(), &options);
        test.passes(&scenario, &packed.kernel, &[]);
        assert!(
            packed.cut("footprint") > least_cut,
            "the footprint fell by only {:.2} %",
            packed.cut("footprint")
        );
        let backtrace = panic(test, &scenario, &kernel);
        assert!(backtrace.contains(&"kernel_init".to_owned()), "{backtrace:?}");
        assert_eq!(panic(test, &scenario, &packed.kernel), backtrace);
    });
}

#[test]
#[ignore = "builds one more kernel"]
fn the_64_bit_kernel_serves_with_everything_frozen() {
    serves_with_everything_frozen("the_64_bit_kernel_serves_with_everything_frozen", "web-x86_64", 75.0);
}

#[test]
#[ignore = "builds one more kernel"]
fn the_64_bit_kernel_of_linux_7_2_serves_with_everything_frozen() {
    let name = "the_64_bit_kernel_of_linux_7_2_serves_with_everything_frozen";
    // Its linker script makes fewer gaps.
    serves_with_everything_frozen(name, "web-x86_64-7.2", 50.0);
}

/// Everything that may freeze is frozen, and thaws by page faults in the area of modules. The footprint falls by more than
/// `least_cut` per cent.
fn serves_with_everything_frozen(name: &str, kernel: &str, least_cut: f64) {
    KernelTest::check(name, |test| {
        let kernel = test.kernel(kernel);
        let scenario = test.frozen_on_x86_64();
        let run = Run::kshrink("frozen-pack").args(["plan", "--everything"]).arg(&kernel.vmlinux);
        let plan = test.chain.succeed(run.stdin(busybox_plan())).text();
        let frozen = test.rewritten(&kernel, "frozen", &plan, &["--pack-segments"]);
        test.passes(&scenario, &frozen.kernel, &[]);
        let console = test.console(&frozen.kernel);
        assert!(console.contains("kshrink: frozen_text_pages"), "{console}");
        assert!(
            frozen.cut("footprint") > least_cut,
            "the footprint fell by only {:.2} %",
            frozen.cut("footprint")
        );
        let backtrace = panic(test, &scenario, &kernel);
        assert_eq!(panic(test, &scenario, &frozen.kernel), backtrace);
    });
}

/// A kernel for one command line and one trace, with the rest frozen, on a PC and on the machine of a micro-VM.
#[test]
#[ignore = "builds one more kernel"]
fn the_64_bit_kernel_for_a_command_line_and_a_trace_serves() {
    KernelTest::check("the_64_bit_kernel_for_a_command_line_and_a_trace_serves", |test| {
        let kernel = test.kernel("web-x86_64");
        let scenario = test.frozen_on_x86_64();
        let micro_vm = test.micro_vm();
        let vmlinux = kernel.vmlinux.display().to_string();
        test.passes(&scenario, &kernel, &["--trace", "trace", "--data", &vmlinux]);
        let coverage = |test: &mut KernelTest<'_>, options: &[&str], plan: &str| {
            let run =
                Run::kshrink("coverage").args(["qemu", "--data"]).args(options).args([&*vmlinux, "trace"]);
            test.chain.succeed(run.stdin(plan)).text()
        };
        let later = coverage(test, &["--after-boot"], "{\"schema\": \"kshrink/1\"}");
        test.write("later.json", later);
        // The micro-VM has no keyboard controller; `reboot=t` resets it by a triple fault.
        let line = "console=ttyS0 panic=-1 reboot=t";
        let run = Run::kshrink("cmdline-spec").args([&*vmlinux, "--cmdline", line]);
        let plan = test.chain.succeed(run.stdin(busybox_plan())).text();
        let plan = coverage(test, &[], &plan);
        let small = test.rewritten(&kernel, "small", &plan, &["--pack-segments", "--merge", "cold"]);
        test.passes(&scenario, &small.kernel, &[]);
        let run = Run::kshrink("frozen-pack").args(["plan", &vmlinux, "--after-boot", "later.json"]);
        let plan = test.chain.succeed(run.stdin(&*plan)).text();
        let frozen = test.rewritten(&kernel, "frozen", &plan, &["--pack-segments", "--merge", "cold"]);
        test.passes(&scenario, &frozen.kernel, &[]);
        test.passes(&micro_vm, &frozen.kernel, &[]);
        // The original is more than half space between sections.
        let cuts = [small.cut("footprint"), frozen.cut("footprint")];
        assert!(cuts[0] > 62.0 && cuts[1] > 69.0, "the footprint fell by only {cuts:.2?} %");
    });
}

/// Indirect branch tracking, thunks for returns and branches, space before functions, modules and the function tracer.
#[test]
#[ignore = "builds one more kernel"]
fn the_64_bit_kernel_with_mitigations_stays_the_same_or_shrinks() {
    KernelTest::check("the_64_bit_kernel_with_mitigations_stays_the_same_or_shrinks", |test| {
        let kernel = test.kernel("websmp-x86_64");
        let scenario = test.smp_on_x86_64(&kernel);
        is_mostly_lifted(&kernel, 10);
        stays_the_same(test, &kernel, &scenario, 4096);
        let small = test.rewritten(&kernel, "small", &busybox_plan(), &["--pack-segments"]);
        test.passes(&scenario, &small.kernel, &[]);
        // Text fills the large page of entry text, and each function keeps its room for call thunks.
        assert!(small.size("after", "text") + (2 << 20) <= small.size("before", "text"));
        let (before, after) = (functions_with_room(&kernel), functions_with_room(&small.kernel));
        assert!(before.len() > 10_000, "only {} functions", before.len());
        let names = Run::new("nm").arg("--format=just-symbols").arg(&small.kernel.vmlinux).succeed().text();
        let lost: Vec<&str> =
            names.lines().filter(|name| before.contains(*name) && !after.contains(*name)).collect();
        assert!(lost.is_empty(), "without room: {lost:?}");
        // The function tracer needs states of copied code.
        let packed = test.rewritten(&kernel, "packed", "", &["--passes", "none", "--pack-unwind"]);
        test.passes(&scenario, &packed.kernel, &[]);
        let scenario = test.crash_on_x86_64(&kernel);
        let [before, after] = [&kernel, &packed.kernel].map(|kernel| {
            test.complains(&scenario, kernel, &[]);
            oops(&test.console(kernel))
        });
        assert!(before.iter().any(|frame| frame.starts_with("ksys_write+0x")), "{before:?}");
        assert_eq!(before, after);
    });
}

/// The frames of the backtrace of an oops, each a function with the place in it.
fn oops(console: &str) -> Vec<String> {
    let trace = console.split_once("about oops").and_then(|(_, about)| about.split_once("Call Trace:"));
    let trace = trace.and_then(|(_, trace)| trace.split_once("</TASK>"));
    let (trace, _) = trace.unwrap_or_else(|| panic!("no backtrace:\n{console}"));
    let frames = trace.lines().map(str::trim).filter(|line| line.contains("+0x") && !line.starts_with('?'));
    frames.map(str::to_owned).collect()
}

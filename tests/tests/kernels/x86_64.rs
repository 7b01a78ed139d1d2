//! Kernels for x86-64.

use kshrink_tests::{Kernel, KernelTest, Run, Scenario, recipe, unwind_states};

pub(super) fn busybox_plan() -> String {
    let busybox = recipe("package.sh", &["busybox-static", "amd64"]).join("bin/busybox");
    Run::kshrink("syscall-scan").arg(busybox).succeed().text()
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

#[test]
#[ignore = "builds one more kernel"]
fn the_64_bit_kernel_stays_the_same_or_shrinks_and_serves() {
    shrinks_and_serves("the_64_bit_kernel_stays_the_same_or_shrinks_and_serves", "web-x86_64");
}

/// Its warnings carry their texts, and its startup code has names of its own.
#[test]
#[ignore = "builds one more kernel"]
fn the_64_bit_kernel_of_linux_7_2_stays_the_same_or_shrinks_and_serves() {
    let name = "the_64_bit_kernel_of_linux_7_2_stays_the_same_or_shrinks_and_serves";
    shrinks_and_serves(name, "web-x86_64-7.2");
}

fn shrinks_and_serves(name: &str, kernel: &str) {
    KernelTest::check(name, |test| {
        let kernel = test.kernel(kernel);
        let scenario = test.web_on_x86_64();
        stays_the_same(test, &kernel, &scenario, 512);
        let small = test.rewritten(&kernel, "small", &busybox_plan(), &[]);
        test.passes(&scenario, &small.kernel, &[]);
    });
}

#[test]
#[ignore = "builds one more kernel"]
fn the_64_bit_kernel_serves_with_everything_frozen() {
    serves_with_everything_frozen("the_64_bit_kernel_serves_with_everything_frozen", "web-x86_64", 70.0);
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
    });
}

/// Indirect branch tracking, thunks for returns and branches, space before functions, modules and the function tracer.
#[test]
#[ignore = "builds one more kernel"]
fn the_64_bit_kernel_with_mitigations_stays_the_same_or_shrinks() {
    KernelTest::check("the_64_bit_kernel_with_mitigations_stays_the_same_or_shrinks", |test| {
        let kernel = test.kernel("websmp-x86_64");
        let scenario = test.smp_on_x86_64(&kernel);
        stays_the_same(test, &kernel, &scenario, 4096);
        let small = test.rewritten(&kernel, "small", &busybox_plan(), &[]);
        test.passes(&scenario, &small.kernel, &[]);
    });
}

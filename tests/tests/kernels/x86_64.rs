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
    KernelTest::check("the_64_bit_kernel_stays_the_same_or_shrinks_and_serves", |test| {
        let kernel = test.kernel("web-x86_64");
        let scenario = test.web_on_x86_64();
        stays_the_same(test, &kernel, &scenario, 512);
        let small = test.rewritten(&kernel, "small", &busybox_plan(), &[]);
        test.passes(&scenario, &small.kernel, &[]);
    });
}

/// Everything that may freeze is frozen, and thaws by page faults in the area of modules.
#[test]
#[ignore = "builds one more kernel"]
fn the_64_bit_kernel_serves_with_everything_frozen() {
    KernelTest::check("the_64_bit_kernel_serves_with_everything_frozen", |test| {
        let kernel = test.kernel("web-x86_64");
        let scenario = test.frozen_on_x86_64();
        let run = Run::kshrink("frozen-pack").args(["plan", "--everything"]).arg(&kernel.vmlinux);
        let plan = test.chain.succeed(run.stdin(busybox_plan())).text();
        let frozen = test.rewritten(&kernel, "frozen", &plan, &["--pack-segments"]);
        test.passes(&scenario, &frozen.kernel, &[]);
        let console = test.console(&frozen.kernel);
        assert!(console.contains("kshrink: frozen_text_pages"), "{console}");
        assert!(
            frozen.cut("footprint") > 70.0,
            "the footprint fell by only {:.2} %",
            frozen.cut("footprint")
        );
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
        stays_the_same(test, &kernel, &scenario, 4096);
        let small = test.rewritten(&kernel, "small", &busybox_plan(), &[]);
        test.passes(&scenario, &small.kernel, &[]);
    });
}

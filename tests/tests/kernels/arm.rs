//! Kernels for 32-bit ARM.

use kshrink_tests::{Kernel, KernelTest, RewrittenKernel, Run, Scenario, recipe};

use super::coverage;
use super::frozen::{PLAN_LIMIT, number};

/// The variables that the build was made with.
pub(super) const MAKE: [&str; 2] = ["--make", "CROSS_COMPILE=arm-linux-gnueabihf-"];

#[test]
#[ignore = "builds one more kernel"]
fn the_thumb_kernel_stays_the_same_or_shrinks_and_serves() {
    KernelTest::check("the_thumb_kernel_stays_the_same_or_shrinks_and_serves", |test| {
        stays_the_same_or_shrinks(test, "arm-virt", 17.0);
    });
}

#[test]
#[ignore = "builds one more kernel"]
fn the_arm_kernel_stays_the_same_or_shrinks_and_serves() {
    KernelTest::check("the_arm_kernel_stays_the_same_or_shrinks_and_serves", |test| {
        stays_the_same_or_shrinks(test, "arm-virt-arm", 17.0);
    });
}

#[test]
#[ignore = "builds one more kernel"]
fn arm_kernel_of_linux_7_2_shrinks_and_serves() {
    KernelTest::check("arm_kernel_of_linux_7_2_shrinks_and_serves", |test| {
        stays_the_same_or_shrinks(test, "arm-virt-7.2", 15.0);
    });
}

/// Frame pointers instead of unwind tables.
#[test]
#[ignore = "builds one more kernel"]
fn the_kernel_with_frame_pointers_stays_the_same_or_shrinks_and_serves() {
    KernelTest::check("the_kernel_with_frame_pointers_stays_the_same_or_shrinks_and_serves", |test| {
        stays_the_same_or_shrinks(test, "arm-virt-frames", 16.0);
    });
}

/// `cut` is the minimum reduction of the footprint in per cent.
fn stays_the_same_or_shrinks(test: &mut KernelTest<'_>, name: &str, cut: f64) {
    let kernel = test.kernel(name);
    let scenario = test.web_on_arm();
    stays_the_same(test, &kernel, &scenario);

    let plan = busybox_plan();
    let small = test.rewritten(&kernel, "small", &plan, &MAKE);
    assert!(small.cut("footprint") >= cut, "the footprint fell by only {:.2} %", small.cut("footprint"));
    test.passes(&scenario, &small.kernel, &[]);
}

/// Checks that a kernel rewritten without a pass has the same sizes, and boots.
fn stays_the_same(test: &mut KernelTest<'_>, kernel: &Kernel, scenario: &Scenario) {
    let same = test.rewritten(kernel, "same", "", &[&["--passes", "none"], &MAKE[..]].concat());
    // Members of libraries move, with other gaps between them (docs/i386-kernels.md).
    let (before, after) = (same.size("before", "text"), same.size("after", "text"));
    assert!(before.abs_diff(after) <= 64, "{before} bytes of text, then {after}");
    for column in ["data", "init_text", "init_data"] {
        assert_eq!(same.size("before", column), same.size("after", column), "{column}");
    }
    test.passes(scenario, &same.kernel, &[]);
}

/// Returns `syscall-scan`'s plan for BusyBox.
pub(super) fn busybox_plan() -> String {
    let busybox = recipe("package.sh", &["busybox-static", "armhf"]).join("bin/busybox");
    Run::kshrink("syscall-scan").arg(busybox).succeed().text()
}

#[test]
fn a_thumb_kernel_refuses_what_no_program_asks_for() {
    KernelTest::check("a_thumb_kernel_refuses_what_no_program_asks_for", |test| {
        let kernel = test.kernel("arm-virt-smp");
        let small = test.rewritten(&kernel, "small", &busybox_plan(), &MAKE);
        assert!(small.assumptions().contains(&"operations-are-listed"), "{:?}", small.assumptions());
        let scenario = test.operations_on_arm();
        test.passes(&scenario, &small.kernel, &[]);
        // The original supports all operations.
        test.complains(&scenario, &kernel, &[]);
        let console = test.console(&kernel);
        assert!(console.contains("FAILED  prctl") && console.contains("FAILED  ioprio"), "{console}");
    });
}

/// Applies every pass that supports ARM code, with a trace, to one kernel for one command line, except `layout`: a
/// conditional branch of hand-written code could then have to reach more than 1 MiB, which the link reports.
#[test]
fn the_thumb_kernel_goes_through_all_passes_and_serves() {
    KernelTest::check("the_thumb_kernel_goes_through_all_passes_and_serves", |test| {
        let kernel = test.kernel("arm-virt-smp");
        let passes = "syscalls,sysargs,params,keys,reach,fold,icf,initmotion,merge,exercise";
        let all = through_passes(test, &kernel, passes);
        let scenario = test.processors_on_arm(&kernel);
        test.passes(&scenario, &all.kernel, &[]);
    });
}

/// The same in the order of the trace, in a kernel that is small enough for it.
#[test]
#[ignore = "builds one more kernel"]
fn the_thumb_kernel_goes_through_all_passes_in_another_order() {
    KernelTest::check("the_thumb_kernel_goes_through_all_passes_in_another_order", |test| {
        let kernel = test.kernel("arm-virt");
        let passes = "syscalls,sysargs,params,keys,reach,fold,icf,initmotion,merge,exercise,layout";
        let all = through_passes(test, &kernel, passes);
        let scenario = test.web_on_arm();
        test.passes(&scenario, &all.kernel, &[]);
    });
}

/// Makes a kernel for BusyBox, one command line, and the code that runs in the web scenario.
fn through_passes(test: &mut KernelTest<'_>, kernel: &Kernel, passes: &str) -> RewrittenKernel {
    let scenario = test.web_on_arm();
    let line = ["--cmdline", "console=ttyAMA0 panic=-1"];
    let run = Run::kshrink("cmdline-spec").arg(&kernel.vmlinux).args(line);
    let plan = run.stdin(busybox_plan().as_str()).succeed().text();
    let plan = coverage(test, &scenario, kernel, &plan);
    let reorder = Run::kshrink("reorder").args(["--granularity", "block", "--vmlinux"]);
    let plan = reorder.arg(&kernel.vmlinux).stdin(plan.as_str()).succeed().text();
    test.rewritten(kernel, "all", &plan, &[&["--passes", passes], &MAKE[..]].concat())
}

/// All frozen code is thawed, even before the kernel has vectors, page tables and memory of its own.
#[test]
#[ignore = "builds one more kernel"]
fn all_that_may_freeze_thaws_on_arm() {
    KernelTest::check("all_that_may_freeze_thaws_on_arm", |test| {
        let kernel = test.kernel("arm-virt");
        let scenario = test.frozen_on_arm();
        let frozen = everything(test, &kernel, "page");
        let code = frozen.report["frozen"]["code"].as_u64().expect("a number");
        assert!(code > 1_200_000, "only {code} bytes of code are frozen");
        test.passes(&scenario, &frozen.kernel, &[]);
        let console = test.console(&frozen.kernel);
        let thawed = number(&console, "kshrink", "thawed");
        let told: Vec<&str> =
            console.lines().filter(|line| line.starts_with("kshrink: ") && line.contains(" bf")).collect();
        // Pages that thaw before permanent memory exists are counted, but not listed.
        assert!(told.len() as u64 <= thawed && told.len() > 300, "{} of {thawed} are listed", told.len());
        let before_the_clock = told.iter().filter(|line| line.starts_with("kshrink: 0 0 bf")).count();
        assert!(
            before_the_clock > 20,
            "only {before_the_clock} of {thawed} pages thawed before there was a clock"
        );
        assert!(number(&console, "kshrink", "refrozen") > 0);
    });
}

/// With mechanism `stub`, all frozen code is thawed, in Thumb-2 code.
#[test]
#[ignore = "builds one more kernel"]
fn stub_all_that_may_freeze_thaws_on_arm() {
    KernelTest::check("stub_all_that_may_freeze_thaws_on_arm", |test| {
        stub_all_thaws(test, "arm-virt", 1_100_000);
    });
}

/// The same in ARM code.
#[test]
#[ignore = "builds one more kernel"]
fn stub_all_that_may_freeze_thaws_in_arm_code() {
    KernelTest::check("stub_all_that_may_freeze_thaws_in_arm_code", |test| {
        stub_all_thaws(test, "arm-virt-arm", 1_700_000);
    });
}

/// Checks that a kernel with everything frozen by stub, at least `least` bytes, passes the scenario.
fn stub_all_thaws(test: &mut KernelTest<'_>, name: &str, least: u64) {
    let kernel = test.kernel(name);
    let scenario = test.frozen_on_arm();
    let frozen = everything(test, &kernel, "stub");
    let code = frozen.report["frozen"]["code"].as_u64().expect("a number");
    assert!(code > least, "only {code} bytes of code are frozen");
    test.passes(&scenario, &frozen.kernel, &[]);
    let console = test.console(&frozen.kernel);
    let (thawed, regions) =
        (number(&console, "kshrink", "thawed"), number(&console, "kshrink", "frozen_regions"));
    assert!(1000 < thawed && regions > 4000, "{thawed} of {regions} regions thawed");
}

/// A kernel with everything merged and frozen behaves under stress-ng like the original, which also fails in parts of
/// it.
#[test]
#[ignore = "takes six minutes"]
fn everything_frozen_does_under_stress_what_the_original_does() {
    KernelTest::check("everything_frozen_does_under_stress_what_the_original_does", |test| {
        let kernel = test.kernel("arm-virt");
        let scenario = test.stress_on_arm();
        let plan = everything_for_all_programs(test, &kernel);
        let passes = ["--passes", "reach,fold,icf,initmotion,merge,freeze", "--merge", "all"];
        let frozen = test.rewritten(&kernel, "frozen", &plan, &[&passes[..], &MAKE[..]].concat());
        assert_eq!(test.results(&scenario, &frozen.kernel), test.results(&scenario, &kernel));
    });
}

/// Returns a plan that freezes everything and keeps all system calls.
pub(super) fn everything_for_all_programs(test: &mut KernelTest<'_>, kernel: &Kernel) -> String {
    let run = Run::kshrink("frozen-pack").arg("plan").arg("--everything").arg(&kernel.vmlinux);
    test.chain.succeed(run.limit(PLAN_LIMIT).stdin("{\"schema\": \"kshrink/1\"}")).text()
}

/// Makes a kernel with everything frozen that a mechanism can freeze.
fn everything(test: &mut KernelTest<'_>, kernel: &Kernel, mechanism: &str) -> RewrittenKernel {
    let plan = everything_plan(test, kernel, mechanism);
    let passes = ["--passes", "syscalls,reach,freeze"];
    test.rewritten(kernel, "everything", &plan, &[&passes[..], &MAKE[..]].concat())
}

/// Returns the plan for [`everything`].
pub(super) fn everything_plan(test: &mut KernelTest<'_>, kernel: &Kernel, mechanism: &str) -> String {
    let run = Run::kshrink("frozen-pack").arg("plan").arg(&kernel.vmlinux);
    let run = run.args(["--everything", "--mechanism", mechanism]).limit(PLAN_LIMIT);
    test.chain.succeed(run.stdin(busybox_plan().as_str())).text()
}

/// The same on two processors, one of which is taken offline and online again, with a module that calls frozen code.
#[test]
fn everything_frozen_on_two_processors_of_arm() {
    KernelTest::check("everything_frozen_on_two_processors_of_arm", |test| {
        everything_runs_on_two_processors(test, "arm-virt-smp", "page");
    });
}

/// The same with long descriptors, whose processes get the page tables of frozen code only when they need them.
#[test]
#[ignore = "builds one more kernel"]
fn everything_frozen_with_large_physical_addresses() {
    KernelTest::check("everything_frozen_with_large_physical_addresses", |test| {
        everything_runs_on_two_processors(test, "arm-virt-smp-lpae", "page");
    });
}

/// The same with mechanism `stub`.
#[test]
#[ignore = "builds one more kernel"]
fn stub_everything_frozen_with_large_physical_addresses() {
    KernelTest::check("stub_everything_frozen_with_large_physical_addresses", |test| {
        everything_runs_on_two_processors(test, "arm-virt-smp-lpae", "stub");
    });
}

/// The same with mechanism `stub`.
#[test]
fn stub_everything_frozen_on_two_processors_of_arm() {
    KernelTest::check("stub_everything_frozen_on_two_processors_of_arm", |test| {
        everything_runs_on_two_processors(test, "arm-virt-smp", "stub");
    });
}

/// Checks that a kernel with everything frozen passes the scenario with two processors and a module.
fn everything_runs_on_two_processors(test: &mut KernelTest<'_>, name: &str, mechanism: &str) {
    let kernel = test.kernel(name);
    let scenario = test.processors_on_arm(&kernel);
    let frozen = everything(test, &kernel, mechanism);
    test.passes(&scenario, &frozen.kernel, &[]);
}

/// Two processors, code that is patched for one processor or by static keys, and a module.
#[test]
fn smp_kernel_for_arm_with_modules() {
    KernelTest::check("smp_kernel_for_arm_with_modules", |test| {
        let kernel = test.kernel("arm-virt-smp");
        let scenario = test.processors_on_arm(&kernel);
        stays_the_same(test, &kernel, &scenario);
        let module = kernel.build.join("drivers/net/dummy.ko");
        test.chain.succeed(Run::new("install").arg("-D").arg(module).arg("lib/modules/kernel/dummy.ko"));
        let arguments = [&["--modules", "lib/modules"], &MAKE[..]].concat();
        let small = test.rewritten(&kernel, "small", &busybox_plan(), &arguments);
        assert!(small.cut("footprint") >= 10.0, "the footprint fell by only {:.2} %", small.cut("footprint"));
        test.passes(&scenario, &small.kernel, &[]);
        let arguments = [&["--modules", "none"], &MAKE[..]].concat();
        let bare = test.rewritten(&kernel, "bare", &busybox_plan(), &arguments);
        assert!(bare.cut("footprint") > small.cut("footprint"));
        let scenario = test.frozen_on_arm();
        test.passes(&scenario, &bare.kernel, &[]);
    });
}

/// The linker removes whole functions and variables; kshrink removes more in addition.
#[test]
#[ignore = "builds one more kernel"]
fn the_kernel_without_what_the_linker_removes_shrinks_and_serves() {
    KernelTest::check("the_kernel_without_what_the_linker_removes_shrinks_and_serves", |test| {
        let kernel = test.kernel("arm-virt-gc");
        let scenario = test.web_on_arm();
        let small = test.rewritten(&kernel, "small", &busybox_plan(), &MAKE);
        assert!(small.cut("footprint") >= 8.0, "the footprint fell by only {:.2} %", small.cut("footprint"));
        test.passes(&scenario, &small.kernel, &[]);
    });
}

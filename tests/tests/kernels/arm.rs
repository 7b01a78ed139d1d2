//! Kernels for 32-bit ARM.

use kshrink_tests::{KernelTest, Run, recipe};

/// What the build was made with.
const MAKE: [&str; 2] = ["--make", "CROSS_COMPILE=arm-linux-gnueabihf-"];

#[test]
fn the_thumb_kernel_stays_the_same_or_shrinks_and_serves() {
    KernelTest::check("the_thumb_kernel_stays_the_same_or_shrinks_and_serves", |test| {
        stays_the_same_or_shrinks(test, "arm-virt", 11.0);
    });
}

#[test]
#[ignore = "builds one more kernel"]
fn the_arm_kernel_stays_the_same_or_shrinks_and_serves() {
    KernelTest::check("the_arm_kernel_stays_the_same_or_shrinks_and_serves", |test| {
        stays_the_same_or_shrinks(test, "arm-virt-arm", 9.0);
    });
}

/// `cut` is by how many per cent the footprint has to fall at least.
fn stays_the_same_or_shrinks(test: &mut KernelTest<'_>, name: &str, cut: f64) {
    let kernel = test.kernel(name);
    let scenario = test.web_on_arm();
    let same = test.rewritten(&kernel, "same", "", &[&["--passes", "none"], &MAKE[..]].concat());
    // Members of libraries come to lie elsewhere, with other gaps between them (docs/kernels.md).
    let (before, after) = (same.size("before", "text"), same.size("after", "text"));
    assert!(before.abs_diff(after) <= 64, "{before} bytes of text, then {after}");
    for column in ["data", "init_text", "init_data"] {
        assert_eq!(same.size("before", column), same.size("after", column), "{column}");
    }
    test.passes(&scenario, &same.kernel, &[]);

    let busybox = recipe("package.sh", &["busybox-static", "armhf"]).join("bin/busybox");
    let plan = Run::kshrink("syscall-scan").arg(busybox).succeed().text();
    // The scan of ARM programs may say that it is incomplete (docs/scan.md).
    let small = test.rewritten(&kernel, "small", &plan, &[&["--assume-complete"], &MAKE[..]].concat());
    assert!(small.cut("footprint") >= cut, "the footprint fell by only {:.2} %", small.cut("footprint"));
    test.passes(&scenario, &small.kernel, &[]);
}

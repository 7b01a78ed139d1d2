//! Kernels without the operations of system calls that no program requests.

use kshrink_tests::KernelTest;

use crate::busybox_plan;

#[test]
fn a_kernel_refuses_what_no_program_asks_for() {
    KernelTest::check("a_kernel_refuses_what_no_program_asks_for", |test| {
        let kernel = test.kernel("web-i386");
        let plan = busybox_plan();
        let small = test.rewritten(&kernel, "small", &plan, &[]);
        for name in ["operations-are-listed", "handlers-get-registers"] {
            assert!(small.assumptions().contains(&name), "no {name} in {:?}", small.assumptions());
        }
        let scenario = test.web();
        test.passes(&scenario, &small.kernel, &[]);
        let scenario = test.operations();
        test.passes(&scenario, &small.kernel, &[]);
        // The original supports all operations.
        test.complains(&scenario, &kernel, &[]);
        let console = test.console(&kernel);
        assert!(console.contains("FAILED  prctl") && console.contains("FAILED  ipc"), "{console}");
    });
}

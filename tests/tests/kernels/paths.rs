//! Paths that are copied for known inputs (`--specialize`).

use kshrink_tests::{Kernel, KernelTest, Run, Scenario, fixture};

/// Number of datagrams whose instructions are counted.
const COUNT: &str = "datagrams.count=1000 datagrams.way=send:64";
/// Minimum number of executions of the instructions on the path.
const LEAST: &str = "900";

/// A send of a datagram takes the path, and everything that makes a fact about it false leads to the original code.
#[test]
fn datagrams_take_their_path_or_the_original_one() {
    KernelTest::check("datagrams_take_their_path_or_the_original_one", |test| {
        let kernel = test.kernel("web-i386");
        let scenario = test.datagrams();
        let vmlinux = kernel.vmlinux.to_str().expect("UTF-8");
        let before = instructions(test, &scenario, &kernel, &["--trace", "trace", "--data", vmlinux]);
        let run = Run::kshrink("coverage").args(["qemu", "--after-boot", "--least", LEAST, vmlinux, "trace"]);
        let hot = test.chain.succeed(run).text();
        let paths = fixture("scenarios/datagrams/paths.json");
        let paths = paths.to_str().expect("UTF-8");
        let copied =
            test.rewritten(&kernel, "copied", &hot, &["--passes", "specialize", "--specialize", paths]);
        let after = instructions(test, &scenario, &copied.kernel, &[]);
        assert!(after * 10 <= before * 9, "a send takes {after} instructions, {before} before");
        test.passes(&scenario, &copied.kernel, &[]);
        for name in ["stable-facts-are-stable", "loads-on-paths-have-no-effect"] {
            assert!(copied.assumptions().contains(&name), "no {name} in {:?}", copied.assumptions());
        }
    });
}

/// Returns the number of instructions of the cheapest send.
fn instructions(test: &mut KernelTest<'_>, scenario: &Scenario, kernel: &Kernel, options: &[&str]) -> u64 {
    test.passes(scenario, kernel, &[&["--icount", "yes", "--append", COUNT], options].concat());
    let console = test.console(kernel);
    let send = console.lines().find_map(|line| line.strip_prefix("datagrams: send 64 "));
    send.and_then(|count| count.parse().ok()).expect("a number of instructions")
}

//! Backtraces of rewritten kernels, in terms of the original code.

use std::fs;
use std::path::Path;

use kshrink_tests::{Kernel, KernelTest, Run, Scenario};

use crate::{arm, busybox_plan};

/// The words that prevent a kernel from starting init: it panics, and prints a backtrace.
const NO_INIT: &[&str] = &["--append", "rdinit=/none"];

/// Minimum number of frames of such a backtrace.
const LEAST_FRAMES: usize = 5;

/// The symbols of code in a System.map, by rising address.
fn symbols(map: &Path) -> Vec<(u64, String)> {
    let map = fs::read_to_string(map).expect("System.map");
    let code = map.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let is_code = words.next()?.eq_ignore_ascii_case("t");
        Some((address, words.next()?.to_owned())).filter(|_| is_code)
    });
    code.collect()
}

/// The frames of the backtrace on a console: `name+0x1a`.
fn frames(console: &str, symbols: &[(u64, String)]) -> Vec<String> {
    let lines = console.lines().skip_while(|line| !line.to_lowercase().starts_with("call trace:")).skip(1);
    let words = lines.take_while(|line| line.starts_with(' ')).flat_map(|line| line.split([' ', '(']));
    let frame = |word: &str| match word.split_once("+0x") {
        Some(_) => word.split('/').next().map(str::to_owned),
        None => {
            let address = u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()?;
            let after = symbols.partition_point(|(start, _)| *start <= address);
            let (start, name) = symbols.get(after.checked_sub(1)?)?;
            // The start of a function is an address on the stack that is not a return address.
            (*start < address).then(|| format!("{name}+{:#x}", address - start))
        }
    };
    words.filter_map(frame).collect()
}

/// Checks that the backtrace of a panic of a rewritten kernel leads through the functions of the original, at the same
/// offsets.
fn leads_through_the_original(
    test: &mut KernelTest<'_>,
    kernel: &Kernel,
    scenario: &Scenario,
    plan: &str,
    options: &[&str],
) {
    let rewritten = test.rewritten(kernel, "merged", plan, options);
    test.complains(scenario, kernel, NO_INIT);
    let expected = frames(&test.console(kernel), &symbols(&kernel.build.join("System.map")));
    assert!(expected.len() >= LEAST_FRAMES, "{expected:?} in {}", test.console(kernel));
    test.complains(scenario, &rewritten.kernel, NO_INIT);
    let console = test.console(&rewritten.kernel);
    let run = Run::kshrink("kelf").arg("symbolize").arg(&rewritten.dir).stdin(console.clone());
    let symbolized = run.succeed().text();
    let found = frames(&symbolized, &[]);
    let mut rest = found.iter();
    for frame in expected {
        assert!(rest.any(|one| *one == frame), "no {frame} in {found:?}\n{console}");
    }
}

#[test]
fn backtraces_lead_through_the_original() {
    KernelTest::check("backtraces_lead_through_the_original", |test| {
        let kernel = test.kernel("web-i386");
        let scenario = test.web();
        let options = ["--passes", "syscalls,reach,fold,icf,initmotion,merge", "--merge", "all"];
        leads_through_the_original(test, &kernel, &scenario, &busybox_plan(), &options);
    });
}

#[test]
#[ignore = "rewrites one more kernel: make test-rest"]
fn backtraces_on_arm_lead_through_the_original() {
    KernelTest::check("backtraces_on_arm_lead_through_the_original", |test| {
        let kernel = test.kernel("arm-virt-smp");
        let scenario = test.processors_on_arm(&kernel);
        let options =
            ["--passes", "syscalls,reach,fold,icf,merge", "--merge", "all", arm::MAKE[0], arm::MAKE[1]];
        leads_through_the_original(test, &kernel, &scenario, &arm::busybox_plan(), &options);
    });
}

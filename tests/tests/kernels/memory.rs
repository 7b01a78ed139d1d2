//! Memory as the device sees it: `kelf size`'s column *resident*, and packed segments.

use std::collections::BTreeMap;
use std::ops::Range;

use kshrink_tests::{Kernel, KernelTest, RewrittenKernel, Run, Scenario, elf};
use serde_json::Value;

use super::busybox_plan;
use super::frozen::number;
use super::{arm, x86_64};

/// Maximum difference between the change of `MemTotal` and that of *resident*, in KiB: memory that the kernel allocates
/// for its tables before the page allocator is up.
const TOLERANCE: i64 = 16;

/// The options that pack segments and change nothing else.
const PACK_ALONE: [&str; 3] = ["--passes", "none", "--pack-segments"];

#[test]
fn resident_memory_is_what_the_device_sees() {
    KernelTest::check("resident_memory_is_what_the_device_sees", |test| {
        let kernel = test.kernel("web-i386");
        let scenario = test.frozen();
        let original = memory(test, &scenario, &kernel);
        let small = test.rewritten(&kernel, "small", &busybox_plan(), &[]);
        agrees(original, memory(test, &scenario, &small.kernel));
    });
}

#[test]
fn packed_segments_free_memory_on_two_processors() {
    KernelTest::check("packed_segments_free_memory_on_two_processors", |test| {
        let kernel = test.kernel("arm-virt-smp");
        let scenario = test.frozen_on_arm();
        let original = memory(test, &scenario, &kernel);
        let packed = test.rewritten(&kernel, "packed", "", &PACK_ALONE);
        saves(test, &packed, &scenario, original);
        let small = test.rewritten(&kernel, "small", &arm::busybox_plan(), &["--pack-segments"]);
        saves(test, &small, &scenario, original);
        let processors = test.processors_on_arm(&kernel);
        test.passes(&processors, &small.kernel, &[]);
    });
}

#[test]
#[ignore = "builds one more kernel"]
fn packed_segments_free_memory_in_arm_code() {
    KernelTest::check("packed_segments_free_memory_in_arm_code", |test| {
        let kernel = test.kernel("arm-virt-arm");
        let scenario = test.frozen_on_arm();
        let original = memory(test, &scenario, &kernel);
        let plan = arm::busybox_plan();
        let small = test.rewritten(&kernel, "small", &plan, &["--pack-segments"]);
        saves(test, &small, &scenario, original);
        let plan = arm::everything_plan(test, &kernel, "page");
        let options = ["--pack-segments", "--passes", "syscalls,reach,freeze"];
        let frozen = test.rewritten(&kernel, "frozen", &plan, &options);
        saves(test, &frozen, &scenario, original);
    });
}

/// The text of entries and unencrypted data begin and end at pages.
#[test]
#[ignore = "builds one more kernel"]
fn packed_segments_free_memory_on_x86_64() {
    KernelTest::check("packed_segments_free_memory_on_x86_64", |test| {
        let kernel = test.kernel("web-x86_64");
        let scenario = test.frozen_on_x86_64();
        let original = memory(test, &scenario, &kernel);
        let packed = test.rewritten(&kernel, "packed", "", &PACK_ALONE);
        let small = test.rewritten(&kernel, "small", &x86_64::busybox_plan(), &["--pack-segments"]);
        for rewritten in [&packed, &small] {
            let now = memory(test, &scenario, &rewritten.kernel);
            agrees(original, now);
            assert!(now.total > original.total + 5000, "{now:?}, {original:?} before");
            has_no_padding(rewritten);
        }
    });
}

/// Programs of all kinds run, so all system calls stay.
#[test]
#[ignore = "takes ten minutes"]
fn packed_segments_do_under_stress_what_the_original_does() {
    KernelTest::check("packed_segments_do_under_stress_what_the_original_does", |test| {
        let kernel = test.kernel("arm-virt");
        let stress = test.stress_on_arm();
        let plan = arm::everything_for_all_programs(test, &kernel);
        let packed =
            test.rewritten(&kernel, "packed", &plan, &["--pack-segments", "--passes", "reach,freeze"]);
        assert_eq!(test.results(&stress, &packed.kernel), test.results(&stress, &kernel));
    });
}

#[test]
#[ignore = "builds two more kernels"]
fn packed_segments_free_memory_in_other_versions() {
    KernelTest::check("packed_segments_free_memory_in_other_versions", |test| {
        for name in ["arm-virt-6.1", "arm-virt-7.2"] {
            let kernel = test.kernel(name);
            let scenario = test.frozen_on_arm();
            let original = memory(test, &scenario, &kernel);
            let packed = test.rewritten(&kernel, "packed", "", &PACK_ALONE);
            saves(test, &packed, &scenario, original);
        }
    });
}

/// The protection of memory is the same in all attempts that the kernel's test module knows, and in the page tables.
#[test]
#[ignore = "builds one more kernel"]
fn packed_segments_are_as_protected_as_the_original() {
    KernelTest::check("packed_segments_are_as_protected_as_the_original", |test| {
        let kernel = test.kernel("arm-virt-protection");
        let scenario = test.protection_on_arm();
        let original = attempts(test, &scenario, &kernel);
        let survived = original.values().filter(|result| !result.contains("killed")).count();
        assert!(original.len() == 10 && survived == 0, "{original:?}");
        let packed = test.rewritten(&kernel, "packed", "", &PACK_ALONE);
        let plan = arm::busybox_plan();
        let small = test.rewritten(&kernel, "small", &plan, &["--pack-segments"]);
        for rewritten in [&packed, &small] {
            assert_eq!(attempts(test, &scenario, &rewritten.kernel), original);
            is_protected(test, &rewritten.kernel);
        }
    });
}

#[test]
fn kernels_without_memory_between_sections_are_not_packed() {
    KernelTest::check("kernels_without_memory_between_sections_are_not_packed", |test| {
        let kernel = test.kernel("web-i386");
        let run = Run::kshrink("kshrink-spec").arg(&kernel.vmlinux).args(["--emit-object", "same.o"]);
        let outcome = test.chain.succeed(run.args(PACK_ALONE));
        assert!(outcome.stderr.contains("--pack-segments changes nothing"), "{outcome}");
    });
}

/// Memory of a booted kernel, in KiB.
#[derive(Clone, Copy, Debug)]
struct Memory {
    /// `MemTotal`.
    total: i64,
    /// The column *resident*.
    resident: i64,
}

/// Boots a kernel, which must pass, and reads both figures.
fn memory(test: &mut KernelTest<'_>, scenario: &Scenario, kernel: &Kernel) -> Memory {
    test.passes(scenario, kernel, &[]);
    let run = Run::kshrink("kelf").args(["size", "--json"]).arg(&kernel.vmlinux);
    let sizes: Value = serde_json::from_str(&test.chain.succeed(run).text()).expect("JSON");
    let resident = sizes[0]["memory"]["resident"].as_i64().expect("a size");
    Memory { total: number(&test.console(kernel), "meminfo", "MemTotal") as i64, resident: resident / 1024 }
}

fn has_no_padding(packed: &RewrittenKernel) {
    let padding = packed.report["sizes"]["after"]["memory"]["padding"].as_u64().expect("a size");
    assert!(padding < 32 << 10, "{padding} bytes of padding");
}

/// Checks that the change of `MemTotal` is that of *resident*.
fn agrees(original: Memory, now: Memory) {
    let (seen, said) = (now.total - original.total, original.resident - now.resident);
    assert!((seen - said).abs() <= TOLERANCE, "MemTotal rose by {seen} KiB, and resident fell by {said}");
}

/// Checks that a kernel with packed segments has no more padding than a page for each segment, and that the device has
/// the memory.
fn saves(test: &mut KernelTest<'_>, packed: &RewrittenKernel, scenario: &Scenario, original: Memory) {
    let now = memory(test, scenario, &packed.kernel);
    agrees(original, now);
    has_no_padding(packed);
    let console = test.console(&packed.kernel);
    let freed = number(&console, "kshrink", "freed_between_sections_kib");
    let line = format!("kshrink: {freed} KiB between sections freed");
    assert!(freed > 100 && console.contains(&line), "{console}");
    let boot_image = |when| packed.report["sizes"][when]["boot_image"].as_u64().expect("a size");
    if packed.report["frozen"].is_null() {
        assert!(boot_image("after") <= boot_image("before") + 4096, "the boot image is larger");
    }
}

/// Boots a kernel, and returns the result of each attempt by its name. The kernel complains of each.
fn attempts(test: &mut KernelTest<'_>, scenario: &Scenario, kernel: &Kernel) -> BTreeMap<String, String> {
    test.complains(scenario, kernel, &[]);
    let console = test.console(kernel);
    assert!(console.contains("SCENARIO protection: PASS"), "{console}");
    let attempts = console.lines().filter_map(|line| line.split_once("attempt ")?.1.split_once(": "));
    attempts.map(|(name, result)| (name.to_owned(), result.to_owned())).collect()
}

/// Checks the kernel's own page tables: code is executable and not writable, read-only data is neither, and everything
/// else is writable and not executable.
fn is_protected(test: &KernelTest<'_>, kernel: &Kernel) {
    let console = test.console(kernel);
    assert!(!console.contains("Found insecure W+X mapping"), "{console}");
    let names = ["_stext", "__start_rodata", "__init_begin", "_end"];
    let [(text, _), (data, _), (init, _), (end, _)] = elf::globals(&kernel.vmlinux, names);
    let expected =
        [(0xc000_0000..text, "RW NX"), (text..data, "ro x"), (data..init, "ro NX"), (init..end, "RW NX")];
    let mut checked = 0;
    for (range, protection) in console.lines().filter_map(mapping) {
        for (segment, wanted) in &expected {
            let part = range.start.max(segment.start)..range.end.min(segment.end);
            if part.start < part.end {
                assert_eq!(protection, *wanted, "{part:x?}");
                checked += part.end - part.start;
            }
        }
    }
    assert!(checked >= end - text, "the page tables list only {checked} bytes of the kernel");
}

/// Reads a line of the page tables, `tables: 0xc0000000-0xc0100000  1M PMD  RW NX SHD`.
fn mapping(line: &str) -> Option<(Range<u64>, String)> {
    let mut words = line.strip_prefix("tables: 0x")?.split_whitespace();
    let (start, end) = words.next()?.split_once("-0x")?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    let words: Vec<&str> = words.collect();
    let find = |choices: [&str; 2]| words.iter().find(|word| choices.contains(word)).copied();
    let protection = format!("{} {}", find(["RW", "ro"])?, find(["NX", "x"])?);
    Some((address(start)?..address(end)?, protection))
}

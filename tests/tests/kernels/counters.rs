//! Coverage of a real kernel, recorded in two ways that have to agree: by the counters of pass `instrument`, read from
//! a dump of its memory, and by QEMU's trace of the same boot.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

use kshrink_tests::{Kernel, KernelTest, Run, Scenario};
use serde_json::Value;

/// Name, file and number of a function.
type Function = (String, String, u64);

fn function(entry: &Value) -> Function {
    let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    (text("name"), text("file"), entry["nth"].as_u64().unwrap_or(0))
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
}

/// Returns the bytes that ran of each function, by a plan.
fn ran(plan: &Path) -> HashMap<Function, HashSet<u64>> {
    let plan = json(plan);
    let functions = plan["coverage"]["functions"].as_array().expect("functions");
    let bytes = |entry: &Value| {
        let ranges = entry["ran"].as_array().expect("ranges").iter();
        let number = |range: &Value, field: &str| range[field].as_u64().expect("a number");
        ranges.flat_map(|range| (number(range, "offset")..).take(number(range, "size") as usize)).collect()
    };
    functions.iter().map(|entry| (function(entry), bytes(entry))).collect()
}

#[test]
fn counters_and_qemu_agree_block_by_block() {
    KernelTest::check("counters_and_qemu_agree_block_by_block", |test| {
        let kernel = test.kernel("web-i386");
        let scenario = test.web();
        agree(test, &kernel, &scenario, &[], &[]);
    });
}

/// The file of a kernel for ARM does not record its physical load address.
#[test]
fn counters_and_qemu_agree_block_by_block_on_arm() {
    KernelTest::check("counters_and_qemu_agree_block_by_block_on_arm", |test| {
        let kernel = test.kernel("arm-virt-smp");
        let scenario = test.web_on_arm();
        agree(test, &kernel, &scenario, &super::arm::MAKE, &["--load-address", "0x40008000"]);
    });
}

/// Boots an instrumented kernel, and panics unless its counters and the trace of the same boot agree. `make` has
/// further arguments for the rewriter, and `place` for `coverage`.
fn agree(test: &mut KernelTest<'_>, kernel: &Kernel, scenario: &Scenario, make: &[&str], place: &[&str]) {
    let arguments = [&["--passes", "instrument"], make].concat();
    let instrumented = test.rewritten(kernel, "instrumented", "", &arguments);
    test.passes(scenario, &instrumented.kernel, &["--trace", "trace", "--dump", "dump"]);
    let blocks = instrumented.dir.join("blocks.json");
    for (command, trace) in [("kcore", "dump"), ("qemu", "trace")] {
        let run = Run::kshrink("coverage").arg(command).arg(&instrumented.kernel.vmlinux);
        test.chain.succeed(run.arg("--blocks").arg(&blocks).args(place).args([trace, "-o", command]));
    }
    let ran = |name: &str| ran(&test.chain.dir().join(name));
    compare(&json(&blocks), &ran("kcore"), &ran("qemu"));
}

/// Panics unless the same instrumented blocks have run by the counters and by the trace.
fn compare(map: &Value, counted: &HashMap<Function, HashSet<u64>>, traced: &HashMap<Function, HashSet<u64>>) {
    let functions: Vec<Function> =
        map["functions"].as_array().expect("functions").iter().map(function).collect();
    let counters = map["counters"]["blocks"].as_array().expect("counters");
    let (mut both, mut neither) = (0, 0);
    for block in counters {
        let block = &map["blocks"][block.as_u64().expect("a number") as usize];
        let [address, _, function, offset, size] =
            [0, 1, 2, 3, 4].map(|field| block[field].as_u64().expect("a number"));
        let function = &functions[function as usize];
        let has_run = |ran: &HashMap<Function, HashSet<u64>>| {
            ran.get(function).is_some_and(|bytes| bytes.contains(&offset))
        };
        // A block that consists of its store alone has no byte of the original.
        if size == 0 {
            continue;
        }
        let (is_counted, is_traced) = (has_run(counted), has_run(traced));
        assert_eq!(is_counted, is_traced, "{address:#x}, {function:?} at {offset}: by its counter, by QEMU");
        if is_counted {
            both += 1;
        } else {
            neither += 1;
        }
    }
    // Blocks of a whole kernel, part of which runs during a boot.
    assert!(both > 20_000 && neither > 20_000, "{both} ran, {neither} did not");
}

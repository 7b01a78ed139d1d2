//! Two witnesses of what a real kernel runs: the counters that the pass `instrument` gave it, read from a dump of its
//! memory, and QEMU's own trace of the same boot.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::time::Duration;

use kshrink_tests::{Run, fixture, recipe};
use serde_json::Value;
use tempfile::TempDir;

const RELINK_LIMIT: Duration = Duration::from_secs(10 * 60);

/// A traced boot is several times as long as another, and ends with a dump.
const BOOT_SECONDS: &str = "600";
const BOOT_LIMIT: Duration = Duration::from_secs(11 * 60);

/// Name, file and number of a function.
type Function = (String, String, u64);

fn function(entry: &Value) -> Function {
    let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    (text("name"), text("file"), entry["nth"].as_u64().unwrap_or(0))
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
}

/// For each function the bytes of it that ran, by a plan.
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
    let build = recipe("kernels/build.sh", &["web-i386"]);
    let dir = TempDir::new().expect("a temporary directory");
    let file = |name: &str| dir.path().join(name);
    Run::kshrink("kshrink-spec")
        .arg(build.join("vmlinux"))
        .args(["--passes", "instrument", "-o"])
        .arg(file("out"))
        .limit(RELINK_LIMIT)
        .succeed();
    Run::new(fixture("scenarios/make-initramfs.sh"))
        .arg("web")
        .arg(file("initramfs.gz"))
        .limit(RELINK_LIMIT)
        .succeed();
    let boot = Run::new(fixture("qemu/boot.sh"));
    let files = [
        ("--kernel", "out/bzImage"),
        ("--initramfs", "initramfs.gz"),
        ("--log", "console.log"),
        ("--trace", "trace"),
        ("--dump", "dump"),
    ];
    let boot = files.iter().fold(boot, |boot, (option, name)| boot.arg(option).arg(file(name)));
    let outcome = boot.args(["--timeout", BOOT_SECONDS]).limit(BOOT_LIMIT).succeed();
    assert!(outcome.text().contains("SCENARIO web: PASS"), "{outcome}");
    for (command, trace) in [("kcore", "dump"), ("qemu", "trace")] {
        Run::kshrink("coverage")
            .arg(command)
            .arg(file("out/vmlinux"))
            .arg("--blocks")
            .arg(file("out/blocks.json"))
            .arg(file(trace))
            .arg("-o")
            .arg(file(command))
            .succeed();
    }

    let (counted, traced) = (ran(&file("kcore")), ran(&file("qemu")));
    let map = json(&file("out/blocks.json"));
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
        // A block that is nothing but its store has no byte of the original.
        if size == 0 {
            continue;
        }
        let (is_counted, is_traced) = (has_run(&counted), has_run(&traced));
        assert_eq!(is_counted, is_traced, "{address:#x}, {function:?} at {offset}: by its counter, by QEMU");
        if is_counted {
            both += 1;
        } else {
            neither += 1;
        }
    }
    // Blocks of a whole kernel, of which a boot runs a part.
    assert!(both > 20_000 && neither > 20_000, "{both} ran, {neither} did not");
}

//! The owners of a kernel's memory, compared with the figures that the kernel prints itself.

use std::collections::BTreeMap;

use kshrink_tests::{Kernel, KernelTest, Run, Scenario};
use serde_json::Value;

use super::frozen::number;

/// The memory that changes between the kernel's figures and the dump: the end of the machine allocates and frees.
const TOLERANCE_KIB: u64 = 512;

#[test]
fn census_explains_the_memory_of_the_web_kernel() {
    KernelTest::check("census_explains_the_memory_of_the_web_kernel", |test| {
        let kernel = test.kernel("web-i386");
        let scenario = test.census(&[]);
        explains(test, &kernel, &scenario);
    });
}

#[test]
fn census_explains_the_memory_of_an_arm_kernel() {
    KernelTest::check("census_explains_the_memory_of_an_arm_kernel", |test| {
        let kernel = test.kernel("arm-virt-smp");
        let scenario = test.census_on_arm();
        explains(test, &kernel, &scenario);
        // The memory of another kernel.
        let run = Run::kshrink("census").arg("core").arg(test.kernel("web-i386").vmlinux).arg("memory.core");
        let refused = test.chain.attempt(run);
        assert_eq!(refused.status, Some(2), "{refused}");
        assert!(refused.stderr.contains("memory.core: of another kernel than"), "{refused}");
    });
}

/// On two processors, at a random address, with slabs of processors and `/proc/slabinfo`.
#[test]
#[ignore = "builds one more kernel"]
fn census_equals_slabinfo_to_the_object() {
    KernelTest::check("census_equals_slabinfo_to_the_object", |test| {
        let kernel = test.kernel("websmp-i386-slabinfo");
        let scenario = test.census(&["--cpus", "2"]);
        let (census, console) = explains(test, &kernel, &scenario);
        let owners = census["owners"].as_array().expect("owners");
        let figure = |owner: &Value, key: &str| owner[key].as_u64().expect("a number");
        let counted = owners.iter().filter(|owner| owner.get("objects").is_some()).map(|owner| {
            let name = owner["name"].as_str().expect("a name").to_owned();
            (name, [figure(owner, "active"), figure(owner, "objects"), figure(owner, "object_size")])
        });
        let counted: BTreeMap<String, [u64; 3]> = counted.collect();
        let printed = console.lines().filter_map(|line| {
            let mut words = line.strip_prefix("slabinfo: ")?.split_whitespace();
            let name = words.next()?.to_owned();
            let mut figure = || words.next()?.parse().ok();
            Some((name, [figure()?, figure()?, figure()?]))
        });
        // Caches without slabs have no owner.
        let printed: BTreeMap<String, [u64; 3]> = printed.filter(|(_, figures)| figures[1] > 0).collect();
        assert!(printed.len() > 40, "only {} caches in /proc/slabinfo", printed.len());
        assert_eq!(counted, printed);
    });
}

/// Boots a kernel and takes the census of its memory: slab pages as in `/proc/meminfo` to 1 %, and 95 % of the memory in
/// use explained. Returns the census and the console.
fn explains(test: &mut KernelTest<'_>, kernel: &Kernel, scenario: &Scenario) -> (Value, String) {
    test.passes(scenario, kernel, &["--dump", "memory.core"]);
    let console = test.console(kernel);
    let run = Run::kshrink("census").arg("core").arg(&kernel.vmlinux).args(["memory.core", "--json", "-o"]);
    test.chain.succeed(run.arg("census.json"));
    let census: Value = serde_json::from_str(&test.read("census.json")).expect("JSON");
    let sum = |key: &str| census["memory"][key].as_u64().expect("a number") / 1024;
    let said = |name: &str| number(&console, "meminfo", name);
    assert_eq!(sum("total"), said("MemTotal"));
    assert!(sum("free").abs_diff(said("MemFree")) <= TOLERANCE_KIB, "{} {}", sum("free"), said("MemFree"));
    let owners = census["owners"].as_array().expect("owners").iter();
    let slab = owners.clone().filter(|owner| owner["kind"] == "slab");
    let slab: u64 = slab.map(|owner| owner["bytes"].as_u64().expect("a number")).sum::<u64>() / 1024;
    assert!(slab.abs_diff(said("Slab")) * 100 <= said("Slab"), "{slab} KiB of slabs, {} said", said("Slab"));
    let (explained, used) = (sum("explained"), sum("total") - sum("free"));
    assert!(explained * 100 >= used * 95 && explained <= used, "{explained} of {used} KiB explained");
    // Every page is counted once: all owners but the reserved ones are MemTotal.
    let managed = owners.filter(|owner| owner["kind"] != "reserved");
    let managed: u64 = managed.map(|owner| owner["bytes"].as_u64().expect("a number")).sum();
    assert_eq!(managed / 1024, said("MemTotal"));
    (census, console)
}

//! The owners of a kernel's memory, compared with the figures that the kernel prints itself.

use std::collections::BTreeMap;

use kshrink_tests::{Kernel, KernelTest, Run, Scenario};
use serde_json::Value;

use super::frozen::number;
use super::x86_64::busybox_plan;

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

/// Also after rewriting: the layouts of a rewritten kernel come from the build of the original, and what thaws is mapped
/// memory.
#[test]
#[ignore = "builds one more kernel"]
fn census_explains_the_memory_of_a_64_bit_kernel() {
    KernelTest::check("census_explains_the_memory_of_a_64_bit_kernel", |test| {
        let kernel = test.kernel("web-x86_64");
        let scenario = test.census_on_x86_64(&[]);
        let (census, _) = explains(test, &kernel, &scenario);
        let image = |census: &Value| bytes(census, |owner| owner["name"] == "kernel image");
        let original = image(&census);
        let packed =
            test.rewritten(&kernel, "packed", &busybox_plan(), &["--pack-segments", "--pack-unwind"]);
        let (census, _) = explains(test, &packed.kernel, &scenario);
        assert!(image(&census) * 2 < original, "{} of {original} bytes of image", image(&census));
        let run = Run::kshrink("frozen-pack").args(["plan", "--everything"]).arg(&kernel.vmlinux);
        let plan = test.chain.succeed(run.stdin(busybox_plan())).text();
        let frozen = test.rewritten(&kernel, "frozen", &plan, &["--pack-segments"]);
        explains(test, &frozen.kernel, &scenario);
        // The memory of another kernel.
        let refused =
            test.chain.attempt(Run::kshrink("census").arg("core").arg(&kernel.vmlinux).arg("memory.core"));
        assert_eq!(refused.status, Some(2), "{refused}");
        assert!(refused.stderr.contains("memory.core: of another kernel than"), "{refused}");
    });
}

/// The layouts come from the debugging information of the kernel's own file.
#[test]
#[ignore = "builds one more kernel"]
fn census_reads_debugging_information_of_a_kernel() {
    KernelTest::check("census_reads_debugging_information_of_a_kernel", |test| {
        let kernel = test.kernel("web-i386-debug");
        let scenario = test.census(&[]);
        explains(test, &kernel, &scenario);
        // Not where it was built, so that nothing can be compiled.
        test.chain.succeed(Run::new("cp").arg(&kernel.vmlinux).arg("moved"));
        test.chain.succeed(Run::kshrink("census").args(["core", "moved", "memory.core"]));
    });
}

/// Linux 7.2 has sheaves, and marks the pages of large `kmalloc`: the pages of kind `slab` are exactly `Slab`.
#[test]
#[ignore = "builds one more kernel"]
fn census_explains_the_memory_of_linux_7_2() {
    KernelTest::check("census_explains_the_memory_of_linux_7_2", |test| {
        let kernel = test.kernel("arm-virt-7.2");
        let scenario = test.census_on_arm(&["--machine", "virt32"]);
        let (census, _) = explains(test, &kernel, &scenario);
        let slab = bytes(&census, |owner| owner["kind"] == "slab");
        assert_eq!(Some(slab), census["memory"]["slab"].as_u64());
    });
}

#[test]
fn census_explains_the_memory_of_an_arm_kernel() {
    KernelTest::check("census_explains_the_memory_of_an_arm_kernel", |test| {
        let kernel = test.kernel("arm-virt-smp");
        let scenario = test.census_on_arm(&["--machine", "virt32", "--cpus", "2"]);
        explains(test, &kernel, &scenario);
        // The memory of another kernel.
        let run = Run::kshrink("census").arg("core").arg(test.kernel("web-i386").vmlinux).arg("memory.core");
        let refused = test.chain.attempt(run);
        assert_eq!(refused.status, Some(2), "{refused}");
        assert!(refused.stderr.contains("memory.core: of another kernel than"), "{refused}");
    });
}

/// On two processors, at a random address, with slabs of processors and `/proc/slabinfo`: objects and pages of each cache.
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
            let figures = ["active", "objects", "object_size"].map(|key| figure(owner, key));
            (name, (figures, figure(owner, "bytes") / 4096))
        });
        let counted: BTreeMap<String, ([u64; 3], u64)> = counted.collect();
        let printed = console.lines().filter_map(|line| {
            let mut words = line.strip_prefix("slabinfo: ")?.split_whitespace();
            let name = words.next()?.to_owned();
            let figures: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
            // Objects per slab, pages per slab, three tunables, active slabs, all slabs, a last figure.
            let &[active, objects, size, _, pages, _, _, _, _, slabs, _] = &figures[..] else { return None };
            Some((name, ([active, objects, size], pages * slabs)))
        });
        // Caches without slabs have no owner.
        let printed: BTreeMap<String, ([u64; 3], u64)> =
            printed.filter(|(_, (figures, _))| figures[1] > 0).collect();
        assert!(printed.len() > 40, "only {} caches in /proc/slabinfo", printed.len());
        assert_eq!(counted, printed);
    });
}

/// The sites have all memory that `census core` counts in slabs, and the reserves that nothing uses are among them.
#[test]
fn sites_of_allocations_explain_the_slabs_of_the_web_kernel() {
    KernelTest::check("sites_of_allocations_explain_the_slabs_of_the_web_kernel", |test| {
        let (kernel, scenario) = (test.kernel("web-i386"), test.census(&[]));
        sites_explain(test, &kernel, &scenario, "iomap_buffered_init");
    });
}

#[test]
#[ignore = "builds one more kernel"]
fn sites_of_allocations_explain_the_slabs_of_a_64_bit_kernel() {
    KernelTest::check("sites_of_allocations_explain_the_slabs_of_a_64_bit_kernel", |test| {
        // On a busy host, the plugin delays the few ticks by which Linux tests a timer.
        let scenario = test.census_on_x86_64(&["--append", "no_timer_check"]);
        let kernel = test.kernel("web-x86_64");
        // `iomap_buffered_init` and others end with a jump to `bioset_init`.
        sites_explain(test, &kernel, &scenario, "do_one_initcall");
    });
}

/// Boots a kernel with the plugin, and compares the sites with its census. The function `initcall` makes `bioset_init`
/// reserve memory.
fn sites_explain(test: &mut KernelTest<'_>, kernel: &Kernel, scenario: &Scenario, initcall: &str) {
    test.chain.succeed(Run::kshrink("census").arg("places").arg(&kernel.vmlinux).args(["-o", "places"]));
    let (census, _) =
        explains_with(test, kernel, scenario, &["--allocations", "allocations", "--places", "places"]);
    let run = Run::kshrink("census").arg("trace").arg(&kernel.vmlinux).args(["memory.core", "allocations"]);
    test.chain.succeed(run.args(["--json", "-o", "sites.json"]));
    let sites: Value = serde_json::from_str(&test.read("sites.json")).expect("JSON");
    let figure = |value: &Value, key: &str| value[key].as_u64().expect("a number");
    let caches =
        || census["owners"].as_array().expect("owners").iter().filter(|owner| !owner["used"].is_null());
    let slab =
        sites["memory"].as_array().expect("sums").iter().find(|sum| sum["kind"] == "slab").expect("slab");
    assert_eq!(figure(slab, "objects"), caches().map(|cache| figure(cache, "used")).sum::<u64>());
    let bytes = caches().map(|cache| figure(cache, "used") * figure(cache, "object_size")).sum::<u64>();
    assert_eq!(figure(slab, "bytes"), bytes);
    // Only the structures of the allocator itself have no site, and on busy hosts a few of the other objects.
    let own =
        caches().filter(|cache| cache["name"].as_str().is_some_and(|name| name.starts_with("kmem_cache")));
    let own: u64 = own.map(|cache| figure(cache, "used")).sum();
    assert!(
        figure(slab, "objects") - figure(slab, "known_objects") <= own + figure(slab, "objects") / 500,
        "{slab}"
    );
    let all = sites["sites"].as_array().expect("sites").iter();
    let known: u64 =
        all.clone().filter(|site| site["kind"] == "slab").map(|site| figure(site, "objects")).sum();
    assert_eq!(known, figure(slab, "known_objects"));

    let largest = |function: &str| {
        let own = all.clone().filter(|site| site["function"] == function);
        own.max_by_key(|site| figure(site, "bytes")).unwrap_or_else(|| panic!("no site {function}"))
    };
    // 32 arrays of 3,072 bytes, two in a slab of 8 KiB.
    let reserve = largest(initcall);
    assert!(figure(reserve, "held") >= 128 << 10 && figure(reserve, "unused_objects") >= 64, "{reserve}");
    assert!(figure(reserve, "untouched") >= 96 << 10, "{reserve}");
    // `get_random_sleepable_once` fills the table.
    let table = largest("inet_hashinfo2_init");
    assert_eq!((figure(table, "bytes"), figure(table, "untouched")), (256 << 10, 0), "{table}");
    assert!(figure(table, "unread") >= 255 << 10, "{table}");
    // A cache with one user: all of its objects are of that function.
    let nodes = largest("shmem_alloc_inode");
    let cache = caches().find(|cache| cache["name"] == "shmem_inode_cache").expect("a cache");
    assert_eq!(figure(nodes, "objects"), figure(cache, "used"));
}

/// Returns the bytes of the owners of a census with some property.
fn bytes(census: &Value, is_counted: impl Fn(&Value) -> bool) -> u64 {
    let owners = census["owners"].as_array().expect("owners").iter();
    owners.filter(|owner| is_counted(owner)).map(|owner| owner["bytes"].as_u64().expect("a number")).sum()
}

/// Boots a kernel and takes the census of its memory: the slabs have at least 94 % of `Slab` in `/proc/meminfo`, which
/// also counts large `kmalloc`, and 95 % of the memory in use are explained. Returns the census and the console.
fn explains(test: &mut KernelTest<'_>, kernel: &Kernel, scenario: &Scenario) -> (Value, String) {
    explains_with(test, kernel, scenario, &[])
}

/// The same with further options of `boot.sh`.
fn explains_with(
    test: &mut KernelTest<'_>,
    kernel: &Kernel,
    scenario: &Scenario,
    options: &[&str],
) -> (Value, String) {
    test.passes(scenario, kernel, &[&["--dump", "memory.core"], options].concat());
    let console = test.console(kernel);
    let run = Run::kshrink("census").arg("core").arg(&kernel.vmlinux).args(["memory.core", "--json", "-o"]);
    test.chain.succeed(run.arg("census.json"));
    let census: Value = serde_json::from_str(&test.read("census.json")).expect("JSON");
    let sum = |key: &str| census["memory"][key].as_u64().expect("a number") / 1024;
    let said = |name: &str| number(&console, "meminfo", name);
    assert_eq!(sum("total"), said("MemTotal"));
    assert!(sum("free").abs_diff(said("MemFree")) <= TOLERANCE_KIB, "{} {}", sum("free"), said("MemFree"));
    // The row of large `kmalloc` comes from the same counter as `Slab` before Linux 6.14, and proves nothing.
    let walked = bytes(&census, |owner| owner.get("objects").is_some()) / 1024;
    let slab = said("Slab");
    assert!(walked * 100 >= slab * 94 && walked * 100 <= slab * 101, "{walked} KiB of slabs, {slab} said");
    let (explained, used) = (sum("explained"), sum("total") - sum("free"));
    assert!(explained * 100 >= used * 95 && explained <= used, "{explained} of {used} KiB explained");
    // Every page is counted once: all owners but the reserved ones are MemTotal.
    let managed = bytes(&census, |owner| owner["kind"] != "reserved");
    assert_eq!(managed / 1024, said("MemTotal"));
    (census, console)
}

//! Kernels whose structures are smaller, by the patch of `field-pack`.

use std::time::Duration;

use kshrink_tests::{Kernel, KernelTest, Run, Scenario};
use serde_json::Value;

use super::frozen::number;

/// Uses that a person judged to be harmless: a copy for a message, and an address that is the name of a wait queue.
const HARMLESS: [&str; 4] = ["--harmless", "fs/inode.c:612", "--harmless", "include/linux/fs.h:788"];

/// Parsing takes minutes, and a member that does not compile makes one more build.
const LIMIT: Duration = Duration::from_secs(2 * 60 * 60);

/// The structures of the plan.
const TYPES: &str = "inode,ext2_inode_info,dentry,kernfs_node,proc_inode";

/// The kernel passes the scenario, its inodes need less memory, and the patch applies.
#[test]
#[ignore = "builds the kernel with a patch"]
fn patched_kernel_needs_less_memory_for_files() {
    KernelTest::check("patched_kernel_needs_less_memory_for_files", |test| {
        let kernel = test.kernel("web-i386");
        let scenario = test.files();
        profiled(test, &kernel, &scenario);
        let patched = patched(test, &kernel, "patched", &["--lines", "4000"]);
        test.passes(&scenario, &patched, &["--dump", "patched.core"]);
        let console = test.console(&patched);
        assert_eq!(number(&console, "kshrink-fields", "refused"), 0);
        let bytes = |test: &mut KernelTest<'_>, kernel: &Kernel, core: &str| {
            let run = Run::kshrink("census").arg("core").arg(&kernel.vmlinux).args([core, "--json", "-o"]);
            test.chain.succeed(run.arg("census.json"));
            let census: Value = serde_json::from_str(&test.read("census.json")).expect("JSON");
            let owners = census["owners"].as_array().expect("owners").clone();
            let cache = owners.into_iter().find(|owner| owner["name"] == "ext2_inode_cache");
            cache.expect("ext2_inode_cache")["object_size"].as_u64().expect("a number")
        };
        let before = bytes(test, &kernel, "memory.core");
        let after = bytes(test, &patched, "patched.core");
        assert!(after + 40 <= before, "{before} bytes before, {after} after");
        // `source` is a link.
        let source = kernel.build.join("source").canonicalize().expect("the source");
        test.chain.succeed(Run::new("cp").args(["-al"]).arg(source).arg("applied"));
        test.chain.succeed(Run::new("patch").args(["-d", "applied", "-p1", "-s", "-i", "../patched.patch"]));
        let web = test.web();
        test.passes(&web, &patched, &[]);
    });
}

/// Every scheme is too narrow, so that most values are in the side table.
#[test]
#[ignore = "builds the kernel with a patch"]
fn starved_kernel_stores_values_beside_the_objects() {
    KernelTest::check("starved_kernel_stores_values_beside_the_objects", |test| {
        let kernel = test.kernel("web-i386");
        let scenario = test.files();
        let starved = starved(test, &kernel, &scenario);
        let web = test.web();
        test.passes(&web, &starved, &[]);
        let stress = test.stress();
        test.passes(&stress, &starved, &["--memory", "192"]);
    });
}

/// The same for two processors, on 32-bit ARM.
#[test]
#[ignore = "builds the kernel with a patch"]
fn starved_kernel_runs_on_two_processors_of_arm() {
    KernelTest::check("starved_kernel_runs_on_two_processors_of_arm", |test| {
        let kernel = test.kernel("arm-virt-smp");
        let scenario = test.files_on_arm();
        let starved = starved(test, &kernel, &scenario);
        let processors = test.processors_on_arm(&kernel);
        test.passes(&processors, &starved, &[]);
        // A few stressors fail on every kernel for ARM.
        let stress = test.stress_on_two_processors_of_arm();
        assert_eq!(test.results(&stress, &starved), test.results(&stress, &kernel));
    });
}

/// Returns the kernel with schemes that are too narrow, after it has passed the scenario.
fn starved(test: &mut KernelTest<'_>, kernel: &Kernel, files: &Scenario) -> Kernel {
    profiled(test, kernel, files);
    let starved = patched(test, kernel, "starved", &["--starve"]);
    test.passes(files, &starved, &[]);
    let console = test.console(&starved);
    assert!(number(&console, "kshrink-fields", "ever") > 10_000, "few values in the table");
    assert_eq!(number(&console, "kshrink-fields", "refused"), 0);
    starved
}

/// Boots the kernel with files, and profiles its memory.
fn profiled(test: &mut KernelTest<'_>, kernel: &Kernel, files: &Scenario) {
    test.passes(files, kernel, &["--dump", "memory.core"]);
    let run = Run::kshrink("field-pack").arg("profile").arg(&kernel.vmlinux).arg("memory.core");
    test.chain.succeed(run.args(["-o", "profile.json"]).limit(LIMIT));
}

/// Plans, and builds the patched kernel. The plan is made again with what the code excludes.
fn patched(test: &mut KernelTest<'_>, kernel: &Kernel, name: &str, options: &[&str]) -> Kernel {
    let (starve, limits): (Vec<&str>, Vec<&str>) = options.iter().partition(|option| **option == "--starve");
    let plan = |after: &[&str]| {
        let run =
            Run::kshrink("field-pack").args(["plan", "profile.json", "--types", TYPES, "-o", "fields.json"]);
        run.args(after).args(&starve)
    };
    let source = kernel.build.join("source");
    let patch = |command: &str| {
        let run = Run::kshrink("field-pack").args([command, "fields.json", "--source"]).arg(&source);
        run.arg("--build").arg(&kernel.build).args(HARMLESS).args(&limits).args(["--uses", "uses.json"])
    };
    let file = format!("{name}.patch");
    test.chain.succeed(plan(&[]));
    for _ in 0..3 {
        let run = patch("patch").args(["--fields-output", "excluded.json", "-o", &file]);
        test.chain.succeed(run.limit(LIMIT));
        test.chain.succeed(plan(&["--after", "excluded.json"]));
    }
    let run = patch("check").args(["--keep", name, "-o", &file]);
    test.chain.succeed(run.limit(LIMIT));
    if let Some(most) = limits.get(1) {
        let lines = test.read(&file).lines().count();
        assert!(lines <= most.parse().expect("a number"), "{lines} lines");
    }
    let dir = test.chain.dir().join(name);
    Kernel {
        name: name.to_owned(),
        vmlinux: dir.join("vmlinux"),
        image: dir.join(kernel.image.strip_prefix(&kernel.build).expect("an image in the build")),
        build: kernel.build.clone(),
    }
}

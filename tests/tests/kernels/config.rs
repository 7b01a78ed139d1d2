//! Kernels that are built with the changes of options that `config-spec` proposes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kshrink_tests::{Kernel, KernelTest, Run, Scenario, fixture};
use serde_json::{Value, json};

use crate::frozen::{PLAN_LIMIT, number};
use crate::{arm, busybox_plan, coverage};

/// Time limit of `config-spec try`, which builds several kernels, and waits for those that do not boot.
const TRY_LIMIT: Duration = Duration::from_secs(3600);

/// Returns the advice after a traced boot, for the programs of a plan, with further arguments.
fn advice(
    test: &mut KernelTest<'_>,
    scenario: &Scenario,
    kernel: &Kernel,
    plan: &str,
    arguments: &[&str],
) -> Value {
    let plan = coverage(test, scenario, kernel, plan);
    // A few objects are compiled again, not a hundred.
    let run = Run::kshrink("config-spec").arg(&kernel.vmlinux).args(["--advise", "--max-rebuilds", "20"]);
    let run = run.args(arguments).stdin(plan).limit(PLAN_LIMIT);
    serde_json::from_str(&test.chain.succeed(run).text()).expect("a plan")
}

/// Tries a plan with a boot of the scenario's initramfs as the test. Returns the new build directory and its plan.
fn tried(test: &mut KernelTest<'_>, kernel: &Kernel, scenario: &Scenario, plan: &Value) -> (PathBuf, Value) {
    test.write("advice.json", plan.to_string());
    let image = kernel.image.strip_prefix(&kernel.build).expect("the image of the build");
    let boot = format!(
        "'{}' {} --kernel \"$1/{}\" --initramfs '{}' --log tried.log --dump tried.core --timeout 120",
        fixture("qemu/boot.sh").display(),
        scenario.machine().join(" "),
        image.display(),
        scenario.initramfs()
    );
    let run = Run::kshrink("config-spec").args(["try", "advice.json", "-o", "trimmed", "--build"]);
    let run = run.arg(&kernel.build).args(["--test", &boot]).limit(TRY_LIMIT);
    test.chain.succeed(run);
    let plan = serde_json::from_str(&test.read("trimmed/advice.json")).expect("a plan");
    (test.chain.dir().join("trimmed"), plan)
}

/// Returns the census of a kernel, from an image of its memory.
fn census(test: &mut KernelTest<'_>, vmlinux: &Path, core: &str) -> Value {
    let run = Run::kshrink("census").arg("core").arg(vmlinux).args([core, "--json"]);
    serde_json::from_str(&test.chain.succeed(run).text()).expect("a census")
}

/// Returns the configuration of a build directory.
fn configuration(build: &Path) -> String {
    std::fs::read_to_string(build.join(".config")).expect("a configuration")
}

#[test]
fn kernel_with_proposed_changes_serves() {
    KernelTest::check("kernel_with_proposed_changes_serves", |test| {
        let kernel = test.kernel("web-i386");
        let scenario = test.frozen();
        test.passes(&scenario, &kernel, &["--dump", "memory.core"]);
        let before = test.console(&kernel);
        let config = configuration(&kernel.build);
        let owners = census(test, &kernel.vmlinux, "memory.core");
        test.write("census.json", owners.to_string());
        let plan = advice(test, &scenario, &kernel, &busybox_plan(), &["--census", "census.json"]);
        assert_eq!(configuration(&kernel.build), config);
        // A boot parameter does the most of it without a build.
        let run =
            Run::kshrink("cmdline-spec").arg(&kernel.vmlinux).arg("--recommend").stdin(plan.to_string());
        let words = test.chain.succeed(run).text();
        let words: Vec<&str> = words.lines().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(words, ["pty.legacy_count=0"]);
        test.passes(&scenario, &kernel, &["--append", words[0]]);
        let [old, new] =
            [&before, &test.console(&kernel)].map(|console| number(console, "meminfo", "MemFree"));
        assert!(new >= old + 600, "{old} to {new} KiB");
        let (build, result) = tried(test, &kernel, &scenario, &plan);
        let options = result["config"]["options"].as_array().expect("options");
        assert!(
            options.len() >= 10 && options.iter().all(|option| option["tried"] == "passes"),
            "{options:?}"
        );
        // Most of the memory that the device gains is that of old terminals, which a part of an object makes.
        assert!(options.iter().any(|option| option["name"] == "LEGACY_PTYS"), "{options:?}");
        // Kconfig has no range for the order of this table, so the proposed value makes it one page.
        let values = options.iter().filter(|option| option["class"] == "value");
        let values: Vec<[&Value; 3]> =
            values.map(|option| ["name", "set", "memory"].map(|key| &option[key])).collect();
        assert_eq!(values, [[&json!("INET_TABLE_PERTURB_ORDER"), &json!("10"), &json!(262_144)]]);
        assert!(configuration(&build).contains("CONFIG_INET_TABLE_PERTURB_ORDER=10\n"));
        let owners = census(test, &build.join("vmlinux"), "tried.core");
        let mut owners = owners["owners"].as_array().expect("owners").iter();
        let table = owners.find(|owner| owner["name"] == "table_perturb").expect("the table");
        assert_eq!(table["bytes"], 4096);
        let after = test.read("tried.log").replace('\r', "");
        for (name, gain) in [("MemTotal", 150), ("MemFree", 1000)] {
            let [before, after] = [&before, &after].map(|console| number(console, "meminfo", name));
            assert!(after >= before + gain, "{name}: {before} to {after} KiB");
        }
    });
}

#[test]
#[ignore = "takes a minute or two"]
fn kernel_with_proposed_changes_serves_on_arm() {
    KernelTest::check("kernel_with_proposed_changes_serves_on_arm", |test| {
        let kernel = test.kernel("arm-virt");
        let scenario = test.frozen_on_arm();
        test.passes(&scenario, &kernel, &["--dump", "memory.core"]);
        let before = test.console(&kernel);
        let owners = census(test, &kernel.vmlinux, "memory.core");
        test.write("census.json", owners.to_string());
        let plan = advice(test, &scenario, &kernel, &arm::busybox_plan(), &["--census", "census.json"]);
        let (_, result) = tried(test, &kernel, &scenario, &plan);
        let options = result["config"]["options"].as_array().expect("options");
        assert!(
            options.len() >= 8 && options.iter().all(|option| option["tried"] == "passes"),
            "{options:?}"
        );
        let after = test.read("tried.log").replace('\r', "");
        let [before, after] = [&before, &after].map(|console| number(console, "meminfo", "MemFree"));
        assert!(after >= before + 1000, "{before} to {after} KiB");
    });
}

#[test]
#[ignore = "builds the kernel again and again"]
fn options_that_a_test_needs_stay() {
    KernelTest::check("options_that_a_test_needs_stay", |test| {
        let kernel = test.kernel("web-i386");
        let scenario = test.frozen();
        let mut plan = advice(test, &scenario, &kernel, &busybox_plan(), &[]);
        // The disk of the scenario needs VIRTIO_BLK, contrary to this plan.
        let options = plan["config"]["options"].as_array_mut().expect("options");
        options.retain(|option| {
            ["SERIAL_8250_EXAR", "MQ_IOSCHED_KYBER"].iter().any(|name| option["name"] == *name)
        });
        let mut wrong = options[0].clone();
        wrong["name"] = json!("VIRTIO_BLK");
        wrong["with"] = json!([]);
        options.push(wrong);
        let (build, result) = tried(test, &kernel, &scenario, &plan);
        let verdicts = result["config"]["options"].as_array().expect("options").iter();
        let verdicts: Vec<&str> = verdicts.filter_map(|option| option["tried"].as_str()).collect();
        assert_eq!(verdicts, ["passes", "passes", "fails"]);
        assert!(configuration(&build).contains("CONFIG_VIRTIO_BLK=y\n"));
    });
}

#[test]
fn measured_options_save_what_was_estimated() {
    KernelTest::check("measured_options_save_what_was_estimated", |test| {
        let kernel = test.kernel("web-i386");
        let mut ranking = |resume: &[&str]| -> Value {
            let run = Run::kshrink("config-spec").arg("rank").arg(&kernel.vmlinux).arg("--json").args(resume);
            // The first goes in whole objects, the second leaves calls behind, the third takes members of a library
            // along.
            let run = run.args(["VGA_ARB", "INET_DIAG", "BLK_DEV_INITRD"]).limit(TRY_LIMIT);
            serde_json::from_str(&test.chain.succeed(run).text()).expect("a ranking")
        };
        let (ranking, resumed) = (ranking(&[]), ranking(&["--resume"]));
        // With the seconds of the first.
        assert_eq!(ranking, resumed);
        let options = ranking["options"].as_array().expect("options");
        let names: Vec<&Value> = options.iter().map(|option| &option["name"]).collect();
        assert_eq!(names, ["BLK_DEV_INITRD", "INET_DIAG", "VGA_ARB"]);
        for option in options {
            let total = |of: &Value| {
                let kinds = ["text", "data", "bss", "init"].iter();
                kinds.map(|kind| of[kind].as_i64().expect("bytes")).sum::<i64>()
            };
            let (estimate, saved) = (&option["estimate"], &option["saved"]);
            assert!(total(&saved["contents"]) > 4000, "{option}");
            assert!(total(&saved["contents"]).abs_diff(total(&estimate["contents"])) <= 512, "{option}");
            assert_eq!([&saved["not_expected"], &saved["still_there"]], [&json!([]), &json!([])]);
            assert!(saved["vmlinux"].as_i64().is_some_and(|bytes| bytes > 4000), "{option}");
        }
    });
}

//! Kernels of which parts are frozen: what runs thaws, and the memory that it saves is there.

use kshrink_tests::{Kernel, KernelTest, RewrittenKernel, Run};
use serde_json::json;

use super::busybox_plan;

const PASSES: [&str; 2] = ["--passes", "syscalls,reach,freeze"];

/// The number behind a name in a console, among the lines that begin with the name of a file of /proc.
fn number(console: &str, file: &str, name: &str) -> u64 {
    let start = format!("{file}: {name}");
    let line = console.lines().find(|line| line.starts_with(&start));
    let line = line.unwrap_or_else(|| panic!("no `{start}` in the console:\n{console}"));
    let word = line[start.len()..].trim_start_matches(':').split_whitespace().next();
    word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no number in `{line}`"))
}

#[test]
fn all_that_may_freeze_thaws() {
    KernelTest::check("all_that_may_freeze_thaws", |test| {
        let kernel = test.kernel("web-i386");
        let scenario = test.frozen();
        let run = Run::kshrink("frozen-pack").arg("plan").arg(&kernel.vmlinux).arg("--everything");
        let plan = test.chain.succeed(run.stdin(busybox_plan().as_str())).text();
        let frozen = test.rewritten(&kernel, "everything", &plan, &PASSES);
        assert!(
            frozen.cut("footprint") > 40.0,
            "the footprint fell by only {:.2} %",
            frozen.cut("footprint")
        );
        test.passes(&scenario, &kernel, &[]);
        test.passes(&scenario, &frozen.kernel, &[]);
        let (original, console) = (test.console(&kernel), test.console(&frozen.kernel));
        let thawed = number(&console, "kshrink", "thawed");
        let pages = number(&console, "kshrink", "frozen_text_pages")
            + number(&console, "kshrink", "frozen_data_pages");
        assert!(100 < thawed && thawed <= pages, "{thawed} of {pages} pages thawed");
        let told = console.lines().filter(|line| line.starts_with("kshrink: ") && line.contains(" ff"));
        assert_eq!(told.count() as u64, thawed);
        // What thaws before the page allocator is up is not part of MemTotal: less of it is seen than the footprint says.
        let total = |console: &str| number(console, "meminfo", "MemTotal");
        let (before, after) = (total(&original), total(&console));
        assert!(after > before + 1000, "MemTotal was {before} KiB and is {after} KiB");
    });
}

/// A kernel of which one function is frozen, given its name and file.
fn one_function(test: &mut KernelTest<'_>, kernel: &Kernel, name: &str, file: &str) -> RewrittenKernel {
    let frozen = json!({"mechanism": "page", "code": [{"name": name, "file": file}], "data": []});
    let plan = json!({"schema": "kshrink/1", "frozen": frozen}).to_string();
    test.rewritten(kernel, "one", &plan, &["--passes", "reach,freeze"])
}

#[test]
fn cold_code_can_be_refused() {
    KernelTest::check("cold_code_can_be_refused", |test| {
        let kernel = test.kernel("web-i386");
        let scenario = test.frozen();
        let frozen = one_function(test, &kernel, "version_proc_show", "version.c");
        test.passes(&scenario, &frozen.kernel, &[]);
        assert_eq!(number(&test.console(&frozen.kernel), "kshrink", "thawed"), 0);
        // The task is killed and the kernel says so, for which boot.sh blames it; all else goes on.
        let outcome = test.complains(&scenario, &frozen.kernel, &["--append", "kshrink.thaw=refuse"]);
        assert!(outcome.text().contains("unable to handle page fault"), "{outcome}");
        let console = test.console(&frozen.kernel);
        assert!(console.contains("SCENARIO frozen: PASS"), "{console}");
        assert_eq!(number(&console, "kshrink", "refused"), 1);
        assert_eq!(number(&console, "kshrink", "thawed"), 0);
    });
}

#[test]
fn kernels_that_move_are_not_frozen() {
    KernelTest::check("kernels_that_move_are_not_frozen", |test| {
        let kernel = test.kernel("websmp-i386");
        let plan = r#"{"schema": "kshrink/1", "frozen": {"mechanism": "page", "code": [{"name": "panic"}], "data": []}}"#;
        let run = Run::kshrink("kshrink-spec").arg(&kernel.vmlinux).args(PASSES).args(["-o", "out"]);
        let outcome = test.chain.attempt(run.stdin(plan));
        assert_eq!(outcome.status, Some(2), "{outcome}");
        let refusal = "cannot freeze a kernel with CONFIG_RANDOMIZE_BASE";
        assert!(outcome.stderr.contains(refusal) && outcome.stderr.contains("build it without"), "{outcome}");
        assert!(!test.chain.dir().join("out").exists());
    });
}

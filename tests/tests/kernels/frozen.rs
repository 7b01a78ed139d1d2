//! Partly frozen kernels: code that runs is thawed, and the saved memory is available.

use std::fs;
use std::time::Duration;

use kshrink_tests::elf::globals;
use kshrink_tests::{Kernel, KernelTest, Outcome, RewrittenKernel, Run};
use serde_json::{Value, json};

use super::{busybox_plan, html, link_build, x86_64};

const PASSES: [&str; 2] = ["--passes", "syscalls,reach,freeze"];

/// A plan takes seconds, and longer next to other tests.
pub const PLAN_LIMIT: Duration = Duration::from_secs(10 * 60);

/// For programs that make other system calls than BusyBox.
const WITH_ALL_CALLS: [&str; 2] = ["--passes", "reach,freeze"];

/// Returns the number after a name in a console, among the lines with the name of a file of /proc as a prefix.
pub fn number(console: &str, file: &str, name: &str) -> u64 {
    let start = format!("{file}: {name}");
    let behind = |line: &'_ str| Some(line.strip_prefix(&start)?.strip_prefix([':', ' '])?.to_owned());
    let behind = console.lines().find_map(behind);
    let behind = behind.unwrap_or_else(|| panic!("no `{start}` in the console:\n{console}"));
    let word = behind.split_whitespace().next();
    word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no number in `{start}{behind}`"))
}

#[test]
fn all_that_may_freeze_thaws() {
    KernelTest::check("all_that_may_freeze_thaws", |test| {
        let kernel = test.kernel("web-i386");
        let scenario = test.frozen();
        let frozen = everything(test, &kernel, "page", &PASSES);
        assert!(
            frozen.cut("footprint") > 40.0,
            "the footprint fell by only {:.2} %",
            frozen.cut("footprint")
        );
        html::agrees(test, &kernel, &frozen, &PASSES, "tcp_v4_connect");
        test.passes(&scenario, &kernel, &[]);
        test.passes(&scenario, &frozen.kernel, &[]);
        let (original, console) = (test.console(&kernel), test.console(&frozen.kernel));
        let thawed = number(&console, "kshrink", "thawed");
        let pages = number(&console, "kshrink", "frozen_text_pages")
            + number(&console, "kshrink", "frozen_data_pages");
        let refrozen = number(&console, "kshrink", "refrozen");
        assert!(100 < thawed && thawed - refrozen <= pages, "{thawed} of {pages} pages thawed");
        let told = console.lines().filter(|line| line.starts_with("kshrink: ") && line.contains(" ff"));
        assert_eq!(told.count() as u64, thawed);
        // Some pages thaw before the kernel's clock runs.
        assert!(console.lines().any(|line| line.starts_with("kshrink: 0 0 ff")), "{console}");
        // The memory of the device matches the sizes. Pages that thawed before the page allocator was up are refrozen
        // after boot.
        assert!(refrozen > 0);
        let total = |console: &str| number(console, "meminfo", "MemTotal") as f64;
        let seen = total(&console) - total(&original);
        let said = (frozen.size("before", "footprint") - frozen.size("after", "footprint")) as f64 / 1024.0;
        assert!(
            (seen - said).abs() <= 16.0,
            "MemTotal rose by {seen} KiB, and the footprint fell by {said:.1} KiB"
        );
    });
}

#[test]
fn what_is_used_at_boot_alone_freezes_after_it() {
    KernelTest::check("what_is_used_at_boot_alone_freezes_after_it", |test| {
        let kernel = test.kernel("web-i386");
        let scenario = test.frozen();
        let vmlinux = kernel.vmlinux.display().to_string();
        test.passes(&scenario, &kernel, &["--icount", "yes", "--trace", "trace", "--data", &vmlinux]);
        let coverage = |test: &mut KernelTest<'_>, plan: &str, option: &[&str]| {
            let run =
                Run::kshrink("coverage").args(["qemu", "--data"]).args(option).args([&*vmlinux, "trace"]);
            let run = if plan.is_empty() { run } else { run.stdin(plan) };
            test.chain.succeed(run).text()
        };
        let later = coverage(test, "", &["--after-boot"]);
        test.chain.write("later.json", &later);
        let plan = coverage(test, &busybox_plan(), &[]);
        let run = Run::kshrink("frozen-pack").args(["plan", &vmlinux, "--after-boot", "later.json"]);
        let plan = test.chain.succeed(run.stdin(&*plan).limit(PLAN_LIMIT)).text();
        let frozen = test.rewritten(&kernel, "frozen", &plan, &[]);
        let cut = frozen.cut("footprint");
        assert!(cut > 39.0, "the footprint fell by only {cut:.2} %");
        test.passes(&scenario, &frozen.kernel, &[]);
        // Code that the kernel uses during boot is present then: almost none thaws before the first program runs.
        let at_boot = frozen.report["frozen"]["boot_pages"].as_u64().expect("a number");
        let console = test.console(&frozen.kernel);
        let thawed = console.lines().filter_map(thawed_for).take_while(|pid| *pid <= 1).count() as u64;
        assert!(
            at_boot > 50 && thawed < at_boot / 2,
            "{at_boot} pages are used at boot, and {thawed} thawed before the first program ran"
        );
    });
}

/// Returns for which process a page thawed, if a line of a console tells of one.
///
/// A line is `kshrink: NS TOOK_NS PAGE CONTEXT PID COMMAND IP`.
fn thawed_for(line: &str) -> Option<u32> {
    let columns: Vec<&str> = line.strip_prefix("kshrink: ")?.split_whitespace().collect();
    let [_, _, page, _, pid, _, _] = columns[..] else { return None };
    page.starts_with("ff").then(|| pid.parse().ok())?
}

/// Makes a kernel with everything frozen that a mechanism can freeze.
fn everything(
    test: &mut KernelTest<'_>,
    kernel: &Kernel,
    mechanism: &str,
    passes: &[&str],
) -> RewrittenKernel {
    let plan = everything_plan(test, kernel, mechanism);
    test.rewritten(kernel, "everything", &plan, passes)
}

/// Returns the plan for [`everything`].
fn everything_plan(test: &mut KernelTest<'_>, kernel: &Kernel, mechanism: &str) -> String {
    let run = Run::kshrink("frozen-pack").arg("plan").arg(&kernel.vmlinux);
    let run = run.args(["--everything", "--mechanism", mechanism]).limit(PLAN_LIMIT);
    let programs = if kernel.is_64() { x86_64::busybox_plan() } else { busybox_plan() };
    test.chain.succeed(run.stdin(programs.as_str())).text()
}

/// Returns a plan in which every third part counts as used at boot.
fn used_at_boot(plan: &str) -> String {
    let mut plan: Value = serde_json::from_str(plan).expect("a plan");
    for kind in ["code", "data"] {
        let parts = plan["frozen"][kind].as_array_mut().expect("a list");
        for part in parts.iter_mut().step_by(3) {
            let ranges = part["ranges"].as_array().cloned();
            part["at_boot"] = ranges.map_or_else(|| json!([{"offset": 0, "size": 1}]), Value::from);
        }
    }
    plan.to_string()
}

/// Checks that the pages that are used at boot are in memory that the kernel frees after boot.
fn in_init_data(frozen: &RewrittenKernel) {
    let names = ["kshrink_boot_pages", "__init_begin", "__init_end"];
    let [(pages, _), (begin, _), (end, _)] = globals(&frozen.kernel.vmlinux, names);
    let count = frozen.report["frozen"]["boot_pages"].as_u64().expect("a number");
    assert!(count > 100, "only {count} pages are used at boot");
    assert!(
        begin <= pages && pages + 4096 * count <= end,
        "{count} pages at {pages:#x}, and {begin:#x}-{end:#x} is freed"
    );
}

/// Its early code lies in other sections.
#[test]
#[ignore = "builds one more kernel"]
fn all_that_may_freeze_thaws_in_linux_7_2() {
    KernelTest::check("all_that_may_freeze_thaws_in_linux_7_2", |test| {
        let kernel = test.kernel("web-i386-7.2");
        // The source of this version has all names.
        let outcome = plan_of_another_version(test, &kernel, "7.99.0");
        assert_eq!(outcome.status, Some(0), "{outcome}");
        let frozen = everything(test, &kernel, "page", &PASSES);
        assert!(
            frozen.cut("footprint") > 40.0,
            "the footprint fell by only {:.2} %",
            frozen.cut("footprint")
        );
        let scenario = test.frozen();
        test.passes(&scenario, &frozen.kernel, &[]);
        assert!(number(&test.console(&frozen.kernel), "kshrink", "thawed") > 100);
    });
}

#[test]
#[ignore = "takes several minutes; make study-freeze"]
fn everything_frozen_on_two_processors() {
    on_two_processors("everything_frozen_on_two_processors", "websmp-i386-fixed", "page");
}

#[test]
#[ignore = "takes several minutes; make study-freeze ARCH=x86_64"]
fn x86_64_everything_frozen_on_two_processors() {
    on_two_processors("x86_64_everything_frozen_on_two_processors", "websmp-x86_64-fixed", "page");
}

#[test]
#[ignore = "takes several minutes; make study-freeze"]
fn stub_everything_frozen_on_two_processors() {
    on_two_processors("stub_everything_frozen_on_two_processors", "websmp-i386-fixed", "stub");
}

#[test]
#[ignore = "takes several minutes; make study-freeze"]
fn everything_frozen_with_physical_address_extension() {
    on_two_processors("everything_frozen_with_physical_address_extension", "websmp-i386-pae", "page");
}

#[test]
#[ignore = "takes several minutes; make study-freeze"]
fn stub_everything_frozen_with_physical_address_extension() {
    on_two_processors("stub_everything_frozen_with_physical_address_extension", "websmp-i386-pae", "stub");
}

/// Checks that a kernel with two processors and everything frozen passes a scenario, and reports errors as expected.
fn on_two_processors(name: &str, kernel: &str, mechanism: &str) {
    KernelTest::check(name, |test| {
        let kernel = test.kernel(kernel);
        let plan = everything_plan(test, &kernel, mechanism);
        let plan = if mechanism == "page" { used_at_boot(&plan) } else { plan };
        let frozen = test.rewritten(&kernel, "everything", &plan, &PASSES);
        if mechanism == "page" {
            in_init_data(&frozen);
        }
        let scenario = if mechanism == "page" { test.thaw(&kernel) } else { test.smp(&kernel) };
        test.passes(&scenario, &frozen.kernel, &[]);
        // The kernel's error reports are the same as unfrozen.
        let scenario = test.crash(&kernel);
        test.complains(&scenario, &kernel, &[]);
        crashes(&test.console(&kernel), kernel.is_64());
        test.complains(&scenario, &frozen.kernel, &[]);
        let console = test.console(&frozen.kernel);
        let console = if mechanism == "stub" { with_names(&console, &frozen) } else { console };
        // Frozen and rarely executed parts of functions have names of their own.
        crashes(&console.replace(".frozen+", "+").replace(".cold+", "+"), kernel.is_64());
    });
}

/// Returns a console in which places in regions have the names of System.map, which lists all functions of a region.
/// The kernel itself prints the function at the start of the region, or the frozen address.
fn with_names(console: &str, frozen: &RewrittenKernel) -> String {
    let names = ["kshrink_frozen_text", "kshrink_frozen_data", "kshrink_stubs"];
    let [(start, _), (end, _), (stubs, _)] = globals(&frozen.kernel.vmlinux, names);
    let map = fs::read_to_string(frozen.dir.join("System.map")).expect("System.map");
    let symbols = map.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some((u64::from_str_radix(words.next()?, 16).ok()?, words.nth(1)?))
    });
    let (regions, others): (Vec<_>, Vec<_>) =
        symbols.partition(|(address, _)| (start..end).contains(address));
    // Every region begins with a symbol of this suffix, and has a stub of five bytes, in the same order.
    let starts: Vec<u64> =
        regions.iter().filter(|(_, name)| name.ends_with(".frozen")).map(|(start, _)| *start).collect();
    let of_stub = |address: u64| starts.get((address.checked_sub(stubs)? / 5) as usize).copied();
    let hexadecimal = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let named = |word: &str| {
        let address = match word.split_once("+0x") {
            None => hexadecimal(word.strip_prefix("0x")?).filter(|address| (start..end).contains(address))?,
            Some((name, distance)) => {
                let mut stubs = others.iter().filter(|(_, symbol)| *symbol == name);
                let (stub, _) = stubs.next().filter(|_| stubs.next().is_none())?;
                of_stub(*stub)? + hexadecimal(distance.split_once('/')?.0)?
            }
        };
        let behind = regions.partition_point(|(start, _)| *start <= address);
        let (start, name) = regions.get(behind.checked_sub(1)?)?;
        Some(format!("{name}+{:#x}", address - start))
    };
    let words = console.split_inclusive(char::is_whitespace).map(|piece| {
        let word = piece.trim_end();
        let name = named(word).unwrap_or_else(|| word.to_owned());
        name + &piece[word.len()..]
    });
    words.collect()
}

#[test]
#[ignore = "takes several minutes; make study-freeze"]
fn everything_frozen_survives_stress() {
    survives_stress("everything_frozen_survives_stress", "web-i386", "page");
}

#[test]
#[ignore = "takes several minutes; make study-freeze ARCH=x86_64"]
fn x86_64_everything_frozen_survives_stress() {
    survives_stress("x86_64_everything_frozen_survives_stress", "web-x86_64", "page");
}

#[test]
#[ignore = "takes several minutes; make study-freeze"]
fn stub_everything_frozen_survives_stress() {
    survives_stress("stub_everything_frozen_survives_stress", "web-i386", "stub");
}

/// Checks that a kernel with everything frozen by a mechanism passes stress-ng.
fn survives_stress(name: &str, kernel: &str, mechanism: &str) {
    KernelTest::check(name, |test| {
        let kernel = test.kernel(kernel);
        let scenario = if kernel.is_64() { test.stress_on_x86_64() } else { test.stress() };
        let frozen = everything(test, &kernel, mechanism, &WITH_ALL_CALLS);
        // The programs for x86-64 are larger.
        let memory: &[&str] = if kernel.is_64() { &["--memory", "192"] } else { &[] };
        test.passes(&scenario, &frozen.kernel, memory);
    });
}

#[test]
#[ignore = "takes 12 minutes; make study-freeze"]
fn everything_frozen_survives_ten_minutes_of_stress() {
    survives_ten_minutes("everything_frozen_survives_ten_minutes_of_stress", "websmp-i386-fixed");
}

#[test]
#[ignore = "takes 12 minutes; make study-freeze ARCH=x86_64"]
fn x86_64_everything_frozen_survives_ten_minutes_of_stress() {
    survives_ten_minutes("x86_64_everything_frozen_survives_ten_minutes_of_stress", "websmp-x86_64-fixed");
}

/// Checks that a kernel with two processors and everything frozen passes ten minutes of stress-ng.
fn survives_ten_minutes(name: &str, kernel: &str) {
    KernelTest::check(name, |test| {
        let kernel = test.kernel(kernel);
        let frozen = everything(test, &kernel, "page", &WITH_ALL_CALLS);
        let scenario = test.chaos(&kernel);
        test.passes(&scenario, &frozen.kernel, &[]);
        let console = test.console(&frozen.kernel);
        let told: Vec<&str> = console.lines().filter(|line| line.starts_with("kshrink: ")).collect();
        println!("{}", told.join("\n"));
    });
}

/// Returns the part of a console about a topic, up to the next topic.
fn about<'c>(console: &'c str, what: &str) -> &'c str {
    let start = format!("about {what}\n");
    let (_, after) = console.split_once(&start).unwrap_or_else(|| panic!("nothing {start}{console}"));
    after.split_once("about ").map_or(after, |(part, _)| part)
}

/// Panics unless a console has all expected messages of the scenario crash.
fn crashes(console: &str, is_64: bool) {
    let says = |what: &str, lines: &[&str]| {
        let mut rest = about(console, what);
        for line in lines {
            let Some((_, after)) = rest.split_once(line) else {
                panic!("no `{line}` about {what}:\n{console}")
            };
            rest = after;
        }
    };
    // A backtrace also shows other addresses on the stack; these functions are callers of one another.
    let write = ["write_sysrq_trigger+0x", "proc_reg_write+0x", "vfs_write+0x", "ksys_write+0x"];
    let first = ["NMI backtrace for cpu ", "Call Trace:", "__handle_sysrq+0x"];
    says("backtraces", &[&first[..], &write[..]].concat());
    says("backtraces", &["Sending NMI from CPU ", "NMI backtrace for cpu "]);
    let oops = [
        "BUG: kernel NULL pointer dereference, address: 00000000",
        "Oops: ",
        if is_64 { "RIP: 0010:hex_dump_to_buffer" } else { "EIP: hex_dump_to_buffer" },
        "Code: ",
        if is_64 { "RAX: " } else { "EAX: " },
        "Call Trace:",
        "set_run+0x",
        "param_attr_store+0x",
        "vfs_write+0x",
        "---[ end trace ",
    ];
    says("oops", &oops);
    let memory = [
        "tail invoked oom-killer",
        "out_of_memory+0x",
        "Mem-Info:",
        "Out of memory: Killed process ",
        "(tail)",
    ];
    says("memory", &memory);
    says("panic", &[&oops[..], &["Kernel panic - not syncing: Fatal exception"]].concat());
    assert!(console.contains("SCENARIO crash: PASS (4 checks)"), "{console}");
}

#[test]
fn stub_all_that_may_freeze_thaws() {
    KernelTest::check("stub_all_that_may_freeze_thaws", |test| {
        let kernel = test.kernel("web-i386");
        let scenario = test.frozen();
        let frozen = everything(test, &kernel, "stub", &PASSES);
        assert!(
            frozen.cut("footprint") > 28.0,
            "the footprint fell by only {:.2} %",
            frozen.cut("footprint")
        );
        test.passes(&scenario, &frozen.kernel, &[]);
        let console = test.console(&frozen.kernel);
        let thawed = number(&console, "kshrink", "thawed");
        let regions = number(&console, "kshrink", "frozen_regions");
        assert!(1000 < thawed && thawed <= regions, "{thawed} of {regions} regions thawed");
    });
}

/// Makes a kernel with one function frozen by a mechanism, given its name and file.
fn one_function(
    test: &mut KernelTest<'_>,
    kernel: &Kernel,
    mechanism: &str,
    name: &str,
    file: &str,
) -> RewrittenKernel {
    let mut frozen = json!({"mechanism": mechanism, "code": [{"name": name, "file": file}], "data": []});
    if mechanism == "stub" {
        frozen["minimum"] = 1.into();
    }
    let plan = json!({"schema": "kshrink/1", "frozen": frozen}).to_string();
    test.rewritten(kernel, "one", &plan, &["--passes", "reach,freeze"])
}

#[test]
fn cold_code_can_be_refused() {
    is_refused("cold_code_can_be_refused", "page", "unable to handle page fault");
}

#[test]
#[ignore = "as cold_code_can_be_refused: make test-rest"]
fn stub_cold_code_can_be_refused() {
    is_refused("stub_cold_code_can_be_refused", "stub", "kernel BUG at kshrink/stub.c:");
}

/// Checks that a mechanism does not thaw a function for user-space tasks if it is configured so; `complaint` is the
/// kernel's message in that case.
fn is_refused(name: &str, mechanism: &str, complaint: &str) {
    KernelTest::check(name, |test| {
        let kernel = test.kernel("web-i386");
        let scenario = test.frozen();
        let frozen = one_function(test, &kernel, mechanism, "version_proc_show", "version.c");
        test.passes(&scenario, &frozen.kernel, &[]);
        assert_eq!(number(&test.console(&frozen.kernel), "kshrink", "thawed"), 0);
        // Each task is killed and the kernel reports it, which boot.sh counts as a failure. Everything else continues.
        let outcome = test.complains(&scenario, &frozen.kernel, &["--append", "kshrink.thaw=refuse"]);
        let console = test.console(&frozen.kernel);
        assert!(console.contains(complaint), "{outcome}\n{console}");
        assert!(console.contains("SCENARIO frozen: PASS"), "{console}");
        assert_eq!(number(&console, "kshrink", "refused"), 20);
        assert_eq!(number(&console, "kshrink", "thawed"), 0);
    });
}

/// Makes a copy of a build that claims another version, and plans what freezes in it.
fn plan_of_another_version(test: &mut KernelTest<'_>, kernel: &Kernel, version: &str) -> Outcome {
    link_build(test.chain, &kernel.build, "another");
    let release = test.chain.dir().join("another/include/config/kernel.release");
    fs::remove_file(&release).expect("a link");
    fs::write(release, version).expect("another version");
    test.chain.attempt(Run::kshrink("frozen-pack").arg("plan").arg("another/vmlinux").arg("--everything"))
}

/// A function that must not freeze may have another name in a newer kernel. The source of Linux 6.12 lacks some names
/// of Linux 7.2.
#[test]
fn kernels_without_a_known_name_are_not_frozen() {
    KernelTest::check("kernels_without_a_known_name_are_not_frozen", |test| {
        let kernel = test.kernel("web-i386");
        let outcome = plan_of_another_version(test, &kernel, "7.99.0");
        assert_eq!(outcome.status, Some(2), "{outcome}");
        let refusal = "has no bio_add_vmalloc_chunk, free_frozen_pages, which must not freeze";
        assert!(outcome.stderr.contains(refusal), "{outcome}");
    });
}

#[test]
fn kernels_that_move_are_not_frozen() {
    KernelTest::check("kernels_that_move_are_not_frozen", |test| {
        let kernel = test.kernel("web-i386");
        link_build(test.chain, &kernel.build, "moving");
        let config = test.chain.dir().join("moving/include/config/auto.conf");
        let options = fs::read_to_string(&config).expect("a configuration");
        fs::remove_file(&config).expect("a link");
        fs::write(config, options + "CONFIG_RANDOMIZE_BASE=y\n").expect("another configuration");
        let moving = "moving/vmlinux";
        let plan = r#"{"schema": "kshrink/1", "frozen": {"mechanism": "page", "code": [{"name": "panic"}], "data": []}}"#;
        let spec = Run::kshrink("kshrink-spec").arg(moving).args(PASSES).args(["-o", "out"]);
        let pack = Run::kshrink("frozen-pack").arg("plan").arg(moving).args(["--everything", "-o", "out"]);
        for run in [spec, pack] {
            let outcome = test.chain.attempt(run.stdin(plan));
            assert_eq!(outcome.status, Some(2), "{outcome}");
            let refusal = "cannot freeze a kernel with CONFIG_RANDOMIZE_BASE";
            assert!(
                outcome.stderr.contains(refusal) && outcome.stderr.contains("build it without"),
                "{outcome}"
            );
        }
        assert!(!test.chain.dir().join("out").exists());
    });
}

//! Real kernels: built from Debian's source, rewritten, relinked by their own build, booted in QEMU.
//!
//! The tests of this file take turns ([`Turn`]): each of them builds kernels and boots machines, which is more
//! than enough for two cores.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use kshrink_tests::{Run, elf, fixture, recipe};
use serde_json::Value;
use tempfile::TempDir;

const RELINK_LIMIT: Duration = Duration::from_secs(10 * 60);
const BOOT_LIMIT: Duration = Duration::from_secs(8 * 60);

/// One test at a time.
struct Turn {
    _turn: MutexGuard<'static, ()>,
}

impl Turn {
    fn take() -> Turn {
        static TURN: Mutex<()> = Mutex::new(());
        Turn { _turn: TURN.lock().unwrap_or_else(|failed| failed.into_inner()) }
    }
}

/// A kernel as its own build made it.
struct Kernel {
    build: PathBuf,
}

impl Kernel {
    fn built(name: &str) -> Kernel {
        Kernel { build: recipe("kernels/build.sh", &[name]) }
    }

    fn vmlinux(&self) -> PathBuf {
        self.build.join("vmlinux")
    }

    fn boot_image(&self) -> PathBuf {
        self.build.join("arch/x86/boot/bzImage")
    }

    /// Rewrites it.
    fn rewritten(&self, plan: &str, arguments: &[&str]) -> Rewritten {
        let dir = TempDir::new().expect("a temporary directory");
        Run::kshrink("kshrink-spec")
            .arg(self.vmlinux())
            .args(arguments)
            .arg("-o")
            .arg(dir.path().join("out"))
            .stdin(plan)
            .limit(RELINK_LIMIT)
            .succeed();
        let report = fs::read(dir.path().join("out/report.json")).expect("a report");
        Rewritten { report: serde_json::from_slice(&report).expect("a JSON report"), dir }
    }
}

/// A rewritten kernel.
struct Rewritten {
    dir: TempDir,
    report: Value,
}

impl Rewritten {
    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("out").join(name)
    }

    /// A size in bytes from the report.
    fn size(&self, when: &str, column: &str) -> u64 {
        self.report["sizes"][when][column].as_u64().unwrap_or_else(|| panic!("no {column} {when}"))
    }

    /// By how many per cent a column fell.
    fn cut(&self, column: &str) -> f64 {
        let (before, after) = (self.size("before", column) as f64, self.size("after", column) as f64);
        100.0 * (before - after) / before
    }
}

/// A scenario's initramfs, and the machine that it runs on.
struct Scenario {
    dir: TempDir,
    name: &'static str,
    machine: &'static [&'static str],
}

impl Scenario {
    fn web() -> Scenario {
        Scenario::made("web", None, &[])
    }

    fn smp(kernel: &Kernel) -> Scenario {
        Scenario::made("smp", Some(kernel), &["--cpus", "2", "--timeout", "240"])
    }

    fn stress() -> Scenario {
        Scenario::made("stress", None, &["--timeout", "420"])
    }

    fn made(name: &'static str, kernel: Option<&Kernel>, machine: &'static [&'static str]) -> Scenario {
        let dir = TempDir::new().expect("a temporary directory");
        let run =
            Run::new(fixture("scenarios/make-initramfs.sh")).arg(name).arg(dir.path().join("initramfs.gz"));
        let run = kernel.into_iter().fold(run, |run, kernel| run.arg(&kernel.build));
        run.limit(RELINK_LIMIT).succeed();
        Scenario { dir, name, machine }
    }

    /// Boots a kernel; panics with the end of the console unless the verdict is PASS.
    fn passes(&self, image: &Path) {
        self.passes_with(image, &[]);
    }

    /// The same, with more options for the machine.
    fn passes_with(&self, image: &Path, options: &[&OsStr]) {
        let log = self.dir.path().join("console.log");
        let outcome = Run::new(fixture("qemu/boot.sh"))
            .arg("--kernel")
            .arg(image)
            .arg("--initramfs")
            .arg(self.dir.path().join("initramfs.gz"))
            .arg("--log")
            .arg(&log)
            .args(self.machine)
            .args(options)
            .limit(BOOT_LIMIT)
            .outcome();
        let console = fs::read_to_string(&log).unwrap_or_default();
        let lines: Vec<&str> = console.lines().collect();
        let end = lines[lines.len().saturating_sub(60)..].join("\n");
        assert_eq!(outcome.status, Some(0), "{outcome}\n{}", end);
        assert!(outcome.text().contains(&format!("SCENARIO {}: PASS", self.name)), "{outcome}");
    }
}

/// The plan that `syscall-scan` makes for BusyBox.
fn busybox_plan() -> String {
    Run::kshrink("syscall-scan")
        .arg(recipe("package.sh", &["busybox-static", "i386"]).join("bin/busybox"))
        .succeed()
        .text()
}

/// Every file of a directory with its size and time of modification.
fn listing(dir: &Path) -> BTreeMap<PathBuf, (u64, SystemTime)> {
    let mut files = BTreeMap::new();
    let mut pending = vec![dir.to_path_buf()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(&dir).expect("a readable directory") {
            let entry = entry.expect("an entry");
            let data = entry.metadata().expect("its metadata");
            if data.is_dir() {
                pending.push(entry.path());
            }
            files.insert(entry.path(), (data.len(), data.modified().expect("a time")));
        }
    }
    files
}

#[test]
fn identity_keeps_every_size_and_boots() {
    let _turn = Turn::take();
    let kernel = Kernel::built("web-i386");
    let same = kernel.rewritten("", &["--passes", "none"]);
    for column in ["text", "data", "init_text", "init_data", "footprint"] {
        assert_eq!(same.size("before", column), same.size("after", column), "{column}");
    }
    let code = |path: &Path| elf::Contents::of(path).code_bytes;
    assert_eq!(code(&same.file("vmlinux")), code(&kernel.vmlinux()));
    Scenario::web().passes(&same.file("bzImage"));
}

#[test]
fn the_web_kernel_shrinks_and_still_serves() {
    let _turn = Turn::take();
    let kernel = Kernel::built("web-i386");
    let before = listing(&kernel.build);
    let scenario = Scenario::web();
    scenario.passes(&kernel.boot_image());
    let plan = busybox_plan();
    let small = kernel.rewritten(&plan, &[]);
    scenario.passes(&small.file("bzImage"));
    assert!(small.file("System.map").is_file());
    assert!(small.cut("footprint") >= 12.0, "the footprint fell by only {:.2} %", small.cut("footprint"));
    assert!(before == listing(&kernel.build), "the build directory changed");

    let data = Kernel::built("web-i386-data");
    let smaller = data.rewritten(&plan, &["--make", "KCFLAGS=-fdata-sections"]);
    scenario.passes(&smaller.file("bzImage"));
    let (small, smaller) = (small.size("after", "footprint"), smaller.size("after", "footprint"));
    assert!(smaller < small, "-fdata-sections leaves {smaller} bytes, {small} without");
}

#[test]
fn the_web_kernel_of_linux_6_1_shrinks_and_still_serves() {
    let _turn = Turn::take();
    let kernel = Kernel::built("web-i386-6.1");
    let scenario = Scenario::web();
    scenario.passes(&kernel.boot_image());
    let same = kernel.rewritten("", &["--passes", "none"]);
    assert_eq!(same.size("before", "text"), same.size("after", "text"));
    let code = |path: &Path| elf::Contents::of(path).code_bytes;
    assert_eq!(code(&same.file("vmlinux")), code(&kernel.vmlinux()));
    let small = kernel.rewritten(&busybox_plan(), &[]);
    scenario.passes(&small.file("bzImage"));
    assert!(small.cut("footprint") >= 11.0, "the footprint fell by only {:.2} %", small.cut("footprint"));
}

#[test]
fn smp_kernel_with_modules_and_run_time_patching() {
    modules_and_run_time_patching("websmp-i386");
}

#[test]
#[ignore = "builds one more kernel"]
fn smp_kernel_of_linux_6_1_with_modules_and_run_time_patching() {
    modules_and_run_time_patching("websmp-i386-6.1");
}

fn modules_and_run_time_patching(name: &str) {
    let _turn = Turn::take();
    let kernel = Kernel::built(name);
    let scenario = Scenario::smp(&kernel);
    let same = kernel.rewritten("", &["--passes", "none"]);
    for column in ["text", "data", "init_text", "init_data", "footprint"] {
        assert_eq!(same.size("before", column), same.size("after", column), "{column}");
    }
    scenario.passes(&same.file("bzImage"));
    let small = kernel.rewritten(&busybox_plan(), &[]);
    assert!(small.cut("footprint") > 2.0, "the footprint fell by only {:.2} %", small.cut("footprint"));
    scenario.passes(&small.file("bzImage"));
    scenario.passes(&kernel.rewritten("", &["--passes", "instrument"]).file("bzImage"));
}

#[test]
fn shrunk_kernel_survives_stress() {
    let _turn = Turn::take();
    let kernel = Kernel::built("web-i386");
    let scenario = Scenario::stress();
    scenario.passes(&kernel.boot_image());
    scenario.passes(&kernel.rewritten("", &["--passes", "reach"]).file("bzImage"));
}

/// Boots a kernel with a trace, and returns its coverage as a plan.
fn coverage(scenario: &Scenario, image: &Path, vmlinux: &Path) -> String {
    let trace = scenario.dir.path().join("trace");
    let options = ["--icount", "yes", "--trace"].map(OsStr::new);
    scenario.passes_with(image, &[&options[..], &[trace.as_os_str()]].concat());
    Run::kshrink("coverage").arg("qemu").arg(vmlinux).arg(&trace).succeed().text()
}

/// The touched pages of the text of a kernel, and how few would do for whole functions.
fn pages(vmlinux: &Path, plan: &str) -> (u64, u64) {
    let run = Run::kshrink("reorder").args(["pages", "--json"]).arg(vmlinux).stdin(plan);
    let pages: Value = serde_json::from_slice(&run.succeed().stdout).expect("JSON");
    let number = |name: &str| pages["text"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {pages}"));
    (number("touched"), number("minimum_by_function"))
}

#[test]
fn what_ran_lies_together_and_serves() {
    let _turn = Turn::take();
    let kernel = Kernel::built("web-i386");
    let scenario = Scenario::web();
    let plan = coverage(&scenario, &kernel.boot_image(), &kernel.vmlinux());
    let reorder = Run::kshrink("reorder").args(["--granularity", "block", "--vmlinux"]).arg(kernel.vmlinux());
    let order = reorder.stdin(plan.as_str()).succeed().text();
    let ordered = kernel.rewritten(&order, &["--passes", "layout"]);
    let ran = coverage(&scenario, &ordered.file("bzImage"), &ordered.file("vmlinux"));
    let (touched, _) = pages(&ordered.file("vmlinux"), &ran);
    let (before, minimum) = pages(&kernel.vmlinux(), &plan);
    // After one training; `make pages` makes twelve. What runs besides depends on how fast requests come in, and each
    // function that was not seen may cost a page.
    let is_dense = 10 * touched < 9 * minimum && 2 * touched < before;
    assert!(is_dense, "{touched} pages touched, {before} before, {minimum} for whole functions");
}

#[test]
fn x86_64_kernel_lifts() {
    let _turn = Turn::take();
    let kernel = Kernel::built("web-x86_64");
    let outcome = Run::kshrink("kcfg").args(["--summary", "--json"]).arg(kernel.vmlinux()).succeed();
    let summary: Value = serde_json::from_slice(&outcome.stdout).expect("a JSON summary");
    assert!(summary["functions"].as_u64() > Some(10_000), "{summary}");
    assert!(summary["jump_tables"].as_u64() > Some(50), "{summary}");
}

//! Kernels that a test builds, rewrites and boots.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::{Chain, Outcome, Run, fixture};

// On a quiet machine, a build takes 5 minutes, a relink half a minute, and the longest boot 4 minutes. Parallel tests
// make all of these slower, and two that need the same build wait for it.
const BUILD_LIMIT: Duration = Duration::from_secs(60 * 60);
const RELINK_LIMIT: Duration = Duration::from_secs(20 * 60);
const BOOT_LIMIT: Duration = Duration::from_secs(21 * 60);
/// The time limit in seconds that `boot.sh` gives QEMU; the limits above apply to the commands.
const BOOT_SECONDS: &str = "1200";

/// Number of lines of a console that a message quotes.
const QUOTED_LINES: usize = 60;

/// A test of kernels: its commands, and the time that they took.
pub struct KernelTest<'c> {
    /// The commands. Files without a directory are in its directory.
    pub chain: &'c mut Chain,
    seconds: BTreeMap<Work, f64>,
}

/// The steps that take the time of kernel tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Build,
    Rewrite,
    Relink,
    Boot,
}

/// A kernel that can be booted.
pub struct Kernel {
    /// The name of its files in the test's directory: `NAME.log`, `NAME.trace`.
    pub name: String,
    /// The kernel with its symbols.
    pub vmlinux: PathBuf,
    /// The image to boot.
    pub image: PathBuf,
    /// The build directory that it comes from.
    pub build: PathBuf,
}

/// A kernel as kshrink-spec made it.
pub struct RewrittenKernel {
    /// The kernel.
    pub kernel: Kernel,
    /// The output directory.
    pub dir: PathBuf,
    /// Its report.json.
    pub report: Value,
}

/// A scenario of `fixtures/scenarios/` as an initramfs, and the machine that it runs on.
pub struct Scenario {
    name: &'static str,
    initramfs: String,
    machine: &'static [&'static str],
}

impl Scenario {
    /// The path of its initramfs.
    pub fn initramfs(&self) -> &str {
        &self.initramfs
    }

    /// The options of `boot.sh` for the machine.
    pub fn machine(&self) -> &[&str] {
        self.machine
    }
}

impl KernelTest<'_> {
    /// Runs a test that panics on failure, like [`Chain::check`]. Prints the time of each step.
    pub fn check(name: &str, test: impl FnOnce(&mut KernelTest<'_>)) {
        let start = Instant::now();
        Chain::check(name, |chain| {
            let mut kernels = KernelTest { chain, seconds: BTreeMap::new() };
            test(&mut kernels);
            let parts = kernels.seconds.iter().map(|(work, seconds)| format!("{work:?} {seconds:.0} s"));
            let parts = parts.collect::<Vec<_>>().join(", ").to_lowercase();
            let all = start.elapsed().as_secs_f64();
            // Directly, because the test harness shows what a test prints only if it fails.
            let _ = writeln!(std::io::stderr(), "kernels: {name}: {all:.0} s ({parts})");
        });
    }

    /// Returns a kernel of `fixtures/kernels/`, built if necessary.
    pub fn kernel(&mut self, name: &str) -> Kernel {
        let build = self.recipe(name);
        Kernel {
            name: "original".to_owned(),
            vmlinux: build.join("vmlinux"),
            image: boot_image(&build),
            build,
        }
    }

    /// Returns the output of `fixtures/kernels/build.sh` for a name.
    pub fn recipe(&mut self, name: &str) -> PathBuf {
        let run = Run::new(fixture("kernels/build.sh")).arg(name).limit(BUILD_LIMIT);
        let outcome = self.spend(Work::Build, |chain| chain.succeed(run));
        PathBuf::from(outcome.text().lines().last().unwrap_or_default())
    }

    /// Rewrites a kernel by a plan (none if it is empty), under a new name.
    pub fn rewritten(
        &mut self,
        kernel: &Kernel,
        name: &str,
        plan: &str,
        arguments: &[&str],
    ) -> RewrittenKernel {
        let run = |output: &str, path: &str| {
            let run = Run::kshrink("kshrink-spec").arg(&kernel.vmlinux).args(arguments);
            let run = run.args([output, path]).limit(RELINK_LIMIT);
            if plan.is_empty() { run } else { run.args(["--plan", &format!("{name}.json")]) }
        };
        if !plan.is_empty() {
            self.chain.write(&format!("{name}.json"), plan);
        }
        self.chain.after_failure(run("--emit-object", &format!("{name}.o")));
        let start = Instant::now();
        self.chain.succeed(run("--output", name));
        let dir = self.chain.dir().join(name);
        let report = fs::read(dir.join("report.json")).expect("a report");
        let report: Value = serde_json::from_slice(&report).expect("a JSON report");
        let relink = seconds_of(&report, "relink");
        self.add(Work::Relink, relink);
        self.add(Work::Rewrite, start.elapsed().as_secs_f64() - relink);
        let kernel = Kernel {
            name: name.to_owned(),
            vmlinux: dir.join("vmlinux"),
            image: dir.join(boot_image(&kernel.build).file_name().expect("an image has a name")),
            build: kernel.build.clone(),
        };
        RewrittenKernel { kernel, dir, report }
    }

    /// The web server.
    pub fn web(&mut self) -> Scenario {
        self.scenario("web", None, &[])
    }

    /// The web server on 32-bit ARM.
    pub fn web_on_arm(&mut self) -> Scenario {
        self.on_arm("web", None, &["--machine", "virt32"])
    }

    /// Two processors of 32-bit ARM, modules of a kernel, and code that is patched.
    pub fn processors_on_arm(&mut self, kernel: &Kernel) -> Scenario {
        self.on_arm("processors", Some(kernel), &["--machine", "virt32", "--cpus", "2"])
    }

    /// The web server, and a list of thawed pages, on 32-bit ARM.
    pub fn frozen_on_arm(&mut self) -> Scenario {
        self.on_arm("frozen", None, &["--machine", "virt32"])
    }

    /// Operations of system calls that BusyBox requests on 32-bit ARM, and others.
    pub fn operations_on_arm(&mut self) -> Scenario {
        self.on_arm("operations", None, &["--machine", "virt32"])
    }

    /// stress-ng on 32-bit ARM.
    pub fn stress_on_arm(&mut self) -> Scenario {
        self.on_arm("stress", None, &["--machine", "virt32"])
    }

    /// stress-ng on two processors of 32-bit ARM.
    pub fn stress_on_two_processors_of_arm(&mut self) -> Scenario {
        self.on_arm("stress", None, &["--machine", "virt32", "--cpus", "2", "--memory", "192"])
    }

    /// Forbidden accesses to memory, and the page tables, on 32-bit ARM with high memory.
    pub fn protection_on_arm(&mut self) -> Scenario {
        self.on_arm("protection", None, &["--machine", "virt32", "--memory", "1024"])
    }

    fn on_arm(
        &mut self,
        name: &'static str,
        kernel: Option<&Kernel>,
        machine: &'static [&'static str],
    ) -> Scenario {
        self.of_programs("armhf", name, kernel, machine)
    }

    /// The web server on x86-64.
    pub fn web_on_x86_64(&mut self) -> Scenario {
        self.of_programs("amd64", "web", None, &[])
    }

    /// The web server, then the kernel's figures of memory, on x86-64.
    pub fn frozen_on_x86_64(&mut self) -> Scenario {
        self.of_programs("amd64", "frozen", None, &[])
    }

    /// A boot on the machine of a micro-VM.
    pub fn micro_vm(&mut self) -> Scenario {
        self.of_programs("amd64", "boot", None, &["--machine", "microvm"])
    }

    /// Two processors, modules of a kernel, and code that is patched, on x86-64.
    pub fn smp_on_x86_64(&mut self, kernel: &Kernel) -> Scenario {
        self.on_two_processors("smp", kernel)
    }

    /// stress-ng on x86-64.
    pub fn stress_on_x86_64(&mut self) -> Scenario {
        self.of_programs("amd64", "stress", None, &[])
    }

    /// Makes a scenario for two processors of a kernel for x86.
    fn on_two_processors(&mut self, name: &'static str, kernel: &Kernel) -> Scenario {
        match kernel.is_64() {
            true => {
                let machine = &["--cpus", "2", "--memory", "128", "--cpu", "max"];
                self.of_programs("amd64", name, Some(kernel), machine)
            }
            false => self.scenario(name, Some(kernel), &["--cpus", "2"]),
        }
    }

    /// Backtraces, an oops, no memory, and a panic, on x86-64.
    pub fn crash_on_x86_64(&mut self, kernel: &Kernel) -> Scenario {
        let machine = &["--cpus", "2", "--memory", "128", "--cpu", "max"];
        self.of_programs("amd64", "crash", Some(kernel), machine)
    }

    /// Makes a scenario with programs of an architecture of Debian.
    fn of_programs(
        &mut self,
        arch: &str,
        name: &'static str,
        kernel: Option<&Kernel>,
        machine: &'static [&'static str],
    ) -> Scenario {
        let initramfs = format!("{name}-{arch}.cpio.gz");
        let run = Run::new(fixture("scenarios/make-initramfs.sh")).args([name, &initramfs]);
        let run = run.args(kernel.map(|kernel| &kernel.build)).env("ARCH", arch).limit(RELINK_LIMIT);
        self.spend(Work::Boot, |chain| chain.succeed(run));
        Scenario { name, initramfs, machine }
    }

    /// Two processors, modules of a kernel, and code that is patched.
    pub fn smp(&mut self, kernel: &Kernel) -> Scenario {
        self.scenario("smp", Some(kernel), &["--cpus", "2"])
    }

    /// Like [`KernelTest::smp`], with a module that needs more than the imports of `dummy.ko`.
    pub fn modules(&mut self, kernel: &Kernel) -> Scenario {
        self.scenario("modules", Some(kernel), &["--cpus", "2"])
    }

    /// Boot parameters in sysfs.
    pub fn parameters(&mut self) -> Scenario {
        self.scenario("parameters", None, &[])
    }

    /// Operations of system calls that BusyBox requests, and others.
    pub fn operations(&mut self) -> Scenario {
        self.scenario("operations", None, &[])
    }

    /// The web server, then the kernel's figures of memory and of thawed pages.
    pub fn frozen(&mut self) -> Scenario {
        self.scenario("frozen", None, &[])
    }

    /// The web server, then the kernel's figures of memory and of slab caches, with further options for the machine.
    pub fn census(&mut self, machine: &'static [&'static str]) -> Scenario {
        self.scenario("census", None, machine)
    }

    /// The same on 32-bit ARM.
    pub fn census_on_arm(&mut self, machine: &'static [&'static str]) -> Scenario {
        self.on_arm("census", None, machine)
    }

    /// The same on x86-64.
    pub fn census_on_x86_64(&mut self, machine: &'static [&'static str]) -> Scenario {
        self.of_programs("amd64", "census", None, machine)
    }

    /// Datagrams over loopback, and everything that makes the facts of their path false.
    pub fn datagrams(&mut self) -> Scenario {
        self.scenario("datagrams", None, &[])
    }

    /// 3,600 files on ext2, found and copied. The slab caches keep objects of one structure each.
    pub fn files(&mut self) -> Scenario {
        self.scenario("files", None, &["--disk", "64", "--append", "slab_nomerge"])
    }

    /// The same on two processors of 32-bit ARM.
    pub fn files_on_arm(&mut self) -> Scenario {
        let machine = &["--machine", "virt32", "--cpus", "2", "--disk", "64", "--append", "slab_nomerge"];
        self.on_arm("files", None, machine)
    }

    /// The scenario smp while all pages are refrozen again and again, and thaws in every context.
    pub fn thaw(&mut self, kernel: &Kernel) -> Scenario {
        self.on_two_processors("thaw", kernel)
    }

    /// Ten minutes of stress-ng while all pages are refrozen again and again.
    pub fn chaos(&mut self, kernel: &Kernel) -> Scenario {
        self.on_two_processors("chaos", kernel)
    }

    /// Backtraces, an oops, no memory, and a panic.
    pub fn crash(&mut self, kernel: &Kernel) -> Scenario {
        self.on_two_processors("crash", kernel)
    }

    /// stress-ng.
    pub fn stress(&mut self) -> Scenario {
        self.scenario("stress", None, &[])
    }

    fn scenario(
        &mut self,
        name: &'static str,
        kernel: Option<&Kernel>,
        machine: &'static [&'static str],
    ) -> Scenario {
        self.of_programs("i386", name, kernel, machine)
    }

    /// Boots a kernel, with further options for `fixtures/qemu/boot.sh`. If the verdict is not PASS, panics with the
    /// end of the console, and with the result of the original kernel.
    pub fn passes(&mut self, scenario: &Scenario, kernel: &Kernel, options: &[&str]) {
        let (outcome, passed) = self.boot(scenario, &kernel.image, &kernel.name, options);
        if passed {
            return;
        }
        let original = boot_image(&kernel.build);
        let comparison = match original == kernel.image {
            true => "",
            false if self.boot(scenario, &original, "original", options).1 => "The original kernel passes.",
            false => "The original kernel does not pass either; see original.log.",
        };
        let console = self.console(kernel);
        let lines: Vec<&str> = console.lines().collect();
        let end = lines[lines.len().saturating_sub(QUOTED_LINES)..].join("\n");
        panic!("{outcome}\n{comparison}\nThe end of {}.log:\n{end}", kernel.name);
    }

    /// Boots a kernel that has to complain, and returns the outcome.
    pub fn complains(&mut self, scenario: &Scenario, kernel: &Kernel, options: &[&str]) -> Outcome {
        let (outcome, passed) = self.boot(scenario, &kernel.image, &kernel.name, options);
        assert!(!passed, "the kernel has nothing to complain of: {outcome}");
        outcome
    }

    /// Boots a kernel, and returns the scenario's lines of successes and failures, sorted.
    pub fn results(&mut self, scenario: &Scenario, kernel: &Kernel) -> Vec<String> {
        let (outcome, _) = self.boot(scenario, &kernel.image, &kernel.name, &[]);
        let console = self.console(kernel);
        let is_result = |line: &&str| line.starts_with("ok ") || line.starts_with("FAILED ");
        let mut results: Vec<String> = console.lines().filter(is_result).map(str::to_owned).collect();
        assert!(results.len() > 100, "only {} results: {outcome}", results.len());
        results.sort_unstable();
        results
    }

    /// Returns the console of a kernel that was booted.
    pub fn console(&self, kernel: &Kernel) -> String {
        self.read(&format!("{}.log", kernel.name)).replace('\r', "")
    }

    /// Writes a file in the directory of the test.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        self.chain.write(name, contents);
    }

    /// Reads a file in the directory of the test.
    pub fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&fs::read(self.chain.dir().join(name)).expect(name)).into_owned()
    }

    /// Boots a kernel. Returns the outcome, and whether its verdict is PASS.
    fn boot(&mut self, scenario: &Scenario, image: &Path, name: &str, options: &[&str]) -> (Outcome, bool) {
        let run = Run::new(fixture("qemu/boot.sh")).arg("--kernel").arg(image);
        let run = run.args(["--initramfs", &scenario.initramfs, "--log", &format!("{name}.log")]);
        let run = run.args(["--timeout", BOOT_SECONDS]).args(scenario.machine).args(options);
        let outcome = self.spend(Work::Boot, |chain| chain.attempt(run.limit(BOOT_LIMIT)));
        let verdict = format!("SCENARIO {}: PASS", scenario.name);
        let passed = outcome.status == Some(0) && outcome.text().contains(&verdict);
        (outcome, passed)
    }

    fn spend<T>(&mut self, work: Work, commands: impl FnOnce(&mut Chain) -> T) -> T {
        let start = Instant::now();
        let result = commands(self.chain);
        self.add(work, start.elapsed().as_secs_f64());
        result
    }

    fn add(&mut self, work: Work, seconds: f64) {
        *self.seconds.entry(work).or_default() += seconds;
    }
}

impl Kernel {
    /// Whether it is for a 64-bit machine.
    pub fn is_64(&self) -> bool {
        // `EI_CLASS` and `ELFCLASS64` (elf.h).
        let bytes =
            fs::read(&self.vmlinux).unwrap_or_else(|error| panic!("{}: {error}", self.vmlinux.display()));
        bytes.get(4) == Some(&2)
    }
}

impl RewrittenKernel {
    /// A size in bytes from the report.
    pub fn size(&self, when: &str, column: &str) -> u64 {
        self.report["sizes"][when][column].as_u64().unwrap_or_else(|| panic!("no {column} {when}"))
    }

    /// The names of the assumptions of its removals.
    pub fn assumptions(&self) -> Vec<&str> {
        let list = self.report["assumptions"].as_array().expect("a list of assumptions");
        list.iter().map(|assumption| assumption["name"].as_str().expect("a name")).collect()
    }

    /// The reduction of a column in per cent.
    pub fn cut(&self, column: &str) -> f64 {
        let (before, after) = (self.size("before", column) as f64, self.size("after", column) as f64);
        100.0 * (before - after) / before
    }
}

/// The boot image of a build.
fn boot_image(build: &Path) -> PathBuf {
    let images = ["arch/arm/boot/zImage", "arch/x86/boot/bzImage"].map(|image| build.join(image));
    images.iter().find(|image| image.is_file()).unwrap_or(&images[1]).clone()
}

/// The time in seconds of a phase, from a report of kshrink-spec.
fn seconds_of(report: &Value, phase: &str) -> f64 {
    let phases = report["phases"].as_array().into_iter().flatten();
    phases.filter(|entry| entry["name"] == phase).filter_map(|entry| entry["seconds"].as_f64()).sum()
}

//! A kernel in miniature (`fixtures/coverage`), run by QEMU, and the command under test.

// Each test binary uses a part of this.
#![allow(dead_code)]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use kplan::Plan;
use kshrink_tests::process::run;
use tempfile::TempDir;

/// Time limit of QEMU for a few dozen instructions, on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

/// The machine's memory, as an argument of QEMU.
const MEMORY: &str = "16";

/// A directory with the kernel, linked in two orders, and QEMU's records of the first.
pub struct Traced {
    dir: TempDir,
}

impl Traced {
    /// Builds the kernel, and runs it.
    pub fn new() -> Traced {
        let dir = tempfile::tempdir().unwrap();
        let traced = Traced { dir };
        for source in ["kernel", "other"] {
            let object = traced.path(&format!("{source}.o"));
            run(Command::new("gcc")
                .args(["-m32", "-c"])
                .arg(fixture(&format!("{source}.S")))
                .arg("-o")
                .arg(object));
        }
        traced.link("vmlinux", &["kernel.o", "other.o"]);
        traced.link("relinked", &["other.o", "kernel.o"]);
        traced.boot();
        traced
    }

    fn link(&self, output: &str, objects: &[&str]) {
        let mut ld = Command::new("ld");
        ld.args(["-m", "elf_i386", "--no-warn-rwx-segments", "-T"]).arg(fixture("kernel.lds"));
        run(ld.args(objects).args(["-o", output]).current_dir(self.dir.path()));
    }

    /// Runs the kernel; writes `trace`, and three dumps of its memory.
    fn boot(&self) {
        self.run(
            "vmlinux",
            &["-singlestep", "-d", "in_asm", "-D", "trace"],
            "stop\ndump-guest-memory dump\ndump-guest-memory -p paged\npmemsave 0 0x400000 raw\n",
        );
    }

    /// Runs a kernel with these options of QEMU until it reports its end, then runs these commands of QEMU's monitor.
    fn run(&self, kernel: &str, options: &[&str], commands: &str) {
        let _ = fs::remove_file(self.path("done"));
        let qemu = Command::new("qemu-system-x86_64")
            .args(["-accel", "tcg,thread=single", "-m", MEMORY])
            .args(options)
            .args(["-display", "none", "-nodefaults", "-no-reboot", "-monitor", "stdio"])
            .args(["-debugcon", "file:done", "-kernel", kernel])
            .current_dir(self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        let mut qemu = Machine(qemu.expect("run qemu-system-x86_64; install the package qemu-system-x86"));
        let started = Instant::now();
        while fs::metadata(self.path("done")).map_or(0, |file| file.len()) == 0 {
            assert!(started.elapsed() < LIMIT, "the kernel does not finish");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut stdin = qemu.0.stdin.take().unwrap();
        stdin.write_all(format!("{commands}quit\n").as_bytes()).unwrap();
        while qemu.0.try_wait().unwrap().is_none() {
            assert!(started.elapsed() < LIMIT, "QEMU does not finish");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Builds a kernel that reads data, as `reads`, and traces it with the plugin, which writes `reads.trace`.
    pub fn read_data(&self) {
        run(Command::new("gcc")
            .args(["-m32", "-c"])
            .arg(fixture("reads.S"))
            .arg("-o")
            .arg(self.path("reads.o")));
        self.link("reads", &["reads.o"]);
        self.build_plugin();
        let symbols = run(Command::new("nm").arg(self.path("reads")));
        let at = |name: &str| {
            let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
            format!("0x{}", &line[..8])
        };
        let range = |start: &str, end: &str| format!("{}-{}", at(start), at(end));
        let options = format!(
            "./trace.so,out=reads.trace,code={},data={},offset=0xc0000000",
            range("_stext", "_etext"),
            range("__start_rodata", "__end_rodata")
        );
        self.run("reads", &["-plugin", &options], "");
    }

    /// Builds an x86-64 kernel, as `vmlinux64`, and traces it with the plugin, which writes `trace64`.
    pub fn boot_64(&self) {
        let dir = self.dir.path();
        run(Command::new("gcc")
            .args(["-m64", "-c", "-o", "kernel64.o"])
            .arg(fixture("kernel64.S"))
            .current_dir(dir));
        let mut ld = Command::new("ld");
        ld.args(["-m", "elf_x86_64", "--no-warn-rwx-segments", "-T"]).arg(fixture("kernel64.lds"));
        run(ld.args(["kernel64.o", "-o", "vmlinux64"]).current_dir(dir));
        // QEMU takes no 64-bit file of a multiboot kernel.
        run(Command::new("objcopy").args(["-O", "elf32-i386", "vmlinux64", "image64"]).current_dir(dir));
        self.build_plugin();
        let places = fixture("../../share/kernel-places.sh");
        let places = run(Command::new(places).arg("vmlinux64").current_dir(dir));
        self.run("image64", &["-plugin", &format!("./trace.so,out=trace64,{}", places.trim_end())], "");
    }

    /// Builds QEMU's plugin, as `trace.so`.
    fn build_plugin(&self) {
        let plugin = fixture("../qemu/trace.c");
        let mut gcc = Command::new("gcc");
        run(gcc.args(["-O2", "-shared", "-fPIC"]).arg(plugin).arg("-o").arg(self.path("trace.so")));
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    /// Runs `coverage` in the directory.
    pub fn coverage(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs `coverage` with the file `stdin` on standard input.
    pub fn coverage_of(&self, stdin: &str, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(File::open(self.path(stdin)).unwrap()).output().unwrap()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coverage"));
        command.args(arguments).current_dir(self.dir.path());
        command
    }
}

/// A QEMU process that ends with the test.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/coverage").join(name)
}

pub fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Parses the plan that a command has printed.
pub fn plan(output: &Output) -> Plan {
    assert!(output.status.success(), "{}", text(&output.stderr));
    Plan::parse(text(&output.stdout), "standard output").unwrap()
}

/// Returns the functions of a plan with their executed ranges, as `NAME OFFSET+SIZE …`, in their order.
pub fn functions(plan: &Plan) -> Vec<String> {
    let functions = plan.coverage.as_ref().unwrap().functions.iter();
    let line = |function: &kplan::CoveredFunction| {
        let ran = function.ran.iter().flatten().map(|range| format!(" {}+{}", range.offset, range.size));
        format!("{}{}", function.function, ran.collect::<String>())
    };
    functions.map(line).collect()
}

/// Checks that a command fails with this status and one line, and prints nothing else.
pub fn refused(output: &Output, status: i32, message: &str) {
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{errors}");
    assert!(output.stdout.is_empty());
    assert!(errors.starts_with("coverage: error: ") && errors.contains(message), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

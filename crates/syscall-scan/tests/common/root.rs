//! Small root file systems with dynamic programs whose calls are known exactly.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kshrink_tests::process::run;
use serde_json::Value;
use tempfile::TempDir;

use super::{Machine, own_calls, scan};

/// The start of every source.
const PRELUDE: &str = "
#define NOINLINE __attribute__((noinline, noclone, noipa))
static inline __attribute__((always_inline)) long call(long nr)
{
	long result;
#ifdef __i386__
	__asm__ volatile(\"int $0x80\" : \"=a\"(result) : \"0\"(nr) : \"memory\");
#else
	__asm__ volatile(\"syscall\" : \"=a\"(result) : \"0\"(nr) : \"rcx\", \"r11\", \"memory\");
#endif
	return result;
}
NOINLINE void run(long n);
";

/// The interpreter's call.
pub const START: u64 = 5000;

/// The call that every program makes in addition to those in its source.
pub const EXIT: u64 = 60;

/// A root file system with an interpreter.
pub struct Root {
    /// The machine of its programs.
    pub machine: Machine,
    /// Its directory.
    pub directory: TempDir,
}

impl Root {
    /// Creates a root file system for x86-64.
    pub fn new() -> Root {
        Root::of(Machine::X86_64)
    }

    /// Creates a root file system for a machine.
    pub fn of(machine: Machine) -> Root {
        let root = Root { machine, directory: tempfile::tempdir().unwrap() };
        root.library("lib/ld.so", "void _start(void) { call(5000); __builtin_trap(); }", "-Wl,-e,_start");
        root
    }

    /// Returns the path of a file in it.
    pub fn path(&self, inside: &str) -> PathBuf {
        self.directory.path().join(inside)
    }

    /// Writes a text file.
    pub fn write(&self, inside: &str, content: &str) {
        fs::create_dir_all(self.path(inside).parent().unwrap()).unwrap();
        fs::write(self.path(inside), content).unwrap();
    }

    /// Compiles a source with these options.
    pub fn compile(&self, inside: &str, source: &str, options: &str) {
        let file = self.path("source.c");
        fs::write(&file, format!("{PRELUDE}{source}")).unwrap();
        fs::create_dir_all(self.path(inside).parent().unwrap()).unwrap();
        let mut compiler = Command::new(self.machine.compiler());
        compiler
            .args(["-O2", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-w", "-o"])
            .arg(self.path(inside))
            .arg(&file)
            .arg(format!("-L{}", self.path("lib").display()))
            .arg("-Wl,--allow-shlib-undefined")
            .args(options.split_whitespace());
        run(&mut compiler);
        fs::remove_file(file).unwrap();
    }

    /// Compiles a library.
    pub fn library(&self, inside: &str, source: &str, options: &str) {
        let name = Path::new(inside).file_name().unwrap().to_str().unwrap();
        self.compile(inside, source, &format!("-shared -fPIC -Wl,-soname,{name} {options}"));
    }

    /// Compiles a program whose `run` is called.
    pub fn program(&self, inside: &str, source: &str, options: &str) {
        let start = "void _start(void) { run(1); for (;;) call(60); }";
        let options = format!("-Wl,--dynamic-linker=/lib/ld.so {options}");
        self.compile(inside, &format!("{source}\n{start}"), &options);
    }

    /// Runs the command on it.
    pub fn scan(&self, arguments: &[&str]) -> Output {
        let root = self.directory.path().to_str().unwrap();
        let mut all = vec!["--root", root, "--sites"];
        all.extend(arguments);
        scan(&all)
    }

    /// Returns the section that the command prints for its machine.
    pub fn section(&self, arguments: &[&str]) -> Value {
        let output = self.scan(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
        plan["syscalls"][self.machine.abi()].clone()
    }

    /// Returns the calls that a program makes, except those of every program.
    pub fn calls(&self, arguments: &[&str]) -> BTreeSet<u64> {
        let section = self.section(arguments);
        assert_eq!(section["complete"], true, "{:#}", section["unresolved"]);
        let mut calls = own_calls(&section);
        assert!(calls.remove(&START) && calls.remove(&EXIT), "{calls:?}");
        calls
    }
}

//! Shared parts of the command's tests: compiling fixtures, running the command.

#![allow(dead_code)] // Every test uses a part of it.

pub mod root;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use kshrink_tests::process::run;
use serde_json::Value;

/// A machine that programs are compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Machine {
    I386,
    X86_64,
    /// ARM code of the same machine as `Thumb`.
    Arm,
    Thumb,
    Aarch64,
}

impl Machine {
    /// The machines whose programs run natively.
    pub const ALL: [Machine; 2] = [Machine::I386, Machine::X86_64];

    /// The other machines.
    pub const EMULATED: [Machine; 3] = [Machine::Arm, Machine::Thumb, Machine::Aarch64];

    /// Returns all machines.
    pub fn every() -> impl Iterator<Item = Machine> {
        Machine::ALL.into_iter().chain(Machine::EMULATED)
    }

    /// Returns its name in a plan.
    pub fn abi(self) -> &'static str {
        match self {
            Machine::I386 => "i386",
            Machine::X86_64 => "x86_64",
            Machine::Arm | Machine::Thumb => "arm",
            Machine::Aarch64 => "aarch64",
        }
    }

    /// Returns its own ABI.
    pub fn kplan(self) -> kplan::Abi {
        match self {
            Machine::I386 => kplan::Abi::I386,
            Machine::X86_64 => kplan::Abi::X86_64,
            Machine::Arm | Machine::Thumb => kplan::Abi::Arm,
            Machine::Aarch64 => kplan::Abi::Aarch64,
        }
    }

    /// Returns its name in Debian.
    pub fn debian(self) -> &'static str {
        match self {
            Machine::I386 => "i386",
            Machine::X86_64 => "amd64",
            Machine::Arm | Machine::Thumb => "armhf",
            Machine::Aarch64 => "arm64",
        }
    }

    /// Returns the compiler for it.
    pub fn compiler(self) -> &'static str {
        match self {
            Machine::I386 => "i686-linux-gnu-gcc",
            Machine::X86_64 => "gcc",
            Machine::Arm | Machine::Thumb => "arm-linux-gnueabihf-gcc",
            Machine::Aarch64 => "aarch64-linux-gnu-gcc",
        }
    }

    /// Returns the options that select the instruction set.
    fn encoding(self) -> &'static [&'static str] {
        match self {
            Machine::Arm => &["-marm"],
            Machine::Thumb => &["-mthumb"],
            _ => &[],
        }
    }

    /// Returns the additions to `-static-pie` for compilers that treat it as `-pie`.
    fn without_interpreter(self) -> &'static [&'static str] {
        match self {
            Machine::Arm | Machine::Thumb => &["-Wl,--no-dynamic-linker"],
            _ => &[],
        }
    }

    /// Returns whether its compiler supports an option.
    fn has_option(self, option: &str) -> bool {
        match self {
            Machine::I386 | Machine::X86_64 => true,
            _ => !option.starts_with("-fcf-protection"),
        }
    }
}

/// Returns a path in the repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Returns a fixture of this crate.
pub fn fixture(name: &str) -> PathBuf {
    repository("fixtures/programs/scan").join(name)
}

/// Returns a statically linked BusyBox from Debian's package for the machine.
pub fn busybox(machine: Machine) -> PathBuf {
    package("busybox-static", machine).join("bin/busybox")
}

/// Returns the root file system of a Debian package, or of a list of packages, with their dependencies.
pub fn package(name: &str, machine: Machine) -> PathBuf {
    let script = repository("fixtures/package.sh");
    let output = Command::new(&script).args([name, machine.debian()]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", script.display());
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

/// Compiles a fixture with these options to `output`.
pub fn compile(machine: Machine, fixture_name: &str, options: &str, output: &Path) {
    let mut compiler = Command::new(machine.compiler());
    compiler
        .args(machine.encoding())
        .args(options.split_whitespace().filter(|option| machine.has_option(option)))
        .args(if options.contains("-static-pie") { machine.without_interpreter() } else { &[] })
        .args(["-fno-stack-protector", "-w", "-o"])
        .arg(output)
        .arg(fixture(fixture_name));
    run(&mut compiler);
}

/// Runs the command without a plan on standard input.
pub fn scan(arguments: &[&str]) -> Output {
    command(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Returns the command with its arguments.
pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_syscall-scan"));
    command.args(arguments);
    command
}

/// Returns the section of one ABI that the command prints for a program.
pub fn section(program: &Path, abi: &str) -> Value {
    let output = scan(&["--sites", program.to_str().unwrap()]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", program.display());
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan["schema"], "kshrink/1");
    plan["syscalls"][abi].clone()
}

/// Returns the numbers of the calls that the program itself makes.
pub fn own_calls(section: &Value) -> BTreeSet<u64> {
    let calls = section["calls"].as_array().unwrap().iter();
    calls.filter(|call| call["via"].is_null()).map(|call| call["nr"].as_u64().unwrap()).collect()
}

/// Returns the numbers of all calls.
pub fn all_calls(section: &Value) -> BTreeSet<u64> {
    section["calls"].as_array().unwrap().iter().map(|call| call["nr"].as_u64().unwrap()).collect()
}

/// Returns the rest of a fixture's line that begins with `// key: `.
pub fn expectation(fixture_name: &str, key: &str) -> Option<String> {
    let source = std::fs::read_to_string(fixture(fixture_name)).unwrap();
    let mut lines = source.lines().map(|line| line.trim_start_matches(['/', '*', ' ']));
    lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(": ")).map(str::to_owned)
}

/// Returns the numbers on such a line.
pub fn expected_calls(fixture_name: &str, key: &str) -> BTreeSet<u64> {
    let line = expectation(fixture_name, key).unwrap_or_default();
    line.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

/// Returns a call's name in a form common to the kernel's headers, `strace` and the emulator.
pub fn plain(name: &str) -> &str {
    match name {
        "fcntl64" => "fcntl",
        "newfstatat" | "fstatat64" => "newfstatat",
        "_newselect" => "select",
        "ugetrlimit" => "getrlimit",
        "sendfile64" => "sendfile",
        name => name.trim_start_matches('_'),
    }
}

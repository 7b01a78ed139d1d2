//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Finds the system calls that static executables can make.
///
/// Reads programs for i386 and x86-64, stripped or not, and prints a plan that says which system calls
/// they can make. A plan on standard input is read first, and the calls are added to it. A plan is marked
/// incomplete if the number of some call could not be found; the places are listed with their reasons.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES)]
pub struct Options {
    /// Programs to scan
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true)]
    pub output: PathBuf,

    /// What to print: the plan, a list for people, or the numbers alone
    #[arg(short, long, value_enum, default_value_t = Format::Json)]
    pub format: Format,

    /// List every place that makes a call, with its address, function and calls
    #[arg(short, long)]
    pub sites: bool,
}

/// What is printed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The plan
    Json,
    /// A list for people
    Text,
    /// The numbers, one a line
    Nr,
}

const EXAMPLES: &str = "\
Examples:
  syscall-scan busybox --format text          the calls of one program, to read
  syscall-scan init sshd -o plan.json         the plan of a system with two programs
  syscall-scan busybox | kshrink-spec vmlinux a kernel with the calls of busybox alone
  syscall-scan --sites --format text busybox  where each call is made

Exit codes: 0 success, complete or not; 1 a file could not be read or written;
2 wrong arguments, or a file that is no program or plan that can be read.";

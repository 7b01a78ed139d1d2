//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Finds the system calls that programs can make.
///
/// Reads programs and shared objects for i386 and x86-64, static or dynamic, stripped or not, and prints a
/// plan that says which system calls they can make. Dynamic programs are scanned with their interpreter and
/// libraries, scripts by their interpreter; of a shared object that is named, every exported function
/// counts. A plan on standard input is read first, and the calls are added to it. A plan is marked
/// incomplete if the number of some call could not be found; the places are listed with their reasons.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES)]
pub struct Options {
    /// Programs, scripts or shared objects to scan; with --root, all programs in DIR if there are none
    #[arg(required_unless_present = "root", value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// The root file system that the programs run in, and FILEs are paths in; by default that of this machine
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// A library that the programs load by a name that the scan cannot know; all of its functions count
    #[arg(long, value_name = "LIB")]
    pub dlopen: Vec<String>,

    /// A directory in the root file system, all of whose shared objects the programs may load
    #[arg(long, value_name = "DIR")]
    pub plugin_dir: Vec<PathBuf>,

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
  syscall-scan --root rootfs                  the plan of all programs in a root file system
  syscall-scan --root rootfs /usr/sbin/sshd   the calls of one of them, and of its libraries
  syscall-scan /bin/login --plugin-dir /lib/x86_64-linux-gnu/security
                                              with all modules that it may load

Exit codes: 0 success, complete or not; 1 a file could not be read or written;
2 wrong arguments, or a file that is no program or plan that can be read.";

//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use syscall_scan::assume::Assumption;
use syscall_scan::filter::Action;
use syscall_scan::loader::Given;

/// Find the system calls that programs can make, and with which arguments.
///
/// Reads programs and shared objects for i386, x86-64, 32-bit ARM and AArch64, static or dynamic, stripped or not, and
/// prints a plan that lists the system calls they can make. A dynamic program is scanned with its interpreter and
/// libraries, a script by its interpreter. Every exported function of a named shared object counts. A plan on standard
/// input is read first, and the calls are added to it. A plan is marked incomplete if some system call number could not
/// be determined; the places are listed with the reasons.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Options {
    /// Work other than a scan
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Programs, scripts or shared objects to scan; without FILE, all programs in --root are scanned, or the plan on
    /// standard input is printed unchanged
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Root file system of the programs, which FILE paths are relative to [default: /]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// Library that programs load by a name that the scan cannot find; all of its functions count. With PLACE, an
    /// unresolved name (FILE:ADDRESS) or all of a file (FILE), this place loads and looks up nothing else
    #[arg(long, value_name = "LIB[@PLACE]")]
    pub dlopen: Vec<Given>,

    /// Directory in the root file system with shared objects that the programs may load; PLACE as for --dlopen
    #[arg(long, value_name = "DIR[@PLACE]")]
    pub plugin_dir: Vec<Given>,

    /// Also scan the programs that the named ones start, and those that these start; the plan is incomplete if a path is
    /// unknown
    #[arg(long, requires = "files", conflicts_with = "why")]
    pub with_children: bool,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true)]
    pub output: PathBuf,

    /// Output: the plan, a human-readable list, the numbers only, or a system call filter
    #[arg(short, long, value_enum, default_value_t = Format::Json)]
    pub format: Format,

    /// List every place that makes a call, with its address, function, calls and arguments
    #[arg(short, long)]
    pub sites: bool,

    /// Print the shortest chain from the program's start to a place that makes CALL (a name or number)
    #[arg(long, value_name = "CALL", requires = "files", conflicts_with_all = ["format", "sites"])]
    pub why: Option<String>,

    /// Declare the calls of an unresolved place: read,39@0x401216, or with the program read@sbin/agent:0x401216;
    /// @0x401216 if the place is never reached
    #[arg(long, value_name = "CALLS@[FILE:]ADDRESS")]
    pub assume: Vec<Assumption>,

    /// Options of system call filters
    #[command(flatten)]
    pub filter: FilterOptions,
}

/// The options of filters.
#[derive(Args)]
#[command(next_help_heading = "Filters (--format seccomp, --format systemd)")]
pub struct FilterOptions {
    /// Allow a call only with the known arguments of the programs (seccomp)
    #[arg(long)]
    pub args: bool,

    /// Effect of other calls: errno (fail with EPERM; the default), errno=NAME (fail with another error, such as
    /// ENOSYS), kill (end the process), log (make the call and log it in the kernel)
    #[arg(long)]
    pub action: Option<Action>,

    /// Allow these calls too: the program that starts others may need more than execve, which is always allowed
    #[arg(long, value_name = "CALL", value_delimiter = ',')]
    pub also: Vec<String>,

    /// Make a filter even if the plan is incomplete; it may stop programs that make calls missing from the plan
    #[arg(long)]
    pub allow_incomplete: bool,
}

/// Work other than a scan.
#[derive(Subcommand)]
pub enum Command {
    /// Compare the system calls of two plans
    ///
    /// Prints the calls that only one plan has, arguments with different values, and whether only one plan is complete.
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(DiffOptions),
}

/// The options of `diff`.
#[derive(Args)]
pub struct DiffOptions {
    /// The first plan; - for standard input
    #[arg(value_name = "A")]
    pub before: PathBuf,

    /// The second plan
    #[arg(value_name = "B")]
    pub after: PathBuf,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true)]
    pub output: PathBuf,

    /// Output format
    #[arg(short, long, value_enum, default_value_t = DiffFormat::Text)]
    pub format: DiffFormat,
}

/// The output format of a scan.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The plan
    Json,
    /// A human-readable list
    Text,
    /// The numbers, one per line
    Nr,
    /// A seccomp profile for container runtimes (OCI, Docker, Podman)
    Seccomp,
    /// Lines for a systemd unit
    Systemd,
}

/// The output format of `diff`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DiffFormat {
    /// Human-readable, one difference per line
    Text,
    /// JSON
    Json,
}

const EXAMPLES: &str = "\
Examples:
  syscall-scan busybox --format text          the calls of one program, human-readable
  syscall-scan init sshd -o plan.json         the plan of a system with two programs
  syscall-scan busybox | kshrink-spec vmlinux a kernel with only the calls of busybox
  syscall-scan --sites --format text busybox  the places that make each call
  syscall-scan --root rootfs                  the plan of all programs in a root file system
  syscall-scan --root rootfs /usr/sbin/sshd   the calls of one program and its libraries
  syscall-scan /bin/login --plugin-dir /lib/x86_64-linux-gnu/security@libpam.so.0.85.1
                                              with all modules that its library libpam may load
  syscall-scan --why socket busybox           a chain of calls in busybox to socket
  syscall-scan --format seccomp --args busybox -o profile.json
                                              podman run --security-opt seccomp=profile.json …
  syscall-scan --format systemd <plan.json    a plan as lines for a systemd unit
  syscall-scan diff old.json new.json         the calls that a new version adds

Exit codes: 0 success, complete or not; 1 a file could not be read or written;
2 wrong arguments, an invalid program or plan, or a filter of an incomplete plan.
diff: 0 the same, 1 different, 2 trouble.";

const DIFF_EXAMPLES: &str = "\
Examples:
  syscall-scan diff old.json new.json                the calls that a new version adds
  syscall-scan new/bin/app | syscall-scan diff old.json -
  syscall-scan diff --format json old.json new.json  for a script

Exit codes: 0 the same, 1 different, 2 trouble, as for diff(1).";

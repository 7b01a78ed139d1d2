//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use syscall_scan::assume::Assumption;
use syscall_scan::filter::Action;
use syscall_scan::loader::Given;

/// Finds the system calls that programs can make, and with which arguments.
///
/// Reads programs and shared objects for i386, x86-64, 32-bit ARM and AArch64, static or dynamic, stripped or not,
/// and prints a plan that says which system calls they can make. Dynamic programs are scanned with their interpreter and
/// libraries, scripts by their interpreter; of a shared object that is named, every exported function
/// counts. A plan on standard input is read first, and the calls are added to it. A plan is marked
/// incomplete if the number of some call could not be found; the places are listed with their reasons.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Options {
    /// Something else than a scan
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Programs, scripts or shared objects to scan; with --root, all programs in DIR if there are none;
    /// without, a plan on standard input is printed as it is
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// The root file system that the programs run in, and FILEs are paths in; by default that of this machine
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,

    /// A library that the programs load by a name that the scan cannot know; all of its functions count. With PLACE, an
    /// unresolved name (FILE:ADDRESS) or all of a file (FILE), this place loads and looks up nothing else
    #[arg(long, value_name = "LIB[@PLACE]")]
    pub dlopen: Vec<Given>,

    /// A directory in the root file system, all of whose shared objects the programs may load; PLACE as for --dlopen
    #[arg(long, value_name = "DIR[@PLACE]")]
    pub plugin_dir: Vec<Given>,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true)]
    pub output: PathBuf,

    /// What to print: the plan, a list for people, the numbers alone, or a filter for system calls
    #[arg(short, long, value_enum, default_value_t = Format::Json)]
    pub format: Format,

    /// List every place that makes a call, with its address, function, calls and arguments
    #[arg(short, long)]
    pub sites: bool,

    /// Print the shortest chain from where the program starts to a place that makes CALL (a name or number)
    #[arg(long, value_name = "CALL", requires = "files", conflicts_with_all = ["format", "sites"])]
    pub why: Option<String>,

    /// Take the user's word for the calls of an unresolved place: read,39@0x401216, or with the program
    /// read@sbin/agent:0x401216; @0x401216 if control never gets there
    #[arg(long, value_name = "CALLS@[FILE:]ADDRESS")]
    pub assume: Vec<Assumption>,

    /// For a filter of system calls
    #[command(flatten)]
    pub filter: FilterOptions,
}

/// The options of filters.
#[derive(Args)]
#[command(next_help_heading = "Filters (--format seccomp, --format systemd)")]
pub struct FilterOptions {
    /// Allow a call only with the arguments that programs give it, where these are known (seccomp)
    #[arg(long)]
    pub args: bool,

    /// The fate of other calls: errno (they fail with EPERM; the default), errno=NAME (with another error, such as ENOSYS),
    /// kill (the process ends), log (they are made, and logged by the kernel)
    #[arg(long)]
    pub action: Option<Action>,

    /// Allow these calls too: what starts the program may need more than execve, which is always allowed
    #[arg(long, value_name = "CALL", value_delimiter = ',')]
    pub also: Vec<String>,

    /// Make a filter of an incomplete plan, which stops programs that make other calls than the known ones
    #[arg(long)]
    pub allow_incomplete: bool,
}

/// Something else than a scan.
#[derive(Subcommand)]
pub enum Command {
    /// Compares the system calls of two plans
    ///
    /// Prints the calls that only one of them has, arguments that can have other values, and whether one is
    /// complete and the other is not.
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(DiffOptions),
}

/// What is compared.
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

    /// What to print
    #[arg(short, long, value_enum, default_value_t = DiffFormat::Text)]
    pub format: DiffFormat,
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
    /// A seccomp profile for container runtimes (OCI, Docker, Podman)
    Seccomp,
    /// Lines for a unit of systemd
    Systemd,
}

/// How differences are printed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DiffFormat {
    /// For people, one difference a line
    Text,
    /// As JSON
    Json,
}

const EXAMPLES: &str = "\
Examples:
  syscall-scan busybox --format text          the calls of one program, to read
  syscall-scan init sshd -o plan.json         the plan of a system with two programs
  syscall-scan busybox | kshrink-spec vmlinux a kernel with the calls of busybox alone
  syscall-scan --sites --format text busybox  where each call is made
  syscall-scan --root rootfs                  the plan of all programs in a root file system
  syscall-scan --root rootfs /usr/sbin/sshd   the calls of one of them, and of its libraries
  syscall-scan /bin/login --plugin-dir /lib/x86_64-linux-gnu/security@libpam.so.0.85.1
                                              with all modules that a library of it may load
  syscall-scan --why socket busybox           how busybox comes to make a call
  syscall-scan --format seccomp --args busybox -o profile.json
                                              podman run --security-opt seccomp=profile.json …
  syscall-scan --format systemd <plan.json    a plan as lines for a unit of systemd
  syscall-scan diff old.json new.json         what a new version needs more

Exit codes: 0 success, complete or not; 1 a file could not be read or written;
2 wrong arguments, a file that is no program or plan that can be read, or a filter of an incomplete plan.
diff: 0 the same, 1 different, 2 trouble.";

const DIFF_EXAMPLES: &str = "\
Examples:
  syscall-scan diff old.json new.json                what a new version needs more
  syscall-scan new/bin/app | syscall-scan diff old.json -
  syscall-scan diff --format json old.json new.json  for a script

Exit codes: 0 the same, 1 different, 2 trouble, as for diff(1).";

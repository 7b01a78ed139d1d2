//! The command line.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand};

/// Lists the options of a kernel's configuration and their cost, and finds the ones that a device can turn off
///
/// Reads the kernel's build, found from the path of its vmlinux, and the source tree that it was built from. Prints a
/// table of the options that can be set to n. It has the bytes that the kernel keeps only because of each option, the
/// number of options that Kconfig turns off with it, and the number of objects that a rebuild compiles. A plan with
/// traces (`coverage`) adds the class of each option: whether its code ran, and how. The kernel's own Kconfig decides
/// which options go together, and debugging information shows which code is between #if. This takes a minute the first
/// time, and is cached.
#[derive(Parser, Debug)]
#[command(
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    group = ArgGroup::new("use").args(["advise", "explain", "html"]).multiple(true),
    after_help = "\
Examples:
  config-spec build/vmlinux
      list the options that can be turned off, and the bytes that each one keeps
  config-spec build/vmlinux --quick
      the same at once, without the options that go with each
  syscall-scan busybox | coverage qemu build/vmlinux trace | config-spec build/vmlinux
      add the class of each option from a trace, and its cost after shrinking
  config-spec build/vmlinux --plan plan.json --explain PACKET
      print why an option is in its class, what selects it, and what goes with it
  config-spec build/vmlinux --plan plan.json --hardware modaliases --advise -o advice.json
      propose options to turn off, but no driver of a device in the file
  config-spec build/vmlinux --census census.json --advise -o advice.json
      propose smaller values of options that set the size of a variable; each is a trade that you decide
  config-spec build/vmlinux --plan plan.json --html options.html
      write the table as a page for a browser, with a map of the objects, the reasons and the proposal
  config-spec --fragment advice.json >trim.config
      write the proposal for scripts/kconfig/merge_config.sh
  config-spec try advice.json --build build -o trimmed --test 'boot-test \"$1\"/arch/x86/boot/bzImage'
      build the kernel without these options, and keep those without which the test fails

Exit status:
  0  success
  1  the job failed: a file could not be read or written; nothing was written
  2  usage error or bad input"
)]
pub struct Arguments {
    /// The subcommand, if one is given
    #[command(subcommand)]
    pub command: Option<Command>,

    /// The kernel, in the directory where it was built
    #[arg(required_unless_present = "fragment")]
    pub vmlinux: Option<PathBuf>,

    /// The plan to read; `-` is standard input, the default if input is piped in
    #[arg(short, long, value_name = "FILE", conflicts_with = "fragment")]
    pub plan: Option<PathBuf>,

    /// Trust a scan that could not resolve every system-call site
    #[arg(long, conflicts_with = "fragment")]
    pub assume_complete: bool,

    /// Do not ask Kconfig which options go with each, and do not look for code between #if; the table then has options
    /// that cannot be turned off
    #[arg(long, conflicts_with_all = ["advise", "fragment"])]
    pub quick: bool,

    /// The devices of the target, one modalias a line (`cat $(find /sys -name modalias)` there); options of their
    /// drivers stay
    #[arg(long, value_name = "FILE", conflicts_with = "fragment")]
    pub hardware: Option<PathBuf>,

    /// A census of this kernel's memory, as `census core --json` prints it, or `-`; --advise, --explain and --html
    /// then look for numbers that set the size of a variable. A smaller value is a trade that you decide: it may cost speed
    /// or security
    #[arg(long, value_name = "FILE", requires = "use", conflicts_with = "fragment")]
    pub census: Option<PathBuf>,

    /// Add the options to turn off to the plan, as section `config`, and print the plan; with --census also smaller
    /// values
    #[arg(long, conflicts_with_all = ["json", "explain", "fragment"])]
    pub advise: bool,

    /// Propose no option for which a build compiles more than this number of other objects again
    #[arg(long, value_name = "N", default_value_t = 200, conflicts_with = "fragment")]
    pub max_rebuilds: usize,

    /// Write the section `config` of a plan as a fragment of .config, with the reason before each line
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["vmlinux", "json", "explain"])]
    pub fragment: Option<PathBuf>,

    /// Print the facts about one option: its class, objects and gates, what selects it, and what goes with it
    #[arg(long, value_name = "OPTION", conflicts_with = "json")]
    pub explain: Option<String>,

    /// Print the table as JSON, with the gate of each object and the objects without one
    #[arg(long)]
    pub json: bool,

    /// Write a page for a browser to FILE, or `-`: a map of the objects, the table, the facts about each option, and the
    /// options that --advise proposes. The table is then printed only with --output
    #[arg(long, value_name = "FILE", conflicts_with_all = ["explain", "fragment"])]
    pub html: Option<PathBuf>,

    /// The output file; `-` is standard output, the default
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Build the kernel without the proposed options, test it, and find the options that must stay
    ///
    /// Copies the build directory, changes the options of the plan's section `config`, and builds the kernel and its
    /// modules again. If the test fails, halving finds the options without which it does, and these stay. OUT becomes
    /// the build directory of a kernel that passed the test, and has the plan with the results as advice.json.
    Try(TryArguments),
    /// Build the kernel without each option, one at a time, and measure what it saves
    ///
    /// Each kernel is built in a copy of the build directory, which takes seconds to minutes. The table has the estimated
    /// and the measured contents of the objects that are linked, and the sizes of vmlinux and of the boot image. With
    /// --memory it has the memory that is free in the guest. With --against, it measures the options in which a smaller
    /// kernel differs, and the share of each in the difference.
    Rank(RankArguments),
    /// Print the sizes of kernels side by side, and the memory that is free when they run
    Compare(CompareArguments),
}

/// The arguments of `rank`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  config-spec rank build/vmlinux
      measure all options that have code or data, and for which a build compiles at most 200 other objects again
  config-spec rank build/vmlinux INET_DIAG PACKET --memory 'boot \"$1\"'
      measure two options, with the memory that is free in the guest
  config-spec rank vanilla/vmlinux --against tiny/vmlinux --memory 'boot \"$1\"' --json
      measure the options that tiny/ lacks, and their share in the difference
  config-spec rank build/vmlinux --max-rebuilds 1000 --resume
      measure nearly all options; go on after the last one measured if the command was stopped

Exit status:
  0  success, also if a kernel without an option could not be built, which a note says
  1  the job failed: a file could not be read or written; nothing was written
  2  usage error or bad input")]
pub struct RankArguments {
    /// The kernel, in the directory where it was built
    pub vmlinux: PathBuf,

    /// The options to measure; all with code or data if none is given
    #[arg(value_name = "OPTION", conflicts_with = "against")]
    pub options: Vec<String>,

    /// A smaller kernel, in the directory where it was built: measure the options with a prompt in which it differs
    #[arg(long, value_name = "VMLINUX")]
    pub against: Option<PathBuf>,

    /// Measure no option for which a build compiles more than this number of other objects again, unless it is named
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub max_rebuilds: usize,

    /// Take what an earlier run, perhaps stopped, measured of the same kernel in the same way. Results are kept in
    /// ${KSHRINK_CACHE:-$HOME/.cache/kshrink}/ranks
    #[arg(long)]
    pub resume: bool,

    /// A variable for make, such as KCFLAGS=-g; ARCH, CROSS_COMPILE, LLVM, LLVM_IAS and CC are found from the
    /// build
    #[arg(long, value_name = "VAR=VALUE", value_parser = kbuild::parse_variable)]
    pub make: Vec<String>,

    /// The measurement and its output
    #[command(flatten)]
    pub measured: MeasuredArguments,
}

/// The arguments of the commands that measure kernels.
#[derive(Args, Debug)]
pub struct MeasuredArguments {
    /// A command of the shell that boots the kernel of the build directory $1, and prints /proc/meminfo of the guest, such
    /// as a console with it
    #[arg(long, value_name = "COMMAND")]
    pub memory: Option<String>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// The output file
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
}

/// The arguments of `compare`.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  config-spec compare build/vmlinux trimmed/vmlinux
      print the sizes of two kernels
  config-spec compare build/vmlinux trimmed/vmlinux --memory 'boot \"$1\"'
      add the memory in the guest

Exit status:
  0  success
  1  the job failed: a file could not be read or written; nothing was written
  2  usage error or bad input")]
pub struct CompareArguments {
    /// The kernels, each in the directory where it was built
    #[arg(required = true)]
    pub kernels: Vec<PathBuf>,

    /// The measurement and its output
    #[command(flatten)]
    pub measured: MeasuredArguments,
}

/// The arguments of `try`.
#[derive(Args, Debug)]
#[command(after_help = "\
Exit status:
  0  success: OUT is the build directory of a kernel that passes the test
  1  the job failed: the kernel could not be configured, or a file could not be written; there is no OUT
  2  usage error or bad input, such as a test that also fails with all options; there is no OUT")]
pub struct TryArguments {
    /// The plan with the advice; `-` is standard input
    pub plan: PathBuf,

    /// The directory where the kernel was built; it is only read
    #[arg(long, value_name = "DIR")]
    pub build: PathBuf,

    /// The new build directory
    #[arg(short, long, value_name = "OUT")]
    pub output: PathBuf,

    /// The test, for `sh -c`, with the build directory as $1. Exit status as for `git bisect run`: 0 passes, 125 cannot
    /// be tested, 126 and 127 end the search, any other fails
    #[arg(long, value_name = "COMMAND")]
    pub test: String,

    /// A variable for make, such as KCFLAGS=-g; ARCH, CROSS_COMPILE, LLVM, LLVM_IAS and CC are found from the
    /// build
    #[arg(long, value_name = "VAR=VALUE", value_parser = kbuild::parse_variable)]
    pub make: Vec<String>,
}

//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// Lists the options of a kernel's configuration and their cost, and finds the ones that a device can turn off
///
/// Reads the kernel's build, found from the path of its vmlinux, and the source tree that it was built from. Prints a
/// table of the options that can be set to n. It has the bytes that the kernel keeps only because of each option, the
/// number of options that Kconfig turns off with it, and the number of objects that a rebuild compiles. A plan with traces (`coverage`) adds the class of each option:
/// whether its code ran, and how. The kernel's own scripts/kconfig/conf decides which options go together; this takes
/// a few minutes the first time, and is cached by configuration.
#[derive(Parser, Debug)]
#[command(
    version,
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
  config-spec --fragment advice.json >trim.config
      write the proposal for scripts/kconfig/merge_config.sh

Exit status:
  0  success
  1  the job failed: a file could not be read or written; nothing was written
  2  usage error or bad input"
)]
pub struct Arguments {
    /// The kernel, in the directory where it was built
    #[arg(required_unless_present = "fragment")]
    pub vmlinux: Option<PathBuf>,

    /// The plan to read; `-` is standard input, the default if input is piped in
    #[arg(short, long, value_name = "FILE", conflicts_with = "fragment")]
    pub plan: Option<PathBuf>,

    /// Trust a scan that could not resolve every system-call site
    #[arg(long, conflicts_with = "fragment")]
    pub assume_complete: bool,

    /// Do not ask Kconfig which options go with each; the table then has options that cannot be turned off
    #[arg(long, conflicts_with_all = ["advise", "fragment"])]
    pub quick: bool,

    /// The devices of the target, one modalias a line (`cat $(find /sys -name modalias)` there); options of their
    /// drivers stay
    #[arg(long, value_name = "FILE", conflicts_with = "fragment")]
    pub hardware: Option<PathBuf>,

    /// Add the options to turn off to the plan, as section `config`, and print the plan
    #[arg(long, conflicts_with_all = ["json", "explain", "fragment"])]
    pub advise: bool,

    /// Write the section `config` of a plan as a fragment of .config, with the reason before each line
    #[arg(long, value_name = "PLAN", conflicts_with_all = ["vmlinux", "json", "explain"])]
    pub fragment: Option<PathBuf>,

    /// Print the facts about one option: its class, objects and gates, what selects it, and what goes with it
    #[arg(long, value_name = "OPTION", conflicts_with = "json")]
    pub explain: Option<String>,

    /// Print the table as JSON, with the gate of each object and the objects without one
    #[arg(long)]
    pub json: bool,

    /// The output file
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
}

//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::table::Column;

/// Lists the boot parameters of a Linux kernel and their cost, and plans a kernel for one command line
///
/// Reads the objects that the kernel's build linked, found from the path of its vmlinux. Without --cmdline, prints a
/// table of all parameters (early_param, __setup, core_param, module_param). With --cmdline, adds the section `params`
/// to the plan: `kshrink-spec` then removes the parameters that the command line does not name, and fixes variables of
/// simple types.
#[derive(Parser, Debug)]
#[command(
    version,
    after_help = "\
Examples:
  cmdline-spec build/vmlinux
      list the kernel's parameters, and the bytes that each one retains
  cmdline-spec build/vmlinux --sort name --json
      list them as JSON
  cmdline-spec build/vmlinux --cmdline 'console=ttyS0 panic=-1' | kshrink-spec build/vmlinux -o out
      make a kernel for this command line
  syscall-scan busybox | cmdline-spec build/vmlinux --cmdline 'quiet' | kshrink-spec build/vmlinux -o out
      make a kernel for this command line and the system calls of BusyBox
  cmdline-spec build/vmlinux --cmdline '' --fix panic_on_oops=1 --on-mismatch panic -o plan.json
      fix a variable to 1; the kernel panics if its command line asks for something that was removed
  config-spec build/vmlinux --plan plan.json --advise | cmdline-spec build/vmlinux --recommend
      print boot parameters that may do what turning off an option does

Exit status:
  0  success
  1  the job failed: a file could not be read or written; nothing was written
  2  usage error or bad input"
)]
pub struct Arguments {
    /// The kernel, in the directory where it was built
    pub vmlinux: PathBuf,

    /// The command line that the boot loader passes; CONFIG_CMDLINE is added as the kernel does
    #[arg(long, value_name = "STRING")]
    pub cmdline: Option<String>,

    /// The boot configuration, if the kernel reads one (CONFIG_BOOT_CONFIG)
    #[arg(long, value_name = "FILE", requires = "cmdline")]
    pub bootconfig: Option<PathBuf>,

    /// Fix a variable: its symbol, or FILE:SYMBOL for a local one, and an integer; repeatable
    #[arg(long, value_name = "VARIABLE=VALUE", value_parser = parse_fix, requires = "cmdline")]
    pub fix: Vec<(String, String)>,

    /// Fix the variable of this parameter, or of --fix, even if it may change while the kernel runs; repeatable
    #[arg(long, value_name = "NAME", requires = "cmdline")]
    pub force: Vec<String>,

    /// Also remove parameters whose files in /sys/module/*/parameters can be read, but not written to
    #[arg(long, requires = "cmdline")]
    pub remove_read_only: bool,

    /// What the rewritten kernel does if its command line asks for a removed parameter, or for another value of a fixed
    /// one: print a warning on the console, or panic
    #[arg(long, value_enum, default_value_t = Mismatch::Warn, requires = "cmdline")]
    pub on_mismatch: Mismatch,

    /// The plan to add to; `-` is standard input, the default if input is piped in. Figures are for the kernel without
    /// the system calls that the plan lists as unused
    #[arg(short, long, value_name = "FILE")]
    pub plan: Option<PathBuf>,

    /// Trust a scan that could not resolve every system-call site
    #[arg(long)]
    pub assume_complete: bool,

    /// The column to sort the table by
    #[arg(long, value_enum, default_value_t = Column::Keeps, conflicts_with = "cmdline")]
    pub sort: Column,

    /// Print the boot parameters that may do the same as the options which the plan's section `config` proposes to turn
    /// off (`config-spec --advise`), with the value 0 or off: try them first, because they need no build
    #[arg(long, conflicts_with_all = ["cmdline", "sort", "json"])]
    pub recommend: bool,

    /// Print the table as JSON
    #[arg(long, conflicts_with = "cmdline")]
    pub json: bool,

    /// The output file
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
}

/// The reaction of the kernel to another command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mismatch {
    /// Print a warning.
    Warn,
    /// Print a message and panic.
    Panic,
}

fn parse_fix(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((variable, value)) if !variable.is_empty() => Ok((variable.to_owned(), value.to_owned())),
        _ => Err("expected VARIABLE=VALUE".to_owned()),
    }
}

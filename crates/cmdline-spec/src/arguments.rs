//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::table::Column;

/// Says which boot parameters a Linux kernel has and what they cost, and which ones a command line needs
///
/// Reads the objects that the kernel's build linked, found from the path of its vmlinux. Without --cmdline, prints a table
/// of all parameters (early_param, __setup, core_param, module_param). With it, adds the section `params` to the plan:
/// `kshrink-spec` then removes the parameters that the command line does not name, and sets variables of simple types for
/// good.
#[derive(Parser, Debug)]
#[command(
    version,
    after_help = "\
Examples:
  cmdline-spec build/vmlinux
      what the kernel understands, and the bytes that each parameter keeps alive by itself
  cmdline-spec build/vmlinux --sort name --json
      the same for programs
  cmdline-spec build/vmlinux --cmdline 'console=ttyS0 panic=-1' | kshrink-spec build/vmlinux -o out
      a kernel for this command line
  syscall-scan busybox | cmdline-spec build/vmlinux --cmdline 'quiet' | kshrink-spec build/vmlinux -o out
      and for the system calls of BusyBox
  cmdline-spec build/vmlinux --cmdline '' --fix panic_on_oops=1 --on-mismatch panic -o plan.json
      a variable that stays 1; the kernel stops if its command line asks for something that it no longer has

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

    /// The boot configuration of a kernel that reads one (CONFIG_BOOT_CONFIG)
    #[arg(long, value_name = "FILE", requires = "cmdline")]
    pub bootconfig: Option<PathBuf>,

    /// Set a variable for good: its symbol, or FILE:SYMBOL for a local one, and an integer; repeatable
    #[arg(long, value_name = "VARIABLE=VALUE", value_parser = parse_fix, requires = "cmdline")]
    pub fix: Vec<(String, String)>,

    /// Set the variable of this parameter, or of --fix, even if it may change while the kernel runs; repeatable
    #[arg(long, value_name = "NAME", requires = "cmdline")]
    pub force: Vec<String>,

    /// Remove also parameters whose files in /sys/module/*/parameters can be read, but not written to
    #[arg(long, requires = "cmdline")]
    pub remove_read_only: bool,

    /// What the rewritten kernel does if its command line asks for what was removed, or fixed otherwise: say so on the
    /// console, or stop as well
    #[arg(long, value_enum, default_value_t = Mismatch::Warn, requires = "cmdline")]
    pub on_mismatch: Mismatch,

    /// The plan to add to; `-` is standard input, which is the default where something is piped in. Figures are for the
    /// kernel without the system calls that it says are unused
    #[arg(short, long, value_name = "FILE")]
    pub plan: Option<PathBuf>,

    /// Trust a scan that could not resolve every system-call site
    #[arg(long)]
    pub assume_complete: bool,

    /// What the table is sorted by
    #[arg(long, value_enum, default_value_t = Column::Keeps, conflicts_with = "cmdline")]
    pub sort: Column,

    /// Print the table as JSON
    #[arg(long, conflicts_with = "cmdline")]
    pub json: bool,

    /// Where to write
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
}

/// What the kernel does with another command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mismatch {
    /// It says so.
    Warn,
    /// It says so and stops.
    Panic,
}

fn parse_fix(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((variable, value)) if !variable.is_empty() => Ok((variable.to_owned(), value.to_owned())),
        _ => Err("expected VARIABLE=VALUE".to_owned()),
    }
}

//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use kplan::Granularity;
use ktext::PAGE_SIZE;
use reorder::algorithm::Algorithm;
use reorder::format::Format;

/// Orders the code of a kernel so that it touches few pages
///
/// Reads a plan with the section `coverage` (made from traces by the command `coverage`) and finds the functions that
/// ran in the kernel. Code never leaves its region: init text stays init text, and code that the linker script puts
/// between markers (.sched.text, .noinstr.text, .entry.text, …) stays between them.
#[derive(Parser, Debug)]
#[command(version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = EXAMPLES)]
pub struct Arguments {
    /// Report on the pages instead
    #[command(subcommand)]
    pub command: Option<Command>,

    /// The input and output of an order
    #[command(flatten)]
    pub order: OrderArguments,
}

/// The arguments without a subcommand.
#[derive(Args, Debug)]
pub struct OrderArguments {
    /// The plan; standard input by default and for `-`. Further plans add traces: code that ran in any of them is hot,
    /// and `balanced` and `packed` consider each trace
    #[arg(value_name = "PLAN")]
    pub plans: Vec<PathBuf>,

    /// The linked kernel, with its symbols
    #[arg(long, value_name = "VMLINUX", required = true)]
    pub vmlinux: Option<PathBuf>,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = Format::Plan)]
    pub format: Format,

    /// The map that `ld.lld -Map` wrote of this kernel (vmlinux.map with CONFIG_VMLINUX_MAP). The formats that name
    /// sections then name them exactly. Without it, functions of one name, and files of one name, cannot be
    /// distinguished
    #[arg(long, value_name = "FILE")]
    pub map: Option<PathBuf>,

    /// The code that moves as a unit: whole functions, or the blocks that ran, which requires a rewriter
    #[arg(short, long, value_enum, default_value_t = Grain::Function)]
    pub granularity: Grain,

    /// The algorithm that finds the order
    #[arg(short, long, value_enum, default_value_t = Algorithm::Packed)]
    pub algorithm: Algorithm,

    /// Size of a page in bytes, a power of two
    #[arg(long, value_name = "BYTES", default_value_t = PAGE_SIZE, value_parser = page_size)]
    pub page_size: u64,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true)]
    pub output: PathBuf,
}

/// [`Granularity`] as an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Grain {
    /// Whole functions
    Function,
    /// The blocks that ran
    Block,
}

impl From<Grain> for Granularity {
    fn from(grain: Grain) -> Granularity {
        match grain {
            Grain::Function => Granularity::Function,
            Grain::Block => Granularity::Block,
        }
    }
}

/// The subcommands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Print how many pages of text a kernel has, how many are touched, and the minimum
    ///
    /// A page is touched if one of its bytes ran. `minimum by function` is the number of pages for the functions that
    /// ran, `minimum by byte` for the bytes that ran. The list below shows the emptiest touched pages, and the rest of
    /// their content.
    Pages {
        /// The linked kernel of the coverage, with its symbols
        vmlinux: PathBuf,

        /// The plan; standard input by default and for `-`
        plan: Option<PathBuf>,

        /// Size of a page in bytes, a power of two
        #[arg(long, value_name = "BYTES", default_value_t = PAGE_SIZE, value_parser = page_size)]
        page_size: u64,

        /// Number of the emptiest pages to list
        #[arg(long, value_name = "N", default_value_t = 10)]
        emptiest: usize,

        /// Print a JSON object, with all touched pages
        #[arg(long)]
        json: bool,
    },
}

fn page_size(text: &str) -> Result<u64, String> {
    let size: u64 = text.parse().map_err(|_| "expected a number of bytes, such as 4096".to_owned())?;
    if size.is_power_of_two() && (64..=1 << 30).contains(&size) {
        return Ok(size);
    }
    Err("expected a power of two from 64 to 1073741824, such as 4096".to_owned())
}

const EXAMPLES: &str = "\
Examples:
  coverage qemu build/vmlinux trace.log | reorder --vmlinux build/vmlinux -o order.json
      order the functions of a kernel by a trace of its boot
  reorder plan.json --vmlinux build/vmlinux -g block | kshrink-spec build/vmlinux --passes layout -o out
      also move cold blocks out of hot functions, and relink the kernel
  reorder plan.json --vmlinux build/vmlinux --format lld -o order.txt
      write a file for `ld.lld --symbol-ordering-file=order.txt`, with KCFLAGS=-ffunction-sections
  { echo 'SECTIONS { .text.order : {'; reorder plan.json --vmlinux build/vmlinux --map build/vmlinux.map \
      --format lds; echo '} } INSERT AFTER .text;'; } > order.lds
      write a script for use before the kernel's own: `ld.lld --script=order.lds --script=vmlinux.lds`
  reorder pages build/vmlinux plan.json
      print the possible gain

Exit status:
  0  success; unmatched parts of the coverage are reported on standard error
  1  the job failed: a file could not be read or written; nothing was written
  2  usage error or bad input";

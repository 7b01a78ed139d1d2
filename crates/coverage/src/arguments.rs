//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Records which code of a kernel runs.
///
/// Reads traces of a kernel and prints a plan with the functions that ran, their executed bytes, and their order. A
/// plan on standard input is read first, and the traces are added to it. Code is identified by function and offset, so
/// that a trace of one build can be used on its next link.
#[derive(Parser)]
#[command(name = "coverage", version, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  coverage qemu vmlinux trace.log -o plan.json       convert a trace of QEMU to a plan
  coverage ftrace vmlinux trace.txt | reorder        order code by a trace of the function tracer
  coverage merge boot.json serve.json -o plan.json   merge traces
  coverage summary plan.json --kernel vmlinux        print tables
  coverage html plan.json vmlinux -o pages.html      draw a map of the kernel's pages

Exit codes: 0 success; 1 a file could not be read or written; 2 wrong arguments, a file that is not a valid trace
or kernel, or a trace of another kernel.";

#[derive(Subcommand)]
pub enum Command {
    /// Read QEMU's log of instructions at their first execution
    #[command(after_help = QEMU)]
    Qemu {
        #[command(flatten)]
        traces: Traces,
        /// Also record which read-only data was read, from traces with that information
        #[arg(long)]
        data: bool,
        /// Record only code that ran, and data that was read, after boot, from traces with that information
        #[arg(long)]
        after_boot: bool,
        /// Record only instructions that ran at least N times, from traces with counts
        #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true, value_parser = clap::value_parser!(u64).range(1..))]
        least: u64,
        #[command(flatten)]
        blocks: BlocksOption,
        #[command(flatten)]
        load: LoadOption,
    },
    /// Read the text of the kernel's function tracer, or of trace-cmd
    #[command(after_help = FTRACE)]
    Ftrace {
        #[command(flatten)]
        traces: Traces,
    },
    /// Read the counters of an instrumented kernel from its memory
    #[command(after_help = KCORE)]
    Kcore {
        #[command(flatten)]
        traces: Traces,
        /// The map of the kernel's blocks that the rewriter wrote next to it
        #[arg(long, value_name = "FILE")]
        blocks: PathBuf,
        /// The dump is raw physical memory from this address on
        #[arg(long, value_name = "ADDRESS", value_parser = address)]
        base: Option<u64>,
        #[command(flatten)]
        load: LoadOption,
    },
    /// Merge the coverage of several plans
    ///
    /// Prints the first plan with the coverage of the others added. Counts are summed. Functions are in the order of
    /// the first plan, followed by those that occur only in later plans.
    Merge {
        /// The plans; `-` is standard input
        #[arg(required = true, value_name = "PLAN")]
        plans: Vec<PathBuf>,
        #[command(flatten)]
        output: OutputOption,
    },
    /// Print the coverage of a plan as tables
    Summary {
        /// The plan; standard input by default
        #[arg(value_name = "PLAN", default_value = "-", hide_default_value = true)]
        plan: PathBuf,
        /// The linked kernel, or another link of it: adds shares of the whole, and pages
        #[arg(long, value_name = "VMLINUX")]
        kernel: Option<PathBuf>,
        #[command(flatten)]
        blocks: BlocksOption,
        #[command(flatten)]
        output: OutputOption,
    },
    /// Make a map of the kernel's address space: the touched pages, and how much of each page ran
    ///
    /// The output is one file without references to others. With --after, it also shows a second kernel, such as the
    /// same one in another order.
    Html {
        /// The plan; `-` is standard input
        plan: PathBuf,
        /// The linked kernel
        vmlinux: PathBuf,
        #[command(flatten)]
        blocks: BlocksOption,
        /// A second plan (which may be the same) and linked kernel, to show next to the first
        #[arg(long, num_args = 2, value_names = ["PLAN", "VMLINUX"])]
        after: Option<Vec<PathBuf>>,
        /// If the kernel of --after is rewritten, the map of its blocks
        #[arg(long, value_name = "FILE", requires = "after")]
        after_blocks: Option<PathBuf>,
        #[command(flatten)]
        output: OutputOption,
    },
}

#[derive(Args)]
pub struct Traces {
    /// The linked kernel that was running, with its symbols
    pub vmlinux: PathBuf,
    /// The traces, in the order in which they were made; `-` is standard input
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    #[command(flatten)]
    pub output: OutputOption,
}

#[derive(Args)]
pub struct OutputOption {
    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true)]
    pub output: PathBuf,
}

#[derive(Args)]
pub struct BlocksOption {
    /// For a rewritten kernel, the map of its blocks that the rewriter wrote next to it
    #[arg(long, value_name = "FILE")]
    pub blocks: Option<PathBuf>,
}

#[derive(Args)]
pub struct LoadOption {
    /// The physical address of the first byte of the kernel's code, if its ELF file does not record it (ARM, arm64)
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub load_address: Option<u64>,
}

const QEMU: &str = "\
How to record, on any machine of QEMU:
  qemu-system-… -accel tcg,thread=single -singlestep -d in_asm -D trace.log …              up to QEMU 8.0
  qemu-system-… -accel tcg,thread=single,one-insn-per-tb=on -d in_asm -D trace.log …       from QEMU 8.1 on
With one instruction per block, QEMU translates each instruction just before its first execution.
That is ten times slower than usual; -dfilter with the addresses of the kernel makes the log smaller
(code that runs before paging is at physical addresses). Boot the kernel with nokaslr. An arm64 kernel does not
record its physical load address, which is 0x40200000 on QEMU's board virt: without --load-address, code that
runs before paging is left out.

The plugin fixtures/qemu/trace.c of kshrink's source is several times faster, and counts how often each
instruction runs (QEMU 4.2 to 8.2):
  cc -O2 -shared -fPIC trace.c -o trace.so
  qemu-system-… -accel tcg,thread=single -plugin ./trace.so,out=trace.log …
With code=START-END,data=START-END,offset=NUMBER after out=, it also lists the read-only data that the kernel's code
reads: `code` is from _stext to _etext, `data` from __start_rodata to __end_rodata, and NUMBER is the kernel's virtual
minus its physical address (`readelf -l`). With boot=ADDRESS, the address of free_initmem, it also lists the code that
runs, and the data that is read, after boot. fixtures/qemu/boot.sh --data vmlinux does both.

Examples:
  coverage qemu vmlinux trace.log -o plan.json
  coverage qemu --data vmlinux trace.log | frozen-pack plan vmlinux
  coverage qemu --data --after-boot vmlinux trace.log -o later.json
  coverage qemu --least 1000 vmlinux trace.log -o hot.json          what runs often, for kshrink-spec --specialize
  coverage qemu arm64/vmlinux trace.log --load-address 0x40200000
  coverage qemu rewritten/vmlinux trace.log --blocks rewritten/blocks.json
  zcat trace.log.gz | coverage qemu vmlinux -";

const FTRACE: &str = "\
How to record on a device: a kernel with CONFIG_FUNCTION_TRACER, and on its command line
  ftrace=function trace_buf_size=64M trace_clock=local trace_options=nooverwrite,sym-addr nokaslr
then, after the workload,
  cat /sys/kernel/tracing/trace > trace.txt
The tracer starts when the kernel has set up its memory. Without trace_clock, a kernel whose clock is not stable
changes the trace's clock late in the boot, and discards the earlier events. With nooverwrite, the beginning is kept
if the buffer is too small; per_cpu/cpu*/stats next to the trace has the number of dropped events. The option
sym-addr distinguishes local functions of one name. Without user space, ftrace_dump_on_oops, or the key z of the
magic SysRq, prints the buffer on the console.
With trace-cmd: trace-cmd record -p function …, trace-cmd report > trace.txt. Traces of the function graph tracer
are supported, too.

A function and its caller count as run. Functions that the tracer leaves out (notrace functions, and early code) are
missing, unless they call a traced function.

Examples:
  coverage ftrace vmlinux trace.txt -o plan.json
  ssh device cat /sys/kernel/tracing/trace | coverage ftrace vmlinux - | reorder --format lld";

const KCORE: &str = "\
The kernel must have been made by kshrink-spec with the pass instrument. The dump is
  /proc/kcore on the device itself, or a copy of it (CONFIG_PROC_KCORE; boot with nokaslr),
  a file that dump-guest-memory FILE writes in QEMU's monitor,
  or raw memory (pmemsave 0 SIZE FILE in QEMU's monitor) with --base 0.
QEMU's dumps of ARM machines use physical addresses, and the kernel's file does not record its load address. Pass it
with --load-address; on QEMU's board virt it is 0x40008000.
A dump has no order of execution: the functions are sorted by address.

Examples:
  coverage kcore vmlinux --blocks blocks.json /proc/kcore -o plan.json
  coverage kcore vmlinux --blocks blocks.json memory.bin --base 0
  coverage kcore arm/vmlinux --blocks blocks.json dump --load-address 0x40008000";

/// An address, hexadecimal with `0x` or decimal.
fn address(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| format!("{error}; expected an address such as 0x40000000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
        assert_eq!(address("0x40000000"), Ok(0x4000_0000));
        assert_eq!(address("4096"), Ok(4096));
        assert!(address("0xg").is_err());
    }
}

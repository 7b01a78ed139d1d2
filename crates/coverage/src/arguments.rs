//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Shows what a kernel really executes.
///
/// Reads traces of a kernel and prints a plan that says which of its functions ran, which bytes of them, and in
/// which order. A plan on standard input is read first, and the traces are added to it. Code is named by function
/// and offset, so that a trace of one build can be used on the next link of it.
#[derive(Parser)]
#[command(name = "coverage", version, after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  coverage qemu vmlinux trace.log -o plan.json       what QEMU saw, as a plan
  coverage ftrace vmlinux trace.txt | reorder        what the function tracer saw, in a pipeline
  coverage merge boot.json serve.json -o plan.json   several traces as one
  coverage summary plan.json --kernel vmlinux        tables
  coverage html plan.json vmlinux -o pages.html      a map of the kernel's pages

Exit codes: 0 success; 1 a file could not be read or written; 2 wrong arguments, or a file that is no trace
or kernel that can be read, or a trace of another kernel.";

#[derive(Subcommand)]
pub enum Command {
    /// Read QEMU's log of the instructions that it runs for the first time
    #[command(after_help = QEMU)]
    Qemu {
        #[command(flatten)]
        traces: Traces,
        /// Take down which read-only data was read, too; the traces have to say it
        #[arg(long)]
        data: bool,
        /// Take down only what ran, and was read, since the kernel had booted; the traces have to say it
        #[arg(long)]
        after_boot: bool,
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
        /// The map of the kernel's blocks, which the rewriter wrote beside it
        #[arg(long, value_name = "FILE")]
        blocks: PathBuf,
        /// The dump is raw physical memory from this address on
        #[arg(long, value_name = "ADDRESS", value_parser = address)]
        base: Option<u64>,
        #[command(flatten)]
        load: LoadOption,
    },
    /// Unite the coverage of several plans
    ///
    /// The first plan is printed with what the others have seen added to it. Counts add. The order of the first
    /// goes first; what only later ones have comes after it.
    Merge {
        /// The plans; `-` is standard input
        #[arg(required = true, value_name = "PLAN")]
        plans: Vec<PathBuf>,
        #[command(flatten)]
        output: OutputOption,
    },
    /// Print the coverage of a plan as tables
    Summary {
        /// The plan; standard input if it is left out
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
    /// Make a page that shows the kernel's address space: which pages are touched, and how much of them runs
    ///
    /// One file without references to others. With --after, a second kernel beside the first, such as the same
    /// one in another order.
    Html {
        /// The plan; `-` is standard input
        plan: PathBuf,
        /// The linked kernel
        vmlinux: PathBuf,
        #[command(flatten)]
        blocks: BlocksOption,
        /// A plan (which may be the same) and a linked kernel to show beside the first
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
    /// If the kernel is rewritten, the map of its blocks, which the rewriter wrote beside it
    #[arg(long, value_name = "FILE")]
    pub blocks: Option<PathBuf>,
}

#[derive(Args)]
pub struct LoadOption {
    /// The physical address of the first byte of the kernel's code, where its ELF file does not say that (ARM, arm64)
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    pub load_address: Option<u64>,
}

const QEMU: &str = "\
How to record, on any machine that QEMU has:
  qemu-system-… -accel tcg,thread=single -singlestep -d in_asm -D trace.log …              up to QEMU 8.0
  qemu-system-… -accel tcg,thread=single,one-insn-per-tb=on -d in_asm -D trace.log …       from QEMU 8.1 on
With one instruction a block, QEMU translates each instruction when it is about to run for the first time.
That is ten times slower than QEMU is otherwise; -dfilter with the addresses of the kernel makes the log smaller
(the code that runs before paging is at physical addresses). Boot the kernel with nokaslr. An arm64 kernel says
nothing of the physical address that it is loaded at, which on QEMU's board virt is 0x40200000: without
--load-address, what runs before paging is left out.

The plugin fixtures/qemu/trace.c of kshrink's source is several times faster, and counts how often each
instruction runs (QEMU 4.2 to 8.2):
  cc -O2 -shared -fPIC trace.c -o trace.so
  qemu-system-… -accel tcg,thread=single -plugin ./trace.so,out=trace.log …
With code=START-END,data=START-END,offset=NUMBER behind out=, it also says what of the kernel's read-only data its code
read; `code` is from _stext to _etext, `data` from __start_rodata to __end_rodata, and NUMBER what the kernel's addresses
are above those of physical memory (`readelf -l`). With boot=ADDRESS, the address of free_initmem, it says what ran and was
read after the kernel had booted. fixtures/qemu/boot.sh --data vmlinux does both.

Examples:
  coverage qemu vmlinux trace.log -o plan.json
  coverage qemu --data vmlinux trace.log | frozen-pack plan vmlinux
  coverage qemu --data --after-boot vmlinux trace.log -o later.json
  coverage qemu arm64/vmlinux trace.log --load-address 0x40200000
  coverage qemu rewritten/vmlinux trace.log --blocks rewritten/blocks.json
  zcat trace.log.gz | coverage qemu vmlinux -";

const FTRACE: &str = "\
How to record on a device: a kernel with CONFIG_FUNCTION_TRACER, and on its command line
  ftrace=function trace_buf_size=64M trace_clock=local trace_options=nooverwrite,sym-addr nokaslr
then, when it has done what it is for,
  cat /sys/kernel/tracing/trace > trace.txt
The tracer starts when the kernel has set up its memory. Without trace_clock, a kernel whose clock is not stable
changes the trace's late in the boot, and throws away what it had until then. With nooverwrite it is the beginning
that is kept if the buffer is too small; per_cpu/cpu*/stats beside the trace has the number of dropped events. The
option sym-addr tells local functions of one name apart. Without user space, ftrace_dump_on_oops, or the key z of the
magic SysRq, prints the buffer on the console.
With trace-cmd: trace-cmd record -p function …, trace-cmd report > trace.txt. The function graph tracer is read
too.

A function and its caller count as run. Functions that the tracer leaves out (notrace, and what runs before it
starts) are missing, unless they call one that it has.

Examples:
  coverage ftrace vmlinux trace.txt -o plan.json
  ssh device cat /sys/kernel/tracing/trace | coverage ftrace vmlinux - | reorder --format lld";

const KCORE: &str = "\
The kernel is one that kshrink-spec has made with the pass instrument. The dump is
  /proc/kcore on the device itself, or a copy of it (CONFIG_PROC_KCORE; boot with nokaslr),
  what dump-guest-memory FILE makes in QEMU's monitor,
  or raw memory (pmemsave 0 SIZE FILE in QEMU's monitor) with --base 0.
What QEMU dumps of a machine with an ARM processor is by physical address, and the kernel's file does not say where its
code is loaded, which on QEMU's board virt is 0x40008000: --load-address has to.
A dump has no order: the functions come by address.

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

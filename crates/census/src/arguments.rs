//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Lists the owners of the memory of a running Linux kernel
///
/// Reads an image of a machine's memory and counts every page by its owner: slab caches with their objects, page tables,
/// stacks, the page cache, reserved memory. The kernel needs no option for it, not even /proc/slabinfo.
#[derive(Parser, Debug)]
#[command(
    name = "census",
    version,
    after_help = "\
Examples:
  census core build/vmlinux memory.core
      print the owners of the memory in a dump by QEMU's dump-guest-memory
  census core build/vmlinux /proc/kcore --json -o now.json
      write the owners of this machine's memory as JSON
  census core build/vmlinux memory.core --html memory.html
      write the owners as a page for a browser, with a map of the memory
  census html now.json -o memory.html
      the same page for a census that was taken before
  census trace build/vmlinux memory.core allocations
      print the code that allocated the memory, and how much of it was never used
  census diff before.json now.json
      compare two censuses

Exit status:
  0  success
  1  the job failed: a file could not be read or written; nothing was written
  2  usage error or bad input: for example, a core that is damaged or of another kernel"
)]
pub struct Arguments {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Count the pages in a core by owner
    Core {
        /// The kernel with its symbols, with debugging information or in the directory where it was built
        vmlinux: PathBuf,
        /// The memory: an ELF core of QEMU's dump-guest-memory or of kdump, or /proc/kcore
        core: PathBuf,
        /// Print the census as JSON (kshrink-census/1)
        #[arg(long)]
        json: bool,
        /// Write a page for a browser to FILE, or `-`: a map of the memory by kind and owner, and a table of the owners. The
        /// tables are then printed only with --output
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
        /// The output file; `-` is standard output, the default
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Write a census as a page for a browser
    Html {
        /// The census, as JSON; `-` is standard input
        census: PathBuf,
        /// The output file
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
    },
    /// List the code that allocated the memory, and how much of it was never used
    ///
    /// Prints each caller of an allocator with the objects in use that it allocated. `unused` is the number of objects
    /// of which the processor accessed no byte after the allocation, `untouched` the number of bytes without an access.
    /// Sites with many unread bytes come first. Accesses by devices are not recorded.
    #[command(after_help = "\
How to record (QEMU 4.2 to 8.2, a kernel for i386 or x86-64):
  census places build/vmlinux -o places
  cc -O2 -shared -fPIC /usr/local/share/kshrink/allocations.c -o allocations.so
  qemu-system-x86_64 -accel tcg,thread=single -plugin ./allocations.so,places=places,out=allocations …
      and in QEMU's monitor, when the machine is paused: dump-guest-memory memory.core, then quit

Examples:
  census trace build/vmlinux memory.core allocations
      print the sites of the memory
  census trace build/vmlinux memory.core allocations --json -o sites.json
      write them as JSON (kshrink-allocations/1)")]
    Trace {
        /// The kernel with its symbols, with debugging information or in the directory where it was built
        vmlinux: PathBuf,
        /// The memory at the end of the run, as for `census core`
        core: PathBuf,
        /// The recording of the same run by the plugin allocations.c; `-` is standard input
        trace: PathBuf,
        /// Print the sites as JSON (kshrink-allocations/1)
        #[arg(long)]
        json: bool,
        /// The output file
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
    },
    /// List the allocators of a kernel, for the plugin that records their calls (see `census trace --help`)
    Places {
        /// The kernel with its symbols
        vmlinux: PathBuf,
        /// The output file
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
    },
    /// Compare two censuses by owner, the largest change first
    Diff {
        /// The first census, as JSON; `-` is standard input
        before: PathBuf,
        /// The second census, as JSON
        after: PathBuf,
        /// The output file
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
    },
}

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

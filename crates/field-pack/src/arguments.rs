//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// Makes the data structures smaller that a Linux kernel allocates
///
/// Reads the values of all members of all allocated objects from images of a machine's memory, chooses a smaller form for
/// each member, and writes a patch for the kernel's source. A value that does not fit goes into a table beside the objects.
#[derive(Parser, Debug)]
#[command(
    name = "field-pack",
    version,
    after_help = "\
Examples:
  field-pack profile build/vmlinux memory.core -o profile.json
      read the values of members from a dump by QEMU's dump-guest-memory
  field-pack show profile.json
      print the values and the slab caches
  field-pack plan profile.json --threshold 0.6 -o fields.json
      choose a form for each member that is not among the most used ones
  field-pack patch fields.json --source linux-6.12 --build build -o fields.patch
      write the patch
  field-pack check fields.json --source linux-6.12 --build build -o fields.patch
      write the patch without the members that do not compile

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
    /// Read the values of members from memory dumps
    Profile {
        /// The kernel with its symbols, in the directory where it was built
        vmlinux: PathBuf,
        /// The memory: ELF cores of QEMU's dump-guest-memory or of kdump
        #[arg(required = true)]
        cores: Vec<PathBuf>,
        /// The loads and stores that the plugin accesses.c counted: one file for each core, in the same order
        #[arg(long, value_name = "LOG")]
        accesses: Vec<PathBuf>,
        /// Only these structures. CACHE=TYPE names the structure of the objects in a cache
        #[arg(long, value_name = "TYPE", value_delimiter = ',')]
        types: Vec<String>,
        /// The output file
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
    },
    /// Print the values of members, and the slab caches
    Show {
        /// The profile; `-` is standard input
        profile: PathBuf,
        /// Only these structures
        #[arg(long, value_name = "TYPE", value_delimiter = ',')]
        types: Vec<String>,
        /// The output file
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
    },
    /// Choose how each member is stored
    Plan {
        /// The profile; `-` is standard input
        profile: PathBuf,
        /// The share of all loads and stores, from 0 to 1, whose members stay as they are, the most used ones first
        #[arg(long, value_name = "R", default_value_t = 0.0)]
        threshold: f64,
        /// Only these structures
        #[arg(long, value_name = "TYPE", value_delimiter = ',')]
        types: Vec<String>,
        /// Only these changes: order, absent, narrow, prefix, table, page-table
        #[arg(long, value_name = "CHANGE", value_delimiter = ',')]
        only: Vec<String>,
        /// Make every form too narrow for some of the values, to test the table for values that do not fit
        #[arg(long)]
        starve: bool,
        /// The output file
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
    },
    /// Write the patch for a plan
    Patch {
        /// The plan; `-` is standard input
        fields: PathBuf,
        /// The kernel's source
        #[arg(long, value_name = "DIR")]
        source: PathBuf,
        /// The directory where the kernel was built; several for a patch that fits several configurations
        #[arg(long, value_name = "DIR", required = true)]
        build: Vec<PathBuf>,
        /// The output file
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
    },
    /// Write the patch for a plan, without the members that do not compile
    Check {
        /// The plan; `-` is standard input
        fields: PathBuf,
        /// The kernel's source
        #[arg(long, value_name = "DIR")]
        source: PathBuf,
        /// The directory where the kernel was built; several for a patch that fits several configurations
        #[arg(long, value_name = "DIR", required = true)]
        build: Vec<PathBuf>,
        /// The output file
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
    },
}

//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Makes the data structures smaller that a Linux kernel allocates
///
/// Reads the values of members of allocated objects from images of a machine's memory. Chooses a smaller form for each member,
/// and writes a patch for the kernel's source. A value that does not fit goes into a table beside the objects.
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
    ///
    /// For each member of each structure in the slab caches, prints the least and the greatest value, and counts distinct
    /// values up to 4,096. Only allocated objects count, no static variables. The kernel's source names the structure of a
    /// cache in the call that creates the cache; the file with the call is compiled again with debugging information.
    #[command(after_help = "\
How to dump, and to count loads and stores (QEMU 4.2 to 8.2):
  cc -O2 -shared -fPIC /usr/local/share/kshrink/accesses.c -o accesses.so
  qemu-system-i386 -accel tcg,thread=single -plugin ./accesses.so,out=accesses -append slab_nomerge …
      and in QEMU's monitor, when the machine is paused: dump-guest-memory memory.core, then quit

Examples:
  field-pack profile build/vmlinux memory.core --accesses accesses -o profile.json
      profile one run
  field-pack profile build/vmlinux files.core web.core --types inode,dentry -o profile.json
      profile two structures in two runs
  field-pack profile build/vmlinux memory.core --types TCP=tcp_sock@net/ipv4/tcp.o -o profile.json
      profile a cache whose structure the source does not name")]
    Profile {
        /// The kernel with its symbols, in the directory where it was built
        vmlinux: PathBuf,
        /// The memory: ELF cores of QEMU's dump-guest-memory or of kdump
        #[arg(required = true)]
        cores: Vec<PathBuf>,
        /// The loads and stores that the plugin accesses.c counted: one file for each core, in the same order
        #[arg(long, value_name = "LOG")]
        accesses: Vec<PathBuf>,
        /// Only these structures. CACHE=TYPE names the structure of the objects in a cache, CACHE=TYPE@OBJECT also the
        /// object of the build whose source has it
        #[arg(long, value_name = "TYPE", value_delimiter = ',')]
        types: Vec<String>,
        /// The output file
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
    },
    /// Print the values of members and the slab caches of a profile, or what a plan brings
    Show {
        /// The profile or the plan; `-` is standard input
        document: PathBuf,
        /// Of a profile: only these structures. Default: those in the six largest caches
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
        #[arg(long, value_name = "R", default_value_t = 0.0, value_parser = share)]
        threshold: f64,
        /// Only these structures. Default: those in caches with 0.5 % of the slabs or more, and large ones embedded in these
        #[arg(long, value_name = "TYPE", value_delimiter = ',')]
        types: Vec<String>,
        /// Only these changes: order, absent, narrow, own, prefix, table, page-table
        #[arg(long, value_name = "CHANGE", value_delimiter = ',')]
        only: Vec<String>,
        /// Make every form too narrow for some of the values, to test the table for values that do not fit
        #[arg(long)]
        starve: bool,
        /// Keep the members as they are that the code excludes according to an earlier plan, as `patch` and `check` write it
        #[arg(long, value_name = "FIELDS")]
        after: Option<PathBuf>,
        /// Keep the members as they are of which many values had no code: FILE is /proc/kshrink-fields of a kernel with an
        /// earlier plan
        #[arg(long, value_name = "FILE")]
        beside: Option<PathBuf>,
        /// The output file
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
    },
    /// Write the patch for a plan
    Patch {
        #[command(flatten)]
        source: SourceArguments,
    },
    /// Write the patch for a plan, without the members that do not compile
    Check {
        #[command(flatten)]
        source: SourceArguments,
        /// Keep the build of the patched kernel in this directory, which must not exist, and its source beside it; one for
        /// each --build
        #[arg(long, value_name = "DIR")]
        keep: Vec<PathBuf>,
    },
    /// Parse files for the other commands
    #[command(hide = true)]
    ScanFiles,
}

/// Parses a share from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a number from 0 to 1".into()),
    }
}

/// The plan and the source of a patch.
#[derive(Args, Debug)]
pub struct SourceArguments {
    /// The plan; `-` is standard input
    pub fields: PathBuf,
    /// The kernel's source
    #[arg(long, value_name = "DIR")]
    pub source: PathBuf,
    /// The directory where the kernel was built; several for a patch that fits several configurations
    #[arg(long, value_name = "DIR", required = true)]
    pub build: Vec<PathBuf>,
    /// Keep the uses of members, which take minutes to find, in this file; read them if it exists
    #[arg(long, value_name = "FILE")]
    pub uses: Option<PathBuf>,
    /// A use that you judged to be harmless: a copy of a structure for a message, or the address of a member that only
    /// names the object
    #[arg(long, value_name = "FILE:LINE")]
    pub harmless: Vec<String>,
    /// The most lines that the patch may have: members with many uses for each byte that they save stay as they are
    #[arg(long, value_name = "NUMBER")]
    pub lines: Option<usize>,
    /// Write the plan as it became to this file, from which `plan` can start again
    #[arg(long, value_name = "FILE")]
    pub fields_output: Option<PathBuf>,
    /// The output file
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
}

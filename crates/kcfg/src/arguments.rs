//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// Print the control-flow graph of a Linux kernel or a program
///
/// Reads the objects that the kernel's build linked, found from the path of its vmlinux, splits them into basic blocks
/// and chunks of data, and prints the graph as one JSON document, with a line for each function and each chunk. Runs
/// nothing and changes nothing.
#[derive(Parser, Debug)]
#[command(version, after_help = EXAMPLES)]
pub struct Arguments {
    /// The kernel, in its build directory
    #[arg(required_unless_present = "objects")]
    pub vmlinux: Option<PathBuf>,

    /// Print these objects and archives of a user program instead of a kernel
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "vmlinux")]
    pub objects: Vec<PathBuf>,

    /// Treat the objects as those of a kernel linked by this linker script; section names then have their meaning in
    /// kernels
    #[arg(long, value_name = "FILE", requires = "objects", conflicts_with_all = ["vmlinux", "entry"])]
    pub linker_script: Option<PathBuf>,

    /// An entry function of the user program, shown as a root; repeatable
    #[arg(long, value_name = "SYMBOL", requires = "objects", conflicts_with = "vmlinux")]
    pub entry: Vec<String>,

    /// Print only the functions with this name; repeatable
    #[arg(long, value_name = "NAME", conflicts_with_all = ["summary", "opaque"])]
    pub function: Vec<String>,

    /// Add the text of the instructions
    #[arg(long, conflicts_with_all = ["listing", "dot", "summary", "opaque"])]
    pub instructions: bool,

    /// Print human-readable text: sections, the instructions of their blocks, and the references of their data
    #[arg(long, group = "view")]
    pub listing: bool,

    /// Print Graphviz input, with the text of the instructions; a whole kernel makes a file of 50 MB that no viewer
    /// will draw, so select functions with --function
    #[arg(long, group = "view")]
    pub dot: bool,

    /// Print counts: functions, blocks, edges by kind, opaque code by reason, roots by reason
    #[arg(long, group = "view")]
    pub summary: bool,

    /// List the opaque code, with the reason after a tab
    #[arg(long, group = "view")]
    pub opaque: bool,

    /// Print the counts of --summary or the list of --opaque as JSON
    #[arg(long, conflicts_with_all = ["listing", "dot"])]
    pub json: bool,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true)]
    pub output: PathBuf,
}

/// The output to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The graph as a JSON document.
    Graph,
    /// The graph as text.
    Listing,
    /// The graph as a drawing.
    Dot,
    /// The counts.
    Summary,
    /// The list of opaque code.
    Opaque,
}

impl Arguments {
    /// Returns the view that the user requested.
    pub fn view(&self) -> View {
        match (self.listing, self.dot, self.summary, self.opaque) {
            (true, ..) => View::Listing,
            (_, true, ..) => View::Dot,
            (_, _, true, _) => View::Summary,
            (.., true) => View::Opaque,
            _ => View::Graph,
        }
    }

    /// Returns the named files as text.
    pub fn input(&self) -> Vec<String> {
        self.vmlinux.iter().chain(&self.objects).map(|path| path.display().to_string()).collect()
    }
}

const EXAMPLES: &str = "\
Examples:
  kcfg build/vmlinux | grep '\"name\":\"vfs_read\"'
      one function is one line
  kcfg build/vmlinux --function vfs_read --instructions | jq '.functions[].blocks[].text'
      its instructions, block by block
  kcfg build/vmlinux --function vfs_read --listing
      the same as a listing
  kcfg build/vmlinux --function vfs_read --dot | dot -Tsvg > vfs_read.svg
      a drawing of it
  kcfg build/vmlinux --summary
      counts
  kcfg --objects main.o libfoo.a --entry main -o graph.json
      the same for a program
  kcfg --objects fs/*.o --linker-script arch/x86/kernel/vmlinux.lds --summary
      the same for a part of a kernel that is not built as a whole

Exit status:
  0  success
  1  the job failed: a file could not be read or written; nothing was written
  2  usage error or bad input";

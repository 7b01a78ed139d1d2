//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// Prints the control-flow graph of a Linux kernel or a program
///
/// Reads the objects that the kernel's build linked, found from the path of its vmlinux, takes them apart
/// into basic blocks and chunks of data, and prints the graph as one JSON document, a line for each function
/// and each chunk. Nothing is run and nothing is changed.
#[derive(Parser, Debug)]
#[command(version, after_help = EXAMPLES)]
pub struct Arguments {
    /// The kernel, in the directory where it was built
    #[arg(required_unless_present = "objects")]
    pub vmlinux: Option<PathBuf>,

    /// Print these objects and archives of a user program instead of a kernel
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "vmlinux")]
    pub objects: Vec<PathBuf>,

    /// Read the objects as those of a kernel that this linker script links, with the meaning that names of sections have
    /// in kernels
    #[arg(long, value_name = "FILE", requires = "objects", conflicts_with_all = ["vmlinux", "entry"])]
    pub linker_script: Option<PathBuf>,

    /// A function that enters the user program, to be shown as a root; repeatable
    #[arg(long, value_name = "SYMBOL", requires = "objects", conflicts_with = "vmlinux")]
    pub entry: Vec<String>,

    /// Print only the functions of this name; repeatable
    #[arg(long, value_name = "NAME", conflicts_with_all = ["summary", "opaque"])]
    pub function: Vec<String>,

    /// Add the text of the instructions
    #[arg(long, conflicts_with_all = ["listing", "dot", "summary", "opaque"])]
    pub instructions: bool,

    /// Print a text for people: sections, the instructions of their blocks, and the references of their data
    #[arg(long, group = "view")]
    pub listing: bool,

    /// Print Graphviz input for people, with the text of the instructions; a whole kernel makes a file of
    /// 50 MB that no viewer will draw, so name functions
    #[arg(long, group = "view")]
    pub dot: bool,

    /// Print counts: functions, blocks, edges by kind, opaque code by reason, roots by reason
    #[arg(long, group = "view")]
    pub summary: bool,

    /// List the code that could not be taken apart, with the reason after a tab
    #[arg(long, group = "view")]
    pub opaque: bool,

    /// Print the counts of --summary or the list of --opaque as JSON
    #[arg(long, conflicts_with_all = ["listing", "dot"])]
    pub json: bool,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true)]
    pub output: PathBuf,
}

/// What to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// The graph as a document.
    Graph,
    /// The graph as a text.
    Listing,
    /// The graph as a drawing.
    Dot,
    /// Counts.
    Summary,
    /// The code that could not be taken apart.
    Opaque,
}

impl Arguments {
    /// The view that the user asked for.
    pub fn view(&self) -> View {
        match (self.listing, self.dot, self.summary, self.opaque) {
            (true, ..) => View::Listing,
            (_, true, ..) => View::Dot,
            (_, _, true, _) => View::Summary,
            (.., true) => View::Opaque,
            _ => View::Graph,
        }
    }

    /// The files that were named, as text.
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

//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Finds what is always the same when a kernel runs a function
///
/// Reads a declaration: a function, and the objects that its arguments lead to. Observes these objects at calls of the function
/// in a machine of QEMU, and writes a list of paths for `kshrink-spec --specialize`. Each member of an object that had one value
/// in all calls is a fact there.
#[derive(Parser, Debug)]
#[command(
    name = "customize",
    version,
    after_help = "\
Examples:
  customize script build/vmlinux declaration.json -o calls.gdb
      write the commands for gdb
  gdb -nx -batch -ex 'target remote :1234' -x calls.gdb >calls.log
      run them, in a machine that qemu-system-i386 -s -S has started
  customize observe build/vmlinux declaration.json first.log second.log -o paths.json
      write the list of paths
  kshrink-spec build/vmlinux --plan hot.json --specialize paths.json -o out
      copy the path
  customize compare out paths.json -o compare.gdb
      write commands for gdb that watch whether stable facts last
  kshrink-spec build/vmlinux --passes none --gate inet_sendmsg --key key -o out
      or make a kernel that can load such paths while it runs
  customize serve build/vmlinux out --plan hot.json --paths paths.json --key key --listen 0.0.0.0:7000
      answer devices with code for their sockets

Exit status:
  0  success
  1  the job failed: a file could not be read or written; nothing was written
  2  usage error or bad input: for example, a declaration with an unknown member"
)]
pub struct Arguments {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Write commands by which gdb prints the objects at each call
    ///
    /// The machine has to wait for gdb before it boots. It runs on without gdb after the last call.
    Script {
        #[command(flatten)]
        kernel: KernelArguments,
        /// Number of calls to print
        #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        calls: u32,
        /// Number of calls to skip before them
        #[arg(long, value_name = "N", default_value_t = 0)]
        skip: u32,
        /// The output file
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
    },
    /// Write a list of paths, from the objects that gdb printed
    ///
    /// A pointer is a fact only if it is null, or the address of a function or variable. A fact about a member
    /// that is not among `stable_facts` is true at the entry, and until something may change it. The table on standard error counts members.
    Observe {
        #[command(flatten)]
        kernel: KernelArguments,
        /// The output of gdb in one or more boots
        ///
        /// Several boots tell what differs between them, such as port numbers.
        #[arg(required = true)]
        logs: Vec<PathBuf>,
        /// Minimum number of calls in each boot
        #[arg(long, value_name = "N", default_value_t = 20)]
        least: usize,
        /// The output file
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
    },
    /// Write commands by which gdb compares facts at the ends of linked paths
    ///
    /// A path uses a stable fact to its end. These commands watch a machine that waits for gdb before it boots, and compare each
    /// stable fact that holds where a path begins with the memory where the path returns or leaves for the original code. gdb
    /// prints how often each path began and ended, and a line `changed MEMBER: COUNT` for each fact that did not last.
    Compare {
        /// The directory with the kernel that has the paths
        dir: PathBuf,
        /// The list of paths; `-` is standard input
        paths: PathBuf,
        /// Number of calls to compare; 0 goes on until the machine ends
        #[arg(long, value_name = "N", default_value_t = 0)]
        calls: u32,
        /// The output file
        #[arg(short, long, value_name = "FILE", default_value = "-")]
        output: PathBuf,
    },
    /// Answer devices with code for their sockets
    ///
    /// The kernel of the devices is one that `kshrink-spec --gate ENTRY --key KEY -o DIR` wrote. A program there asks for a
    /// token of a socket (libkcustom); the daemon kcustomd sends the request. The code is for the values that the facts of
    /// the path have at that socket. Each answer prints a line on standard error.
    Serve(ServeArguments),
}

/// What a server needs.
#[derive(Args, Debug)]
pub struct ServeArguments {
    /// The original kernel with its symbols, in the directory where it was built
    pub vmlinux: PathBuf,
    /// The directory with the kernel of the devices
    pub dir: PathBuf,
    /// The list with the path; facts about objects that exist only during a call keep their values
    #[arg(long, value_name = "FILE")]
    pub paths: PathBuf,
    /// The plan with the traces of the kernel of the devices, as for `kshrink-spec --plan`
    #[arg(long, value_name = "FILE")]
    pub plan: PathBuf,
    /// The file with the key of the devices, 32 bytes
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// The address and port where devices connect; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7000")]
    pub listen: String,
}

/// The kernel and the declaration.
#[derive(Args, Debug)]
pub struct KernelArguments {
    /// The kernel with its symbols, in the directory where it was built
    pub vmlinux: PathBuf,
    /// The declaration; `-` is standard input
    pub declaration: PathBuf,
}

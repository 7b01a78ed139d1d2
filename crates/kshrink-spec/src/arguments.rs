//! The command line.

use std::path::PathBuf;

use clap::Parser;
use kcli::Failure;
use kopt::exports::Exports;
use kopt::{OptimizeFor, Options, PASSES, PassRef, Scope};
use kplan::Plan;

/// Removes the code and data that a device does not need from a Linux kernel, and relinks it
///
/// Reads the objects that the kernel's build linked, found from the path of its vmlinux, and runs passes over their
/// control-flow graph. The kernel's own build then links the result in a copy of the build directory. The build
/// directory itself is never written to.
#[derive(Parser, Debug)]
#[command(
    version,
    after_help = "\
Examples:
  syscall-scan busybox | kshrink-spec build/vmlinux -o out
      remove the system calls that BusyBox cannot make, and all code that becomes unreachable
  syscall-scan busybox | kshrink-spec build/vmlinux --modules rootfs/lib/modules -o out
      also remove the exports that only missing modules could use (--modules none: no module ships)
  kshrink-spec build/vmlinux --passes none -o out
      change nothing, to prove that reading and writing are faithful
  coverage qemu build/vmlinux trace | reorder --vmlinux build/vmlinux -g block | kshrink-spec build/vmlinux -o out
      also place the blocks that ran next to each other
  kshrink-spec build/vmlinux --passes instrument -o out
      a kernel that records which of its blocks run
  syscall-scan busybox | kshrink-spec build/vmlinux --explain tcp_v4_connect
      print why a function or a variable is kept
  kshrink-spec build/vmlinux --retained ip_auto_config ext2_fill_super
      print the bytes that these functions retain
  syscall-scan busybox | kshrink-spec build/vmlinux --bisect 'boot-test.sh \"$1\"/bzImage'
      find the functions or data whose rewriting makes a test fail
  kshrink-spec --objects a.o b.o --entry main --bisect 'gcc -m32 \"$1\" -o test && ./test'
      the same for a user program
  kshrink-spec --objects a.o b.o --entry main --emit-object small.o
      the same passes for a user program
  syscall-scan busybox | kshrink-spec build/vmlinux -o out --html report.html
      also write a page for a browser: sizes by directory, removals by pass, and the reason that each function is kept
  kshrink-spec build/vmlinux --keep-debug -o out
      also write out/vmlinux.debug, in which a debugger finds source lines, functions and variables
  kshrink-spec build/vmlinux --passes none --pack-segments -o out
      only free the memory between the sections of a 32-bit ARM kernel
  kshrink-spec --from out --html report.html
      the same page for the finished directory out

Exit status:
  0  success
  1  the job failed: a file could not be read or written, the relink failed; nothing was written
  2  usage error or bad input"
)]
pub struct Arguments {
    /// The kernel, in the directory where it was built
    #[arg(required_unless_present_any = ["objects", "from"])]
    pub vmlinux: Option<PathBuf>,

    /// The plan; `-` is standard input, the default if input is piped in
    #[arg(short, long, value_name = "FILE")]
    pub plan: Option<PathBuf>,

    /// Relink, and write vmlinux, System.map, the boot image, report.json, blocks.json (a map from addresses to the
    /// original blocks) and contents.json (the sizes of all functions and variables, for --from) to DIR
    #[arg(short, long, value_name = "DIR", group = "task")]
    pub output: Option<PathBuf>,

    /// Also write vmlinux.debug: the kernel with the original's debugging information (DWARF) for its new addresses, for
    /// gdb, perf and decode_stacktrace.sh
    #[arg(long, requires = "output")]
    pub keep_debug: bool,

    /// Begin segments on the next page, so that the memory between them can be used, where the configuration allows it:
    /// text, read-only data, init and data of a 32-bit ARM kernel instead of on the next MiB; the text of entries and
    /// unencrypted data of an x86-64 kernel instead of on the next 2 MiB; with any passes
    #[arg(long, conflicts_with = "objects")]
    pub pack_segments: bool,

    /// Pack the tables that only backtraces read (CONFIG_UNWINDER_ORC of x86-64 kernels) to a tenth; a backtrace then
    /// takes some microseconds a function; with any passes; pass freeze implies it
    #[arg(long, conflicts_with = "objects")]
    pub pack_unwind: bool,

    /// Stop before the relink, and write the rewritten program as one relocatable object
    #[arg(long, value_name = "FILE", group = "task")]
    pub emit_object: Option<PathBuf>,

    /// Also write a report as one HTML page, which needs no network: sizes by directory and object before and after,
    /// removals by pass, opaque code, frozen pages, and the chain of references that keeps each function or variable
    #[arg(long, value_name = "FILE", conflicts_with_all = ["explain", "retained", "bisect"])]
    pub html: Option<PathBuf>,

    /// Make the page of --html for DIR, the output of an earlier run, without running anything again
    #[arg(long, value_name = "DIR", group = "task", requires = "html", conflicts_with_all = ["vmlinux", "objects", "plan"])]
    pub from: Option<PathBuf>,

    /// Print the shortest chain of edges that keeps a function or variable alive
    #[arg(long, value_name = "SYMBOL", group = "task")]
    pub explain: Option<String>,

    /// Print the bytes that each function or variable retains: the bytes that would be unreachable without it
    #[arg(long, value_name = "SYMBOL", num_args = 1.., group = "task")]
    pub retained: Vec<String>,

    /// Find by bisection the functions or data whose rewriting makes a test fail
    ///
    /// `sh -c` runs COMMAND for one rewritten program after the other, each with some functions and data unchanged. $1
    /// is the directory with vmlinux and the boot image as for --output, or with --objects the object. Exit status as
    /// for `git bisect run`: 0 if the test passes, 125 if this program cannot be tested, 126 and 127 if there is no
    /// such command, any other value if the test fails.
    #[arg(long, value_name = "COMMAND", group = "task", conflicts_with = "strict")]
    pub bisect: Option<String>,

    /// The loadable modules that ship with the kernel (.ko, also compressed), in this directory and below it: exports
    /// that they do not use are removed; `none` if no module ships
    #[arg(long, value_name = "DIR", conflicts_with = "objects")]
    pub modules: Option<PathBuf>,

    /// The passes to run, separated by commas; `none` runs no pass
    #[arg(long, value_name = "LIST", value_parser = parse_passes, long_help = passes_help())]
    passes: Option<PassList>,

    /// Copy the paths that FILE names for their facts, so that their code runs faster; each copy compares its facts first, and
    /// otherwise the original code runs. The traces of the plan show which code is on a path. For 32-bit x86 kernels
    #[arg(long, value_name = "FILE", conflicts_with_all = ["objects", "from"])]
    pub specialize: Option<PathBuf>,

    /// Let a running kernel load paths in front of FUNCTION (repeatable), through /dev/kcustom; see `customize serve`. For
    /// 32-bit x86 kernels
    #[arg(long = "gate", value_name = "FUNCTION", requires = "key", conflicts_with_all = ["objects", "from"])]
    pub gates: Vec<String>,

    /// The file with the device's key, 32 bytes, with which `customize serve` seals the paths
    #[arg(long, value_name = "FILE", requires = "gates")]
    pub key: Option<PathBuf>,

    /// Trust a scan that could not resolve every system-call site
    #[arg(long)]
    pub assume_complete: bool,

    /// Code in which pass merge may merge identical blocks, tails and sequences, at the price of jumps and calls:
    /// `cold`, code that did not run in the traces of the plan (none, if it has no traces), or `all`
    #[arg(long, value_name = "WHAT", default_value = "cold", value_parser = parse_scope)]
    pub merge: Scope,

    /// The size to minimize: `memory` for code and data in memory, or `image` for the compressed image, which merging
    /// blocks does not make smaller
    #[arg(long, value_name = "WHAT", default_value = "memory", value_parser = parse_optimize_for)]
    pub optimize_for: OptimizeFor,

    /// Check the graph after every pass, to debug kshrink
    #[arg(long)]
    pub verify: bool,

    /// Print the graph on standard error after this pass, each time that it runs, as `kcfg` does; of FUNCTION alone if it is
    /// given. Steps that no user selects, such as `graph` and `refine`, count as passes
    #[arg(long, value_name = "PASS[:FUNCTION]", conflicts_with_all = ["bisect", "from"])]
    pub dump_after: Option<String>,

    /// Fail if compiler-made code has to stay opaque because it matches no known pattern
    #[arg(long)]
    pub strict: bool,

    /// A variable for make, as when the kernel was built (KCFLAGS=…, LD=…); repeatable. ARCH, CROSS_COMPILE, LLVM, LLVM_IAS
    /// and CC are found from the build
    #[arg(long, value_name = "VAR=VALUE", value_parser = kbuild::parse_variable)]
    pub make: Vec<String>,

    /// Rewrite these objects and archives of a user program instead of a kernel
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "vmlinux", requires = "entry")]
    pub objects: Vec<PathBuf>,

    /// A function that enters the user program; repeatable
    #[arg(long, value_name = "SYMBOL", requires = "objects")]
    pub entry: Vec<String>,

    /// A symbol that the link of the user program wraps (--wrap=SYMBOL of ld): references to SYMBOL mean __wrap_SYMBOL,
    /// and references to __real_SYMBOL mean SYMBOL; repeatable
    #[arg(long, value_name = "SYMBOL", requires = "objects")]
    pub wrap: Vec<String>,

    /// Rewrite user programs with exception handlers or cleanups, which then never run
    ///
    /// The tables by which C++ exceptions and thread cancellation find handlers and cleanups (.gcc_except_table) are
    /// left out. A program that depends on them is terminated, or continues without its cleanups.
    #[arg(long, requires = "objects")]
    pub drop_handlers: bool,
}

/// A list of passes; a type of its own, so that clap treats it as one value.
#[derive(Clone, Debug)]
struct PassList(Vec<PassRef>);

/// The use of the rewritten program.
pub enum Task {
    Relink(PathBuf),
    EmitObject(PathBuf),
    Explain(String),
    Retained(Vec<String>),
    Bisect(String),
    Page(PathBuf),
}

impl Arguments {
    /// Returns the task that the user requested.
    pub fn task(&self) -> Result<Task, Failure> {
        match (&self.output, &self.emit_object, &self.explain, &self.bisect) {
            (Some(dir), ..) => Ok(Task::Relink(dir.clone())),
            (_, Some(file), ..) => Ok(Task::EmitObject(file.clone())),
            (_, _, Some(symbol), _) => Ok(Task::Explain(symbol.clone())),
            (.., Some(command)) => Ok(Task::Bisect(command.clone())),
            _ if self.from.is_some() => Ok(Task::Page(self.from.clone().unwrap_or_default())),
            _ if !self.retained.is_empty() => Ok(Task::Retained(self.retained.clone())),
            _ => Err(Failure::bad_input(
                "nothing to do: expected -o DIR, --emit-object FILE, --explain SYMBOL, --retained SYMBOL or --bisect COMMAND; \
                 see --help",
            )),
        }
    }

    /// Whether the user selects the passes.
    pub fn names_passes(&self) -> bool {
        self.passes.is_some()
    }

    /// Returns the passes to run. Default passes may not support the machine.
    ///
    /// # Errors
    /// Bad input if modules are given without the pass that uses them.
    pub fn passes(&self, plan: &Plan) -> Result<Vec<PassRef>, Failure> {
        let exports: PassRef = &Exports;
        match &self.passes {
            Some(PassList(passes)) if self.modules.is_some() && !passes.contains(&exports) => {
                Err(Failure::bad_input(
                    "--modules requires pass exports; add exports to --passes, or drop one of the two options",
                ))
            }
            Some(PassList(passes)) => Ok(passes.clone()),
            None => {
                let by_default =
                    |pass: PassRef| pass.runs_by_default(plan) || pass == exports && self.modules.is_some();
                Ok(PASSES.iter().copied().filter(|&pass| by_default(pass)).collect())
            }
        }
    }

    /// The options of the passes.
    pub fn options(&self) -> Options {
        Options {
            assume_complete: self.assume_complete,
            verify: self.verify,
            merge: self.merge,
            optimize_for: self.optimize_for,
        }
    }
}

fn passes_help() -> String {
    let plan = Plan::default();
    let (always, others): (Vec<PassRef>, Vec<PassRef>) =
        PASSES.iter().partition(|pass| pass.runs_by_default(&plan));
    let lines = |passes: &[PassRef]| -> String {
        passes.iter().map(|pass| format!("\n  {pass}: {}", pass.summary())).collect()
    };
    format!(
        "The passes to run, separated by commas; `none` runs no pass. Passes that remove run first.\n\n\
         By default:{}\n\nIf the plan has a section for it, or if named here:{}",
        lines(&always),
        lines(&others),
    )
}

fn parse_passes(list: &str) -> Result<PassList, String> {
    if list == "none" {
        return Ok(PassList(Vec::new()));
    }
    list.split(',').map(|name| kopt::pass(name.trim())).collect::<Result<_, _>>().map(PassList)
}

fn parse_scope(name: &str) -> Result<Scope, String> {
    match name {
        "cold" => Ok(Scope::Cold),
        "all" => Ok(Scope::All),
        _ => Err("expected `cold` or `all`".to_owned()),
    }
}

fn parse_optimize_for(name: &str) -> Result<OptimizeFor, String> {
    match name {
        "memory" => Ok(OptimizeFor::Memory),
        "image" => Ok(OptimizeFor::Image),
        _ => Err("expected `memory` or `image`".to_owned()),
    }
}

//! The command line.

use std::path::PathBuf;

use clap::Parser;
use kcli::Failure;
use kopt::{OptimizeFor, Options, Pass, Scope};
use kplan::Plan;

/// Removes from a Linux kernel what its device does not need, and relinks it
///
/// Reads the objects that the kernel's build linked, found from the path of its vmlinux; runs passes over
/// their control-flow graph; and has the kernel's own build, in a copy, link the result. The build
/// directory itself is never written to.
#[derive(Parser, Debug)]
#[command(
    version,
    after_help = "\
Examples:
  syscall-scan busybox | kshrink-spec build/vmlinux -o out
      remove the system calls that BusyBox cannot make, and whatever is unreachable then
  syscall-scan busybox | kshrink-spec build/vmlinux --modules rootfs/lib/modules -o out
      and all that only modules could use which do not ship
  kshrink-spec build/vmlinux --passes none -o out
      change nothing: the proof that reading and writing are faithful
  coverage qemu build/vmlinux trace | reorder --vmlinux build/vmlinux -g block | kshrink-spec build/vmlinux -o out
      put the blocks that ran together, besides removing what is unreachable
  kshrink-spec build/vmlinux --passes instrument -o out
      a kernel that records which of its blocks run
  syscall-scan busybox | kshrink-spec build/vmlinux --explain tcp_v4_connect
      say why a function or a variable stays
  kshrink-spec build/vmlinux --retained ip_auto_config ext2_fill_super
      say what these functions keep alive by themselves, in bytes
  syscall-scan busybox | kshrink-spec build/vmlinux --bisect 'boot-test.sh \"$1\"/bzImage'
      find the function, or the data, whose rewriting makes a test fail
  kshrink-spec --objects a.o b.o --entry main --bisect 'gcc -m32 \"$1\" -o test && ./test'
      the same for a user program
  kshrink-spec --objects a.o b.o --entry main --emit-object small.o
      the same passes for a user program
  syscall-scan busybox | kshrink-spec build/vmlinux -o out --html report.html
      also write a page for a browser: sizes by directory, removals by pass, and the reason that each function is kept
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

    /// The plan; `-` is standard input, which is the default where something is piped in
    #[arg(short, long, value_name = "FILE")]
    pub plan: Option<PathBuf>,

    /// Relink, and leave vmlinux, System.map, the boot image, report.json, blocks.json (which address holds
    /// which block of the original) and contents.json (the sizes of all functions and variables, for --from) in DIR
    #[arg(short, long, value_name = "DIR", group = "task")]
    pub output: Option<PathBuf>,

    /// Stop before the relink, and write the rewritten program as one relocatable object
    #[arg(long, value_name = "FILE", group = "task")]
    pub emit_object: Option<PathBuf>,

    /// Also write a report as one HTML page, which needs no network: sizes by directory and object before and after, removals
    /// by pass, opaque code, frozen pages, and the chain of references that keeps each function or variable
    #[arg(long, value_name = "FILE", conflicts_with_all = ["explain", "retained", "bisect"])]
    pub html: Option<PathBuf>,

    /// Make the page of --html for DIR, where an earlier run has left its output, without running anything again
    #[arg(long, value_name = "DIR", group = "task", requires = "html", conflicts_with_all = ["vmlinux", "objects", "plan"])]
    pub from: Option<PathBuf>,

    /// Print the shortest chain of edges that keeps a function or variable alive
    #[arg(long, value_name = "SYMBOL", group = "task")]
    pub explain: Option<String>,

    /// Print the bytes that each function or variable keeps alive by itself: what would be unreachable without it
    #[arg(long, value_name = "SYMBOL", num_args = 1.., group = "task")]
    pub retained: Vec<String>,

    /// Find by halving which functions or data make a test fail by being rewritten
    ///
    /// COMMAND is run by `sh -c` for one rewritten program after the other, some of whose functions and data are kept as
    /// they were. $1 is the directory with vmlinux and the boot image as for --output, or with --objects the object.
    /// Its exit status says how that went: 0 the test passes, 125 it cannot be done with this one, 126 and 127 there is
    /// no such command, anything else it fails.
    #[arg(long, value_name = "COMMAND", group = "task", conflicts_with = "strict")]
    pub bisect: Option<String>,

    /// The loadable modules that ship with the kernel (.ko, also compressed), in this directory and below it: only what
    /// they use stays exported
    #[arg(long, value_name = "DIR", conflicts_with = "objects")]
    pub modules: Option<PathBuf>,

    /// The passes to run, separated by commas; `none` for the identity
    #[arg(long, value_name = "LIST", value_parser = parse_passes, long_help = passes_help())]
    passes: Option<PassList>,

    /// Trust a scan that could not resolve every system-call site
    #[arg(long)]
    pub assume_complete: bool,

    /// Which identical blocks, ends of blocks and sequences pass merge makes one of, at the price of jumps and calls: `cold`,
    /// what did not run in the traces of the plan (nothing, if it has none), or `all`
    #[arg(long, value_name = "WHAT", default_value = "cold", value_parser = parse_scope)]
    pub merge: Scope,

    /// What to make small: `memory`, what code and data take, or `image`, the compressed image, which merging blocks
    /// does not make smaller
    #[arg(long, value_name = "WHAT", default_value = "memory", value_parser = parse_optimize_for)]
    pub optimize_for: OptimizeFor,

    /// Check the graph after every pass: for whoever works on kshrink
    #[arg(long)]
    pub verify: bool,

    /// Fail if compiler-made code has to be carried whole because it matches no known pattern
    #[arg(long)]
    pub strict: bool,

    /// A variable for make, as when the kernel was built (KCFLAGS=…, CROSS_COMPILE=…); repeatable
    #[arg(long, value_name = "VAR=VALUE", value_parser = parse_variable)]
    pub make: Vec<String>,

    /// Rewrite these objects and archives of a user program instead of a kernel
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with = "vmlinux", requires = "entry")]
    pub objects: Vec<PathBuf>,

    /// A function that enters the user program; repeatable
    #[arg(long, value_name = "SYMBOL", requires = "objects")]
    pub entry: Vec<String>,

    /// A symbol that the link of the user program wraps (--wrap=SYMBOL of ld): references to it mean __wrap_SYMBOL, and
    /// __real_SYMBOL means it; repeatable
    #[arg(long, value_name = "SYMBOL", requires = "objects")]
    pub wrap: Vec<String>,

    /// Rewrite user programs with exception handlers or cleanups, which then never run
    ///
    /// The tables by which C++ exceptions and the cancellation of threads find handlers and cleanups (.gcc_except_table) are left
    /// out. A program that depends on them is terminated, or goes on without its cleanups.
    #[arg(long, requires = "objects")]
    pub drop_handlers: bool,
}

/// A list of passes; a type of its own, so that clap takes it for one value.
#[derive(Clone, Debug)]
struct PassList(Vec<Pass>);

/// What to do with the rewritten program.
pub enum Task {
    Relink(PathBuf),
    EmitObject(PathBuf),
    Explain(String),
    Retained(Vec<String>),
    Bisect(String),
    Page(PathBuf),
}

impl Arguments {
    /// The one task that the user asked for.
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

    /// Whether the user says which passes to run.
    pub fn names_passes(&self) -> bool {
        self.passes.is_some()
    }

    /// The passes to run. Those that are not named by the user may not know the machine.
    ///
    /// # Errors
    /// Bad input if modules are named that no pass asks for.
    pub fn passes(&self, plan: &Plan) -> Result<Vec<Pass>, Failure> {
        match &self.passes {
            Some(PassList(passes)) if self.modules.is_some() && !passes.contains(&Pass::Exports) => {
                Err(Failure::bad_input(
                    "--modules is for the pass exports; add it to --passes, or leave out one of both",
                ))
            }
            Some(PassList(passes)) => Ok(passes.clone()),
            None => {
                let by_default = |pass: Pass| {
                    pass.runs_by_default(plan) || pass == Pass::Exports && self.modules.is_some()
                };
                Ok(Pass::ALL.iter().copied().filter(|&pass| by_default(pass)).collect())
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
    let (always, others): (Vec<Pass>, Vec<Pass>) =
        Pass::ALL.iter().partition(|pass| pass.runs_by_default(&plan));
    let lines = |passes: &[Pass]| -> String {
        passes.iter().map(|pass| format!("\n  {pass}: {}", pass.summary())).collect()
    };
    format!(
        "The passes to run, separated by commas; `none` for the identity. Passes that remove go first.\n\n\
         By default:{}\n\nIf the plan has a section for it, or if named here:{}",
        lines(&always),
        lines(&others),
    )
}

fn parse_passes(list: &str) -> Result<PassList, String> {
    if list == "none" {
        return Ok(PassList(Vec::new()));
    }
    list.split(',').map(|name| name.trim().parse()).collect::<Result<_, _>>().map(PassList)
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

/// Options of make could have it write elsewhere, or say nothing of what it does.
fn parse_variable(argument: &str) -> Result<String, String> {
    match argument.split_once('=') {
        Some((name, _)) if !name.is_empty() && !name.starts_with('-') => Ok(argument.to_owned()),
        _ => Err("expected a variable for make, as VAR=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn make_takes_variables_alone() {
        assert_eq!(parse_variable("KCFLAGS=-Wp,-DX=1").as_deref(), Ok("KCFLAGS=-Wp,-DX=1"));
        for option in ["-s", "--eval=x", "vmlinux", "=x", ""] {
            assert!(parse_variable(option).is_err(), "{option}");
        }
    }
}

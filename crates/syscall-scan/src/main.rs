//! The command: programs in, a plan out.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use kcli::{Failure, OrBadInput, Output, is_piped_stdin, read_input};
use kplan::{Plan, Syscalls};
use syscall_scan::{report, scan};

/// How many unresolved places are named on standard error; the plan has all of them.
const MAX_NAMED: usize = 10;

/// Finds the system calls that static executables can make.
///
/// Reads programs for i386 and x86-64, stripped or not, and prints a plan that says which system calls
/// they can make. A plan on standard input is read first, and the calls are added to it. A plan is marked
/// incomplete if the number of some call could not be found; the places are listed with their reasons.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES)]
struct Arguments {
    /// Programs to scan
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Write to FILE instead of standard output
    #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true)]
    output: PathBuf,

    /// What to print: the plan, a list for people, or the numbers alone
    #[arg(short, long, value_enum, default_value_t = Format::Json)]
    format: Format,

    /// List every place that makes a call, with its address, function and calls
    #[arg(short, long)]
    sites: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The plan
    Json,
    /// A list for people
    Text,
    /// The numbers, one a line
    Nr,
}

const EXAMPLES: &str = "\
Examples:
  syscall-scan busybox --format text          the calls of one program, to read
  syscall-scan init sshd -o plan.json         the plan of a system with two programs
  syscall-scan busybox | kshrink-spec vmlinux a kernel with the calls of busybox alone
  syscall-scan --sites --format text busybox  where each call is made

Exit codes: 0 success, complete or not; 1 a file could not be read or written;
2 wrong arguments, or a file that is no program or plan that can be read.";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    kcli::main("syscall-scan", || run(&arguments))
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut plan = read_plan(arguments)?;
    let mut found = Syscalls::default();
    for path in &arguments.files {
        let bytes = read_input(path)?;
        let file = path.display().to_string();
        let scan = scan(&bytes).map_err(|error| Failure::bad_input(format!("{file}: {error}")))?;
        found.merge(report::section(&file, &scan, arguments.sites));
    }
    warn(&found);
    let syscalls = plan.syscalls.get_or_insert_default();
    syscalls.merge(found);
    let mut output = Output::create(&arguments.output)?;
    match arguments.format {
        Format::Json => plan.write(&mut output)?,
        Format::Text => output.write_all(report::text(syscalls).as_bytes())?,
        Format::Nr => {
            let numbers = report::numbers(syscalls).ok_or_else(|| {
                Failure::bad_input("the programs use several ABIs, whose numbers differ: use --format json")
            })?;
            output.write_all(numbers.as_bytes())?;
        }
    }
    output.commit()?;
    Ok(())
}

/// The plan on standard input, if one is piped there.
fn read_plan(arguments: &Arguments) -> Result<Plan, Failure> {
    let is_program = arguments.files.iter().any(|file| file == Path::new("-"));
    if is_program || !is_piped_stdin() {
        return Ok(Plan::default());
    }
    match Plan::read(std::io::stdin().lock(), "standard input") {
        // A service or a test runner leaves an empty pipe there.
        Err(kplan::Error::Empty { .. }) => Ok(Plan::default()),
        plan => plan.or_bad_input(),
    }
}

/// Says on standard error what makes the plan incomplete.
fn warn(found: &Syscalls) {
    for (abi, calls) in &found.abis {
        if calls.complete {
            continue;
        }
        let count = calls.unresolved.len();
        eprintln!("syscall-scan: warning: {abi}: {count} unresolved, the plan is incomplete");
        for site in calls.unresolved.iter().take(MAX_NAMED) {
            let place = report::place(&site.file, &site.address, &site.function);
            eprintln!("syscall-scan: warning: {place}: {}", site.reason);
        }
        if count > MAX_NAMED {
            eprintln!("syscall-scan: warning: and {} more", count - MAX_NAMED);
        }
    }
}

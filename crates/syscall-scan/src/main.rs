//! The command: programs in, a plan out.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use kcli::{Failure, OrBadInput, Output, is_piped_stdin};
use kplan::{Plan, Syscalls};
use syscall_scan::report;

mod options;
mod targets;

use options::{Format, Options};

/// How many unresolved places are named on standard error; the plan has all of them.
const MAX_NAMED: usize = 10;

fn main() -> ExitCode {
    let options = Options::parse();
    kcli::main("syscall-scan", || run(&options))
}

fn run(options: &Options) -> Result<(), Failure> {
    let mut plan = read_plan(options)?;
    let found = targets::scan_all(options)?;
    warn(&found);
    let syscalls = plan.syscalls.get_or_insert_default();
    syscalls.merge(found);
    let mut output = Output::create(&options.output)?;
    match options.format {
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
fn read_plan(options: &Options) -> Result<Plan, Failure> {
    let is_program = options.files.iter().any(|file| file == Path::new("-"));
    if is_program || !is_piped_stdin() {
        return Ok(Plan::default());
    }
    Plan::read_piped(std::io::stdin().lock(), "standard input").or_bad_input()
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

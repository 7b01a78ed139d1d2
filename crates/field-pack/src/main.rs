//! `field-pack`: makes the data structures smaller that a kernel allocates.

mod arguments;

use std::io::Write;
use std::process::ExitCode;

use field_pack::profile::{Selection, profile};
use kcli::{Failure, Output, Progress};

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    kcli::with_arguments(|arguments: Arguments| kcli::main("field-pack", || run(&arguments.command)))
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Profile { vmlinux, cores, accesses, types, output } => {
            // Opened before the work, so that an unwritable path is reported at once.
            let mut output = Output::create(output)?;
            let progress = Progress::spinner("reading");
            let profile = profile(vmlinux, cores, accesses, &Selection::parse(types), &progress)?;
            drop(progress);
            serde_json::to_writer_pretty(&mut output, &profile)?;
            writeln!(output)?;
            Ok(output.commit()?)
        }
        Command::Show { .. } | Command::Plan { .. } => Err(Failure::job("not implemented yet")),
        Command::Patch { .. } | Command::Check { .. } => Err(Failure::job("not implemented yet")),
    }
}

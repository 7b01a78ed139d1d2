//! `field-pack`: makes the data structures smaller that a kernel allocates.

mod arguments;

use std::process::ExitCode;

use kcli::Failure;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    kcli::with_arguments(|arguments: Arguments| kcli::main("field-pack", || run(&arguments.command)))
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Profile { .. } | Command::Show { .. } | Command::Plan { .. } => {
            Err(Failure::job("not implemented yet"))
        }
        Command::Patch { .. } | Command::Check { .. } => Err(Failure::job("not implemented yet")),
    }
}

//! `census`: lists the owners of the memory of a running kernel.

mod arguments;

use std::io::Write;
use std::process::ExitCode;

use census::document::Document;
use census::take::census;
use census::{diff, report};
use kcli::{Failure, Output, Progress};

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    kcli::with_arguments(|arguments: Arguments| kcli::main("census", || run(&arguments.command)))
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Core { vmlinux, core, json, output } => {
            let progress = Progress::spinner("reading");
            let document = census(vmlinux, core, &progress)?;
            drop(progress);
            let mut output = Output::create(output)?;
            if *json {
                serde_json::to_writer_pretty(&mut output, &document)?;
                writeln!(output)?;
            } else {
                write!(output, "{}", report::print(&document))?;
            }
            Ok(output.commit()?)
        }
        Command::Diff { before, after, output } => {
            let (before, after) = (Document::read(before)?, Document::read(after)?);
            let mut output = Output::create(output)?;
            write!(output, "{}", diff::print(&before, &after))?;
            Ok(output.commit()?)
        }
    }
}

//! `census`: lists the owners of the memory of a running kernel.

mod arguments;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use census::document::Document;
use census::take::census;
use census::{diff, report, trace};
use kcli::{Failure, Output, Progress};
use serde::Serialize;

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
            write(output, *json, &document, report::print)
        }
        Command::Trace { vmlinux, core, trace, json, output } => {
            let progress = Progress::spinner("reading");
            let document = trace::trace(vmlinux, core, trace, &progress)?;
            drop(progress);
            write(output, *json, &document, trace::report::print)
        }
        Command::Places { vmlinux, output } => {
            let places = trace::places(vmlinux)?;
            let mut output = Output::create(output)?;
            write!(output, "{places}")?;
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

/// Writes a document as JSON or as text.
fn write<T: Serialize>(
    path: &Path,
    json: bool,
    document: &T,
    print: fn(&T) -> String,
) -> Result<(), Failure> {
    let mut output = Output::create(path)?;
    if json {
        serde_json::to_writer_pretty(&mut output, document)?;
        writeln!(output)?;
    } else {
        write!(output, "{}", print(document))?;
    }
    Ok(output.commit()?)
}

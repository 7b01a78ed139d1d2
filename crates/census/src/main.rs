//! `census`: lists the owners of the memory of a running kernel.

mod arguments;

use std::io::Write;
use std::process::ExitCode;

use census::document::Document;
use census::take::census;
use census::{diff, html, report, trace};
use kcli::{Failure, Output, Progress, create_with_page};
use serde::Serialize;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    kcli::with_arguments(|arguments: Arguments| kcli::main("census", || run(&arguments.command)))
}

fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Core { vmlinux, core, json, html, output } => {
            // Opened before the work, so that an unwritable path is reported at once.
            let (mut output, mut page) = create_with_page(output.as_deref(), html.as_deref(), *json)?;
            let progress = Progress::spinner("reading");
            let document = census(vmlinux, core, &progress)?;
            drop(progress);
            if let Some(page) = &mut page {
                page.write_all(html::page(&document)?.as_bytes())?;
            }
            if let Some(output) = &mut output {
                print(output, *json, &document, report::print)?;
            }
            // Both are complete before one gets its name.
            for complete in [page, output].into_iter().flatten() {
                complete.commit()?;
            }
            Ok(())
        }
        Command::Html { census, output } => {
            let document = Document::read(census)?;
            let mut output = Output::create(output)?;
            output.write_all(html::page(&document)?.as_bytes())?;
            Ok(output.commit()?)
        }
        Command::Trace { vmlinux, core, trace, json, output } => {
            let mut output = Output::create(output)?;
            let progress = Progress::spinner("reading");
            let document = trace::trace(vmlinux, core, trace, &progress)?;
            drop(progress);
            print(&mut output, *json, &document, trace::report::print)?;
            Ok(output.commit()?)
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

/// Prints a document as JSON or as text.
fn print<T: Serialize>(
    output: &mut Output,
    json: bool,
    document: &T,
    text: fn(&T) -> String,
) -> Result<(), Failure> {
    if json {
        serde_json::to_writer_pretty(&mut *output, document)?;
        return Ok(writeln!(output)?);
    }
    Ok(write!(output, "{}", text(document))?)
}

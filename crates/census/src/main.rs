//! `census`: lists the owners of the memory of a running kernel.

mod arguments;

use std::io::Write;
use std::process::ExitCode;

use census::document::Document;
use census::take::census;
use census::{diff, html, report};
use kcli::{Failure, Output, Progress, create_with_page};

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
                if *json {
                    serde_json::to_writer_pretty(&mut *output, &document)?;
                    writeln!(output)?;
                } else {
                    write!(output, "{}", report::print(&document))?;
                }
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
        Command::Diff { before, after, output } => {
            let (before, after) = (Document::read(before)?, Document::read(after)?);
            let mut output = Output::create(output)?;
            write!(output, "{}", diff::print(&before, &after))?;
            Ok(output.commit()?)
        }
    }
}

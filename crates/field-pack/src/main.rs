//! `field-pack`: makes the data structures smaller that a kernel allocates.

mod arguments;

use std::io::Write;
use std::process::ExitCode;

use field_pack::document::{Document, Fields, Profile};
use field_pack::plan::scheme::Allowed;
use field_pack::plan::{Options, plan};
use field_pack::profile::{Selection, profile};
use field_pack::show;
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
        Command::Show { document, types, output } => {
            let text = match Document::read(document)? {
                Document::Profile(profile) => show::profile(&profile, types),
                Document::Fields(fields) => show::plan(&fields),
            };
            let mut output = Output::create(output)?;
            write!(output, "{text}")?;
            Ok(output.commit()?)
        }
        Command::Plan { profile, threshold, types, only, starve, after, output } => {
            let name = kcli::input_name(profile);
            let options = Options {
                threshold: *threshold,
                types: types.clone(),
                allowed: allowed(only)?,
                starve: *starve,
                after: after.as_deref().map(Fields::read).transpose()?,
            };
            let fields = plan(&Profile::read(profile)?, &name, &options)?;
            let mut output = Output::create(output)?;
            serde_json::to_writer_pretty(&mut output, &fields)?;
            writeln!(output)?;
            Ok(output.commit()?)
        }
        Command::Patch { .. } | Command::Check { .. } => Err(Failure::job("not implemented yet")),
    }
}

/// Returns the changes with these names.
fn allowed(names: &[String]) -> Result<Allowed, Failure> {
    Allowed::named(names).map_err(|unknown| {
        let all = Allowed::NAMES.join(", ");
        Failure::bad_input(format!("--only {unknown}: no such change; expected some of {all}"))
    })
}

//! `field-pack`: makes the data structures smaller that a kernel allocates.

mod arguments;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use field_pack::document::{Document, Fields, Profile};
use field_pack::patch::Patch;
use field_pack::plan::scheme::Allowed;
use field_pack::plan::{Beside, Options, plan};
use field_pack::profile::{Selection, profile};
use field_pack::scan::Facts;
use field_pack::{check, patch, scan, show};
use kcli::{Failure, Output, Progress};

use arguments::{Arguments, Command, SourceArguments};

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
        Command::Plan { profile, threshold, types, only, starve, after, beside, output } => {
            let name = kcli::input_name(profile);
            let options = Options {
                threshold: *threshold,
                types: types.clone(),
                allowed: allowed(only)?,
                starve: *starve,
                after: after.as_deref().map(Fields::read).transpose()?,
                beside: beside.as_deref().map(read_beside).transpose()?.unwrap_or_default(),
            };
            let fields = plan(&Profile::read(profile)?, &name, &options)?;
            let mut output = Output::create(output)?;
            serde_json::to_writer_pretty(&mut output, &fields)?;
            writeln!(output)?;
            Ok(output.commit()?)
        }
        Command::Patch { source } => write_patch(source, |fields, tree, facts, options| {
            patch::patch(fields, tree, facts, options, &mut BTreeMap::new())
        }),
        Command::Check { source, keep } => write_patch(source, |fields, tree, facts, options| {
            check::check(fields, tree, facts, options, &source.build, keep)
        }),
        Command::ScanFiles => scan::worker(std::io::stdin().lock(), std::io::stdout().lock()),
    }
}

/// Reads the counts of values without a code.
fn read_beside(path: &Path) -> Result<Beside, Failure> {
    let name = kcli::input_name(path);
    let bytes = kcli::read_input(path)?;
    Beside::parse(&String::from_utf8_lossy(&bytes), &name).map_err(Failure::bad_input)
}

/// Writes the patch that `make` makes.
fn write_patch(
    arguments: &SourceArguments,
    make: impl FnOnce(&mut Fields, &Path, &Facts, &patch::Options) -> Result<Patch, Failure>,
) -> Result<(), Failure> {
    // Opened before the work, so that an unwritable path is reported at once.
    let mut output = Output::create(&arguments.output)?;
    let mut plan = arguments.fields_output.as_deref().map(Output::create).transpose()?;
    let mut fields = Fields::read(&arguments.fields)?;
    let source = patch::source(&arguments.source, &arguments.build)?;
    let facts = patch::facts(&fields, &source, &arguments.build, arguments.uses.as_deref())?;
    let options = patch::Options { harmless: arguments.harmless.clone(), lines: arguments.lines };
    let made = make(&mut fields, &source, &facts, &options)?;
    output.write_all(patch::print(&made, &fields).as_bytes())?;
    eprint!("{}", patch::summary(&made));
    if let Some(plan) = &mut plan {
        patch::record(&mut fields, &made);
        serde_json::to_writer_pretty(&mut *plan, &fields)?;
        writeln!(plan)?;
    }
    // Both are complete before one gets its name.
    for complete in [plan, Some(output)].into_iter().flatten() {
        complete.commit()?;
    }
    Ok(())
}

/// Returns the changes with these names.
fn allowed(names: &[String]) -> Result<Allowed, Failure> {
    Allowed::named(names).map_err(|unknown| {
        let all = Allowed::NAMES.join(", ");
        Failure::bad_input(format!("--only {unknown}: no such change; expected some of {all}"))
    })
}

//! The command: reads programs, prints a plan.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use indexmap::IndexMap;
use kcli::{Failure, OrBadInput, Output, is_piped_stdin, read_input};
use kplan::{Abi, Call, Place, Plan, Syscalls};
use syscall_scan::children::is_starting;
use syscall_scan::diff::Difference;
use syscall_scan::filter::{Action, Filter, seccomp, systemd};
use syscall_scan::{abi, report};

/// An allocator for many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

mod options;
mod targets;

use options::{Command, DiffFormat, DiffOptions, Format, Options};

/// Maximum number of unresolved places named on standard error; the plan lists all.
const MAX_NAMED: usize = 10;

/// The formats of filters.
const FILTERS: &str = "--format seccomp or systemd";

fn main() -> ExitCode {
    kcli::with_arguments(|options: Options| match &options.command {
        Some(Command::Diff(options)) => main_diff(options),
        None if options.why.is_some() => kcli::main("syscall-scan", || why(&options)),
        None => kcli::main("syscall-scan", || run(&options)),
    })
}

fn run(options: &Options) -> Result<(), Failure> {
    targets::prepare_threads()?;
    let mut plan = read_plan(options)?;
    let mut found = match options.files.is_empty() && options.root.is_none() {
        true => Syscalls::default(),
        false => targets::scan_all(options)?,
    };
    for assumption in &options.assume {
        assumption.settle(&mut found, options.sites).or_bad_input()?;
    }
    warn(&found);
    warn_of_ignored(options);
    let syscalls = plan.syscalls.get_or_insert_default();
    syscalls.merge(found);
    let text = match options.format {
        Format::Json => None,
        Format::Text => Some(report::text(syscalls)),
        Format::Nr => Some(report::numbers(syscalls).ok_or_else(|| {
            Failure::bad_input("the programs use several ABIs, whose numbers differ: use --format json")
        })?),
        Format::Seccomp => Some(format!("{:#}\n", seccomp::profile(&filter(syscalls, options)?))),
        Format::Systemd => Some(systemd::unit(&filter(syscalls, options)?)),
    };
    let mut output = Output::create(&options.output)?;
    match text {
        Some(text) => output.write_all(text.as_bytes())?,
        None => plan.write(&mut output)?,
    }
    output.commit()?;
    Ok(())
}

/// Converts a plan to a filter. Refuses a filter that is known to stop programs.
fn filter(syscalls: &Syscalls, options: &Options) -> Result<Filter, Failure> {
    let incomplete = syscalls.abis.iter().filter(|(_, calls)| !calls.complete);
    let incomplete: Vec<String> = incomplete.map(|(abi, _)| abi.to_string()).collect();
    if !incomplete.is_empty() && !options.filter.allow_incomplete {
        return Err(Failure::bad_input(format!(
            "the calls for {} are incomplete, and a filter may stop the programs: resolve the remaining places with \
             --assume, or pass --allow-incomplete",
            incomplete.join(", ")
        )));
    }
    let filter = &options.filter;
    filter.also.iter().try_for_each(|call| check_name(call))?;
    let starts = |call: &Call| call.name.as_deref().is_some_and(is_starting);
    if !options.with_children && syscalls.abis.values().flat_map(|calls| &calls.calls).any(starts) {
        eprintln!(
            "syscall-scan: warning: the programs may start others, which inherit the filter: scan all of them in one \
             command, or pass --with-children"
        );
    }
    Ok(Filter::new(syscalls, filter.action.unwrap_or(Action::ERRNO), filter.args, &filter.also))
}

/// Warns about options that have no effect with the chosen format.
fn warn_of_ignored(options: &Options) {
    let filter = &options.filter;
    let is_filter = matches!(options.format, Format::Seccomp | Format::Systemd);
    let given = [
        (filter.args && options.format != Format::Seccomp, "--args", "--format seccomp"),
        (filter.action.is_some() && !is_filter, "--action", FILTERS),
        (!filter.also.is_empty() && !is_filter, "--also", FILTERS),
        (filter.allow_incomplete && !is_filter, "--allow-incomplete", FILTERS),
        (
            options.sites && !matches!(options.format, Format::Json | Format::Text),
            "--sites",
            "--format json or text",
        ),
    ];
    for (_, option, format) in given.iter().filter(|(is_ignored, ..)| *is_ignored) {
        eprintln!("syscall-scan: warning: {option} has no effect without {format}");
    }
}

/// Refuses a name that no system call has.
fn check_name(call: &str) -> Result<(), Failure> {
    let known = Abi::ALL.iter().any(|&abi| abi::number(abi, call).is_some());
    if known { Ok(()) } else { Err(Failure::bad_input(format!("{call}: no system call of this name"))) }
}

/// Prints the chain to a call for each program.
fn why(options: &Options) -> Result<(), Failure> {
    targets::prepare_threads()?;
    let call = options.why.as_deref().unwrap_or_default();
    if call.parse::<u32>().is_err() {
        check_name(call)?;
    }
    let mut output = Output::create(&options.output)?;
    for (file, chain) in targets::why_all(options, call)? {
        match chain {
            Some(chain) => write!(output, "{file}:\n{chain}")?,
            None => writeln!(output, "{file}: no known place makes {call}")?,
        }
    }
    output.commit()?;
    Ok(())
}

/// Compares two plans, with the exit codes of `diff`.
fn main_diff(options: &DiffOptions) -> ExitCode {
    let mut same = None;
    kcli::main("syscall-scan diff", || -> Result<(), Failure> {
        let read = |path: &Path| -> Result<Syscalls, Failure> {
            let name = path.display().to_string();
            let plan = Plan::read(read_input(path)?.as_slice(), &name).or_bad_input()?;
            let none =
                || Failure::bad_input(format!("{name}: a plan without system calls, run syscall-scan"));
            plan.syscalls.ok_or_else(none)
        };
        let difference = Difference::of(&read(&options.before)?, &read(&options.after)?);
        let mut output = Output::create(&options.output)?;
        match options.format {
            DiffFormat::Text => output.write_all(difference.text().as_bytes())?,
            DiffFormat::Json => writeln!(output, "{:#}", difference.json())?,
        }
        output.commit()?;
        same = Some(difference.is_empty());
        Ok(())
    });
    match same {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::from(1),
        None => ExitCode::from(2),
    }
}

/// Reads the plan from standard input, if one is piped.
fn read_plan(options: &Options) -> Result<Plan, Failure> {
    let is_program = options.files.iter().any(|file| file == Path::new("-"));
    let plan = if is_program || !is_piped_stdin() {
        Plan::default()
    } else {
        Plan::read_piped(std::io::stdin().lock(), "standard input").or_bad_input()?
    };
    if options.files.is_empty() && options.root.is_none() && plan.syscalls.is_none() {
        return Err(Failure::bad_input(
            "nothing to do: name a program, or pipe in a plan with system calls (see --help)",
        ));
    }
    Ok(plan)
}

/// Reports on standard error why the plan is incomplete, and where code may run that is in no file.
fn warn(found: &Syscalls) {
    for (abi, calls) in &found.abis {
        let mut files: IndexMap<&str, Vec<&Place>> = IndexMap::new();
        for site in &calls.executable {
            files.entry(&site.file).or_default().push(site);
        }
        for places in files.values() {
            let place = report::place(&places[0].file, &places[0].address, &places[0].function);
            let count = places.len();
            eprintln!(
                "syscall-scan: note: {count} places make memory executable, the first at {place}; the plan lacks \
                 the calls of code generated there"
            );
        }
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

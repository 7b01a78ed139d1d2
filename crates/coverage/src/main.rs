//! The command: from traces to a plan, and from a plan to tables and a page.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use coverage::ftrace::CallRecorder;
use coverage::lines::Lines;
use coverage::qemu::{Selection, Span};
use coverage::{Error, Recorder, dump, ftrace, html, qemu, summary};
use kcli::{Failure, Output, is_piped_stdin, read_piped_plan, read_plan};
use kplan::{Coverage, Plan};
use ktext::KernelText;

mod arguments;

use arguments::{Arguments, Command, Traces};

fn main() -> ExitCode {
    kcli::with_arguments(|arguments: Arguments| kcli::main("coverage", || run(arguments.command)))
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Qemu { traces, data, after_boot, least, blocks, load } => {
            let mut kernel = read_kernel(&traces.vmlinux, blocks.blocks.as_deref())?;
            if let Some(address) = load.load_address {
                kernel.set_load_address(address);
            }
            let span = if after_boot { Span::AfterBoot } else { Span::All };
            let selection = Selection { span, least };
            record(&traces, |path| {
                let mut recorder = Recorder::new(&kernel);
                let mut lines = Lines::open(path)?;
                let mut log = qemu::read(&mut lines, &kernel, selection, &mut recorder)?;
                if data && log.reads.is_none() {
                    return Err(qemu::without_reads(&lines.name));
                }
                warn(&lines.name, &log.counts.remarks());
                log.reads = log.reads.filter(|_| data);
                Ok(recorder.finish(qemu::run(log, &lines.name, &kernel)))
            })
        }
        Command::Ftrace { traces } => {
            let kernel = read_kernel(&traces.vmlinux, None)?;
            record(&traces, |path| {
                let mut calls = CallRecorder::new(&kernel);
                let mut lines = Lines::open(path)?;
                let trace = calls.read(&mut lines)?;
                warn(&lines.name, &trace.remarks());
                Ok(calls.finish(ftrace::run(&trace, &lines.name, &kernel)))
            })
        }
        Command::Kcore { traces, blocks, base, load } => {
            let mut kernel = read_kernel(&traces.vmlinux, Some(&blocks))?;
            if let Some(address) = load.load_address {
                kernel.set_load_address(address);
            }
            record(&traces, |path| {
                let mut recorder = Recorder::new(&kernel);
                let dump = dump::read(path, base, &kernel, &mut recorder)?;
                let name = path.display().to_string();
                warn(&name, &dump.remarks());
                Ok(recorder.finish(dump::run(&name, &kernel)))
            })
        }
        Command::Merge { plans, output } => merge(&plans, &output.output),
        Command::Summary { plan, kernel, blocks, output } => {
            let coverage = read_coverage(&plan)?;
            let kernel = kernel.map(|kernel| read_kernel(&kernel, blocks.blocks.as_deref())).transpose()?;
            write(&output.output, summary::text(&coverage, kernel.as_ref()).as_bytes())
        }
        Command::Html { plan, vmlinux, blocks, after, after_blocks, output } => {
            let mut shown = vec![(read_coverage(&plan)?, read_kernel(&vmlinux, blocks.blocks.as_deref())?)];
            if let Some([plan, vmlinux]) = after.as_deref() {
                shown.push((read_coverage(plan)?, read_kernel(vmlinux, after_blocks.as_deref())?));
            }
            write(&output.output, html::page(&shown).as_bytes())
        }
    }
}

/// Adds the coverage of each trace to the plan on standard input, and prints it.
fn record(traces: &Traces, mut read: impl FnMut(&Path) -> Result<Coverage, Error>) -> Result<(), Failure> {
    // Opened before the work, so that an unwritable path is reported at once.
    let output = Output::create(&traces.output.output)?;
    let is_trace = traces.traces.iter().any(|path| path == Path::new("-"));
    let mut plan = match is_trace || !is_piped_stdin() {
        true => Plan::default(),
        false => read_piped_plan()?,
    };
    for path in &traces.traces {
        let found = read(path).map_err(Failure::of)?;
        plan.coverage.get_or_insert_default().merge(found);
    }
    print(&plan, output)
}

fn merge(paths: &[PathBuf], output: &Path) -> Result<(), Failure> {
    let mut plans = paths.iter().map(|path| read_plan(path));
    let Some(first) = plans.next() else { return Ok(()) };
    let mut merged = first?;
    for plan in plans {
        if let Some(coverage) = plan?.coverage {
            merged.coverage.get_or_insert_default().merge(coverage);
        }
    }
    print(&merged, Output::create(output)?)
}

fn print(plan: &Plan, mut output: Output) -> Result<(), Failure> {
    plan.write(&mut output)?;
    Ok(output.commit()?)
}

fn write(path: &Path, content: &[u8]) -> Result<(), Failure> {
    let mut output = Output::create(path)?;
    output.write_all(content)?;
    Ok(output.commit()?)
}

fn read_kernel(vmlinux: &Path, blocks: Option<&Path>) -> Result<KernelText, Failure> {
    KernelText::read(vmlinux, blocks).map_err(Failure::of)
}

/// Reads the coverage of the plan at `path`.
fn read_coverage(path: &Path) -> Result<Coverage, Failure> {
    let without = || {
        let path = path.display();
        Failure::bad_input(format!(
            "{path}: it has no coverage; make one with coverage qemu, ftrace or kcore"
        ))
    };
    read_plan(path)?.coverage.ok_or_else(without)
}

/// Reports unused parts of a trace on standard error.
fn warn(name: &str, remarks: &[String]) {
    for remark in remarks {
        eprintln!("coverage: warning: {name}: {remark}");
    }
}

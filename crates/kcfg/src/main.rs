//! `kcfg`: prints the control-flow graph of a kernel or a program.

mod arguments;

use std::io::{IsTerminal, Write, stdout};
use std::path::Path;
use std::process::ExitCode;

use kcfg::graph::Graph;
use kcfg::lift::Lifter;
use kcfg::print::{Printer, Selection, dot, json, listing};
use kcfg::summary::Summary;
use kcli::{Failure, OrBadInput, Output, Progress, Table, human};
use kelf::{InputFiles, KernelBuild, Program};

use arguments::{Arguments, View};

fn main() -> ExitCode {
    kcli::with_arguments(|arguments: Arguments| kcli::main("kcfg", || run(&arguments)))
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let progress = Progress::spinner("reading");
    let build = arguments.vmlinux.as_deref().map(KernelBuild::find).transpose().map_err(Failure::of)?;
    let files = match &build {
        Some(build) => InputFiles::of_kernel(build),
        None => InputFiles::of_objects(&arguments.objects).map(|files| files.entered_by(&arguments.entry)),
    };
    let files = files.map_err(Failure::of)?;
    let program = Program::link(&files).map_err(Failure::of)?;
    progress.message("building the graph");
    let lifter = match (&build, &arguments.linker_script) {
        (Some(build), _) => Lifter::of_kernel(build, &program),
        (None, Some(script)) => Lifter::of_kernel_objects(script, &program, false),
        (None, None) => Lifter::of_objects(&program, &arguments.entry),
    };
    let graph = lifter.and_then(Lifter::fine_graph).map_err(Failure::of)?;
    progress.message("printing");
    // On a terminal, the progress line would mix with the result.
    let progress = Some(progress).filter(|_| !(arguments.output == Path::new("-") && stdout().is_terminal()));
    print(arguments, &graph)?;
    drop(progress);
    Ok(())
}

fn print(arguments: &Arguments, graph: &Graph) -> Result<(), Failure> {
    let input = arguments.input();
    let printer = Printer::new(graph);
    let selection = match arguments.function.as_slice() {
        [] => Selection::All,
        names => printer.select(names).or_bad_input()?,
    };
    let header = json::Header {
        machine: graph.machine(),
        input: &input,
        selected: &arguments.function,
        instructions: arguments.instructions,
    };
    let mut out = Output::create(&arguments.output)?;
    match arguments.view() {
        View::Graph => json::write(&printer, &header, &selection, &mut out)?,
        View::Listing => listing::write(&printer, &selection, &mut out)?,
        View::Dot => dot::write(&printer, &selection, &mut out)?,
        View::Opaque if arguments.json => json::write_opaque(graph, &header, &mut out)?,
        View::Opaque => {
            for opaque in graph.opaque_functions() {
                writeln!(out, "{}\t{}", opaque.name, opaque.reason)?;
            }
        }
        View::Summary if arguments.json => json::write_summary(&Summary::of(graph), &header, &mut out)?,
        View::Summary => write!(out, "{}", table(&Summary::of(graph)))?,
    }
    Ok(out.commit()?)
}

/// Formats the human-readable counts, in groups.
fn table(summary: &Summary) -> Table {
    let mut table = Table::default();
    for (i, (heading, counts)) in summary.groups().into_iter().enumerate() {
        if i > 0 {
            table.row([""]);
        }
        table.row([heading]);
        for (label, count) in counts {
            table.row([format!("  {label}"), human(count)]);
        }
    }
    table
}

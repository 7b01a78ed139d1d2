//! Running a case and printing its output.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kcfg::graph::{Graph, SymbolPlace};
use kcfg::lift::Lifter;
use kcfg::lower::{Relax, lower};
use kcfg::print::{Printer, Selection, listing};
use kelf::{InputFiles, Program};
use kopt::{PassReport, params, rounds};

use crate::case::Case;

/// Assembles, lifts, and runs the passes.
///
/// # Errors
/// A description of the failure.
pub fn run(case: &Case<'_>) -> Result<String, String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let text = rewrite(case, directory.path())?;
    // Objects are named by their paths.
    Ok(text.replace(&format!("{}/", directory.path().display()), ""))
}

fn rewrite(case: &Case<'_>, directory: &Path) -> Result<String, String> {
    let objects: Vec<PathBuf> = case
        .sources
        .iter()
        .map(|(name, source)| assemble(case, directory, name, source))
        .collect::<Result<_, _>>()?;
    let files = InputFiles::of_objects(&objects).map_err(message)?.entered_by(&case.entries);
    let program = Program::link(&files).map_err(message)?;
    let lifter = match case.linker_script {
        Some(script) => {
            let path = directory.join("kernel.lds");
            fs::write(&path, script).map_err(message)?;
            Lifter::of_kernel_objects(&path, &program, case.modules)
        }
        None => Lifter::of_objects(&program, &case.entries),
    };
    let lifter = lifter.map_err(message)?;
    // Objects are named by their paths, but in a case by their names.
    let mut plan = case.plan.clone();
    for data in plan.frozen.iter_mut().flat_map(|frozen| &mut frozen.data) {
        data.object = directory.join(&data.object).display().to_string();
    }
    let (graph, reports) = rounds::run(lifter, &plan, &case.passes, case.options, |_| ()).map_err(message)?;
    Ok(text(&graph, &reports)? + &contents(&graph, case))
}

fn assemble(case: &Case<'_>, directory: &Path, name: &str, source: &str) -> Result<PathBuf, String> {
    let path = directory.join(name);
    // A name may have directories, as objects of a kernel do.
    fs::create_dir_all(path.parent().unwrap_or(directory)).map_err(message)?;
    fs::write(&path, source).map_err(message)?;
    let object = path.with_extension("o");
    let assembler = case.assembler;
    let output = Command::new(assembler[0]).args(&assembler[1..]).arg("-o").arg(&object).arg(&path).output();
    let output =
        output.map_err(|error| format!("{}: {error}; install binutils for that machine", assembler[0]))?;
    if output.status.success() {
        Ok(object)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn message(error: impl std::error::Error) -> String {
    error.to_string()
}

fn text(graph: &Graph, reports: &[PassReport]) -> Result<String, String> {
    let mut text = String::new();
    for report in reports {
        for line in lines(report) {
            writeln!(text, "{}: {line}", report.pass).map_err(message)?;
        }
    }
    let mut listed = Vec::new();
    listing::write(&Printer::new(graph), &Selection::All, &mut listed).map_err(message)?;
    let listed = String::from_utf8(listed).map_err(message)?;
    let lowered = lower(graph, Relax::Shortest).map_err(message)?;
    let sizes = lowered.object.sections.iter().filter(|section| section.size > 0);
    let sizes: Vec<String> = sizes.map(|section| format!("{} {}", section.name, section.size)).collect();
    writeln!(text, "\n{listed}\nlowered, in bytes: {}", sizes.join(", ")).map_err(message)?;
    Ok(text)
}

/// The bytes of the variables and the check's records that the section `params` of the plan concerns.
fn contents(graph: &Graph, case: &Case<'_>) -> String {
    let fixed = case.plan.params.iter().flat_map(|params| &params.fixed);
    let names = fixed.map(|fixed| fixed.variable.as_str()).chain([params::CHECK_SYMBOL]);
    let symbols = names.flat_map(|name| graph.symbols().iter().filter(move |symbol| symbol.name == name));
    let lines = symbols.filter_map(|symbol| match symbol.place {
        SymbolPlace::Node(node, 0) if graph.node(node).live => {
            Some(format!("{} holds {}\n", symbol.name, graph.bytes_of(node).escape_ascii()))
        }
        _ => None,
    });
    lines.collect()
}

/// The report of a pass, as lines.
fn lines(report: &PassReport) -> Vec<String> {
    let removed = &report.removed;
    let parts = [
        (removed.functions as u64, "functions"),
        (removed.blocks as u64, "blocks"),
        (removed.code_bytes, "bytes of code"),
        (removed.data_chunks as u64, "chunks of data"),
        (removed.data_bytes, "bytes of data"),
    ];
    let parts = parts.into_iter().filter(|&(number, _)| number > 0);
    let parts: Vec<String> = parts.map(|(number, what)| format!("{number} {what}")).collect();
    let mut lines = Vec::new();
    if !parts.is_empty() {
        lines.push(format!("removed {}", parts.join(", ")));
    }
    if report.redirected > 0 {
        lines.push(format!("redirected {}", report.redirected));
    }
    let counts = report.counts.iter().filter(|&(_, &number)| number > 0);
    lines.extend(counts.map(|(what, number)| format!("{number} {what}")));
    lines.extend(report.kept.iter().map(|kept| kept.to_string()));
    if lines.is_empty() {
        lines.push("changed nothing".to_owned());
    }
    lines
}

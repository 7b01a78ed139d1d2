//! A coverage as human-readable tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use kcli::{Table, human};
use kplan::{Coverage, CoveredFunction};
use ktext::{KernelText, PAGE_SIZE, PageMap};

/// Number of functions to name in each section.
const TOP: usize = 10;

/// Returns the tables: the runs, each section, and its largest functions. With the kernel, also the shares of its
/// sections and pages.
pub fn text(coverage: &Coverage, kernel: Option<&KernelText>) -> String {
    let mut text = String::new();
    let mut runs = Table::new(["run", "kind", "kernel", "not matched"]);
    for run in &coverage.runs {
        runs.row([run.trace.clone(), run.source.clone(), run.kernel.clone(), human(run.unknown)]);
    }
    // Writing to a string does not fail.
    let _ = write!(text, "{runs}\n{}", sections(coverage));
    if let Some(kernel) = kernel {
        let ran = kernel.ran(coverage);
        let map = kernel.pages(&ran.addresses, PAGE_SIZE);
        let _ = write!(text, "\n{}", shares(&map));
        if ran.missing > 0 {
            let _ = writeln!(text, "\n{} functions are not in {}", human(ran.missing as u64), kernel.path);
        }
    }
    for (name, functions) in by_section(coverage) {
        let _ = write!(text, "\n{}", largest(name, functions));
    }
    text
}

fn by_section(coverage: &Coverage) -> BTreeMap<&str, Vec<&CoveredFunction>> {
    let mut sections: BTreeMap<&str, Vec<&CoveredFunction>> = BTreeMap::new();
    for function in &coverage.functions {
        sections.entry(&function.section).or_default().push(function);
    }
    sections
}

/// Returns a table of the code of each section that ran.
fn sections(coverage: &Coverage) -> Table {
    let mut table = Table::new(["section", "functions ran", "their bytes", "bytes ran", "of these"]);
    for (name, functions) in by_section(coverage) {
        let size: u64 = functions.iter().map(|function| function.size).sum();
        let known = functions.iter().filter_map(|function| function.bytes_run());
        let ran: u64 = known.clone().sum();
        let all_known = known.count() == functions.len();
        table.row([
            name.into(),
            human(functions.len() as u64),
            human(size),
            if all_known { human(ran) } else { "not known".into() },
            if all_known { share(ran, size) } else { String::new() },
        ]);
    }
    table
}

/// Returns a table of the shares of a kernel's sections that ran, with their pages.
fn shares(map: &PageMap) -> Table {
    let heading = [
        "section of the kernel",
        "bytes",
        "ran",
        "",
        "in functions",
        "",
        "pages",
        "touched",
        "functions",
        "ran",
    ];
    let mut table = Table::new(heading);
    for section in map.sections.iter().filter(|section| section.ran > 0) {
        table.row([
            section.name.clone(),
            human(section.size),
            human(section.ran),
            share(section.ran, section.size),
            human(section.function_bytes),
            share(section.function_bytes, section.size),
            human(section.pages.len() as u64),
            human(section.touched() as u64),
            human(section.functions as u64),
            human(section.functions_run as u64),
        ]);
    }
    table
}

/// Returns a table of the functions of a section with the most executed bytes.
fn largest(name: &str, mut functions: Vec<&CoveredFunction>) -> Table {
    functions.sort_by_key(|function| std::cmp::Reverse(function.bytes_run().unwrap_or(function.size)));
    let mut table = Table::new([&format!("most of {name}"), "bytes ran", "size", "first", "count"]);
    for function in functions.into_iter().take(TOP) {
        table.row([
            function.function.to_string(),
            function.bytes_run().map_or_else(|| "not known".into(), human),
            human(function.size),
            human(function.first),
            function.count.map(human).unwrap_or_default(),
        ]);
    }
    table
}

/// Formats `part` of `whole` as a percentage with one decimal.
pub fn share(part: u64, whole: u64) -> String {
    match whole {
        0 => String::new(),
        whole => format!("{:.1} %", part as f64 / whole as f64 * 100.0),
    }
}

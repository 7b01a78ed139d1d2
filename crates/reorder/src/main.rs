//! `reorder`: orders the code of a kernel.

mod arguments;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use kcli::{Failure, Output, input_name, named_or_piped, read_input, read_plan};
use kplan::{Coverage, FunctionName, Plan};
use reorder::algorithm::{Algorithm, WeightedCall};
use reorder::calls;
use reorder::format::{self, Format, Formatted};
use reorder::hot::{Hot, HotCode, Method};
use reorder::kernel::Kernel;
use reorder::map::{InputSection, LinkMap};

use arguments::{Arguments, Command, OrderArguments};

fn main() -> ExitCode {
    kcli::with_arguments(|arguments: Arguments| {
        kcli::main("reorder", || match &arguments.command {
            Some(Command::Pages { vmlinux, plan, page_size, emptiest, json }) => {
                pages(vmlinux, plan.as_deref(), *page_size, *emptiest, *json)
            }
            None => order(&arguments.order),
        })
    })
}

fn order(arguments: &OrderArguments) -> Result<(), Failure> {
    let vmlinux = arguments.vmlinux.as_deref().unwrap_or(Path::new("-"));
    let kernel = Kernel::read(vmlinux)?;
    let (first, further) = match arguments.plans.split_first() {
        Some((first, further)) => (Some(first.as_path()), further),
        None => (None, &[][..]),
    };
    let first = plan_path(first)?;
    let mut plan = read_plan(first)?;
    let mut coverage = take_coverage(&plan, first)?;
    let mut runs = vec![coverage.clone()];
    for path in further {
        let more = take_coverage(&read_plan(path)?, path)?;
        runs.push(more.clone());
        coverage.merge(more);
    }
    let hot = hot_code(&kernel, &coverage, vmlinux)?;
    let method = Method {
        granularity: arguments.granularity.into(),
        algorithm: arguments.algorithm,
        page_size: arguments.page_size,
    };
    let calls = match arguments.algorithm {
        Algorithm::CallChain => call_graph(&kernel, &hot, &coverage),
        _ => Vec::new(),
    };
    let order = hot.order(method, &calls, &traces(&hot, &runs));

    let map = arguments.map.as_deref().map(read_map).transpose()?;
    let index = hot.index();
    let input = |function: &FunctionName| input_section(&hot, &hot.functions[index[function]], map.as_ref());
    let formatted = match arguments.format {
        Format::Plan => {
            plan.order = Some(order);
            let mut output = Output::create(&arguments.output)?;
            plan.write(&mut output)?;
            return Ok(output.commit()?);
        }
        Format::GnuLd => format::gnu_ld(&order, input),
        Format::Lld => format::lld(&order),
        Format::Gold => format::gold(&order, input),
        Format::Lds => format::lds(&order, input),
    };
    write(&formatted, &arguments.output)
}

/// Returns the input section of a function that may be moved: from the map, or else from its name.
fn input_section(hot: &HotCode, function: &Hot, map: Option<&LinkMap>) -> Option<InputSection> {
    let region = &hot.regions[function.region];
    match map {
        Some(map) => {
            let moves = !region.between_markers && region.section == ".text";
            map.section_at(function.address).filter(|_| moves).cloned()
        }
        None => region.has_function_sections.then(|| format::named_section(&function.function)),
    }
}

fn read_map(path: &Path) -> Result<LinkMap, Failure> {
    let bytes = read_input(path)?;
    let name = input_name(path);
    let text =
        String::from_utf8(bytes).map_err(|_| Failure::bad_input(format!("{name}: expected a text")))?;
    LinkMap::parse(&text, &name)
}

fn write(formatted: &Formatted, path: &Path) -> Result<(), Failure> {
    let mut output = Output::create(path)?;
    output.write_all(formatted.text.as_bytes())?;
    output.commit()?;
    if formatted.left_out > 0 {
        eprintln!(
            "reorder: {} functions that ran have no section of their own (init text, .sched.text and the like) \
             and are not moved",
            formatted.left_out
        );
    }
    Ok(())
}

fn pages(
    vmlinux: &Path,
    plan: Option<&Path>,
    page_size: u64,
    emptiest: usize,
    json: bool,
) -> Result<(), Failure> {
    let kernel = Kernel::read(vmlinux)?;
    let plan = plan_path(plan)?;
    let coverage = take_coverage(&read_plan(plan)?, plan)?;
    let hot = hot_code(&kernel, &coverage, vmlinux)?;
    let pages = kernel.page_report(&hot, page_size);
    let mut output = Output::stdout();
    if json {
        serde_json::to_writer_pretty(&mut output, &pages)?;
        writeln!(output)?;
    } else {
        output.write_all(pages.text(emptiest).as_bytes())?;
    }
    Ok(output.commit()?)
}

/// Finds the hot code. Reports differences between the coverage and the kernel on standard error.
fn hot_code(kernel: &Kernel, coverage: &Coverage, vmlinux: &Path) -> Result<HotCode, Failure> {
    let hot = kernel.hot_code(coverage);
    let (of, path) = (coverage.functions.len(), vmlinux.display());
    if hot.functions.is_empty() {
        return Err(Failure::bad_input(format!(
            "{path}: none of the {of} functions of the coverage is in it; trace this kernel, or name the kernel \
             that was traced"
        )));
    }
    if hot.unmatched > 0 {
        eprintln!("reorder: {} of the {of} functions of the coverage are not in {path}", hot.unmatched);
    }
    if hot.resized > 0 {
        eprintln!(
            "reorder: {} functions have another size in {path} than in the coverage; they count as a whole",
            hot.resized
        );
    }
    Ok(hot)
}

/// Returns the calls for [`Algorithm::CallChain`].
fn call_graph(kernel: &Kernel, hot: &HotCode, coverage: &Coverage) -> Vec<WeightedCall> {
    if !coverage.calls.is_empty() {
        return calls::traced(hot, coverage);
    }
    calls::decoded(hot, &kernel.text)
}

/// Returns the functions of each run by first execution, as indices into the hot functions.
fn traces(hot: &HotCode, runs: &[Coverage]) -> Vec<Vec<usize>> {
    let index = hot.index();
    let trace = |run: &Coverage| {
        let mut functions: Vec<_> = run.functions.iter().collect();
        functions.sort_by_key(|function| function.first);
        functions.iter().filter_map(|function| index.get(&function.function).copied()).collect()
    };
    runs.iter().map(trace).collect()
}

/// Returns the path of the plan: the given one, or `-` if input is piped in.
fn plan_path(named: Option<&Path>) -> Result<&Path, Failure> {
    named_or_piped(named).ok_or_else(|| {
        Failure::bad_input("no plan: name a file with the section `coverage`, or pipe it in; see --help")
    })
}

/// Returns the coverage of a plan, or an error if it has none.
fn take_coverage(plan: &Plan, path: &Path) -> Result<Coverage, Failure> {
    let coverage = plan.coverage.clone().filter(|coverage| !coverage.functions.is_empty());
    coverage.ok_or_else(|| {
        Failure::bad_input(format!(
            "{}: it has no section `coverage` with functions; add it with the command `coverage`",
            input_name(path)
        ))
    })
}

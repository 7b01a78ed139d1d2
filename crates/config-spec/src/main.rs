/*!
`config-spec`: lists the options of a kernel's configuration with their cost, and finds the ones that a device can turn
off.

- `tree`, `config`, `kconfig`: the build's source tree, its configuration, and the definitions of options;
- `lines`, `references`, `variables`, `makefile`, `condition`, `functions`, `gates`: the conditions under which Kbuild links each object;
- `conf`, `server`, `closure`: the options that go together, by the kernel's own Kconfig;
- `mentions`: the objects that a rebuild compiles, by the records of fixdep;
- `c_text`, `parts`: the code and data between `#if`, by the text of C files and debugging information;
- `kernel`, `costs`: the bytes that the kernel keeps because of objects;
- `classes`, `hardware`, `devices`: the use of options in traces, and the drivers of the target's devices;
- `holders`, `source`, `values`, `expression`: the numeric options that set the size of a variable, with smaller values;
- `survey`, `joint`: all of these together, a row for each option; the proposed options together;
- `print`, `explain`, `advise`, `html`: the output;
- `trial`, `trimmed`: kernels that are built without the proposed options, and tested.
*/

mod advise;
mod arguments;
mod c_text;
mod cache;
mod classes;
mod closure;
mod condition;
mod conf;
mod config;
mod costs;
mod devices;
mod explain;
mod expression;
mod functions;
mod gates;
mod hardware;
mod holders;
mod html;
mod joint;
mod kconfig;
mod kernel;
mod lines;
mod makefile;
mod mentions;
mod parts;
mod print;
mod references;
mod server;
mod source;
mod survey;
mod tree;
mod trial;
mod trimmed;
mod values;
mod variables;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use kcli::{
    Failure, Output, Progress, check_machine_of_plan, create_with_page, input_name, named_or_piped,
    read_piped_plan, read_plan,
};
use kelf::{KernelBuild, Program};
use kplan::{Coverage, Plan};

use arguments::{Arguments, Command};
use classes::Ran;
use conf::Conf;
use gates::Gates;
use hardware::Hardware;
use kconfig::Definitions;
use kernel::Kernel;
use mentions::Mentions;
use parts::Parts;
use survey::{Facts, Measure, Row};
use tree::Tree;

fn main() -> ExitCode {
    kcli::with_arguments(|arguments: Arguments| kcli::main("config-spec", || run(&arguments)))
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(Command::Try(arguments)) = &arguments.command {
        return trial::run(arguments);
    }
    if let Some(path) = &arguments.fragment {
        let text = advise::fragment(&read_plan(path)?, &input_name(path))?;
        let mut output = Output::create(arguments.output.as_deref().unwrap_or(Path::new("-")))?;
        output.write_all(text.as_bytes())?;
        return Ok(output.commit()?);
    }
    let Some(vmlinux) = &arguments.vmlinux else {
        return Err(Failure::bad_input("expected the path of vmlinux in the directory where it was built"));
    };
    let named = match arguments.census.as_deref() {
        // The census is in the pipe.
        Some(census) if census == Path::new("-") => arguments.plan.as_deref(),
        _ => named_or_piped(arguments.plan.as_deref()),
    };
    let plan = match named {
        Some(path) if path == Path::new("-") => Some(read_piped_plan()?),
        Some(path) => Some(read_plan(path)?),
        None => None,
    };
    // An empty pipe, as services leave, is no plan.
    let plan = plan.filter(|plan| arguments.advise || *plan != Plan::default());
    let plan_name = input_name(named.unwrap_or(Path::new("-")));
    if arguments.advise
        && arguments.census.is_none()
        && plan.as_ref().is_none_or(|plan| plan.coverage.is_none())
    {
        return Err(Failure::bad_input(format!(
            "{plan_name}: --advise needs traces; expected a plan with the section `coverage`; pipe in the output of \
             `coverage qemu VMLINUX TRACE`"
        )));
    }
    let progress = Progress::spinner("reading");
    let build = KernelBuild::find(vmlinux).map_err(Failure::of)?;
    if let Some(plan) = &plan {
        check_machine_of_plan(plan, named, &build.machine.to_string())?;
    }
    let tree = Tree::find(&build)?;
    let (release, build_id) = (release(&build), kernel::build_id(&build)?);
    let census = arguments.census.as_deref();
    let census = census
        .map(|path| holders::read_census(path, &build.vmlinux, &release, build_id.as_deref()))
        .transpose()?;
    let is_asked = arguments.json || arguments.advise;
    let (mut output, mut page) =
        create_with_page(arguments.output.as_deref(), arguments.html.as_deref(), is_asked)?;
    let mut hardware =
        arguments.hardware.as_deref().map(|path| Hardware::read(path, &tree.build)).transpose()?;
    let files = kernel::read_objects(&build)?;
    let program = Program::link(&files).map_err(Failure::of)?;
    if let Some(hardware) = &mut hardware {
        hardware.add_tables(devices::patterns(&program, &tree.build));
    }
    let definitions = Definitions::read(&tree);
    let candidates = survey::candidates(&tree.config, &definitions);
    drop(progress);
    let conf = (!arguments.quick).then(|| Conf::new(&tree)).transpose()?;
    let closures = match &conf {
        None => survey::quick_closures(&candidates),
        Some(conf) => closure::find(conf, &definitions.text, &candidates)?,
    };
    let progress = Progress::spinner("building the graph");
    let kernel = Kernel::lift(&build, &program, plan.as_ref(), arguments.assume_complete)?;
    let coverage = plan.as_ref().and_then(|plan| plan.coverage.as_ref());
    let ran = coverage.map(|coverage| Ran::of(&kernel.built, coverage));
    if let (Some(ran), Some(coverage)) = (&ran, coverage) {
        check_kernel_of_plan(coverage, ran, build_id.as_deref(), &plan_name)?;
    }
    let gates = Gates::read(&tree.source, &tree.arch, &tree.config, &kernel.objects);
    let facts = Facts {
        tree: &tree,
        definitions: &definitions,
        gates: &gates,
        kernel: &kernel,
        ran: ran.as_ref(),
        hardware: hardware.as_ref(),
    };
    drop(progress);
    let mentions = Mentions::read(&tree.build);
    let parts = (!arguments.quick).then(|| Parts::read(&tree, &kernel.built, &mentions, &gates, &closures));
    let progress = Progress::spinner("measuring options");
    let measure = Measure::new(&facts, &mentions, parts);
    let rows = measure.rows(&closures);
    let sizings = census.map(|census| values::find(&facts, conf.as_ref(), &census)).transpose()?;
    let has_evidence = coverage.is_some() || sizings.is_some();
    let advice = match &conf {
        Some(conf) if arguments.advise || (page.is_some() && has_evidence) => {
            let sizings = sizings.as_deref().unwrap_or_default();
            let joint = joint::judge(&measure, conf, &rows, sizings, arguments.max_rebuilds)?;
            Some(advise::section(&measure, joint, &release, build_id))
        }
        _ => None,
    };
    drop(progress);
    if let Some(page) = &mut page {
        let document = print::document(&rows, &gates, &release, !arguments.quick);
        let vmlinux = &vmlinux.display().to_string();
        let (sizings, advice) = (sizings.as_deref(), advice.as_ref());
        let survey =
            html::Survey { vmlinux, document: &document, measure: &measure, rows: &rows, sizings, advice };
        page.write_all(html::page(&survey)?.as_bytes())?;
    }
    let mut summary = None;
    if let Some(output) = &mut output {
        if let Some(name) = &arguments.explain {
            let name = name.strip_prefix("CONFIG_").unwrap_or(name);
            let explanation = match rows.iter().find(|row| row.name == name) {
                Some(row) => explain::option(row, &tree, &definitions, &gates),
                None => explain::number(name, &facts, sizings.as_deref())
                    .or_else(|| explain::fixed(name, &tree, &definitions, &closures))
                    .ok_or_else(|| unknown(name, &definitions))?,
            };
            write!(output, "{explanation}")?;
        } else if arguments.advise {
            summary = advice.as_ref().and_then(advise::summary);
            Plan { config: advice, ..plan.unwrap_or_default() }.write(output)?;
        } else if arguments.json {
            let document = print::document(&rows, &gates, &release, !arguments.quick);
            serde_json::to_writer_pretty(&mut *output, &document)?;
            writeln!(output)?;
        } else {
            write!(output, "{}", print::table(&rows, !arguments.quick))?;
        }
    }
    // Both are complete before one gets its name.
    for complete in [page, output].into_iter().flatten() {
        complete.commit()?;
    }
    if arguments.explain.is_some() {
        return Ok(());
    }
    // Not before: a failure has no other message than its error.
    note(&rows, &gates);
    if let Some(summary) = summary {
        eprintln!("config-spec: {summary}");
    }
    Ok(())
}

/// Prints notes about what the table leaves out.
fn note(rows: &[Row], gates: &Gates) {
    let without = rows.iter().filter(|row| !row.brings_something()).count();
    if without > 0 {
        eprintln!(
            "config-spec: note: {without} more options bring no object and no part of one; --json lists them"
        );
    }
    if !gates.unplaced.is_empty() {
        eprintln!(
            "config-spec: note: {} of {} objects have no place in the Makefiles, and count for no option; --json lists \
             them",
            gates.unplaced.len(),
            gates.unplaced.len() + gates.placed()
        );
    }
}

/// Returns the release of a kernel, such as `6.12.117`; its version if the build does not record the release.
fn release(build: &KernelBuild) -> String {
    let recorded = std::fs::read_to_string(build.dir.join("include/config/kernel.release"));
    let version = || build.version.map(|version| version.to_string()).unwrap_or_default();
    recorded.map_or_else(|_| version(), |release| release.trim().to_owned())
}

/// Checks that traces are of this kernel. A rewritten kernel has another build ID, but the same functions.
fn check_kernel_of_plan(
    coverage: &Coverage,
    ran: &Ran,
    build_id: Option<&str>,
    plan: &str,
) -> Result<(), Failure> {
    let is_other = |id: &&str| build_id.is_some_and(|build_id| build_id != *id);
    let other = coverage.runs.iter().filter_map(|run| run.build_id.as_deref()).find(is_other);
    match (other, ran.absent.first()) {
        (Some(other), Some(absent)) => Err(Failure::bad_input(format!(
            "{plan}: the traces are of another kernel: build ID {other}, and {} functions that this one lacks, such as \
             {absent}; expected build ID {}; trace the kernel that this build made",
            ran.absent.len(),
            build_id.unwrap_or("none")
        ))),
        _ => Ok(()),
    }
}

/// Returns the error for an option that Kconfig does not define.
fn unknown(name: &str, definitions: &Definitions) -> Failure {
    let similar = definitions.options.keys().map(|option| (strsim::jaro_winkler(option, name), option));
    let best = similar.filter(|(likeness, _)| *likeness > 0.85).max_by(|(a, _), (b, _)| a.total_cmp(b));
    let hint = best.map(|(_, option)| format!("; did you mean {option}?")).unwrap_or_default();
    Failure::bad_input(format!(
        "--explain {name}: no Kconfig file defines this option; expected a name as in .config{hint}"
    ))
}

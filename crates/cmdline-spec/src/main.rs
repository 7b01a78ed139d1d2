/*!
`cmdline-spec`: lists the boot parameters of a kernel and their cost, and decides which ones a command line needs
(Chanet et al. 2007, section 3.3).

- `line`, `bootconfig`, `effective`: the effective command line and its words;
- `changes`, `types`: the variables of parameters, and other ways to change them;
- `table`: all parameters of a kernel;
- `recommend`: the parameters of options that `config-spec` proposes to turn off;
- `decide`: the section `params` of the plan.
*/

mod arguments;
mod bootconfig;
mod changes;
mod decide;
mod effective;
mod line;
mod recommend;
mod table;
mod types;
mod unclaimed;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use kcfg::graph::Graph;
use kcfg::lift::Lifter;
use kcfg::parameters;
use kcli::{
    Failure, Output, Progress, check_machine_of_plan, input_name, named_or_piped, read_input,
    read_piped_plan, read_plan,
};
use kelf::{InputFiles, KernelBuild, Program};
use kopt::reach::Reach;
use kopt::syscalls::Syscalls;
use kopt::{Options, rounds};
use kplan::{OnMismatch, Params, Plan};

use arguments::{Arguments, Mismatch};
use decide::Wishes;
use table::Row;

fn main() -> ExitCode {
    kcli::with_arguments(|arguments: Arguments| kcli::main("cmdline-spec", || run(&arguments)))
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let mut plan = match named_or_piped(arguments.plan.as_deref()) {
        Some(path) if path == Path::new("-") => read_piped_plan()?,
        Some(path) => read_plan(path)?,
        None => Plan::default(),
    };
    let progress = Progress::spinner("reading");
    let build = KernelBuild::find(&arguments.vmlinux).map_err(Failure::of)?;
    let files = InputFiles::of_kernel(&build).map_err(Failure::of)?;
    let program = Program::link(&files).map_err(Failure::of)?;
    progress.message("building the graph");
    check_machine_of_plan(&plan, arguments.plan.as_deref(), &build.machine.to_string())?;
    let mut graph = graph(&build, &program, &plan, arguments.assume_complete)?;
    progress.message("analyzing parameters");
    parameters::cut(&mut graph, "params");
    if let Some(passed) = &arguments.cmdline {
        let params = params(arguments, &build, &mut graph, passed)?;
        drop(progress);
        for kept in params.kept.iter().filter(|kept| is_wanted(arguments, &params, &kept.name)) {
            eprintln!("cmdline-spec: not fixed: {}: {}", kept.name, kept.why);
        }
        plan.params = Some(params);
        let mut output = Output::create(&arguments.output)?;
        plan.write(&mut output)?;
        return Ok(output.commit()?);
    }
    let mut rows = table::rows(&graph);
    drop(progress);
    table::sort(&mut rows, arguments.sort);
    let mut output = Output::create(&arguments.output)?;
    if arguments.recommend {
        let name = input_name(arguments.plan.as_deref().unwrap_or(Path::new("-")));
        for word in recommend::words(&plan, &name, &rows)? {
            writeln!(output, "{word}")?;
        }
        return Ok(output.commit()?);
    }
    match arguments.json {
        true => json(&rows, &mut output)?,
        false => write!(output, "{}", table::print(&rows))?,
    }
    Ok(output.commit()?)
}

/// Returns the live graph of a kernel, given the system calls in the plan.
fn graph(
    build: &KernelBuild,
    program: &Program<'_>,
    plan: &Plan,
    assume_complete: bool,
) -> Result<Graph, Failure> {
    let lifter = Lifter::of_kernel(build, program).map_err(Failure::of)?;
    let options = Options { assume_complete, ..Options::default() };
    let run = rounds::run(lifter, plan, &[&Syscalls, &Reach], options, |_| ());
    Ok(run.map_err(Failure::of)?.0)
}

fn params(
    arguments: &Arguments,
    build: &KernelBuild,
    graph: &mut Graph,
    passed: &str,
) -> Result<Params, Failure> {
    let bootconfig = arguments.bootconfig.as_deref().map(read_text).transpose()?;
    let bootconfig = bootconfig.as_ref().map(|(name, text)| (name.as_str(), text.as_str()));
    let mut notes = Vec::new();
    let line = effective::command_line(build, passed, bootconfig, &mut notes)?;
    for note in notes {
        eprintln!("cmdline-spec: {note}");
    }
    let on_mismatch = match arguments.on_mismatch {
        Mismatch::Warn => OnMismatch::Warn,
        Mismatch::Panic => OnMismatch::Panic,
    };
    let wishes = Wishes {
        line: &line,
        fix: &arguments.fix,
        force: &arguments.force,
        remove_read_only: arguments.remove_read_only,
        on_mismatch,
    };
    let params = decide::decide(graph, &wishes)?;
    for word in unclaimed::describe(&line.words, &params) {
        eprintln!("cmdline-spec: warning: {word}");
    }
    Ok(params)
}

/// Whether the user requested that a variable is fixed, by a word of the command line or by name.
fn is_wanted(arguments: &Arguments, params: &Params, name: &str) -> bool {
    let is_named = params.named.iter().flat_map(|named| &named.parameters).any(|one| one.name == name);
    is_named || arguments.fix.iter().any(|(variable, _)| variable == name)
}

fn read_text(path: &Path) -> Result<(String, String), Failure> {
    let name = input_name(path);
    let text = String::from_utf8(read_input(path)?)
        .map_err(|_| Failure::bad_input(format!("{name}: expected a boot configuration, found no text")))?;
    Ok((name, text))
}

fn json(rows: &[Row], out: &mut Output) -> Result<(), Failure> {
    serde_json::to_writer_pretty(&mut *out, &serde_json::json!({ "parameters": rows }))?;
    Ok(writeln!(out)?)
}

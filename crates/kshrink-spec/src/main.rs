//! `kshrink-spec`: applies a plan to a kernel and relinks it with the kernel's own build.

mod arguments;
mod bisect;
mod blocks;
mod command_line;
mod dump;
mod edits;
mod explain;
mod freeze;
mod gates;
mod html;
mod linked;
mod modules;
mod orc;
mod phases;
mod relink;
mod report;
mod retained;
mod rewrite;
mod runtime_source;
mod segments;
mod sizes;
mod user_program;
mod write;

use std::path::Path;
use std::process::ExitCode;

use kcli::{Failure, Output, Progress, check_machine_of_plan, named_or_piped, read_plan};
use kopt::PassRef;
use kopt::reach::Reach;
use kplan::{Paths, Plan};

use arguments::{Arguments, Task};
use bisect::Bisection;
use dump::Dump;
use gates::Gates;
use modules::Modules;
use phases::Phases;
use rewrite::RewriteInput;
use write::Writer;

/// Passes make many small allocations. This allocator takes a tenth less time than the C library's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    kcli::with_arguments(|arguments: Arguments| kcli::main("kshrink-spec", || run(&arguments)))
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let task = arguments.task()?;
    // Opened before the work, so that an unwritable path is reported at once.
    let page = arguments.html.as_deref().map(Output::create).transpose()?;
    if let Task::Page(dir) = &task {
        return html::write_finished(dir, page);
    }
    let plan_path = named_or_piped(arguments.plan.as_deref());
    // An empty pipe, left by a failed command, is bad input.
    let mut plan = plan_path.map_or_else(|| Ok(Plan::default()), read_plan)?;
    if let Some(path) = &arguments.specialize {
        plan.paths = Some(read_paths(path)?);
    }
    let mut selected = arguments.passes(&plan)?;
    let mut phases = Phases::start(Progress::spinner("reading"));
    let input = match &arguments.vmlinux {
        Some(vmlinux) => {
            let gates = arguments.key.as_ref().map(|key| Gates::read(&arguments.gates, key)).transpose()?;
            let packs = (arguments.pack_segments, arguments.pack_unwind);
            RewriteInput::kernel(vmlinux, &plan, &selected, packs, gates.as_ref())?
        }
        None => RewriteInput::objects(&arguments.objects, &arguments.entry, &arguments.wrap)?,
    };
    if let RewriteInput::Kernel { build, .. } = &input {
        match &task {
            Task::Relink(out) => {
                kbuild::check_output(build, out)?;
                if arguments.keep_debug {
                    kdebug::check(&build.vmlinux).map_err(Failure::bad_input)?;
                }
            }
            Task::EmitObject(file) => {
                kbuild::check_apart(build, file)?;
                let given =
                    [("--pack-segments", arguments.pack_segments), ("--pack-unwind", arguments.pack_unwind)];
                for (option, _) in given.into_iter().filter(|(_, is_given)| *is_given) {
                    eprintln!(
                        "kshrink-spec: warning: {option} packs nothing with --emit-object: the link of -o packs"
                    );
                }
            }
            Task::Explain(_) | Task::Retained(_) | Task::Bisect(_) | Task::Page(_) => {}
        }
        if let Some(file) = &arguments.html {
            kbuild::check_apart(build, file)?;
        }
    }
    let modules = match (&arguments.modules, &input) {
        (Some(dir), RewriteInput::Kernel { build, .. }) => Some(Modules::read(dir, build)?),
        (None, RewriteInput::Kernel { build, .. })
            if selected.contains(&(&Reach as PassRef)) && plan.exports.is_none() =>
        {
            Modules::note_missing(build);
            None
        }
        _ => None,
    };
    let program = input.link()?;
    let left_out = match &input {
        RewriteInput::Kernel { .. } => Vec::new(),
        RewriteInput::Objects { .. } => user_program::check(&program, arguments)?,
    };
    if arguments.names_passes() {
        rewrite::check_passes(program.machine, &selected)?;
    } else {
        selected.retain(|pass| pass.supports(program.machine));
    }
    if let Some(modules) = modules {
        plan.exports = Some(modules.exports(&program)?);
    }
    check_plan(&plan, plan_path, &input, arguments)?;
    if let Task::Bisect(command) = task {
        drop(phases);
        let writer = Writer {
            input: &input,
            passes: &selected,
            make: &arguments.make,
            keep_debug: false,
            keep_object: false,
        };
        let (program, plan, options) = (&program, &plan, arguments.options());
        return Bisection { writer, program, plan, options, command, trials: 0 }.run();
    }
    let mut dump = arguments.dump_after.as_ref().map(|step| Dump::parse(step, &selected)).transpose()?;
    let lifter = input.lifter(&program)?;
    let end = |step, graph: &_| dump.iter_mut().for_each(|dump| dump.end(step, graph));
    let mut rewritten = rewrite::run_passes(lifter, &plan, &selected, arguments.options(), &mut phases, end)?;
    dump.map_or(Ok(()), Dump::finish)?;
    let graph = &rewritten.graph;
    if arguments.strict
        && let Some(opaque) = graph.opaque().iter().find(|opaque| opaque.reason != "hand-written")
    {
        let message = format!("{}: {}; omit --strict to keep it opaque", opaque.name, opaque.reason);
        return Err(Failure::bad_input(message));
    }
    if let Task::Explain(symbol) = &task {
        return explain::print(graph, symbol);
    }
    if let Task::Retained(symbols) = &task {
        return retained::print(graph, symbols);
    }
    let writer = Writer {
        input: &input,
        passes: &selected,
        make: &arguments.make,
        keep_debug: arguments.keep_debug,
        // A server copies paths from it.
        keep_object: !arguments.gates.is_empty(),
    };
    match &task {
        Task::EmitObject(path) => {
            let (mut report, contents) = writer.object(&mut rewritten, phases, path)?;
            report.handlers_left_out = left_out;
            html::write(&report.json()?, &contents, None, page)?;
            eprint!("{report}");
            Ok(())
        }
        Task::Relink(out) => {
            let (report, contents) = writer.kernel(&mut rewritten, phases, out)?;
            html::write(&report.json()?, &contents, Some(out), page)?;
            let mut stdout = Output::stdout();
            std::io::Write::write_all(&mut stdout, report.to_string().as_bytes())?;
            Ok(stdout.commit()?)
        }
        Task::Explain(_) | Task::Retained(_) | Task::Bisect(_) | Task::Page(_) => unreachable!("done above"),
    }
}

/// Reads the paths to copy.
fn read_paths(path: &Path) -> Result<Paths, Failure> {
    Paths::read(kcli::read_input(path)?.as_slice(), &kcli::input_name(path)).map_err(Failure::of)
}

/// Checks that a plan is for this kernel, and warns if its list of system calls is incomplete.
fn check_plan(
    plan: &Plan,
    path: Option<&Path>,
    input: &RewriteInput,
    arguments: &Arguments,
) -> Result<(), Failure> {
    let RewriteInput::Kernel { build, .. } = input else { return Ok(()) };
    let machine = build.machine.to_string();
    check_machine_of_plan(plan, path, &machine)?;
    let calls = plan.syscalls.iter().flat_map(|syscalls| &syscalls.abis);
    let mut incomplete = calls.filter(|(abi, calls)| abi.to_string() == machine && !calls.complete);
    if let Some((abi, calls)) = incomplete.next().filter(|_| !arguments.assume_complete) {
        eprintln!(
            "kshrink-spec: warning: the plan is incomplete ({} unresolved call sites of {abi}), so all system calls are \
             kept; see syscall-scan --help, or pass --assume-complete",
            calls.unresolved.len()
        );
    }
    Ok(())
}

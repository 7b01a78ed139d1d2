/*!
`config-spec`: lists the options of a kernel's configuration with their cost, and finds the ones that a device can turn
off.

- `tree`, `config`, `kconfig`: the build's source tree, its configuration, and the definitions of options;
- `lines`, `references`, `variables`, `makefile`, `condition`, `evaluation`, `gates`: the conditions under which Kbuild links each object;
- `conf`, `server`, `closure`: the options that go together, by the kernel's own Kconfig;
- `mentions`: the objects that a rebuild compiles, by the records of fixdep;
- `c_text`, `parts`: the code and data between `#if`, by the text of C files and debugging information;
- `kernel`, `costs`: the bytes that the kernel keeps because of objects;
- `classes`, `hardware`, `devices`: the use of options in traces, and the drivers of the target's devices;
- `holders`, `source`, `values`, `expression`, `ranges`: the numeric options that set the size of a variable, with smaller values;
- `survey`, `joint`: all of these together, a row for each option; the proposed options together;
- `inspect`: the order in which a build is read;
- `print`, `explain`, `advise`, `html`: the output;
- `trial`, `trimmed`: kernels that are built without the proposed options, and tested;
- `rank`, `ranking`, `compare`, `figures`: kernels that are built without one option each, and measured; kernels side by
  side.
*/

mod advise;
mod arguments;
mod c_text;
mod cache;
mod classes;
mod closure;
mod compare;
mod condition;
mod conf;
mod config;
mod costs;
mod devices;
mod evaluation;
mod explain;
mod expression;
mod figures;
mod flags;
mod gates;
mod hardware;
mod holders;
mod html;
mod inspect;
mod joint;
mod kconfig;
mod kernel;
mod libraries;
mod lines;
mod makefile;
mod mentions;
mod parts;
mod print;
mod ranges;
mod rank;
mod ranking;
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

use census::document::Document;
use kcli::{
    Failure, Output, Progress, check_machine_of_plan, create_with_page, input_name, named_or_piped,
    read_piped_plan, read_plan,
};
use kelf::KernelBuild;
use kplan::Plan;

use arguments::{Arguments, Command};
use inspect::{Inspection, Question, inspect};
use kconfig::Definitions;
use survey::{Facts, Measure, Row};
use tree::Tree;

fn main() -> ExitCode {
    kcli::with_arguments(|arguments: Arguments| kcli::main("config-spec", || run(&arguments)))
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Some(Command::Try(arguments)) => return trial::run(arguments),
        Some(Command::Rank(arguments)) => return rank::run(arguments),
        Some(Command::Compare(arguments)) => return compare::run(arguments),
        None => {}
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
    drop(progress);
    let (release, build_id) = (kernel::release(&build), kernel::build_id(&build)?);
    let question = Question {
        build_id: build_id.as_deref(),
        plan: plan.as_ref().map(|plan| (plan, plan_name.as_str())),
        assume_complete: arguments.assume_complete,
        hardware: arguments.hardware.as_deref(),
        quick: arguments.quick,
    };
    let census = arguments.census.as_deref();
    let census = census
        .map(|path| holders::read_census(path, &build.vmlinux, &release, build_id.as_deref()))
        .transpose()?;
    let is_asked = arguments.json || arguments.advise;
    let (mut output, mut page) =
        create_with_page(arguments.output.as_deref(), arguments.html.as_deref(), is_asked)?;
    let request = Request {
        arguments,
        plan: plan.as_ref(),
        census: census.as_ref(),
        release: &release,
        build_id: build_id.as_deref(),
    };
    let notes = inspect(&build, &tree, &question, |found| request.answer(&found, &mut output, &mut page))?;
    // Both are complete before one gets its name.
    for complete in [page, output].into_iter().flatten() {
        complete.commit()?;
    }
    // Not before: a failure has no other message than its error.
    notes.iter().for_each(|note| eprintln!("config-spec: {note}"));
    Ok(())
}

/// A question about a build, with everything that was read for the answer.
struct Request<'a> {
    arguments: &'a Arguments,
    plan: Option<&'a Plan>,
    census: Option<&'a Document>,
    release: &'a str,
    build_id: Option<&'a str>,
}

impl Request<'_> {
    /// Writes the answer, and the page for a browser, and returns notes.
    fn answer(
        &self,
        found: &Inspection<'_>,
        output: &mut Option<Output>,
        page: &mut Option<Output>,
    ) -> Result<Vec<String>, Failure> {
        let Request { arguments, .. } = self;
        let Inspection { measure, conf, closures, rows } = found;
        let Facts { tree, definitions, gates, ran, .. } = measure.facts;
        let sizings = self.census.map(|census| values::find(measure.facts, *conf, census)).transpose()?;
        let sizings = sizings.as_deref();
        let has_evidence = ran.is_some() || sizings.is_some();
        let advice = match conf {
            Some(conf) if arguments.advise || (page.is_some() && has_evidence) => {
                let sizings = sizings.unwrap_or_default();
                let joint = joint::judge(measure, conf, rows, sizings, arguments.max_rebuilds)?;
                Some(advise::section(measure, joint, self.release, self.build_id.map(str::to_owned)))
            }
            _ => None,
        };
        let document = || print::document(rows, gates, self.release, !arguments.quick);
        if let Some(page) = page {
            let document = &document();
            let vmlinux = &tree.build.join("vmlinux").display().to_string();
            let advice = advice.as_ref();
            let survey = html::Survey { vmlinux, document, measure, rows, sizings, advice };
            page.write_all(html::page(&survey)?.as_bytes())?;
        }
        let Some(output) = output else { return Ok(left_out(measure, rows)) };
        if let Some(name) = &arguments.explain {
            let name = name.strip_prefix("CONFIG_").unwrap_or(name);
            let explanation = match rows.iter().find(|row| row.name == name) {
                Some(row) => explain::option(row, tree, definitions, gates),
                None => explain::number(name, measure.facts, sizings)
                    .or_else(|| explain::fixed(name, tree, definitions, closures))
                    .ok_or_else(|| unknown(name, definitions))?,
            };
            write!(output, "{explanation}")?;
            return Ok(Vec::new());
        }
        let mut notes = left_out(measure, rows);
        if arguments.advise {
            notes.extend(advice.as_ref().and_then(advise::summary));
            Plan { config: advice, ..self.plan.cloned().unwrap_or_default() }.write(output)?;
        } else if arguments.json {
            print::write(&document(), output)?;
        } else {
            write!(output, "{}", print::table(rows, !arguments.quick))?;
        }
        Ok(notes)
    }
}

/// Returns notes about what the table leaves out.
fn left_out(measure: &Measure<'_>, rows: &[Row]) -> Vec<String> {
    let known = measure.known(rows);
    let share =
        (known.objects.total() + known.parts.total()) as f64 * 100.0 / known.all.total().max(1) as f64;
    let mut notes = vec![format!(
        "note: {share:.1} % of the bytes of all objects are in objects and parts that an option of the table brings"
    )];
    let gates = measure.facts.gates;
    let without = rows.iter().filter(|row| !row.brings_something()).count();
    if without > 0 {
        notes.push(format!(
            "note: {without} more options bring no object and no part of one; --json lists them"
        ));
    }
    if !gates.unplaced.is_empty() {
        notes.push(format!(
            "note: {} of {} objects have no place in the Makefiles, and count for no option; --json lists them",
            gates.unplaced.len(),
            gates.unplaced.len() + gates.placed()
        ));
    }
    notes
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

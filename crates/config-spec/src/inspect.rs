//! Reads a build, and measures its options.

use std::path::Path;

use kcli::{Failure, Progress};
use kelf::{KernelBuild, Program};
use kplan::{Coverage, Plan};

use crate::classes::Ran;
use crate::closure::{self, Closures};
use crate::conf::Conf;
use crate::devices;
use crate::flags::Flags;
use crate::gates::Gates;
use crate::hardware::Hardware;
use crate::kconfig::Definitions;
use crate::kernel::{self, Kernel};
use crate::mentions::Mentions;
use crate::parts::Parts;
use crate::survey::{self, Facts, Measure, Row};
use crate::tree::Tree;

/// What is asked about a build.
#[derive(Default)]
pub struct Question<'a> {
    /// The plan, with its name for messages.
    pub plan: Option<(&'a Plan, &'a str)>,
    /// The build ID of the kernel, which that of the plan's traces has to equal.
    pub build_id: Option<&'a str>,
    /// Whether an incomplete scan is trusted.
    pub assume_complete: bool,
    /// The file with the devices of the target.
    pub hardware: Option<&'a Path>,
    /// Whether Kconfig and source lines are left out.
    pub quick: bool,
}

/// The answers, with the graph in memory.
pub struct Inspection<'a> {
    /// The measured graph.
    pub measure: &'a Measure<'a>,
    /// Kconfig, unless the question is a quick one.
    pub conf: Option<&'a Conf<'a>>,
    /// The options that go with each.
    pub closures: &'a Closures,
    /// The options that can be turned off, those that keep most first.
    pub rows: Vec<Row>,
}

/// Reads a build, and passes its options to `then`.
///
/// # Errors
/// Bad input if the build cannot be read or the plan is of another kernel, and the errors of `then`.
pub fn inspect<T>(
    build: &KernelBuild,
    tree: &Tree,
    question: &Question<'_>,
    then: impl FnOnce(Inspection<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let progress = Progress::spinner("reading");
    let mut hardware = question.hardware.map(|path| Hardware::read(path, &tree.build)).transpose()?;
    let files = kernel::read_objects(build)?;
    let program = Program::link(&files).map_err(Failure::of)?;
    if let Some(hardware) = &mut hardware {
        hardware.add_tables(devices::patterns(&program, &tree.build));
    }
    let definitions = Definitions::read(tree);
    let candidates = survey::candidates(&tree.config, &definitions);
    drop(progress);
    let conf = (!question.quick).then(|| Conf::new(tree)).transpose()?;
    let closures = match &conf {
        None => survey::quick_closures(&candidates),
        Some(conf) => closure::find(conf, &definitions.text, &candidates)?,
    };
    let progress = Progress::spinner("building the graph");
    let plan = question.plan.map(|(plan, _)| plan);
    let kernel = Kernel::lift(build, &program, plan, question.assume_complete)?;
    let coverage = question.plan.and_then(|(plan, name)| Some((plan.coverage.as_ref()?, name)));
    let ran = coverage.map(|(coverage, _)| Ran::of(&kernel.built, coverage));
    if let (Some(ran), Some((coverage, name))) = (&ran, coverage) {
        check_kernel_of_plan(coverage, ran, question.build_id, name)?;
    }
    let gates = Gates::read(&tree.source, &tree.arch, &tree.config, &kernel.objects);
    let flags = Flags::read(&tree.source, &tree.arch);
    let facts = Facts {
        tree,
        flags: &flags,
        definitions: &definitions,
        gates: &gates,
        kernel: &kernel,
        ran: ran.as_ref(),
        hardware: hardware.as_ref(),
    };
    drop(progress);
    let mentions = Mentions::read(&tree.build);
    let parts = (!question.quick).then(|| Parts::read(tree, &kernel.built, &mentions, &gates, &closures));
    let progress = Progress::spinner("measuring options");
    let measure = Measure::new(&facts, &mentions, parts);
    let rows = measure.rows(&closures);
    drop(progress);
    then(Inspection { measure: &measure, conf: conf.as_ref(), closures: &closures, rows })
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

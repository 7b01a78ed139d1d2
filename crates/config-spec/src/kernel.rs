//! Reads a kernel: its objects, and its graphs as it was built and after the passes of a plan.

use std::collections::BTreeSet;

use kcfg::graph::Graph;
use kcfg::lift::Lifter;
use kcfg::parameters;
use kcli::Failure;
use kelf::{Functions, InputFiles, KernelBuild, Program};
use kopt::reach::Reach;
use kopt::{Options, PASSES, PassRef, rounds};
use kplan::Plan;

/// The kernel that options are measured in.
pub struct Kernel<'p> {
    /// Its program.
    pub program: &'p Program<'p>,
    /// The names of its objects: paths in the build directory.
    pub objects: BTreeSet<String>,
    /// The reachable graph of the kernel as it was built.
    pub built: Graph,
    /// The graph after the passes that remove, if there is a plan.
    pub after: Option<Graph>,
}

impl<'p> Kernel<'p> {
    /// Lifts the kernel, and runs the passes that `kshrink-spec` runs with this plan and that remove something.
    ///
    /// # Errors
    /// If the kernel cannot be lifted.
    pub fn lift(
        build: &KernelBuild,
        program: &'p Program<'p>,
        plan: Option<&Plan>,
        assume_complete: bool,
    ) -> Result<Kernel<'p>, Failure> {
        let options = Options { assume_complete, ..Options::default() };
        let lift = |plan: &Plan, passes: &[PassRef]| -> Result<Graph, Failure> {
            let lifter = Lifter::of_kernel(build, program).map_err(Failure::of)?;
            let run = rounds::run(lifter, plan, passes, options, |_| ());
            Ok(run.map_err(Failure::of)?.0)
        };
        let mut built = lift(&Plan::default(), &[&Reach])?;
        parameters::cut(&mut built, "config-spec");
        let after = match plan {
            None => None,
            Some(plan) => {
                let runs = |pass: &PassRef| {
                    pass.removes() && pass.supports(build.machine) && pass.runs_by_default(plan)
                };
                let passes: Vec<PassRef> = PASSES.iter().copied().filter(runs).collect();
                Some(lift(plan, &passes)?)
            }
        };
        let objects = program.objects.iter().map(|input| input.object.name.clone()).collect();
        Ok(Kernel { program, objects, built, after })
    }
}

/// Returns the build ID of a kernel in hexadecimal digits, if it has one.
///
/// # Errors
/// If its vmlinux cannot be read.
pub fn build_id(build: &KernelBuild) -> Result<Option<String>, Failure> {
    Ok(Functions::read(&build.vmlinux).map_err(Failure::of)?.build_id)
}

/// Returns the release of a kernel, such as `6.12.117`; its version if the build does not record the release.
pub fn release(build: &KernelBuild) -> String {
    let recorded = std::fs::read_to_string(build.dir.join("include/config/kernel.release"));
    let version = || build.version.map(|version| version.to_string()).unwrap_or_default();
    recorded.map_or_else(|_| version(), |release| release.trim().to_owned())
}

/// Reads the objects of a kernel's link.
///
/// # Errors
/// If one cannot be read.
pub fn read_objects(build: &KernelBuild) -> Result<InputFiles, Failure> {
    build.check_links_objects().map_err(Failure::of)?;
    InputFiles::of_kernel(build).map_err(Failure::of)
}

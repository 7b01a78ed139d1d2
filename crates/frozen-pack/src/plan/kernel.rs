//! Reading the build of a kernel into a graph.

use std::path::Path;

use kcfg::graph::Graph;
use kcfg::lift::Lifter;
use kcli::Failure;
use kelf::{InputFiles, KernelBuild, Program};
use kopt::freeze::Freeze;
use kopt::{Options, PASSES, PassRef, rounds};
use kplan::{Mechanism, Plan};

use super::supported;

/// Reads the kernel in the build directory of `vmlinux`, runs the passes before `freeze`, and calls `use_it` with the
/// graph and its program.
///
/// # Errors
/// Bad input if there is no kernel build, or if this mechanism does not support it; also the errors of `use_it`.
pub fn with_graph<T>(
    vmlinux: &Path,
    plan: &Plan,
    mechanism: Mechanism,
    use_it: impl FnOnce(&Graph, &Program<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let build = KernelBuild::find(vmlinux).map_err(Failure::of)?;
    build.check_links_objects().map_err(Failure::of)?;
    supported::check(&build, mechanism)?;
    let files = InputFiles::of_kernel(&build).map_err(Failure::of)?;
    let program = Program::link(&files).map_err(Failure::of)?;
    let lifter = Lifter::of_kernel(&build, &program).map_err(Failure::of)?;
    // The passes that `kshrink-spec` runs by default before it freezes.
    let freeze: PassRef = &Freeze;
    let before = PASSES.iter().copied().take_while(|&pass| pass != freeze);
    let passes: Vec<PassRef> = before.filter(|pass| pass.runs_by_default(plan)).collect();
    let (graph, _) = rounds::run(lifter, plan, &passes, Options::default(), |_| ()).map_err(Failure::of)?;
    use_it(&graph, &program)
}

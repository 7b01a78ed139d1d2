//! Reading the build of a kernel into a graph.

use std::path::Path;

use kcfg::graph::Graph;
use kcfg::lift::Lifter;
use kcli::Failure;
use kelf::{InputFiles, KernelBuild, Machine, Program};
use kopt::{Options, Pass, rounds};
use kplan::Plan;

/// Reads the kernel that was built where `vmlinux` lies, runs the passes that come before `freeze`, and calls `use_it`
/// with the graph and the program that it is of.
///
/// # Errors
/// Bad input if there is no build of a kernel, or one whose code cannot be frozen; those of `use_it`.
pub fn with_graph<T>(
    vmlinux: &Path,
    plan: &Plan,
    use_it: impl FnOnce(&Graph, &Program<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let build = KernelBuild::find(vmlinux).map_err(Failure::of)?;
    check(&build, vmlinux)?;
    let files = InputFiles::of_kernel(&build).map_err(Failure::of)?;
    let program = Program::link(&files).map_err(Failure::of)?;
    let lifter = Lifter::of_kernel(&build, &program).map_err(Failure::of)?;
    // What `kshrink-spec` runs before it freezes, where nothing else is said.
    let before = Pass::ALL.iter().copied().take_while(|&pass| pass != Pass::Freeze);
    let passes: Vec<Pass> = before.filter(|pass| pass.runs_by_default(plan)).collect();
    let (graph, _) = rounds::run(lifter, plan, &passes, Options::default(), |_| ()).map_err(Failure::of)?;
    use_it(&graph, &program)
}

/// Refuses kernels in which pages cannot come and go at fixed addresses.
fn check(build: &KernelBuild, vmlinux: &Path) -> Result<(), Failure> {
    let refuse = |problem: String| Err(Failure::bad_input(format!("{}: {problem}", vmlinux.display())));
    if !matches!(build.machine, Machine::I386 | Machine::Arm) {
        return refuse(format!(
            "cannot freeze code of a kernel for {}, only for i386 and arm",
            build.machine
        ));
    }
    if build.links_vmlinux_o() {
        return refuse(
            "this kernel links vmlinux.o, which cannot be taken apart yet; build it without CONFIG_LTO_CLANG and \
             CONFIG_X86_KERNEL_IBT"
                .to_owned(),
        );
    }
    if build.is_enabled("CONFIG_RANDOMIZE_BASE") {
        return refuse(
            "this kernel runs at an address that changes with every boot, and what is frozen lies at fixed addresses; \
             build it without CONFIG_RANDOMIZE_BASE"
                .to_owned(),
        );
    }
    Ok(())
}

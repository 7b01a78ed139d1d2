//! From input files to the bytes of one rewritten object.

use std::path::{Path, PathBuf};

use kcfg::graph::Graph;
use kcfg::lower::{self, Relax};
use kcfg::{lift, roots};
use kcli::Failure;
use kelf::{InputFiles, KernelBuild, Machine, Program};
use kopt::{Options, Pass, PassReport};
use kplan::Plan;

use crate::phases::Phases;

/// What is rewritten.
pub enum Input {
    /// A kernel.
    Kernel {
        /// Its build.
        build: KernelBuild,
        /// The files that its link takes.
        files: InputFiles,
    },
    /// A user program.
    Objects {
        /// Its files.
        files: InputFiles,
        /// The functions that enter it.
        entries: Vec<String>,
    },
}

impl Input {
    /// Finds and reads a kernel.
    pub fn kernel(vmlinux: &Path) -> Result<Input, Failure> {
        let build = KernelBuild::find(vmlinux).map_err(of_elf)?;
        if build.machine != Machine::I386 {
            return Err(Failure::bad_input(format!(
                "{}: cannot rewrite a kernel for {} yet, only for i386; kcfg reads it",
                vmlinux.display(),
                build.machine
            )));
        }
        let files = InputFiles::of_kernel(&build).map_err(of_elf)?;
        Ok(Input::Kernel { build, files })
    }

    /// Reads the objects of a program.
    pub fn objects(paths: &[PathBuf], entries: &[String]) -> Result<Input, Failure> {
        let files = InputFiles::of_objects(paths).map_err(of_elf)?;
        Ok(Input::Objects { files, entries: entries.to_vec() })
    }

    fn files(&self) -> &InputFiles {
        match self {
            Input::Kernel { files, .. } | Input::Objects { files, .. } => files,
        }
    }

    /// Resolves symbols.
    pub fn link(&self) -> Result<Program<'_>, Failure> {
        Program::link(self.files()).map_err(of_elf)
    }

    /// Builds the graph.
    pub fn lift(&self, program: &Program<'_>) -> Result<Graph, Failure> {
        let graph = match self {
            Input::Kernel { build, .. } => roots::lift_kernel(build, program),
            Input::Objects { entries, .. } => roots::lift_objects(program, entries),
        };
        graph.map_err(|error| match error {
            lift::Error::Script { .. } => Failure::job(error),
            _ => Failure::bad_input(error),
        })
    }
}

/// Runs the passes in order.
pub fn run_passes(
    graph: &mut Graph,
    plan: &Plan,
    passes: &[Pass],
    options: Options,
    phases: &mut Phases,
) -> Vec<PassReport> {
    let mut reports = Vec::new();
    for pass in passes {
        phases.next(pass.name());
        reports.push(pass.run(graph, plan, options));
    }
    reports
}

/// Lowers the graph and encodes the object. With no pass, branches stay as assembled, so that every section
/// keeps its size.
pub fn emit(graph: &Graph, passes: &[Pass]) -> Result<Vec<u8>, Failure> {
    let relax = if passes.is_empty() { Relax::AsAssembled } else { Relax::Shortest };
    let object = lower::lower(graph, relax)?;
    object.write().map_err(of_elf)
}

/// Whose fault an error of kelf is.
pub fn of_elf(error: kelf::Error) -> Failure {
    if error.is_bad_input() { Failure::bad_input(error) } else { Failure::job(error) }
}

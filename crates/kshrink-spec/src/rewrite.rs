//! From input files to the bytes of one rewritten object.

use std::path::{Path, PathBuf};

use frozen_pack::plan::supported;
use kcfg::graph::Graph;
use kcfg::lift::Lifter;
use kcfg::lower::{self, Lowered, Relax};
use kcli::Failure;
use kelf::{InputFiles, KernelBuild, Machine, Program};
use kopt::freeze::Freeze;
use kopt::params::Params;
use kopt::{Options, PASSES, PassRef, PassReport, rounds};
use kplan::{Mechanism, Plan};

use crate::freeze::Freezing;
use crate::freeze::runtime::Runtime;
use crate::gates::Gates;
use crate::phases::Phases;
use crate::segments::Packing;
use crate::sizes::Sizes;
use crate::{command_line, orc, segments};

/// The input of a rewrite.
pub enum RewriteInput {
    /// A kernel.
    Kernel {
        /// Its build.
        build: KernelBuild,
        /// The files of its link.
        files: InputFiles,
        /// The way in which parts of it freeze, if any do.
        freezing: Option<Freezing>,
        /// Whether its segments are packed.
        packs_segments: bool,
        /// Whether its tables for unwinding are packed.
        packs_unwind: bool,
    },
    /// A user program.
    Objects {
        /// Its files.
        files: InputFiles,
        /// The functions that enter it.
        entries: Vec<String>,
    },
}

impl RewriteInput {
    /// Finds and reads a kernel, and adds the code that these passes, and packed segments, require.
    pub fn kernel(
        vmlinux: &Path,
        plan: &Plan,
        passes: &[PassRef],
        (pack_segments, pack_unwind): (bool, bool),
        gates: Option<&Gates>,
    ) -> Result<RewriteInput, Failure> {
        let build = KernelBuild::find(vmlinux).map_err(Failure::of)?;
        check_machine(build.machine, &vmlinux.display().to_string())?;
        build.check_links_objects().map_err(Failure::of)?;
        let mut files = InputFiles::of_kernel(&build).map_err(Failure::of)?;
        let runs = |pass: PassRef| passes.contains(&pass) && pass.supports(build.machine);
        if let Some(params) = plan.params.as_ref().filter(|_| runs(&Params)) {
            files = files.with_objects([command_line::check(&build, params.on_mismatch)?]);
        }
        if let Some(gates) = gates {
            files = gates.join(files, &build)?;
        }
        let packing = pack_segments.then(|| Packing::of(&build)).transpose()?;
        let packs_segments = packing.as_ref().is_some_and(|packing| packing.changes);
        for why in packing.iter().flat_map(|packing| &packing.kept) {
            let effect = if packs_segments { "packs less" } else { "changes nothing" };
            eprintln!("kshrink-spec: warning: --pack-segments {effect}: {why}");
        }
        let freezes = runs(&Freeze);
        let has_packing_runtime = packing.is_some_and(|packing| packing.has_runtime);
        if has_packing_runtime {
            let flags: &[&str] = if freezes { &["-DKSHRINK_FREEZES"] } else { &[] };
            files = segments::join(files, &build, flags)?;
        }
        let mut freezing = None;
        if freezes {
            let mechanism = plan.frozen.as_ref().map_or(Mechanism::Page, |frozen| frozen.mechanism);
            supported::check(&build, mechanism)?;
            let flags: &[&str] = if has_packing_runtime { &["-DKSHRINK_PACKS"] } else { &[] };
            let runtime = Runtime::compile(&build, mechanism, flags)?;
            freezing = Some(Freezing { mechanism, place: runtime.place.clone() });
            files = runtime.join(files);
        }
        let obstacle = orc::runtime::obstacle(&build, freezes);
        // Only packed tables have states of frozen code.
        let packs_unwind = (pack_unwind || freezes) && obstacle.is_none();
        if packs_unwind {
            let flags: &[&str] = if freezes { &["-DKSHRINK_FREEZES"] } else { &[] };
            files = orc::runtime::join(files, &build, flags)?;
        } else if let Some(why) = obstacle.filter(|_| pack_unwind) {
            eprintln!("kshrink-spec: warning: --pack-unwind changes nothing: {why}");
        }
        Ok(RewriteInput::Kernel { build, files, freezing, packs_segments, packs_unwind })
    }

    /// Returns the way in which parts of a kernel freeze, if any do.
    pub fn freezing(&self) -> Option<Freezing> {
        match self {
            RewriteInput::Kernel { freezing, .. } => freezing.clone(),
            RewriteInput::Objects { .. } => None,
        }
    }

    /// Whether the segments of a kernel are packed.
    pub fn packs_segments(&self) -> bool {
        matches!(self, RewriteInput::Kernel { packs_segments: true, .. })
    }

    /// Whether the tables for unwinding of a kernel are packed.
    pub fn packs_unwind(&self) -> bool {
        matches!(self, RewriteInput::Kernel { packs_unwind: true, .. })
    }

    /// Reads the objects of a program whose link wraps these symbols (`ld --wrap`).
    pub fn objects(
        paths: &[PathBuf],
        entries: &[String],
        wrapped: &[String],
    ) -> Result<RewriteInput, Failure> {
        let files = InputFiles::of_objects(paths).map_err(Failure::of)?.entered_by(entries);
        let names: Vec<&str> = wrapped.iter().map(String::as_str).collect();
        Ok(RewriteInput::Objects { files: files.wrapping_as_ld(&names), entries: entries.to_vec() })
    }

    fn files(&self) -> &InputFiles {
        match self {
            RewriteInput::Kernel { files, .. } | RewriteInput::Objects { files, .. } => files,
        }
    }

    /// Resolves symbols.
    pub fn link(&self) -> Result<Program<'_>, Failure> {
        let program = Program::link(self.files()).map_err(Failure::of)?;
        check_machine(program.machine, &program.objects[0].object.name)?;
        Ok(program)
    }

    /// Plans how the program is split into blocks and chunks.
    pub fn lifter<'p>(&self, program: &'p Program<'p>) -> Result<Lifter<'p>, Failure> {
        let lifter = match self {
            RewriteInput::Kernel { build, .. } => Lifter::of_kernel(build, program),
            RewriteInput::Objects { entries, .. } => Lifter::of_objects(program, entries),
        };
        lifter.map_err(Failure::of)
    }
}

/// Checks that programs for a machine can be rewritten; `name` is the input's.
fn check_machine(machine: Machine, name: &str) -> Result<(), Failure> {
    if machine.target().is_rewritten {
        return Ok(());
    }
    Err(Failure::bad_input(format!(
        "{name}: cannot rewrite code for {machine} yet, only for i386, x86_64 and 32-bit ARM"
    )))
}

/// Checks that passes support a machine.
pub fn check_passes(machine: Machine, passes: &[PassRef]) -> Result<(), Failure> {
    match passes.iter().find(|pass| !pass.supports(machine)) {
        None => Ok(()),
        Some(pass) => Err(Failure::bad_input(format!(
            "pass {pass} does not support {machine} yet; choose from none, {} with --passes",
            known(machine)
        ))),
    }
}

/// The passes that support a machine, as a list for messages.
fn known(machine: Machine) -> String {
    let names: Vec<&str> =
        PASSES.iter().filter(|pass| pass.supports(machine)).map(|pass| pass.name()).collect();
    names.join(", ")
}

/// A program after the passes.
pub struct Rewritten {
    /// The program.
    pub graph: Graph,
    /// The report of each pass.
    pub passes: Vec<PassReport>,
    /// The sizes of its nodes.
    pub sizes: Sizes,
}

/// Runs the passes, with a phase for every step. `end` is called after every step with its name and the graph.
pub fn run_passes(
    lifter: Lifter<'_>,
    plan: &Plan,
    passes: &[PassRef],
    options: Options,
    phases: &mut Phases,
    mut end: impl FnMut(&'static str, &Graph),
) -> Result<Rewritten, Failure> {
    let mut sizes = Sizes::default();
    let begin = |step| phases.next(step);
    let end = |step, graph: &Graph| {
        sizes.record(step, graph);
        end(step, graph);
    };
    let (graph, passes) =
        rounds::run_observed(lifter, plan, passes, options, begin, end).map_err(Failure::of)?;
    Ok(Rewritten { graph, passes, sizes })
}

/// Lowers the graph. Without passes, branches keep their encoding, so that every section keeps its size.
pub fn lower<'g>(graph: &'g Graph, passes: &[PassRef]) -> Result<Lowered<'g>, Failure> {
    let relax = if passes.is_empty() { Relax::AsAssembled } else { Relax::Shortest };
    Ok(lower::lower(graph, relax)?)
}

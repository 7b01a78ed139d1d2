//! Running several passes, in rounds between which data is cut finer.

use kcfg::graph::{Broken, Graph};
use kcfg::lift::Lifter;
use kcfg::lower;
use kflow::Remembered;
use kplan::Plan;

use crate::{Options, Pass, PassReport, unwinding};

/// Maximum number of rounds. Removing references allows finer cuts of data, and these allow more removals.
const MAX_ROUNDS: usize = 4;

/// The reason why passes cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program cannot be lifted.
    #[error(transparent)]
    Lift(#[from] kcfg::Error),
    /// A defect of kshrink.
    #[error("after {step}, an invariant of the graph is broken: {broken}; please report this")]
    Broken {
        /// The last step: `graph`, or the name of a pass.
        step: &'static str,
        /// The invariant.
        broken: Broken,
    },
    /// A defect of kshrink: cutting the data a second time, without a change in between, had another result.
    #[error(
        "cutting data at its variables again, without a change in between, had another result; please report this"
    )]
    CutTwice,
}

impl kcli::Fault for Error {
    fn is_bad_input(&self) -> bool {
        match self {
            Error::Lift(error) => error.is_bad_input(),
            Error::Broken { .. } | Error::CutTwice => false,
        }
    }
}

/// Runs the passes. First the passes that remove run in rounds, until neither they nor cutting the data again
/// ([`Lifter::refine`]) change anything. Then the other passes run once. Last, literals are moved within reach of their
/// readers ([`lower::bring_near`]). Returns the graph, and a report of each pass over all rounds. `begin` is called
/// before every step with its name: `graph`, a pass, `refine`, `unwinding`, `literals`.
///
/// # Errors
/// The errors of [`Lifter::graph`]. With [`Options::verify`], also the first step after which an invariant is broken,
/// and a second [`Lifter::refine`] that still changes something.
pub fn run(
    lifter: Lifter<'_>,
    plan: &Plan,
    passes: &[Pass],
    options: Options,
    begin: impl FnMut(&'static str),
) -> Result<(Graph, Vec<PassReport>), Error> {
    run_observed(lifter, plan, passes, options, begin, |_, _| ())
}

/// Runs the passes as [`run`] does, and calls `end` after every step with its name and the graph.
///
/// # Errors
/// The errors of [`run`].
pub fn run_observed(
    mut lifter: Lifter<'_>,
    plan: &Plan,
    passes: &[Pass],
    options: Options,
    mut begin: impl FnMut(&'static str),
    mut end: impl FnMut(&'static str, &Graph),
) -> Result<(Graph, Vec<PassReport>), Error> {
    let mut finish = |step, graph: &Graph| {
        end(step, graph);
        match options.verify {
            true => graph.verify().map_err(|broken| Error::Broken { step, broken }),
            false => Ok(()),
        }
    };
    let (removing, finishing): (Vec<Pass>, Vec<Pass>) = passes.iter().partition(|pass| pass.removes());
    begin("graph");
    let mut graph = lifter.graph()?;
    finish("graph", &graph)?;
    let mut reports: Vec<PassReport> = removing.iter().map(|pass| PassReport::new(pass.name())).collect();
    let mut remembered = Remembered::default();
    for round in 1..=MAX_ROUNDS {
        let mut changed = false;
        for (pass, report) in removing.iter().zip(&mut reports) {
            // Skip `fold` in the last round: no later pass would remove the code that it makes dead.
            if *pass == Pass::Fold && round == MAX_ROUNDS {
                continue;
            }
            begin(pass.name());
            let this_round = pass.run(&mut graph, plan, options, &mut remembered);
            changed |= this_round.changed() || *pass == Pass::Fold && this_round.counted();
            report.add(this_round);
            finish(pass.name(), &graph)?;
        }
        begin("refine");
        if removing.is_empty() || round == MAX_ROUNDS {
            break;
        }
        changed |= lifter.refine(&mut graph);
        finish("refine", &graph)?;
        if options.verify && lifter.refine(&mut graph) {
            return Err(Error::CutTwice);
        }
        if !changed {
            break;
        }
    }
    if !passes.is_empty() {
        begin("unwinding");
        unwinding::gather(&mut graph);
        finish("unwinding", &graph)?;
    }
    for pass in &finishing {
        begin(pass.name());
        reports.push(pass.run(&mut graph, plan, options, &mut remembered));
        finish(pass.name(), &graph)?;
    }
    if !passes.is_empty() {
        begin("literals");
        lower::bring_near(&mut graph);
        finish("literals", &graph)?;
    }
    Ok((graph, reports))
}

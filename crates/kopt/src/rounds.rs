//! Running several passes, in rounds between which data is cut finer.

use kcfg::graph::{Broken, Graph};
use kcfg::lift::Lifter;
use kflow::Remembered;
use kplan::Plan;
use tracing::field::{Empty, debug};
use tracing::info_span;

use crate::{Context, INTERNAL, Options, PassRef, PassReport, Phase};

/// The first step, which lifts the program.
const GRAPH: &str = "graph";

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
        /// The last step ([`steps`]).
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

/// Returns the names of the steps that a run with these passes finishes: `graph`, and the passes in the order of their
/// first round.
pub fn steps(passes: &[PassRef]) -> Vec<&'static str> {
    let has_rounds = passes.iter().any(|pass| pass.removes());
    let finished = |pass: &PassRef| has_rounds || pass.facts().phase != Phase::BetweenRounds;
    let scheduled = schedule(passes).into_iter().filter(finished);
    std::iter::once(GRAPH).chain(scheduled.map(|pass| pass.name())).collect()
}

/// The passes of a run, in the order of time. Without selected passes, the code keeps its place.
fn schedule(passes: &[PassRef]) -> Vec<PassRef> {
    let internal = INTERNAL.iter().copied();
    let needed = internal.filter(|pass| !passes.is_empty() || pass.facts().phase == Phase::BetweenRounds);
    let mut scheduled: Vec<PassRef> = passes.iter().copied().chain(needed).collect();
    // The passes that remove keep the order that the user gives.
    scheduled.sort_by_key(|pass| if pass.removes() { Phase::Removes } else { pass.facts().phase });
    scheduled
}

/// Runs the passes. First the passes that remove run in rounds, until neither they nor the passes between two rounds
/// change anything. Then the other passes run once. Returns the graph, and a report of each pass in `passes` over all
/// rounds. `begin` is called with the name of every step before it ([`steps`]), and with that of the pass before which
/// the rounds end.
///
/// # Errors
/// The errors of [`Lifter::graph`]. With [`Options::verify`], also the first step after which an invariant is broken,
/// and a pass between two rounds whose second run still changes something.
pub fn run(
    lifter: Lifter<'_>,
    plan: &Plan,
    passes: &[PassRef],
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
    passes: &[PassRef],
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
    begin(GRAPH);
    let mut graph = info_span!("step", name = GRAPH).in_scope(|| lifter.graph())?;
    finish(GRAPH, &graph)?;
    let mut context = Context { plan, options, remembered: Remembered::default(), lifter };
    let scheduled = schedule(passes);
    let in_rounds = scheduled.partition_point(|pass| pass.facts().phase <= Phase::BetweenRounds);
    let (in_rounds, once) = scheduled.split_at(in_rounds);
    let (removing, between) = in_rounds.split_at(in_rounds.partition_point(|pass| pass.removes()));
    let mut reports: Vec<PassReport> = removing.iter().map(|pass| PassReport::new(pass.name())).collect();
    'rounds: for round in 1..=MAX_ROUNDS {
        let mut changed = false;
        for (pass, report) in removing.iter().zip(&mut reports) {
            // No later pass would remove the code that it makes dead.
            let exposes = pass.facts().phase == Phase::Exposes;
            if exposes && round == MAX_ROUNDS {
                continue;
            }
            begin(pass.name());
            let this_round = step(*pass, Some(round), &mut graph, &mut context);
            changed |= this_round.changed() || exposes && this_round.counted();
            report.add(this_round);
            finish(pass.name(), &graph)?;
        }
        for pass in between {
            begin(pass.name());
            if removing.is_empty() || round == MAX_ROUNDS {
                break 'rounds;
            }
            changed |= step(*pass, Some(round), &mut graph, &mut context).counted();
            finish(pass.name(), &graph)?;
            if options.verify && pass.run(&mut graph, &mut context).counted() {
                return Err(Error::CutTwice);
            }
        }
        if !changed {
            break;
        }
    }
    for pass in once {
        begin(pass.name());
        let report = step(*pass, None, &mut graph, &mut context);
        if pass.facts().phase == Phase::Finishes {
            reports.push(report);
        }
        finish(pass.name(), &graph)?;
    }
    Ok((graph, reports))
}

/// Runs a pass in a span with the figures of its report.
fn step(pass: PassRef, round: Option<usize>, graph: &mut Graph, context: &mut Context<'_>) -> PassReport {
    let name = pass.name();
    let span = info_span!("step", name, round, removed = Empty, redirected = Empty, counts = Empty);
    let report = span.in_scope(|| pass.run(graph, context));
    span.record("removed", debug(&report.removed));
    span.record("redirected", report.redirected);
    span.record("counts", debug(&report.counts));
    report
}

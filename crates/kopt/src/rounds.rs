//! Running several passes, on a graph that becomes finer.

use kcfg::graph::{Broken, Graph};
use kcfg::lift::{self, Lifter};
use kplan::Plan;

use crate::{Options, Pass, PassReport};

/// How often the passes that remove run, because what was removed allows a finer graph.
const MAX_ROUNDS: usize = 4;

/// Why passes cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program is not understood.
    #[error(transparent)]
    Lift(#[from] lift::Error),
    /// A defect of kshrink.
    #[error("after {step}, the graph breaks a rule: {broken}; please report this")]
    Broken {
        /// The last step: `graph`, or the name of a pass.
        step: &'static str,
        /// Which rule.
        broken: Broken,
    },
}

/// Runs the passes: those that remove in their order, and again on the finer graph that their removals allow, until that
/// brings nothing more; then the others in theirs. Returns the graph, and what each pass did in all rounds. `begin` is told the name of
/// every step before it is taken: `graph`, a pass, `refine`.
///
/// # Errors
/// Whatever [`Lifter::graph`] does not understand of the program; with [`Options::verify`], the first step after which
/// the graph is not what it has to be.
pub fn run(
    mut lifter: Lifter<'_>,
    plan: &Plan,
    passes: &[Pass],
    options: Options,
    mut begin: impl FnMut(&'static str),
) -> Result<(Graph, Vec<PassReport>), Error> {
    let verify = |step, graph: &Graph| match options.verify {
        true => graph.verify().map_err(|broken| Error::Broken { step, broken }),
        false => Ok(()),
    };
    let (removing, finishing): (Vec<Pass>, Vec<Pass>) = passes.iter().partition(|pass| pass.removes());
    begin("graph");
    let mut graph = lifter.graph()?;
    verify("graph", &graph)?;
    let mut reports: Vec<PassReport> = removing.iter().map(|pass| PassReport::new(pass.name())).collect();
    for round in 1..=MAX_ROUNDS {
        for (pass, report) in removing.iter().zip(&mut reports) {
            begin(pass.name());
            report.add(pass.run(&mut graph, plan, options));
            verify(pass.name(), &graph)?;
        }
        begin("refine");
        if removing.is_empty() || round == MAX_ROUNDS || !lifter.refine(&mut graph) {
            break;
        }
        verify("refine", &graph)?;
    }
    for pass in &finishing {
        begin(pass.name());
        reports.push(pass.run(&mut graph, plan, options));
        verify(pass.name(), &graph)?;
    }
    Ok((graph, reports))
}

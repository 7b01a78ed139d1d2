//! The interface of passes.

use std::fmt;

use kcfg::graph::Graph;
use kcfg::lift::Lifter;
use kelf::Machine;
use kflow::Remembered;
use kplan::Plan;

use crate::options::Options;
use crate::report::PassReport;

/// A pass: changes a graph as a plan requires.
pub trait Pass: Sync {
    /// Its fixed properties.
    fn facts(&self) -> Facts;

    /// Changes the graph, and reports the changes.
    fn run(&self, graph: &mut Graph, context: &mut Context<'_>) -> PassReport;

    /// See [`Facts::name`].
    fn name(&self) -> &'static str {
        self.facts().name
    }

    /// See [`Facts::summary`].
    fn summary(&self) -> &'static str {
        self.facts().summary
    }

    /// Whether it removes code or data, or references to them.
    fn removes(&self) -> bool {
        matches!(self.facts().phase, Phase::Removes | Phase::Exposes)
    }

    /// Whether it supports code of a machine.
    fn supports(&self, machine: Machine) -> bool {
        !machine.is_64() || self.facts().on_64_bits
    }

    /// Whether it runs by default with this plan.
    fn runs_by_default(&self, plan: &Plan) -> bool {
        match self.facts().runs {
            Runs::Always => true,
            Runs::WithPlan(asked_for) => asked_for(plan),
            Runs::IfNamed => false,
        }
    }
}

/// A pass of the registry.
pub type PassRef = &'static dyn Pass;

/// The fixed properties of a pass.
pub struct Facts {
    /// Its name, in lists of passes, messages and reports.
    pub name: &'static str,
    /// Its effect, in one sentence without a subject and without a full stop.
    pub summary: &'static str,
    /// The part of a run to which it belongs.
    pub phase: Phase,
    /// The condition for it to run by default.
    pub runs: Runs,
    /// Whether it also supports machines with addresses of 64 bits.
    pub on_64_bits: bool,
}

/// A part of a run, in the order of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Every round: the pass removes code or data, or references to them.
    Removes,
    /// Every round except the last: the pass makes code dead, and passes of later rounds remove it. Each of its counts
    /// is a change.
    Exposes,
    /// The time between two rounds. Each of its counts is a change, and a second run must change nothing.
    BetweenRounds,
    /// The end of the rounds.
    AfterRounds,
    /// Once, after the rounds.
    Finishes,
    /// The end of the run.
    Last,
}

/// The condition for a pass to run by default.
pub enum Runs {
    /// It always runs.
    Always,
    /// The plan has a section for it.
    WithPlan(fn(&Plan) -> bool),
    /// The user names it.
    IfNamed,
}

/// The data that passes use besides the graph.
pub struct Context<'p> {
    /// The plan.
    pub plan: &'p Plan,
    /// The options besides the plan.
    pub options: Options,
    /// The findings about functions, for the next round.
    pub remembered: Remembered,
    /// The lifter of the graph.
    pub lifter: Lifter<'p>,
}

impl PartialEq for dyn Pass {
    fn eq(&self, other: &dyn Pass) -> bool {
        self.name() == other.name()
    }
}

impl fmt::Display for dyn Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for dyn Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

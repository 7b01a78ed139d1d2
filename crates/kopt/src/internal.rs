//! Steps of every run that users do not select.

use kcfg::graph::Graph;
use kcfg::lower;

use crate::pass::{Context, Facts, Pass, Phase, Runs};
use crate::report::PassReport;

/// Cuts data at its variables, as far as the live references permit ([`kcfg::lift::Lifter::refine`]).
pub struct Refine;

impl Pass for Refine {
    fn facts(&self) -> Facts {
        Facts {
            name: "refine",
            summary: "cuts data at its variables",
            phase: Phase::BetweenRounds,
            runs: Runs::Always,
            on_64_bits: true,
        }
    }

    fn run(&self, graph: &mut Graph, context: &mut Context<'_>) -> PassReport {
        let mut report = PassReport::new(self.name());
        report.count("graphs cut", u64::from(context.lifter.refine(graph)));
        report
    }
}

/// Brings literals within reach of the instructions that read them ([`lower::bring_near`]).
pub struct Literals;

impl Pass for Literals {
    fn facts(&self) -> Facts {
        Facts {
            name: "literals",
            summary: "brings literals within reach of their readers",
            phase: Phase::Last,
            runs: Runs::Always,
            on_64_bits: true,
        }
    }

    fn run(&self, graph: &mut Graph, _: &mut Context<'_>) -> PassReport {
        lower::bring_near(graph);
        PassReport::new(self.name())
    }
}

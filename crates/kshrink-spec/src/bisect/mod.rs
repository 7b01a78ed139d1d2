/*!
`--bisect`: finds the functions or data whose rewriting makes a test fail.

The program is rewritten repeatedly with some parts unchanged, which is sound for any parts: an unchanged part keeps
everything that it refers to. There are two ways to keep a part:

1. *Alive*: nothing of it is removed. If the test passes with every removal undone in this way, one of the removals
   makes it fail, and the search covers the parts that lose something.
2. *Whole*: it is also kept opaque, in one piece. The search covers all functions and all data that is split, and also
   finds defects of reading and writing (`--passes none`).
*/

mod candidates;

use std::io::Write;

use kcfg::graph::Graph;
use kcli::scratch::ScratchDir;
use kcli::search::{self, Verdict};
use kcli::{Failure, Output, Progress};
use kelf::Program;
use kopt::Options;
use kplan::Plan;

use crate::phases::Phases;
use crate::rewrite::{self, RewriteInput, Rewritten};
use crate::write::Writer;
use candidates::Candidates;

/// A test that fails on a rewritten program.
pub struct Bisection<'a> {
    /// Writes the programs that are tested.
    pub writer: Writer<'a>,
    /// The program.
    pub program: &'a Program<'a>,
    /// The plan of the passes.
    pub plan: &'a Plan,
    /// The options of the passes.
    pub options: Options,
    /// The test, for `sh -c`.
    pub command: String,
    /// Number of runs so far.
    pub trials: usize,
}

/// A program that was tested.
struct Trial {
    verdict: Verdict,
    graph: Graph,
    /// The output of the failure, to be quoted.
    failure: String,
}

impl Bisection<'_> {
    /// Searches, and prints the result.
    pub fn run(mut self) -> Result<(), Failure> {
        let progress = Progress::spinner("bisecting");
        let all = self.trial(&Candidates::default(), &progress)?;
        match all.verdict {
            Verdict::Bad => {}
            Verdict::Good => {
                let message = "the test passes on the rewritten program: there is nothing to find; expected a command \
                     with a nonzero exit status";
                return Err(Failure::bad_input(message));
            }
            Verdict::Untestable => {
                let message = "the test cannot run on the rewritten program (exit status 125); expected a \
                     command that fails on it";
                return Err(Failure::bad_input(message));
            }
        }
        let removed = Candidates::removed(&all.graph);
        if !removed.is_empty() && self.trial(&removed, &progress)?.verdict == Verdict::Good {
            let head = "the test fails because of these removals";
            return self.search(&removed, head, &progress);
        }
        let rewritten = Candidates::rewritten(&self.lifter()?.graph().map_err(Failure::of)?);
        let whole = self.trial(&rewritten, &progress)?;
        if whole.verdict != Verdict::Good {
            return Err(Failure::job(format!(
                "the test fails even if all functions and data are unchanged, so none of them is at fault; \
                 expected it to pass then, as on the original program{}",
                whole.failure
            )));
        }
        self.search(&rewritten, "the test fails because these parts are split and emitted again", &progress)
    }

    fn search(&mut self, candidates: &Candidates, head: &str, progress: &Progress) -> Result<(), Failure> {
        let found = search::smallest_failing(
            candidates.len(),
            |set| candidates.closure(set),
            |changed| Ok::<_, Failure>(self.trial(&candidates.without(changed), progress)?.verdict),
        )?;
        let mut out = Output::stdout();
        let together = if found.len() > 1 { ", all of them together" } else { "" };
        writeln!(out, "{head}{together} ({} trials):", self.trials)?;
        for alternatives in &found {
            if alternatives.len() > 1 {
                writeln!(out, "  one of these, which cannot be tested apart (exit status 125):")?;
            }
            for &candidate in alternatives {
                candidates.describe(candidate, &mut out)?;
            }
        }
        Ok(out.commit()?)
    }

    fn lifter(&self) -> Result<kcfg::lift::Lifter<'_>, Failure> {
        self.writer.input.lifter(self.program)
    }

    /// Rewrites with these parts kept, and tests.
    fn trial(&mut self, kept: &Candidates, progress: &Progress) -> Result<Trial, Failure> {
        self.trials += 1;
        progress.message(format!("trial {}", self.trials));
        let mut phases = Phases::start(Progress::hidden());
        let mut lifter = self.lifter()?;
        lifter.keep(kept.parts(), kept.keep);
        let passes = self.writer.passes;
        let mut rewritten =
            rewrite::run_passes(lifter, self.plan, passes, self.options, &mut phases, |_, _| ())?;
        let (verdict, failure) = self.test(&mut rewritten, phases)?;
        progress.note(format!("trial {}: {} parts kept: {verdict:?}", self.trials, kept.len()));
        Ok(Trial { verdict, graph: rewritten.graph, failure })
    }

    /// Writes a program and runs the test. A program that cannot be linked counts as a failure of the test.
    fn test(&self, rewritten: &mut Rewritten, phases: Phases) -> Result<(Verdict, String), Failure> {
        let dir = ScratchDir::new_in(&std::env::temp_dir(), "kshrink-bisect-")?;
        let written = match self.writer.input {
            RewriteInput::Kernel { .. } => {
                let out = dir.path().join("out");
                self.writer.kernel(rewritten, phases, &out).map(|_| out)
            }
            RewriteInput::Objects { .. } => {
                let object = dir.path().join("kshrink.o");
                self.writer.object(rewritten, phases, &object).map(|_| object)
            }
        };
        match written {
            Ok(path) => search::run_test("--bisect", &self.command, "kshrink-spec", &path),
            Err(failure) => Ok((Verdict::Bad, format!("\n  {}", failure.message()))),
        }
    }
}

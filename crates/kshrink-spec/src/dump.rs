//! `--dump-after`: prints the graph after a step.

use std::io::{self, BufWriter, Write};

use kcfg::graph::Graph;
use kcfg::print::{Printer, Selection, listing};
use kcli::{Failure, OrBadInput};
use kopt::{PassRef, rounds};

/// A step, and the functions to print after it.
pub struct Dump {
    step: &'static str,
    /// The function to print; none prints the whole graph.
    function: Vec<String>,
    /// The number of times that the step has run.
    runs: usize,
    result: Result<(), Failure>,
}

impl Dump {
    /// Parses `PASS[:FUNCTION]` for a run with these passes.
    ///
    /// # Errors
    /// Bad input if the run has no such step.
    pub fn parse(argument: &str, passes: &[PassRef]) -> Result<Dump, Failure> {
        let (name, function) = match argument.split_once(':') {
            Some((name, function)) => (name, vec![function.to_owned()]),
            None => (argument, Vec::new()),
        };
        let steps = rounds::steps(passes);
        match steps.iter().find(|&&step| step == name) {
            Some(step) => Ok(Dump { step, function, runs: 0, result: Ok(()) }),
            None => Err(Failure::bad_input(format!(
                "--dump-after: no step `{name}` runs; expected one of {}",
                steps.join(", ")
            ))),
        }
    }

    /// Prints the graph on standard error if this is the step. Each run of the step prints it again.
    pub fn end(&mut self, step: &'static str, graph: &Graph) {
        if step == self.step && self.result.is_ok() {
            self.runs += 1;
            self.result = self.print(graph);
        }
    }

    /// Returns the result of printing.
    ///
    /// # Errors
    /// Bad input if the graph has no such function; a failed job if standard error cannot be written.
    pub fn finish(self) -> Result<(), Failure> {
        self.result
    }

    fn print(&self, graph: &Graph) -> Result<(), Failure> {
        let printer = Printer::new(graph);
        let selection = match self.function.as_slice() {
            [] => Selection::All,
            names => printer.select(names).or_bad_input()?,
        };
        let mut out = BufWriter::new(io::stderr().lock());
        writeln!(out, "=== after {}, run {}", self.step, self.runs)?;
        listing::write(&printer, &selection, &mut out)?;
        Ok(out.flush()?)
    }
}

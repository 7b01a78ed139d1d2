//! Summarises the functions of a program, callees first.

use std::collections::BTreeSet;
use std::sync::Arc;

use rayon::prelude::*;
use rustc_hash::FxHashSet;

use super::call::{Results, Summary};
use super::function;
use super::known::{Found, Summaries};
use super::levels::{Level, callees_first, calls, levels};
use super::touched::Touched;
use crate::BlockIndex;
use crate::constants::{Asked, ConstantMemory};
use crate::fingerprint::Fingerprint;
use crate::machine::{Convention, Machine};
use crate::program::{FunctionCfg, FunctionIndex, Program, bit};
use crate::remembered::{self, Remembered};

/// A result about a function with this fingerprint. `asked` holds the memory that it depends on, unless it is
/// remembered.
struct Find {
    fingerprint: Fingerprint,
    found: Arc<Found>,
    asked: Option<Asked>,
}

impl Summaries {
    /// Summarises the functions of a program.
    pub fn of(program: &impl Program, machine: Machine, memory: ConstantMemory) -> Summaries {
        Summaries::of_changed(program, machine, memory, &mut Remembered::default())
    }

    /// Summarises the functions of a program that has changed since the analysis that filled `remembered`, and replaces
    /// its results.
    ///
    /// A function that changes a register of its caller, against the convention, without saving it anywhere uses it as
    /// a global variable (`register unsigned counter asm("ebx")`). No function is then assumed to preserve that
    /// register.
    pub fn of_changed(
        program: &impl Program,
        machine: Machine,
        memory: ConstantMemory,
        remembered: &mut Remembered,
    ) -> Summaries {
        let summaries = Summaries::by_convention(program, machine, Arc::new(memory), remembered);
        let found = summaries.found.iter().flatten();
        let summaries = match (machine.convention, found.fold(0, |all, found| all | found.takes)) {
            (None, _) | (_, 0) => summaries,
            (Some(convention), taken) => {
                let convention = Convention {
                    changed: convention.changed | taken,
                    returned: convention.returned | taken,
                    ..convention
                };
                let machine = Machine { convention: Some(convention), ..machine };
                Summaries::by_convention(program, machine, summaries.memory, remembered)
            }
        };
        // The next analysis begins with the first convention again.
        remembered.finish();
        summaries
    }

    /// Summarises the functions of a program whose convention is final.
    fn by_convention(
        program: &impl Program,
        machine: Machine,
        memory: Arc<ConstantMemory>,
        remembered: &mut Remembered,
    ) -> Summaries {
        let count = program.functions();
        let (callers, callees) = calls(program);
        let blocks = || (0..program.blocks()).into_par_iter().map(BlockIndex::from);
        let mut summaries = Summaries {
            functions: vec![Summary::NOTHING; count],
            results: vec![None; count],
            found: vec![None; count],
            elsewhere: vec![false; count],
            machine,
            memory,
            always_live: bit(machine.stack_pointer),
            touched: blocks().map(|block| Touched::by(program, block)).collect(),
        };
        let fingerprints: Vec<Fingerprint> =
            blocks().map(|block| remembered::of_block(program, block)).collect();
        let order = callees_first(&callees);
        for Level { alone, circles } in levels((&callers, &callees), &order) {
            let find = |&function| summaries.find(program, function, &fingerprints, remembered);
            let finds: Vec<Find> = alone.par_iter().map(find).collect();
            for (function, find) in alone.into_iter().zip(finds) {
                summaries.learn(function, find, remembered);
            }
            for circle in circles {
                let is_own: FxHashSet<FunctionIndex> = circle.iter().copied().collect();
                let turn = |function: FunctionIndex| (order[function.get()], function);
                let mut pending: BTreeSet<(usize, FunctionIndex)> = circle.into_iter().map(turn).collect();
                while let Some((_, function)) = pending.pop_first() {
                    if summaries.is_lost(function) {
                        // It may no longer be true, and no other fact about it can change.
                        summaries.found[function.get()] = None;
                        continue;
                    }
                    let find = summaries.find(program, function, &fingerprints, remembered);
                    if summaries.learn(function, find, remembered) {
                        let callers = callers[function.get()].iter().copied();
                        pending.extend(callers.filter(|caller| is_own.contains(caller)).map(turn));
                    }
                }
            }
        }
        summaries
    }

    /// Returns the result about a function, given the facts about its callees.
    fn find(
        &self,
        program: &impl Program,
        function: FunctionIndex,
        blocks: &[Fingerprint],
        remembered: &Remembered,
    ) -> Find {
        let cfg = FunctionCfg::of(program, function);
        let fingerprint = remembered::of_function(program, self, function, &cfg, blocks);
        if let Some(found) = remembered.get(fingerprint, &self.memory) {
            return Find { fingerprint, found, asked: None };
        }
        let (found, asked) = function::summarise(program, self, function, &cfg);
        Find { fingerprint, found: Arc::new(found), asked: Some(asked) }
    }

    /// Records a result about a function. Returns whether this changes the facts for its callers.
    fn learn(&mut self, function: FunctionIndex, find: Find, remembered: &mut Remembered) -> bool {
        let Find { fingerprint, found, asked } = find;
        remembered.keep(fingerprint, asked, &found);
        let known = self.functions[function.get()];
        let (summary, results) = (known.join(found.summary), self.joined_results(function, &found.results));
        self.elsewhere[function.get()] |= found.returns_elsewhere;
        self.found[function.get()] = Some(found);
        let changes = summary != known || results != self.results[function.get()];
        self.functions[function.get()] = summary;
        self.results[function.get()] = results;
        changes
    }

    /// Whether the only known fact about a function is that it follows the convention.
    fn is_lost(&self, function: FunctionIndex) -> bool {
        self.functions[function.get()] == self.conventional()
            && self.results[function.get()] == Some(Results::default())
    }

    fn joined_results(&self, function: FunctionIndex, found: &Option<Results>) -> Option<Results> {
        match (self.results[function.get()].clone(), found) {
            (Some(mut known), Some(found)) => {
                known.join(found);
                Some(known)
            }
            (known, found) => known.or_else(|| found.clone()),
        }
    }
}

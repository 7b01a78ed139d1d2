/*!
Conditional constant propagation over a whole program.

An argument of a function, in a register or a word on the stack, is known if all callers are known. Callers come before
their callees, so each function is analysed once, with its arguments; in a cycle of calls, nothing is known of the
arguments. The results of functions come from their summaries ([`Summaries`]), and the content of memory that nothing
writes from [`crate::constants`]. An edge that values rule out is not followed, so the code after it passes no
arguments.
*/

use std::borrow::Cow;
use std::rc::Rc;

use kisa::Reg;
use rayon::prelude::*;
use rustc_hash::FxHashMap;

use crate::Summaries;
use crate::facts::{Entry, Facts, Reached};
use crate::program::{Callee, FunctionCfg, FunctionIndex, Program};
use crate::summary::{callees_first, calls};
use crate::walk::Walk;

/// The value that a function's first code compares with one number after another, before the rest of it runs. Where
/// these paths join, the value is one of those numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    /// Memory that this register points to at every entry of the function, and that only the function and its callees
    /// write while it runs.
    Memory(Reg),
    /// The arguments in registers and on the stack.
    Passed,
}

/// Facts about functions beyond the content of the program.
pub type Guards = FxHashMap<FunctionIndex, Guard>;

/// Propagates constants through a program, and calls `f` with the facts about each block that is reached. Omits blocks
/// of functions that cannot be analysed.
pub fn propagate<P: Program>(
    program: &P,
    summaries: &Summaries,
    guards: &Guards,
    mut f: impl FnMut(Reached),
) {
    let (_, callees) = calls(program);
    let order = callees_first(&callees);
    let mut entries: Vec<Option<Entry>> = vec![None; program.functions()];
    for function in (0..program.functions()).map(FunctionIndex::from) {
        let is_open = program.has_unknown_callers(function) || program.has_other_entries(function);
        if is_open {
            entries[function.get()] = Some(Entry::any());
        }
        // A callee that does not follow its caller in the order, because of a cycle of calls.
        for &callee in
            callees[function.get()].iter().filter(|callee| order[callee.get()] >= order[function.get()])
        {
            entries[callee.get()] = Some(Entry::any());
        }
    }
    for level in callers_first(&callees, &order) {
        let facts = |&function: &FunctionIndex| {
            let entry = entries[function.get()].as_ref()?;
            let guard = guards.get(&function).copied();
            let known = summaries.facts(function).filter(|_| guard.is_none() && entry.is_any());
            let followed = || follow(program, summaries, function, (entry, guard));
            Some(known.map(Cow::Borrowed).or_else(|| followed().map(Cow::Owned)))
        };
        let all: Vec<Option<Option<Cow<'_, Facts>>>> = level.par_iter().map(facts).collect();
        for (function, facts) in level.into_iter().zip(all) {
            let Some(facts) = facts else { continue };
            let blocks = program.blocks_of(function);
            match facts {
                Some(facts) => {
                    for (block, place, entry) in &facts.passed {
                        let way = program.ways(blocks[block.get()])[*place];
                        if let Some(Callee::Function(callee)) = way.callee {
                            pass(&mut entries, callee, entry);
                        }
                    }
                    for reached in &facts.reached {
                        f(Reached { block: blocks[reached.block.get()], ..reached.clone() });
                    }
                }
                None => {
                    let ways = blocks.iter().flat_map(|&block| program.ways(block));
                    for callee in ways.filter_map(|way| way.callee) {
                        if let Callee::Function(callee) = callee {
                            pass(&mut entries, callee, &Entry::any());
                        }
                    }
                }
            }
        }
    }
}

/// Groups functions into levels: each follows its callers. In a cycle of calls, the order of callers first decides.
/// Functions of one level pass each other no arguments that are still to be found.
fn callers_first(callees: &[Vec<FunctionIndex>], order: &[usize]) -> Vec<Vec<FunctionIndex>> {
    let mut functions: Vec<FunctionIndex> = (0..order.len()).map(FunctionIndex::from).collect();
    functions.sort_by_key(|function| std::cmp::Reverse(order[function.get()]));
    let mut level_of = vec![0; order.len()];
    let mut levels: Vec<Vec<FunctionIndex>> = Vec::new();
    for function in functions {
        let level = level_of[function.get()];
        if levels.len() <= level {
            levels.resize_with(level + 1, Vec::new);
        }
        levels[level].push(function);
        let later =
            callees[function.get()].iter().filter(|callee| order[callee.get()] < order[function.get()]);
        later.for_each(|callee| level_of[callee.get()] = level_of[callee.get()].max(level + 1));
    }
    levels
}

/// Adds the arguments of a call to those of the function.
fn pass(entries: &mut [Option<Entry>], callee: FunctionIndex, passed: &Entry) {
    match &mut entries[callee.get()] {
        Some(known) => known.join(passed),
        unknown => *unknown = Some(passed.clone()),
    }
}

/// Analyses a function with these arguments and this guard. Returns `None` if it cannot be analysed.
fn follow<P: Program>(
    program: &P,
    summaries: &Summaries,
    function: FunctionIndex,
    (entry, guard): (&Entry, Option<Guard>),
) -> Option<Facts> {
    let cfg = FunctionCfg::of(program, function);
    if !summaries.can_follow(program, function, &cfg) {
        return None;
    }
    let mut walk = Walk::new(program, summaries, &cfg);
    match guard {
        Some(Guard::Memory(reg)) => walk.names.keep_private(reg),
        Some(Guard::Passed) => walk.names.settle_passed(),
        None => {}
    }
    let mut begin = walk.enter();
    for (reg, set) in &entry.registers {
        let value = set.value(&mut walk.names);
        begin.set_register(*reg, value);
    }
    for (number, set) in entry.stack.iter().enumerate().filter(|(_, set)| !set.is_any()) {
        let value = set.value(&mut walk.names);
        begin.set_stack_word(summaries.machine.passed_word(number), value, &mut walk.names);
    }
    let states = walk.solve(begin)?;
    let mut facts = Facts::default();
    for (index, state) in states.into_iter().enumerate() {
        if let Some(state) = state {
            walk.record(index.into(), Rc::unwrap_or_clone(state), &mut facts, |_, _, _| {});
        }
    }
    Some(facts)
}

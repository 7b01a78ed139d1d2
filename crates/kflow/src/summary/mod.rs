/*!
Summaries of functions: the effect of a call on the caller's registers, derived from the function's code.

A calling convention is no proof that a function preserves a register. Values are therefore followed from the
function's entry to each of its returns ([`crate::values`]): there the register must hold its value on entry, untouched
or restored from the frame. The summary is unknown if the function returns to a place other than its return address,
pops the wrong number of stack arguments, or contains unsupported code. Callees come first; a cycle of functions that
call one another is summarised together: each is assumed to touch nothing until its code shows otherwise, and its
callers are then analysed again.

With a [`Convention`], some functions are assumed to follow it: those called by address, and compiled but unsupported
ones. Compiled callers assume the same.
*/

mod function;
mod levels;
mod touched;
mod uses;

use std::collections::BTreeSet;
use std::sync::Arc;

use kisa::{Address, Reg};
use rayon::prelude::*;
use rustc_hash::FxHashSet;

use crate::BlockIndex;
use crate::constants::{Asked, ConstantMemory, ConstantSet};
use crate::facts::Facts;
use crate::program::{Callee, EVERYTHING, FLAGS, FunctionCfg, FunctionIndex, Program, Then, Way, bit};
use crate::remembered::{self, Fingerprint, Remembered};
use crate::values::{Names, State};

pub(crate) use function::Found;
use levels::Level;
pub(crate) use touched::Touched;

/// The effect of a call of a function. Sets of registers are bits by [`Reg`], and [`FLAGS`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Summary {
    /// The registers whose contents it may use. To save and restore a register is not a use.
    pub reads: u64,
    /// The registers that it may change.
    pub changes: u64,
    /// The registers that it overwrites completely on every path to a return.
    pub overwrites: u64,
    /// Whether it may write to the frame of its caller: to the arguments on the stack, or the return address.
    pub writes_frame: bool,
    /// Number of bytes that it may read of its arguments on the stack; [`Summary::WHOLE_STACK`] if unknown.
    pub reads_stack: u32,
}

impl Summary {
    /// See [`Summary::reads_stack`].
    pub const WHOLE_STACK: u32 = u32::MAX;

    /// The summary of an unknown function.
    pub const UNKNOWN: Summary = Summary {
        reads: EVERYTHING,
        changes: EVERYTHING,
        overwrites: 0,
        writes_frame: true,
        reads_stack: Summary::WHOLE_STACK,
    };

    /// Returns the summary of a function that follows a convention and uses these registers.
    fn by(convention: Convention, reads: u64) -> Summary {
        Summary { reads, changes: convention.changed | FLAGS, ..Summary::UNKNOWN }
    }

    /// The initial assumption.
    const NOTHING: Summary =
        Summary { reads: 0, changes: 0, overwrites: EVERYTHING, writes_frame: false, reads_stack: 0 };

    fn join(self, other: Summary) -> Summary {
        Summary {
            reads: self.reads | other.reads,
            changes: self.changes | other.changes,
            overwrites: self.overwrites & other.overwrites,
            writes_frame: self.writes_frame || other.writes_frame,
            reads_stack: self.reads_stack.max(other.reads_stack),
        }
    }
}

/// The properties of the machine that matter for calls.
#[derive(Clone, Copy, Hash, Debug)]
pub struct Machine {
    /// Bytes of a word.
    pub word: u8,
    /// The number of registers.
    pub registers: usize,
    /// The stack pointer.
    pub stack_pointer: Reg,
    /// The register that a call leaves the return address in; `None` if it pushes it.
    pub link: Option<Reg>,
    /// The convention of functions without other facts; `None` if there is none.
    pub convention: Option<Convention>,
}

/// A calling convention.
#[derive(Clone, Copy, Hash, Debug)]
pub struct Convention {
    /// The registers that a function may change, as bits, including the registers of arguments. It restores the others,
    /// and does not write to the words in which its callers saved theirs.
    pub changed: u64,
    /// The registers of a result that takes up to two, the low half first.
    pub results: [Reg; 2],
    /// All registers that may hold a result, as bits.
    pub returned: u64,
}

impl Machine {
    /// Creates the names for the analysis of one function.
    pub(crate) fn names(&self, memory: &Arc<ConstantMemory>) -> Names {
        let mut names = Names::new(self.word, self.registers, self.stack_pointer);
        names.share_memory(Arc::clone(memory));
        let link = self.link.map_or(0, bit);
        if let Some(convention) = self.convention {
            names.keep_saved(!convention.changed | link);
        }
        if let Some(link) = self.link {
            names.return_by(link);
        }
        names
    }

    /// Returns the offset of a stack argument from the stack pointer on entry to the function, in bytes, by its number
    /// from 0.
    pub(crate) fn passed_word(&self, number: usize) -> u64 {
        let pushed = usize::from(self.link.is_none());
        (number + pushed) as u64 * u64::from(self.word)
    }
}

/// The values that a function returns in the result registers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Results([ConstantSet; 2]);

impl Results {
    fn in_state(state: &State, machine: Machine, names: &Names) -> Results {
        let value = |reg: Reg| ConstantSet::of_value(state.register(reg), names);
        machine.convention.map_or(Results::default(), |convention| Results(convention.results.map(value)))
    }

    fn join(&mut self, other: &Results) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| mine.join(theirs));
    }
}

/// A result about a function with this fingerprint. `asked` holds the memory that it depends on, unless it is
/// remembered.
struct Find {
    fingerprint: Fingerprint,
    found: Arc<Found>,
    asked: Option<Asked>,
}

/// The summaries of all functions of a program.
pub struct Summaries {
    functions: Vec<Summary>,
    /// `None` for a function that does not return.
    results: Vec<Option<Results>>,
    /// The last result about each function.
    found: Vec<Option<Arc<Found>>>,
    /// For each function, whether it may return to another place than its caller.
    elsewhere: Vec<bool>,
    pub(crate) machine: Machine,
    pub(crate) memory: Arc<ConstantMemory>,
    /// The registers that are live everywhere: interrupts and signals use the stack.
    pub(crate) always_live: u64,
    /// For each block of the program.
    pub(crate) touched: Vec<Touched>,
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
        for Level { alone, circles } in levels::levels((&callers, &callees), &order) {
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

    /// Returns the summary of a function that is called by its address, or cannot be analysed. Inline `asm` also makes
    /// such calls, and such functions, with arguments in any registers.
    fn conventional(&self) -> Summary {
        let by = |convention| Summary::by(convention, EVERYTHING & !FLAGS);
        self.machine.convention.map_or(Summary::UNKNOWN, by)
    }

    /// Returns the summary of a call.
    pub fn get(&self, callee: Callee) -> Summary {
        match callee {
            Callee::Function(function) => self.functions[function.get()],
            Callee::Conventional => self.conventional(),
            Callee::HandWritten => {
                Summary { changes: EVERYTHING & !bit(self.machine.stack_pointer), ..Summary::UNKNOWN }
            }
            Callee::Unknown => Summary::UNKNOWN,
        }
    }

    /// Whether the behaviour of a function is known from its code.
    pub fn is_known(&self, function: FunctionIndex) -> bool {
        let summary = self.functions[function.get()];
        summary != Summary::UNKNOWN && summary != self.conventional()
    }

    /// Whether nobody writes to these bytes of memory, according to their address alone.
    pub fn is_constant(&self, address: &Address, width: u8) -> bool {
        let symbol = address.symbol.filter(|_| address.registers() == 0 && address.segment.is_none());
        symbol.is_some_and(|symbol| self.memory.read(symbol, address.displacement, width).is_some())
    }

    /// Whether a function may return to its caller.
    pub fn returns(&self, callee: Callee) -> bool {
        match callee {
            Callee::Function(function) => self.results[function.get()].is_some(),
            Callee::Conventional | Callee::HandWritten | Callee::Unknown => true,
        }
    }

    /// Whether a function may return to another place than its caller.
    pub(crate) fn returns_elsewhere(&self, function: FunctionIndex) -> bool {
        self.elsewhere[function.get()]
    }

    /// Returns the facts about a function that hold for every caller.
    pub(crate) fn facts(&self, function: FunctionIndex) -> Option<&Facts> {
        self.found[function.get()].as_ref()?.facts.as_ref()
    }

    /// Returns the registers in which a call leaves known results, with these.
    pub(crate) fn results(&self, callee: Callee) -> impl Iterator<Item = (Reg, &ConstantSet)> {
        let results = match callee {
            Callee::Function(function) => self.results[function.get()].as_ref(),
            Callee::Conventional | Callee::HandWritten | Callee::Unknown => None,
        };
        let registers = self.machine.convention.map(|convention| convention.results);
        let pairs = registers.zip(results).into_iter();
        pairs
            .flat_map(|(registers, results)| registers.into_iter().zip(&results.0))
            .filter(|(_, set)| !set.is_any())
    }

    /// Whether a function can be analysed completely: it is entered only at its start, and every jump and call leaves
    /// the stack pointer known.
    pub fn can_follow(&self, program: &impl Program, function: FunctionIndex, cfg: &FunctionCfg) -> bool {
        let loses = |way: &Way| {
            let is_unknown = |callee| self.get(callee) == Summary::UNKNOWN && way.then != Then::Nowhere;
            way.then == Then::Anywhere || way.callee.is_some_and(is_unknown)
        };
        !program.has_other_entries(function)
            && !cfg.ways.iter().copied().flatten().any(loses)
            && !cfg.blocks.iter().any(|&block| program.may_leave_early(block))
    }

    /// Returns the registers that are live for unknown callers, at the returns of a function that is entered only at
    /// its start.
    pub(crate) fn live_at_return(&self) -> u64 {
        match self.machine.convention {
            Some(Convention { changed, returned, .. }) => !(changed | FLAGS) | returned,
            None => EVERYTHING,
        }
    }

    /// Returns the registers that are live before an edge, given those that are live at its target, in the block or the
    /// caller.
    pub(crate) fn live_before(&self, way: &Way, live: u64) -> u64 {
        match way.callee.map(|callee| self.get(callee)) {
            Some(summary) => live & !summary.overwrites | summary.reads,
            None => live,
        }
    }
}

/// Returns the callers and the callees of each function.
pub(crate) fn calls(program: &impl Program) -> (Vec<Vec<FunctionIndex>>, Vec<Vec<FunctionIndex>>) {
    let count = program.functions();
    let (mut callers, mut callees) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    for function in (0..count).map(FunctionIndex::from) {
        for &block in program.blocks_of(function) {
            for way in program.ways(block) {
                if let Some(Callee::Function(callee)) = way.callee {
                    callers[callee.get()].push(function);
                    callees[function.get()].push(callee);
                }
            }
        }
    }
    (callers, callees)
}

/// Returns the position of each function in an order of callees before callers, except in recursion.
pub(crate) fn callees_first(callees: &[Vec<FunctionIndex>]) -> Vec<usize> {
    let mut order = vec![usize::MAX; callees.len()];
    let mut is_seen = vec![false; callees.len()];
    let mut count = 0;
    for first in (0..callees.len()).map(FunctionIndex::from) {
        let mut open = vec![(first, 0)];
        while let Some((function, next)) = open.last_mut() {
            let is_new = *next > 0 || !std::mem::replace(&mut is_seen[function.get()], true);
            match callees[function.get()].get(*next).filter(|_| is_new) {
                Some(&callee) => {
                    *next += 1;
                    if !is_seen[callee.get()] {
                        open.push((callee, 0));
                    }
                }
                None => {
                    if is_new {
                        order[function.get()] = count;
                        count += 1;
                    }
                    open.pop();
                }
            }
        }
    }
    order
}

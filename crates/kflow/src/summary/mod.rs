/*!
What a call of a function does to the registers of its caller, by the code of the function.

A calling convention is no proof that a function preserves a register. Values are followed from its entry to each of
its returns ([`crate::values`]), where the register has to hold its value on entry, untouched or restored from the
frame. Of a function that returns in another way than to where its caller's stack pointer says, or with other arguments
on the stack than it was given, nothing is known. Nothing is known of what is not understood. Callees come first;
functions that call one another in a circle are summarised together: it is assumed of each that it touches nothing,
until its code says otherwise, and then whoever calls it is looked at again.

With a [`Convention`], some of it is believed: that who is called by its address, or is compiled and not understood, keeps
to it. Compiled callers do not work otherwise.
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

/// What a call of a function does. Sets of registers are bits by [`Reg`], and [`FLAGS`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Summary {
    /// The registers whose contents it may make use of. To save and restore one is no use.
    pub reads: u64,
    /// The registers that it may leave with other contents.
    pub changes: u64,
    /// The registers of which it leaves nothing as it was, whatever way it returns.
    pub overwrites: u64,
    /// Whether it may write to the frame of its caller: to the arguments on the stack, or the return address.
    pub writes_frame: bool,
    /// How many bytes it may read of what it is passed on the stack; [`Summary::WHOLE_STACK`] if that is not known.
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

    /// The summary of a function that keeps to a convention and uses these registers.
    fn by(convention: Convention, reads: u64) -> Summary {
        Summary { reads, changes: convention.changed | FLAGS, ..Summary::UNKNOWN }
    }

    /// What is assumed first.
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

/// The machine, as far as it matters for calls.
#[derive(Clone, Copy, Hash, Debug)]
pub struct Machine {
    /// Bytes of a word.
    pub word: u8,
    /// How many registers there are.
    pub registers: usize,
    /// The stack pointer.
    pub stack_pointer: Reg,
    /// The register that a call leaves the return address in; `None` if it pushes it.
    pub link: Option<Reg>,
    /// The convention of functions about which nothing else is known; `None` if there is none.
    pub convention: Option<Convention>,
}

/// A calling convention.
#[derive(Clone, Copy, Hash, Debug)]
pub struct Convention {
    /// The registers that a function may change, as bits; those that arguments are in are among them. It gives the others
    /// back as they were, and does not write to where its callers have saved theirs.
    pub changed: u64,
    /// The registers that a result is in that takes up to two, the low half first.
    pub results: [Reg; 2],
    /// All registers that a result may be in, as bits.
    pub returned: u64,
}

impl Machine {
    /// The names of an analysis of one function.
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

    /// How many bytes behind where the stack pointer points when a function is entered a word is that it is passed there,
    /// by its number from 0.
    pub(crate) fn passed_word(&self, number: usize) -> u64 {
        let pushed = usize::from(self.link.is_none());
        (number + pushed) as u64 * u64::from(self.word)
    }
}

/// What a function returns in the registers for results.
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

/// What is found out about a function with this fingerprint; `asked` says what that rests on, unless it is remembered.
struct Find {
    fingerprint: Fingerprint,
    found: Arc<Found>,
    asked: Option<Asked>,
}

/// The summaries of all functions of a program.
pub struct Summaries {
    functions: Vec<Summary>,
    /// `None` of a function that does not return.
    results: Vec<Option<Results>>,
    /// What was found of a function last.
    found: Vec<Option<Arc<Found>>>,
    /// By function, whether it may return to another place than its caller.
    elsewhere: Vec<bool>,
    pub(crate) machine: Machine,
    pub(crate) memory: Arc<ConstantMemory>,
    /// What matters everywhere: interrupts and signals use the stack.
    pub(crate) always_live: u64,
    /// By block of the program.
    pub(crate) touched: Vec<Touched>,
}

impl Summaries {
    /// Finds what calls of the functions of a program do.
    pub fn of(program: &impl Program, machine: Machine, memory: ConstantMemory) -> Summaries {
        Summaries::of_changed(program, machine, memory, &mut Remembered::default())
    }

    /// The same of what a program has become of which something was found out before. What is found out now is remembered
    /// in its place.
    ///
    /// A function that changes a register of its caller, against the convention, without saving it anywhere has it for a
    /// global variable (`register unsigned counter asm("ebx")`). No function is believed to preserve it then.
    pub fn of_changed(
        program: &impl Program,
        machine: Machine,
        memory: ConstantMemory,
        remembered: &mut Remembered,
    ) -> Summaries {
        let summaries = Summaries::by_convention(program, machine, Arc::new(memory), remembered);
        let found = summaries.found.iter().flatten();
        match (machine.convention, found.fold(0, |all, found| all | found.takes)) {
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
        }
    }

    /// Finds the same for a machine whose convention is believed.
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
                        // It may not be true any more, and nothing else can change.
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
        remembered.finish();
        summaries
    }

    /// What is found out about a function, given what is known of those that it calls.
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

    /// Takes note of what was found out about a function. Returns whether that changes what is known to its callers.
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

    /// Whether nothing is known of a function but that it keeps to the convention.
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

    /// That of a function that is called by its address, or cannot be followed. `asm` also makes such calls, and such functions,
    /// with arguments in any registers.
    fn conventional(&self) -> Summary {
        let by = |convention| Summary::by(convention, EVERYTHING & !FLAGS);
        self.machine.convention.map_or(Summary::UNKNOWN, by)
    }

    /// What a call does.
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

    /// Whether it is known what a function does, by its code.
    pub fn is_known(&self, function: FunctionIndex) -> bool {
        let summary = self.functions[function.get()];
        summary != Summary::UNKNOWN && summary != self.conventional()
    }

    /// Whether nobody writes to these bytes of memory, as their address alone tells.
    pub fn is_constant(&self, address: &Address, width: u8) -> bool {
        let symbol = address.symbol.filter(|_| address.registers() == 0 && address.segment.is_none());
        symbol.is_some_and(|symbol| self.memory.read(symbol, address.displacement, width).is_some())
    }

    /// Whether a function may come back to its caller.
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

    /// What is known of a function whoever calls it.
    pub(crate) fn facts(&self, function: FunctionIndex) -> Option<&Facts> {
        self.found[function.get()].as_ref()?.facts.as_ref()
    }

    /// The registers that a call leaves results in which are known, with these.
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

    /// Whether a function can be followed completely: it is entered only at its start, and every jump and call leaves
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

    /// The registers that matter to callers that are not known, where a function returns that is entered at its
    /// beginning only.
    pub(crate) fn live_at_return(&self) -> u64 {
        match self.machine.convention {
            Some(Convention { changed, returned, .. }) => !(changed | FLAGS) | returned,
            None => EVERYTHING,
        }
    }

    /// The registers that matter in front of a way, given those that do behind it, in the block or the caller that it
    /// leads to.
    pub(crate) fn live_before(&self, way: &Way, live: u64) -> u64 {
        match way.callee.map(|callee| self.get(callee)) {
            Some(summary) => live & !summary.overwrites | summary.reads,
            None => live,
        }
    }
}

/// By function, those that call it, and those that it calls.
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

/// The place of each function in an order in which callees come before their callers, recursion aside.
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

/*!
What a call of a function does to the registers of its caller, by the code of the function.

That a function gives a register back as it found it is not believed of a calling convention, but shown: values are
followed from its entry to each of its returns ([`crate::values`]), and the register has to hold there what it held on
entry, be it untouched or restored from the frame. Of a function that returns in another way than to where its
caller's stack pointer says, or with other arguments on the stack than it was given, nothing is known. Nothing is known of what is not understood. All functions are
summarised together: it is assumed of each that it touches nothing, until its code says otherwise, and then whoever calls
it is looked at again.
*/

use std::collections::BTreeSet;
use std::rc::Rc;

use kisa::{Effect, Reg, Value as Operand};

use crate::program::{
    Callee, EVERYTHING, FLAGS, FunctionCfg, FunctionIndex, Instruction, Program, Then, Way, bit,
};
use crate::values::{Names, Site, State};
use crate::{Analysis, BlockIndex, Head, solve};

/// What a call of a function does. Sets of registers are bits by [`Reg`], and [`FLAGS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Summary {
    /// The registers whose contents it may make use of. To save and restore one is no use.
    pub reads: u64,
    /// The registers that it may leave with other contents.
    pub changes: u64,
    /// The registers of which it leaves nothing as it was, whatever way it returns.
    pub overwrites: u64,
    /// Whether it may write to the frame of its caller: to the arguments on the stack, or the return address.
    pub writes_frame: bool,
}

impl Summary {
    /// That of a function of which nothing is known.
    pub const UNKNOWN: Summary =
        Summary { reads: EVERYTHING, changes: EVERYTHING, overwrites: 0, writes_frame: true };

    /// What is assumed first.
    const NOTHING: Summary = Summary { reads: 0, changes: 0, overwrites: EVERYTHING, writes_frame: false };

    fn join(self, other: Summary) -> Summary {
        Summary {
            reads: self.reads | other.reads,
            changes: self.changes | other.changes,
            overwrites: self.overwrites & other.overwrites,
            writes_frame: self.writes_frame || other.writes_frame,
        }
    }
}

/// The machine, as far as it matters for calls.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Bytes of a word.
    pub word: u8,
    /// How many registers there are.
    pub registers: usize,
    /// The stack pointer. A call pushes the return address.
    pub stack_pointer: Reg,
}

/// The summaries of all functions of a program.
pub struct Summaries(Vec<Summary>);

impl Summaries {
    /// Finds what calls of the functions of a program do.
    pub fn of(program: &impl Program, machine: Machine) -> Summaries {
        let count = program.functions();
        let mut callers: Vec<Vec<FunctionIndex>> = vec![Vec::new(); count];
        let mut callees: Vec<Vec<FunctionIndex>> = vec![Vec::new(); count];
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
        let mut summaries = Summaries(vec![Summary::NOTHING; count]);
        let order = callees_first(&callees);
        let mut pending: BTreeSet<(usize, FunctionIndex)> =
            (0..count).map(|function| (order[function], function.into())).collect();
        while let Some((_, function)) = pending.pop_first() {
            let known = summaries.0[function.get()];
            if known == Summary::UNKNOWN {
                continue;
            }
            let found = known.join(summarise(program, machine, &summaries, function));
            if found != known {
                summaries.0[function.get()] = found;
                let callers = callers[function.get()].iter();
                pending.extend(callers.map(|&caller| (order[caller.get()], caller)));
            }
        }
        summaries
    }

    /// What a call does.
    pub fn get(&self, callee: Callee) -> Summary {
        match callee {
            Callee::Function(function) => self.0[function.get()],
            Callee::Unknown => Summary::UNKNOWN,
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

/// The place of each function in an order in which callees come before their callers, recursion aside.
fn callees_first(callees: &[Vec<FunctionIndex>]) -> Vec<usize> {
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

/// What a function does, as far as is known of those that it calls.
fn summarise(
    program: &impl Program,
    machine: Machine,
    summaries: &Summaries,
    function: FunctionIndex,
) -> Summary {
    let cfg = FunctionCfg::of(program, function);
    // Behind a call of which nothing is known, nothing is known of the stack pointer.
    let loses = |way: &Way| {
        let is_unknown = |callee| summaries.get(callee) == Summary::UNKNOWN && way.then != Then::Nowhere;
        way.then == Then::Anywhere || way.callee.is_some_and(is_unknown)
    };
    let is_lost = program.has_other_entries(function)
        || cfg.ways.iter().flatten().any(loses)
        || cfg.blocks.iter().any(|&block| program.may_leave_early(block));
    if is_lost {
        return Summary::UNKNOWN;
    }
    let names = Names::new(machine.word, machine.registers, machine.stack_pointer);
    Summariser { program, machine, summaries, cfg: &cfg, names }.summarise()
}

/// One function being summarised.
struct Summariser<'p, P> {
    program: &'p P,
    machine: Machine,
    summaries: &'p Summaries,
    cfg: &'p FunctionCfg,
    names: Names,
}

impl<P: Program> Analysis for Summariser<'_, P> {
    type State = State;

    fn join(&mut self, state: &mut State, other: &State, widen: Option<Head>) {
        let at = widen.map(|head| match head {
            Head::Block(block) | Head::Jumps(block) => Site { block: block.0, number: 0 },
        });
        state.join(other, at, &mut self.names);
    }

    fn block(&mut self, block: BlockIndex, mut state: State, behind: &mut [Option<Rc<State>>]) {
        self.run(block, &mut state, |_, _, _| {});
        for way in &self.cfg.ways[block.get()] {
            let Then::Block(to) = way.then else { continue };
            let Some(arriving) = self.take(way, &state) else { continue };
            let Some(behind) = self.cfg.successor(block, to).and_then(|place| behind.get_mut(place)) else {
                continue;
            };
            match behind {
                Some(known) => Rc::make_mut(known).join(&arriving, None, &mut self.names),
                None => *behind = Some(Rc::new(arriving)),
            }
        }
    }
}

impl<P: Program> Summariser<'_, P> {
    /// Applies the instructions of a block, and shows each with the state in front of it.
    fn run(
        &mut self,
        block: BlockIndex,
        state: &mut State,
        mut see: impl FnMut(&Instruction<'_>, &mut State, &mut Names),
    ) {
        let (program, names) = (self.program, &mut self.names);
        let mut number = 0;
        program.for_each_instruction(self.cfg.blocks[block.get()], &mut |instruction| {
            see(&instruction, state, names);
            // The first numbers are those of joins.
            number += 1;
            state.apply(names, Site { block: block.0, number }, instruction.effects);
        });
    }

    /// The state behind a way; `None` if control does not go there.
    fn take(&mut self, way: &Way, state: &State) -> Option<State> {
        let mut state = state.clone();
        if way.condition.is_some_and(|condition| !state.assume(condition, &self.names)) {
            return None;
        }
        if let Some(callee) = way.callee {
            let summary = self.summaries.get(callee);
            state.call(summary.reads, summary.changes, summary.writes_frame, &self.names);
        }
        Some(state)
    }

    /// What the function does.
    fn summarise(mut self) -> Summary {
        let begin = Rc::new(State::enter(&mut self.names));
        let cfg = self.cfg;
        let Some(states) = solve(&mut self, cfg, &begin) else { return Summary::UNKNOWN };
        let mut found = Found { used: 0, changes: FLAGS, writes_frame: false };
        for (index, state) in states.iter().enumerate() {
            let Some(state) = state else { continue };
            if self.block_does(index.into(), State::clone(state), &mut found).is_none() {
                return Summary::UNKNOWN;
            }
        }
        let Found { used, changes, writes_frame } = found;
        let (reads, overwrites) = self.read_and_overwritten();
        // Everybody makes use of the stack pointer.
        let used = used | bit(self.machine.stack_pointer);
        Summary { reads: reads & (changes | used), changes, overwrites: overwrites & changes, writes_frame }
    }

    /// Finds what a block does, given the state in front of it. `None` if it returns to somewhere else than to the
    /// caller.
    fn block_does(&mut self, block: BlockIndex, mut state: State, found: &mut Found) -> Option<()> {
        let word = self.machine.word;
        self.run(block, &mut state, |instruction, state, names| {
            found.used |= used(instruction, state, names, word);
            for effect in instruction.effects {
                found.writes_frame |= state.may_write_above(effect, names);
            }
        });
        let read_by_exit = self.program.read_by_exit(self.cfg.blocks[block.get()]);
        found.used |= state.entries_in(read_by_exit, &self.names);
        for way in &self.cfg.ways[block.get()] {
            let reads = way.callee.map_or(0, |callee| self.summaries.get(callee).reads);
            found.used |= state.entries_in(reads, &self.names);
            let Some(state) = self.take(way, &state) else { continue };
            if state.is_frame_known_to_others() {
                // What was saved there may be read or written.
                (found.used, found.writes_frame) = (EVERYTHING, true);
            }
            found.writes_frame |= way
                .callee
                .is_some_and(|callee| way.then == Then::Caller && self.summaries.get(callee).writes_frame);
            if way.then == Then::Caller {
                if !state.is_back_at_caller(&mut self.names) {
                    return None;
                }
                found.changes |= state.changed(&mut self.names);
            }
        }
        Some(())
    }

    /// The registers that the function may read as they are on entry, and those that it overwrites before it returns.
    fn read_and_overwritten(&self) -> (u64, u64) {
        let cfg = self.cfg;
        let touched: Vec<Touched> =
            cfg.blocks.iter().map(|&block| Touched::by(self.program, block)).collect();
        let mut read = vec![0u64; cfg.blocks.len()];
        let mut overwritten = vec![EVERYTHING; cfg.blocks.len()];
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for index in (0..cfg.blocks.len()).rev() {
                let (mut live, mut certain) = (0, EVERYTHING);
                for way in &cfg.ways[index] {
                    let next = match way.then {
                        Then::Block(to) => {
                            let place = cfg
                                .successor(index.into(), to)
                                .map(|place| crate::Cfg::successors(cfg, index.into())[place].get());
                            place.map_or((EVERYTHING, 0), |next| (read[next], overwritten[next]))
                        }
                        Then::Caller => (0, 0),
                        Then::Nowhere => (0, EVERYTHING),
                        Then::Anywhere => (EVERYTHING, 0),
                    };
                    live |= self.summaries.live_before(way, next.0);
                    certain &= next.1 | way.callee.map_or(0, |callee| self.summaries.get(callee).overwrites);
                }
                let here = (touched[index].live_before(live), certain | touched[index].overwrites);
                changed |= here != (read[index], overwritten[index]);
                (read[index], overwritten[index]) = here;
            }
        }
        (read[0], overwritten[0])
    }
}

/// What the blocks of a function have been found to do.
struct Found {
    /// The registers whose contents on entry are used for more than to be saved and restored.
    used: u64,
    changes: u64,
    writes_frame: bool,
}

/// The registers that a block reads before it writes them, and those that it overwrites.
pub(crate) struct Touched {
    pub(crate) reads: u64,
    pub(crate) overwrites: u64,
}

impl Touched {
    pub(crate) fn by(program: &impl Program, block: BlockIndex) -> Touched {
        if program.may_leave_early(block) {
            return Touched { reads: EVERYTHING, overwrites: 0 };
        }
        let mut touched = Touched { reads: 0, overwrites: 0 };
        program.for_each_instruction(block, &mut |instruction| {
            touched.reads |= instruction.reads & !touched.overwrites;
            touched.overwrites |= instruction.overwrites();
        });
        touched.reads |= program.read_by_exit(block) & !touched.overwrites;
        touched
    }

    /// What is live in front of the block, given what is at its end.
    pub(crate) fn live_before(&self, live: u64) -> u64 {
        live & !self.overwrites | self.reads
    }
}

/// The registers whose contents on entry an instruction uses for more than to save or restore them.
fn used(instruction: &Instruction, state: &mut State, names: &mut Names, word: u8) -> u64 {
    if instruction.reads_unseen {
        return EVERYTHING;
    }
    let mut used = 0;
    let mut saved = 0;
    for effect in instruction.effects {
        match *effect {
            // The one operand of the instruction that is this register, and nothing else reads it.
            Effect::Store { to, value: Operand::Reg { reg, width }, .. } if width == word => {
                let elsewhere = instruction.effects.iter().filter(|other| *other != effect);
                let others =
                    elsewhere.flat_map(Effect::operands).fold(0, |set, value| set | value.registers());
                if (others | to.registers()) & bit(reg) == 0 && state.is_in_frame(&to, names) {
                    saved |= bit(reg);
                }
            }
            _ => {}
        }
        for operand in effect.operands() {
            let Operand::Load { from, width } = operand else { continue };
            let loaded = state.entries_at(&from, width, names);
            let restored = match *effect {
                Effect::Set { dst, width, .. } if width == word => bit(dst),
                _ => 0,
            };
            used |= loaded & !restored;
        }
    }
    used | state.entries_in(instruction.reads & !saved, names)
}

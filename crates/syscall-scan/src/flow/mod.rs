//! Constant propagation over one function, or a part of one: what is in which register and stack slot at each point.
//!
//! States are computed block by block until nothing changes. A value that a function did not make itself
//! is kept as what it is on entry ("argument 1", "what argument 1 points to"), so that the analysis needs no
//! callers and is done once a function; [`crate::resolve`] asks the callers later, and only those that
//! matter.
//!
//! Assumptions about compiled code: a call returns with the registers that the ABI preserves and with the stack
//! pointer unchanged. A function writes to another function's frame only through addresses that it was given, and
//! above them. A function that looks at its own return address may return twice, as `setjmp` and `vfork` do, and then
//! the frame is as it was left after the first time: nothing that was in it is believed behind such a call. The
//! function's own stack pointer is checked: if a return is reached with the stack pointer elsewhere than at the return
//! address, values that were read from the frame are ignored.

mod call;
mod domain;
mod frame;
mod in_frame;
mod local;
mod memory;
mod registers;
mod solve;
mod state;
mod step;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::rc::Rc;

use kflow::values::{Comparison, Span};
use kflow::{BlockIndex, Transfer, apply};
use kisa::{Condition, Effect, Reg, TEMPORARY, Value};
use rustc_hash::FxHashMap;

use crate::abi::{self, Convention};
use crate::code::{Code, ExitId, Facts, Function};
use crate::image::Addr;
use crate::values::{Atom, OriginId, ValueSet};

use call::Callee;
pub use domain::Domain;
pub use frame::Place;
pub use registers::RegisterNumbers;
use registers::numbers;
use solve::Decoded;
pub use state::State;
use step::Step;
pub(crate) use step::constant_address;

/// The analysis of functions, each when it is asked for.
pub struct Flows<'c> {
    /// The code.
    pub code: &'c Code<'c>,
    /// What all states share.
    pub domain: Domain,
    /// The calling convention of the machine.
    pub convention: &'static Convention,
    functions: FxHashMap<Addr, Rc<Function>>,
    flows: FxHashMap<Addr, Rc<FunctionStates>>,
    /// The numbers that registers hold in front of the blocks of functions.
    numbers: FxHashMap<Addr, Vec<Option<Facts>>>,
    /// By function and pointer: the states while the pointer is watched, see [`Flows::watch`].
    watched: FxHashMap<(Addr, OriginId), Result<Rc<FunctionStates>, Addr>>,
    /// The summaries of callees.
    callees: FxHashMap<Addr, Callee>,
    /// A buffer for the effects of one instruction, and one for the instructions of a function.
    effects: Vec<Effect>,
    decoded: Decoded,
}

/// The result for one function.
pub struct FunctionStates {
    /// The function.
    pub function: Rc<Function>,
    /// The state in front of each block; `None` if control does not get there.
    states: Vec<Option<Rc<State>>>,
    /// Whether what was read from the frame is believed.
    pub trust_frame: bool,
    predecessors: OnceCell<Vec<Vec<BlockIndex>>>,
}

impl FunctionStates {
    fn new(function: Rc<Function>, states: Vec<Option<Rc<State>>>, trust_frame: bool) -> FunctionStates {
        FunctionStates { function, states, trust_frame, predecessors: OnceCell::new() }
    }

    /// The predecessors of a block, by rising number.
    pub(crate) fn predecessors(&self, block: BlockIndex) -> &[BlockIndex] {
        &self.predecessors.get_or_init(|| self.function.predecessors())[block.get()]
    }
}

/// A step of [`Flows::walk`].
pub enum Visit<'a> {
    /// An instruction and the state in front of it.
    Instruction {
        /// The instruction.
        at: Addr,
        /// The state in front of it.
        state: &'a State,
        /// What it does.
        effects: &'a [Effect],
    },
    /// An exit and the state behind its own effects.
    Exit {
        /// The exit.
        exit: ExitId,
        /// The state behind it.
        state: &'a State,
    },
    /// The end of a block that simply goes on.
    End {
        /// The address after it.
        next: Addr,
        /// The state there.
        state: &'a State,
    },
}

/// A state, and where the instruction in front of it sends control.
pub struct After {
    /// The state.
    pub state: State,
    /// The target of a computed branch.
    pub target: Option<ValueSet>,
}

impl<'c> Flows<'c> {
    /// Nothing analysed so far.
    pub fn new(code: &'c Code<'c>) -> Flows<'c> {
        let convention = Convention::of(code.image.machine);
        let word = code.image.machine.word_size();
        let mut domain = Domain::new(word, convention.stack_pointer, code.registers());
        domain.global_offset_tables = code.global_offset_tables().map(|table| table.0).collect();
        domain.code = code.image.code().to_vec();
        Flows {
            code,
            domain,
            convention,
            functions: FxHashMap::default(),
            flows: FxHashMap::default(),
            numbers: FxHashMap::default(),
            watched: FxHashMap::default(),
            callees: FxHashMap::default(),
            effects: Vec::new(),
            decoded: Decoded::default(),
        }
    }

    /// The same, under the assumption that others leave alone what holds an address of constant memory, or the
    /// page part of one.
    pub fn keeping_constants(mut self) -> Flows<'c> {
        self.domain.kept = self.code.image.constant_pages();
        self
    }

    /// The analysis of the function that begins at an address.
    pub fn flow(&mut self, entry: Addr) -> Rc<FunctionStates> {
        if let Some(flow) = self.flows.get(&entry) {
            return Rc::clone(flow);
        }
        let function = self.function(entry);
        let begin = self.at_entry();
        let (mut states, balanced) = self.solve(&function, &begin, true);
        if !balanced {
            states = self.solve(&function, &begin, false).0;
        }
        let flow = Rc::new(FunctionStates::new(function, states, balanced));
        self.flows.insert(entry, Rc::clone(&flow));
        flow
    }

    /// The state behind a chain of blocks ([`Function::chain_to`]) and its last instruction, nothing being known in front
    /// of it but numbers that registers hold.
    pub(crate) fn after_chain(&mut self, chain: &Function, numbers: &[(Reg, u64)]) -> Option<After> {
        let mut begin = State::nothing_known(self.domain.registers);
        for &(reg, number) in numbers {
            begin.set_register(reg, ValueSet::number(number));
        }
        let states = self.solve(chain, &Rc::new(begin), false).0;
        let last = self.code.exit(chain.blocks.last()?.exit?).at;
        self.after(&FunctionStates::new(Rc::new(chain.clone()), states, false), last)
    }

    /// The numbers that registers hold in front of a block of a function, as far as plain arithmetic tells.
    pub fn numbers_at(&mut self, entry: Addr, block: Addr) -> RegisterNumbers {
        let function = self.function(entry);
        let known = self.numbers.entry(entry);
        let known = known.or_insert_with(|| numbers(self.code, self.convention, &function));
        let facts = function.block_from(block).and_then(|place| known[place.get()].as_ref());
        facts.map(|facts| facts.numbers().collect()).unwrap_or_default()
    }

    fn at_entry(&mut self) -> Rc<State> {
        Rc::new(State::at_entry(&mut self.domain))
    }

    /// The blocks of the function that begins at an address.
    pub fn function(&mut self, entry: Addr) -> Rc<Function> {
        let new = || Rc::new(Function::new(self.code, entry));
        Rc::clone(self.functions.entry(entry).or_insert_with(new))
    }

    /// The state in front of an instruction; `None` if control does not get there.
    pub fn before(&mut self, flow: &FunctionStates, at: Addr) -> Option<State> {
        let block = flow.function.block_at(at)?;
        let mut state = flow.states[block.get()].as_deref()?.clone();
        let mut here = flow.function.blocks[block.get()].start;
        while here < at {
            let (next, _) = self.instruction(&mut state, here, flow.trust_frame)?;
            here = next;
        }
        if state.is_split() {
            let effects = self.code.effects_at(at);
            self.arrive(&mut state, &effects);
        }
        Some(state)
    }

    /// Makes the state the one in front of an instruction that happens, if that is on a condition; a branch always
    /// does.
    fn arrive(&mut self, state: &mut State, effects: &[Effect]) {
        state.settle_for(effects, &mut self.domain);
        match effects.first() {
            Some(Effect::BranchIf(_)) => state.settle(&mut self.domain),
            _ => drop(state.skipped()),
        }
    }

    /// The state behind an instruction, its own effects included (for a call, those that the callee sees
    /// when it begins).
    pub fn after(&mut self, flow: &FunctionStates, at: Addr) -> Option<After> {
        let mut state = self.before(flow, at)?;
        let (_, step) = self.instruction(&mut state, at, flow.trust_frame)?;
        state.skipped();
        Some(After { state, target: step.target })
    }

    /// The numbers that a register may hold in front of an instruction. `None` if control does not get there.
    pub fn span(&mut self, flow: &FunctionStates, at: Addr, register: Reg) -> Option<Span> {
        let state = self.before(flow, at)?;
        Some(state.ranges.of(state.register(register), &self.domain))
    }

    /// The analysis of a function while one of its unknowns is watched.
    ///
    /// # Errors
    /// Where the value cannot be followed any further.
    pub fn watch(&mut self, entry: Addr, watched: OriginId) -> Result<Rc<FunctionStates>, Addr> {
        if let Some(known) = self.watched.get(&(entry, watched)) {
            return known.clone();
        }
        let function = self.function(entry);
        self.domain.watch(Some(watched));
        let begin = self.at_entry();
        let (states, balanced) = self.solve(&function, &begin, true);
        let lost = self.domain.lost();
        self.domain.watch(None);
        let flow = match lost {
            Some(at) => Err(at),
            None if !balanced => Err(entry),
            None => Ok(Rc::new(FunctionStates::new(function, states, balanced))),
        };
        self.watched.insert((entry, watched), flow.clone());
        flow
    }

    /// Shows each instruction of a function that control gets to, with the state in front of it and its
    /// effects, and after them each exit with the state that control leaves with. Stops at the first error.
    pub fn walk<E>(
        &mut self,
        flow: &FunctionStates,
        visit: &mut impl FnMut(&mut Self, Visit<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut effects = Vec::new();
        let mut reader = self.code.reader(flow.function.entry);
        for (index, block) in flow.function.blocks.iter().enumerate() {
            let Some(mut state) = flow.states[index].as_deref().cloned() else { continue };
            let mut at = block.start;
            while at < block.end {
                effects.clear();
                self.code.read_effects(&mut reader, at, &mut effects);
                let mut arrived = Cow::Borrowed(&state);
                if state.is_split() {
                    self.arrive(arrived.to_mut(), &effects);
                }
                visit(self, Visit::Instruction { at, state: &arrived, effects: &effects })?;
                let Some(length) = self.code.length(at) else { break };
                let next = at.plus(length);
                self.apply(&mut state, at, &effects, flow.trust_frame);
                match block.exit.filter(|&id| self.code.exit(id).at == at) {
                    Some(exit) => {
                        if matches!(effects.first(), Some(Effect::BranchIf(_))) {
                            state.settle(&mut self.domain);
                        }
                        visit(self, Visit::Exit { exit, state: &state })?;
                        break;
                    }
                    None if next >= block.end => {
                        state.settle(&mut self.domain);
                        visit(self, Visit::End { next, state: &state })?;
                    }
                    None => {}
                }
                at = next;
            }
        }
        Ok(())
    }

    /// What an operand of the instruction at `at` is.
    pub fn operand(&mut self, state: &State, at: Addr, operand: Value) -> ValueSet {
        let mut state = state.clone();
        let stack_pointer = self.convention.stack_pointer;
        let image = self.code.image;
        let step = Step::new(image, &mut self.domain, &mut state, at, stack_pointer, true);
        { step }.operand(operand)
    }

    /// Whether the stack pointer is where it was when the function was entered, in front of a return that
    /// takes its address off the stack, or behind any other.
    fn is_at_return(&self, state: &State) -> bool {
        let entry = Atom::of(self.domain.frame);
        state.register(self.convention.stack_pointer).single() == Some(entry)
    }

    /// Whether a jump from here stays in the function, as far as the stack pointer tells. A jump to another
    /// function goes with this one's frame taken off the stack; one to a saved context (`longjmp`) goes
    /// with a stack pointer from elsewhere.
    pub fn is_within_function(&self, state: &State) -> bool {
        let stack_pointer = state.register(self.convention.stack_pointer);
        match stack_pointer.single() {
            Some(atom) => self.domain.place(atom).is_some_and(|p| !self.domain.is_argument(p)),
            None => true,
        }
    }

    /// Applies one instruction. Returns the address of the next.
    fn instruction(&mut self, state: &mut State, at: Addr, trust_frame: bool) -> Option<(Addr, Outcome)> {
        let length = self.code.length(at)?;
        let mut effects = std::mem::take(&mut self.effects);
        effects.clear();
        self.code.effects(at, &mut effects);
        let outcome = self.apply(state, at, &effects, trust_frame);
        self.effects = effects;
        Some((at.plus(length), outcome))
    }

    /// Applies the effects of one instruction.
    fn apply(&mut self, state: &mut State, at: Addr, effects: &[Effect], trust_frame: bool) -> Outcome {
        state.settle_for(effects, &mut self.domain);
        let ends = self.ends(state, effects);
        let stack_pointer = self.convention.stack_pointer;
        self.domain.at = at;
        let image = self.code.image;
        let mut step = Step::new(image, &mut self.domain, state, at, stack_pointer, trust_frame);
        effects.iter().for_each(|effect| apply(&mut step, effect));
        let outcome = Outcome { target: step.target, branch: step.branch, ends };
        if *state.register(TEMPORARY) != ValueSet::Any {
            state.set_register(TEMPORARY, ValueSet::Any);
        }
        outcome
    }

    /// Whether this is a system call that does not come back.
    fn ends(&self, state: &State, effects: &[Effect]) -> bool {
        // One that is made on a condition may also not be made.
        let Some(&Effect::SystemCall { compat, number }) = effects.first() else { return false };
        let abi = abi::abi(self.code.image.machine, compat);
        if let Some(number) = number {
            return abi::ends(abi, number.into());
        }
        let numbers = state.register(abi::number_register(abi));
        numbers.is_numbers() && numbers.elements().iter().all(|atom| abi::ends(abi, atom.offset))
    }
}

/// What is left of an instruction besides the state.
struct Outcome {
    target: Option<ValueSet>,
    /// When a conditional branch is taken.
    branch: Option<(Comparison<Atom>, Condition)>,
    /// It is a system call that does not come back.
    ends: bool,
}

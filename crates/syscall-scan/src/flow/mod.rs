//! Constant propagation over one function, or a part of one: the content of each register and stack slot at each point.
//!
//! States are computed block by block until a fixed point is reached. A value that a function does not compute itself
//! is kept in terms of its entry ("argument 1", "the memory at argument 1"). The analysis therefore needs no callers
//! and runs once per function; [`crate::resolve`] later follows only the callers that matter.
//!
//! Assumptions about compiled code: a call returns with the registers that the ABI preserves and with the stack pointer
//! unchanged. A function writes to another function's frame only through addresses that it was given, and above them. A
//! function that reads its own return address may return twice, like `setjmp` and `vfork`; the frame is then in its
//! state after the first return, so that no frame content is trusted after such a call. The function's own stack
//! pointer is checked: if a return is reached with the stack pointer elsewhere than at the return address, values that
//! were read from the frame are ignored.

mod call;
mod callee;
mod decoded;
mod domain;
mod frame;
mod in_frame;
mod local;
mod memory;
mod place;
mod registers;
mod solve;
mod state;
mod step;

use std::borrow::Cow;
use std::cell::OnceCell;
use std::rc::Rc;

use kflow::values::{Comparison, Span};
use kflow::{BlockIndex, Transfer, apply};
use kisa::{Condition, Convention, Effect, Reg, TEMPORARY, Value};
use rustc_hash::FxHashMap;

use crate::abi;
use crate::code::{Code, ExitId, Facts, Function};
use crate::image::Addr;
use crate::values::{Atom, OriginId, ValueSet};

use callee::Callee;
use decoded::Decoded;
pub use domain::Domain;
pub use place::Place;
pub use registers::RegisterNumbers;
use registers::numbers;
pub use state::State;
use step::Step;
pub(crate) use step::constant_address;

/// The analysis of functions, each on demand.
pub struct Flows<'c> {
    /// The code.
    pub code: &'c Code<'c>,
    /// The data that all states share.
    pub domain: Domain,
    /// The calling convention of the machine.
    pub convention: &'static Convention,
    functions: FxHashMap<Addr, Rc<Function>>,
    flows: FxHashMap<Addr, Rc<FunctionStates>>,
    /// The numbers that registers hold before the blocks of functions.
    numbers: FxHashMap<Addr, Vec<Option<Facts>>>,
    /// The states while a pointer is watched, by function and pointer, see [`Flows::watch`].
    watched: FxHashMap<(Addr, OriginId), Result<Rc<FunctionStates>, Addr>>,
    /// The summaries of callees.
    callees: FxHashMap<Addr, Callee>,
    /// Buffers for the effects of one instruction and for the instructions of a function.
    effects: Vec<Effect>,
    decoded: Decoded,
}

/// The result for one function.
pub struct FunctionStates {
    /// The function.
    pub function: Rc<Function>,
    /// The state before each block; `None` if the block is never reached.
    states: Vec<Option<Rc<State>>>,
    /// Whether values read from the frame are trusted.
    pub trust_frame: bool,
    predecessors: OnceCell<Vec<Vec<BlockIndex>>>,
}

impl FunctionStates {
    fn new(function: Rc<Function>, states: Vec<Option<Rc<State>>>, trust_frame: bool) -> FunctionStates {
        FunctionStates { function, states, trust_frame, predecessors: OnceCell::new() }
    }

    /// Returns the predecessors of a block, by rising number.
    pub(crate) fn predecessors(&self, block: BlockIndex) -> &[BlockIndex] {
        &self.predecessors.get_or_init(|| self.function.predecessors())[block.get()]
    }
}

/// A step of [`Flows::walk`].
pub enum Visit<'a> {
    /// An instruction and the state before it.
    Instruction {
        /// The instruction.
        at: Addr,
        /// The state before it.
        state: &'a State,
        /// Its effects.
        effects: &'a [Effect],
    },
    /// An exit and the state after its own effects.
    Exit {
        /// The exit.
        exit: ExitId,
        /// The state after it.
        state: &'a State,
    },
    /// The end of a block that falls through.
    End {
        /// The address after it.
        next: Addr,
        /// The state there.
        state: &'a State,
    },
}

/// A state, and the target of the preceding computed branch.
pub struct After {
    /// The state.
    pub state: State,
    /// The target of a computed branch.
    pub target: Option<ValueSet>,
}

impl<'c> Flows<'c> {
    /// Creates an analysis without results.
    pub fn new(code: &'c Code<'c>) -> Flows<'c> {
        let convention = code.isa.convention();
        let word = code.image.machine.word_size();
        let mut domain = Domain::new(word, convention.stack_pointer, code.isa.registers());
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

    /// Assumes that other code never overwrites a frame slot with an address of constant memory, or with the page part
    /// of one.
    pub fn keeping_constants(mut self) -> Flows<'c> {
        self.domain.kept = self.code.image.constant_pages();
        self
    }

    /// Returns the analysis of the function at an address.
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

    /// Returns the state after a chain of blocks ([`Function::chain_to`]) and its last instruction. Only the given
    /// numbers in registers are known before the chain.
    pub(crate) fn after_chain(&mut self, chain: &Function, numbers: &[(Reg, u64)]) -> Option<After> {
        let mut begin = State::nothing_known(self.domain.registers);
        for &(reg, number) in numbers {
            begin.set_register(reg, ValueSet::number(number));
        }
        let states = self.solve(chain, &Rc::new(begin), false).0;
        let last = self.code.exit(chain.blocks.last()?.exit?).at;
        self.after(&FunctionStates::new(Rc::new(chain.clone()), states, false), last)
    }

    /// Returns the numbers that registers hold before a block of a function, as far as plain arithmetic determines
    /// them.
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

    /// Returns the blocks of the function at an address.
    pub fn function(&mut self, entry: Addr) -> Rc<Function> {
        let new = || Rc::new(Function::new(self.code, entry));
        Rc::clone(self.functions.entry(entry).or_insert_with(new))
    }

    /// Returns the state before an instruction; `None` if it is never reached.
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

    /// Turns the state into the one before an instruction that executes, if it is conditional; a branch always
    /// executes.
    fn arrive(&mut self, state: &mut State, effects: &[Effect]) {
        state.settle_for(effects, &mut self.domain);
        match effects.first() {
            Some(Effect::BranchIf(_)) => state.settle(&mut self.domain),
            _ => drop(state.skipped()),
        }
    }

    /// Returns the state after an instruction, including its own effects (for a call, those before the callee begins).
    pub fn after(&mut self, flow: &FunctionStates, at: Addr) -> Option<After> {
        let mut state = self.before(flow, at)?;
        let (_, step) = self.instruction(&mut state, at, flow.trust_frame)?;
        state.skipped();
        Some(After { state, target: step.target })
    }

    /// Returns the possible numbers of a register before an instruction; `None` if it is never reached.
    pub fn span(&mut self, flow: &FunctionStates, at: Addr, register: Reg) -> Option<Span> {
        let state = self.before(flow, at)?;
        Some(state.ranges.of(state.register(register), &self.domain))
    }

    /// Returns the analysis of a function while one of its unknowns is watched.
    ///
    /// # Errors
    /// The instruction at which the value can no longer be tracked.
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

    /// Visits each reachable instruction of a function, with the state before it and its effects, and after a block's
    /// instructions each exit with the state on leaving. Stops at the first error.
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

    /// Returns the value of an operand of the instruction at `at`.
    pub fn operand(&mut self, state: &State, at: Addr, operand: Value) -> ValueSet {
        let mut state = state.clone();
        let stack_pointer = self.convention.stack_pointer;
        let image = self.code.image;
        let step = Step::new(image, &mut self.domain, &mut state, at, stack_pointer, true);
        { step }.operand(operand)
    }

    /// Returns whether the stack pointer has its value from the function's entry, either before a return that pops its
    /// address or after any other return.
    fn is_at_return(&self, state: &State) -> bool {
        let entry = Atom::of(self.domain.frame);
        state.register(self.convention.stack_pointer).single() == Some(entry)
    }

    /// Returns whether a jump from here stays in the function, judging by the stack pointer. A tail call removes the
    /// function's frame from the stack before the jump, and a jump to a saved context (`longjmp`) loads another stack
    /// pointer.
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

    /// Returns whether an instruction is a system call that never returns.
    fn ends(&self, state: &State, effects: &[Effect]) -> bool {
        // A conditional call may also be skipped.
        let Some(&Effect::SystemCall { compat, number }) = effects.first() else { return false };
        let abi = abi::abi(self.code.image.machine, compat);
        if let Some(number) = number {
            return abi::ends(abi, number.into());
        }
        let numbers = state.register(abi::registers(abi).number);
        numbers.is_numbers() && numbers.elements().iter().all(|atom| abi::ends(abi, atom.offset))
    }
}

/// The results of an instruction apart from the state.
struct Outcome {
    target: Option<ValueSet>,
    /// The condition of a conditional branch.
    branch: Option<(Comparison<Atom>, Condition)>,
    /// Whether it is a system call that never returns.
    ends: bool,
}

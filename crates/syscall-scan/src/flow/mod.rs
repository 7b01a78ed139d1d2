//! Constant propagation over one function: what is in which register and stack slot at each point.
//!
//! States are computed block by block until nothing changes. A value that a function did not make itself
//! is kept as what it is on entry ("argument 1", "what argument 1 points to"), so that the analysis needs no
//! callers and is done once a function; [`crate::resolve`] asks the callers later, and only those that
//! matter.
//!
//! What is assumed of compiled code: a call comes back with the registers that the ABI preserves and with
//! the stack pointer where it was; a function writes to another one's frame through addresses that it was
//! given, and from there upwards. What a function does to its own stack pointer is checked: where a return
//! is reached with the stack pointer elsewhere than at the return address, nothing that was read from the
//! frame is believed.

mod call;
mod domain;
mod frame;
mod ranges;
mod state;
mod step;
mod memory;

use std::rc::Rc;

use kcfg::isa::Effect;
use rustc_hash::FxHashMap;

use crate::abi::{self, Convention};
use crate::code::{BlockIndex, Code, ExitKind, Function};
use crate::image::Addr;
use crate::values::{Atom, Value};

pub use domain::Domain;
pub(crate) use domain::sign_extend;
pub use frame::Place;
pub use state::State;
use step::Step;

/// How often a block may be visited before what still changes is given up.
const MAX_VISITS: u32 = 6;

/// The analysis of functions, each when it is asked for.
pub struct Flows<'c> {
    /// The code.
    pub code: &'c Code<'c>,
    /// What all states share.
    pub domain: Domain,
    /// The calling convention of the machine.
    pub convention: &'static Convention,
    flows: FxHashMap<Addr, Rc<Flow>>,
}

/// The result for one function.
pub struct Flow {
    /// The function.
    pub function: Function,
    /// The state in front of each block; `None` if control does not get there.
    states: Vec<Option<State>>,
    /// Whether what was read from the frame is believed.
    pub trust_frame: bool,
}

/// A state, and where the instruction in front of it sends control.
pub struct After {
    /// The state.
    pub state: State,
    /// The target of a computed branch.
    pub target: Option<Value>,
}

impl<'c> Flows<'c> {
    /// Nothing analysed so far. `None` if nothing is known about the machine's conventions.
    pub fn new(code: &'c Code<'c>) -> Option<Flows<'c>> {
        let convention = Convention::of(code.image.machine)?;
        let domain = Domain::new(code.image.machine.word_size(), convention.stack_pointer);
        Some(Flows { code, domain, convention, flows: FxHashMap::default() })
    }

    /// The analysis of the function that begins at an address.
    pub fn flow(&mut self, entry: Addr) -> Rc<Flow> {
        if let Some(flow) = self.flows.get(&entry) {
            return Rc::clone(flow);
        }
        let function = Function::new(self.code, entry);
        let mut flow = Flow { states: Vec::new(), function, trust_frame: true };
        if !self.solve(&mut flow) {
            flow.trust_frame = false;
            self.solve(&mut flow);
        }
        let flow = Rc::new(flow);
        self.flows.insert(entry, Rc::clone(&flow));
        flow
    }

    /// The number of blocks of the function that begins at an address.
    pub fn size(&self, entry: Addr) -> usize {
        self.flows
            .get(&entry)
            .map_or_else(|| Function::new(self.code, entry).blocks.len(), |flow| flow.function.blocks.len())
    }

    /// The state in front of an instruction; `None` if control does not get there.
    pub fn before(&mut self, flow: &Flow, at: Addr) -> Option<State> {
        let block = flow.function.block_at(at)?;
        let mut state = flow.states[block.get()].clone()?;
        let mut here = flow.function.blocks[block.get()].start;
        while here < at {
            let (next, _) = self.instruction(&mut state, here, flow.trust_frame)?;
            here = next;
        }
        Some(state)
    }

    /// The state behind an instruction, its own effects included (for a call, those that the callee sees
    /// when it begins).
    pub fn after(&mut self, flow: &Flow, at: Addr) -> Option<After> {
        let mut state = self.before(flow, at)?;
        let (_, step) = self.instruction(&mut state, at, flow.trust_frame)?;
        Some(After { state, target: step.target })
    }

    /// Whether a value is the stack pointer that the function was entered with.
    pub fn is_entry_stack_pointer(&self, state: &State) -> bool {
        let entry = Atom::of(self.domain.frame);
        state.register(self.convention.stack_pointer).single() == Some(entry)
    }

    /// Computes the states. Returns whether the frame can be believed.
    fn solve(&mut self, flow: &mut Flow) -> bool {
        let blocks = flow.function.blocks.len();
        let order = reverse_postorder(&flow.function);
        flow.states = (0..blocks).map(|_| None).collect();
        flow.states[0] = Some(State::at_entry(&mut self.domain));
        let mut visits = vec![0u32; blocks];
        let mut pending = std::collections::BTreeSet::from([order[0]]);
        let by_rank = {
            let mut by_rank = vec![BlockIndex(0); blocks];
            for (block, &rank) in order.iter().enumerate() {
                by_rank[rank as usize] = BlockIndex(block as u32);
            }
            by_rank
        };
        let mut balanced = true;
        while let Some(rank) = pending.pop_first() {
            let block = by_rank[rank as usize];
            visits[block.get()] += 1;
            let Some(state) = flow.states[block.get()].clone() else { continue };
            balanced &= self.block(flow, block, state, &mut |domain, states, target, state| {
                let changed = match &mut states[target.get()] {
                    Some(old) => {
                        let widen = visits[target.get()] >= MAX_VISITS;
                        old.join(&state, widen, domain)
                    }
                    empty => {
                        *empty = Some(state);
                        true
                    }
                };
                if changed {
                    pending.insert(order[target.get()]);
                }
            });
        }
        balanced
    }

    /// Applies a block and hands the states behind it to its successors. Returns whether the stack pointer
    /// is where it should be, if the block returns.
    fn block(
        &mut self,
        flow: &mut Flow,
        block: BlockIndex,
        mut state: State,
        arrive: &mut dyn FnMut(&mut Domain, &mut [Option<State>], BlockIndex, State),
    ) -> bool {
        let Flow { function, states, trust_frame } = flow;
        let block = &function.blocks[block.get()];
        let mut at = block.start;
        let mut condition = None;
        while at < block.end {
            let exit = block.exit.map(|id| self.code.exit(id)).filter(|exit| exit.at == at);
            match exit.map(|exit| exit.kind) {
                Some(ExitKind::Return) => return self.is_entry_stack_pointer(&state),
                Some(ExitKind::Call(callee)) => {
                    self.call(&mut state, at, Some(callee), *trust_frame);
                }
                Some(ExitKind::IndirectCall) => self.call(&mut state, at, None, *trust_frame),
                Some(ExitKind::Stop) => return true,
                _ => match self.instruction(&mut state, at, *trust_frame) {
                    Some((_, step)) if !step.ends => condition = step.condition,
                    _ => return true,
                },
            }
            match exit {
                Some(exit) => at = exit.next.max(at.plus(1)),
                None => match self.code.length(at) {
                    Some(length) => at = at.plus(length),
                    None => return true,
                },
            }
        }
        let taken = block.exit.map(|id| self.code.exit(id)).and_then(|exit| {
            // A conditional jump goes to the next instruction first, see exploration.
            (exit.successors.len() == 2 && exit.successors[0] != exit.successors[1])
                .then(|| exit.successors[1])
        });
        for &successor in &block.successors {
            let mut state = state.clone();
            if let (Some(condition), Some(taken)) = (condition, taken) {
                let is_taken = function.blocks[successor.get()].start == taken;
                let condition = if is_taken { condition } else { condition.inverse() };
                if !state.assume(condition, &self.domain) {
                    continue;
                }
            }
            arrive(&mut self.domain, states, successor, state);
        }
        true
    }

    /// Applies one instruction. Returns the address of the next.
    fn instruction(
        &mut self,
        state: &mut State,
        at: Addr,
        trust_frame: bool,
    ) -> Option<(Addr, Outcome)> {
        let length = self.code.length(at)?;
        let mut effects = Vec::new();
        self.code.isa.effects(self.code.image.bytes(at), at.0, &mut effects);
        let ends = self.ends(state, &effects);
        let stack_pointer = self.convention.stack_pointer;
        let image = self.code.image;
        let mut step = Step::new(image, &mut self.domain, state, at, stack_pointer, trust_frame);
        for effect in &effects {
            step.apply(effect);
        }
        let outcome = Outcome { target: step.target, condition: step.condition, ends };
        Some((at.plus(length), outcome))
    }

    /// Whether this is a system call that does not come back.
    fn ends(&self, state: &State, effects: &[Effect]) -> bool {
        let Some(&Effect::SystemCall { compat }) = effects.first() else { return false };
        let abi = abi::abi(self.code.image.machine, compat);
        let numbers = state.register(abi::number_register(abi));
        numbers.is_numbers()
            && numbers.atoms().iter().all(|atom| abi::ends(abi, atom.offset))
    }
}

/// What is left of an instruction besides the state.
struct Outcome {
    target: Option<Value>,
    condition: Option<kcfg::isa::Condition>,
    /// It is a system call that does not come back.
    ends: bool,
}

/// The rank of each block in reverse postorder: a block comes after those that lead to it, loops aside.
fn reverse_postorder(function: &Function) -> Vec<u32> {
    let blocks = &function.blocks;
    let mut rank = vec![u32::MAX; blocks.len()];
    let mut seen = vec![false; blocks.len()];
    let mut next = blocks.len() as u32;
    // Blocks with the number of successors that have been visited.
    let mut stack = vec![(0usize, 0usize)];
    seen[0] = true;
    while let Some((block, visited)) = stack.last_mut() {
        match blocks[*block].successors.get(*visited) {
            Some(successor) => {
                *visited += 1;
                if !std::mem::replace(&mut seen[successor.get()], true) {
                    stack.push((successor.get(), 0));
                }
            }
            None => {
                next -= 1;
                rank[*block] = next;
                stack.pop();
            }
        }
    }
    rank
}

//! Facts about a function that its analysis finds, for its transformation and for its callees.

use kisa::{Effect, Reg};
use smallvec::SmallVec;

use crate::BlockIndex;
use crate::constants::{Constant, ConstantSet};
use crate::machine::Machine;
use crate::program::{FLAGS, Instruction};
use crate::values::{Names, State};

/// Maximum number of stack words that are passed on to a callee's analysis.
const MAX_STACK_WORDS: usize = 8;

/// Facts about a block that is reached.
#[derive(Clone, Debug)]
pub struct Reached {
    /// The block.
    pub block: BlockIndex,
    /// The instructions that write one register with a known number: by their indices in the block, in order.
    pub numbers: Vec<(u32, Reg, u64)>,
    /// The instructions that load only from the frame and from memory that nobody writes: by their indices, in order.
    /// Any other load may be volatile, or another thread may depend on it.
    pub own_loads: Vec<u32>,
    /// The target of its computed call.
    pub target: Option<Constant>,
    /// For each of its edges, whether control may take it.
    pub taken: SmallVec<[bool; 2]>,
}

impl Reached {
    /// Returns the register that an instruction writes and the number that it writes, if both are known.
    pub fn number(&self, place: usize) -> Option<(Reg, u64)> {
        let found = self.numbers.binary_search_by_key(&(place as u32), |&(place, ..)| place);
        found.ok().map(|at| (self.numbers[at].1, self.numbers[at].2))
    }

    /// Whether an instruction is known to load only from the frame and from memory that nobody writes.
    pub fn loads_own(&self, place: usize) -> bool {
        self.own_loads.binary_search(&(place as u32)).is_ok()
    }
}

/// Facts on entry to a function.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) registers: SmallVec<[(Reg, ConstantSet); 3]>,
    /// The words passed on the stack.
    pub(crate) stack: SmallVec<[ConstantSet; 4]>,
}

impl Entry {
    /// Returns an entry without facts.
    pub(crate) fn any() -> Entry {
        Entry { registers: SmallVec::new(), stack: SmallVec::new() }
    }

    pub(crate) fn is_any(&self) -> bool {
        self.registers.is_empty() && self.stack.iter().all(ConstantSet::is_any)
    }

    /// Returns the arguments of a call in this state, which is the state after the instructions of the call.
    pub(crate) fn passed(state: &State, machine: Machine, names: &Names) -> Entry {
        let changed = machine.convention.map_or(0, |convention| convention.changed);
        let registers = (0..machine.registers as u8).map(Reg).filter(|reg| changed >> reg.0 & 1 != 0);
        let known = |reg: Reg| (reg, ConstantSet::of_value(state.register(reg), names));
        let stack = (0..MAX_STACK_WORDS).map(|number| {
            ConstantSet::of_value(&state.stack_word(machine.passed_word(number), names), names)
        });
        let mut entry = Entry {
            registers: registers.map(known).filter(|(_, set)| !set.is_any()).collect(),
            stack: stack.collect(),
        };
        let known = entry.stack.iter().rposition(|set| !set.is_any()).map_or(0, |last| last + 1);
        entry.stack.truncate(known);
        entry
    }

    /// Keeps only the facts that also hold for `other`.
    pub(crate) fn join(&mut self, other: &Entry) {
        self.registers.retain(|(reg, set)| {
            let theirs = other.registers.iter().find(|(other, _)| other == reg);
            match theirs {
                Some((_, theirs)) => set.join(theirs),
                None => *set = ConstantSet::any(),
            }
            !set.is_any()
        });
        self.stack.truncate(other.stack.len());
        self.stack.iter_mut().zip(&other.stack).for_each(|(mine, theirs)| mine.join(theirs));
    }
}

/// Facts about a function and its callees. Blocks are numbered within the function ([`crate::FunctionCfg`]).
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) reached: Vec<Reached>,
    /// The arguments on its edges that call functions: by block, and the index of the edge among the block's edges.
    pub(crate) passed: Vec<(BlockIndex, usize, Entry)>,
}

/// Records the computations of one block.
#[derive(Default)]
pub(crate) struct Recorder {
    numbers: Vec<(u32, Reg, u64)>,
    own_loads: Vec<u32>,
    target: Option<Constant>,
    /// The number of instructions so far, and the registers that the last one wrote.
    count: u32,
    written: u64,
}

impl Recorder {
    /// Records an instruction, given the state before it.
    pub(crate) fn see(&mut self, instruction: &Instruction<'_>, state: &mut State, names: &mut Names) {
        self.note_number(state, names);
        let mut loads = instruction.effects.iter().flat_map(Effect::memory_read).peekable();
        let are_seen = loads.peek().is_some() && !instruction.reads_unseen;
        if are_seen && loads.all(|(from, width)| state.is_unwritten(&from, width, names)) {
            self.own_loads.push(self.count);
        }
        self.count += 1;
        self.written = instruction.writes() & !FLAGS;
        self.target = Effect::target(instruction.effects).and_then(|to| state.constant_of(to, names));
    }

    /// Returns the facts about the block, given the state after its instructions.
    pub(crate) fn finish(mut self, block: BlockIndex, state: &State, names: &Names) -> Reached {
        self.note_number(state, names);
        let Recorder { numbers, own_loads, target, .. } = self;
        Reached { block, numbers, own_loads, target, taken: SmallVec::new() }
    }

    /// Records the number in the only register that the last instruction wrote.
    fn note_number(&mut self, state: &State, names: &Names) {
        let reg = Reg(self.written.trailing_zeros() as u8);
        if self.written.count_ones() == 1
            && usize::from(reg.0) < names.registers()
            && let Some(number) = state.number(reg, names)
        {
            self.numbers.push((self.count - 1, reg, number));
        }
    }
}

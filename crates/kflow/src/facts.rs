//! What is found out about a function while it is followed, for those who change it and for those that it calls.

use kisa::{Effect, Reg};
use smallvec::SmallVec;

use crate::BlockIndex;
use crate::constants::{Constant, ConstantSet};
use crate::program::{FLAGS, Instruction};
use crate::summary::Machine;
use crate::values::{Names, State};

/// How many words on the stack are followed into a function.
const MAX_STACK_WORDS: usize = 8;

/// What is known of a block that control gets to.
#[derive(Clone, Debug)]
pub struct Reached {
    /// The block.
    pub block: BlockIndex,
    /// The instructions that write one register and leave a known number in it: by their places in the block, in order.
    pub numbers: Vec<(u32, Reg, u64)>,
    /// The instructions that load only from the frame and from memory that nobody writes: by their places, in order. Any other
    /// load may be volatile, and somebody may wait for it.
    pub own_loads: Vec<u32>,
    /// The targets of its computed call.
    pub target: Option<Constant>,
    /// Which of the ways out of it control may take.
    pub taken: SmallVec<[bool; 2]>,
}

impl Reached {
    /// The register that an instruction writes, and the number that this holds then, if both are known.
    pub fn number(&self, place: usize) -> Option<(Reg, u64)> {
        let found = self.numbers.binary_search_by_key(&(place as u32), |&(place, ..)| place);
        found.ok().map(|at| (self.numbers[at].1, self.numbers[at].2))
    }

    /// Whether an instruction is known to load only from the frame and from memory that nobody writes.
    pub fn loads_own(&self, place: usize) -> bool {
        self.own_loads.binary_search(&(place as u32)).is_ok()
    }
}

/// What is known where a function is entered.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) registers: SmallVec<[(Reg, ConstantSet); 3]>,
    /// The words that are passed on the stack.
    pub(crate) stack: SmallVec<[ConstantSet; 4]>,
}

impl Entry {
    /// Nothing.
    pub(crate) fn any() -> Entry {
        Entry { registers: SmallVec::new(), stack: SmallVec::new() }
    }

    pub(crate) fn is_any(&self) -> bool {
        self.registers.is_empty() && self.stack.iter().all(ConstantSet::is_any)
    }

    /// What a function is passed that is called in this state, behind the instructions of the call.
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

    /// Makes it hold for `other` too.
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

/// What is known of a function and of those that it calls. Blocks are those of the function ([`crate::FunctionCfg`]).
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) reached: Vec<Reached>,
    /// The arguments on its edges that call functions: by block, and the index of the edge among those of the block.
    pub(crate) passed: Vec<(BlockIndex, usize, Entry)>,
}

/// Records what the instructions of one block compute.
#[derive(Default)]
pub(crate) struct Recorder {
    numbers: Vec<(u32, Reg, u64)>,
    own_loads: Vec<u32>,
    target: Option<Constant>,
    /// How many instructions there have been, and the registers that the last one wrote.
    count: u32,
    written: u64,
}

impl Recorder {
    /// Takes note of an instruction, given the state in front of it.
    pub(crate) fn see(&mut self, instruction: &Instruction<'_>, state: &mut State, names: &mut Names) {
        self.note_number(state, names);
        let mut loads = instruction.effects.iter().flat_map(Effect::memory_read).peekable();
        let are_seen = loads.peek().is_some() && !instruction.reads_unseen;
        if are_seen && loads.all(|(from, width)| state.is_unwritten(&from, width, names)) {
            self.own_loads.push(self.count);
        }
        self.count += 1;
        self.written = instruction.writes() & !FLAGS;
        self.target = instruction.effects.iter().find_map(|effect| match effect {
            Effect::Transfer(to) => state.constant_of(*to, names),
            _ => None,
        });
    }

    /// What is known of the block, given the state behind its instructions.
    pub(crate) fn finish(mut self, block: BlockIndex, state: &State, names: &Names) -> Reached {
        self.note_number(state, names);
        let Recorder { numbers, own_loads, target, .. } = self;
        Reached { block, numbers, own_loads, target, taken: SmallVec::new() }
    }

    /// Notes the number in the only register that the last instruction wrote.
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

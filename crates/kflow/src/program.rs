//! The view of a program that the analyses across functions need.

use kisa::{Condition, Effect, Flags, Reg, TEMPORARY};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::fingerprint::Fingerprint;
use crate::{BlockIndex, Cfg};

/// The bit of the flags in a set of registers.
pub const FLAGS: u64 = 1 << 63;

/// Every register, and the flags.
pub const EVERYTHING: u64 = u64::MAX;

/// Returns a register as a set of bits.
pub fn bit(reg: Reg) -> u64 {
    1 << reg.0
}

/// The number of a function of a program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FunctionIndex(pub u32);

impl FunctionIndex {
    /// Returns the number as a `usize`, to index a slice.
    pub fn get(self) -> usize {
        self.0 as usize
    }
}

impl From<usize> for FunctionIndex {
    fn from(index: usize) -> FunctionIndex {
        FunctionIndex(index as u32)
    }
}

impl From<FunctionIndex> for usize {
    fn from(index: FunctionIndex) -> usize {
        index.get()
    }
}

/// A program: functions made of blocks, which are numbered across the program.
pub trait Program: Sync {
    /// Returns the number of blocks.
    fn blocks(&self) -> usize;

    /// Returns the number of functions.
    fn functions(&self) -> usize;

    /// Returns the blocks of a function; the first is its entry. Each block belongs to one function.
    fn blocks_of(&self, function: FunctionIndex) -> &[BlockIndex];

    /// Returns the edges out of a block.
    fn ways(&self, block: BlockIndex) -> &[Way];

    /// Returns the register whose value is the index, from 0, of the edge that control takes out of a block; `None` if
    /// the edge is selected otherwise.
    fn switch_index(&self, _block: BlockIndex) -> Option<Reg> {
        None
    }

    /// Returns the register whose comparison with 0 selects the edge out of a block; `None` if the conditions of the
    /// edges refer to the last comparison.
    fn compared_register(&self, _block: BlockIndex) -> Option<Reg> {
        None
    }

    /// Returns the registers, and the flags, that the choice of the edge reads, apart from the instructions.
    fn read_by_exit(&self, block: BlockIndex) -> u64;

    /// Whether control may also leave a block from any instruction for an unknown handler: the instruction may fault,
    /// or is patched.
    fn may_leave_early(&self, block: BlockIndex) -> bool;

    /// Returns a number that identifies the instructions of a block, see [`crate::fingerprint`]: for equal numbers,
    /// [`Program::for_each_instruction`] shows the same instructions.
    fn fingerprint(&self, block: BlockIndex) -> Fingerprint;

    /// Calls `f` with each instruction of a block, in order.
    fn for_each_instruction(&self, block: BlockIndex, f: &mut dyn FnMut(Instruction<'_>));

    /// Returns the effects of the last instruction of a block that happen only on its first edge, like those of a
    /// conditional return. [`Program::for_each_instruction`] shows the reads of that instruction, but not these
    /// effects.
    fn exit_effects(&self, _block: BlockIndex) -> &[Effect] {
        &[]
    }

    /// Whether a function has callers, or jumps to its entry, other than the edges of known blocks.
    fn has_unknown_callers(&self, function: FunctionIndex) -> bool;

    /// Whether unknown code may enter the function at another block.
    fn has_other_entries(&self, function: FunctionIndex) -> bool;

    /// Whether a function is called by opaque compiled code, or follows no convention. Its callers may rely on
    /// registers that the convention lets it change but its code does not change (`-fipa-ra` of GCC).
    fn has_opaque_callers(&self, function: FunctionIndex) -> bool;
}

/// An edge out of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The condition of the last comparison on this edge, if known. With a [`Program::compared_register`], the
    /// comparison is with 0.
    pub condition: Option<Condition>,
    /// The function called on this edge.
    pub callee: Option<Callee>,
    /// The target of the edge, after the call.
    pub then: Then,
}

impl Way {
    /// Returns an unconditional edge to a block.
    pub fn to(block: BlockIndex) -> Way {
        Way { condition: None, callee: None, then: Then::Block(block) }
    }
}

/// A called function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Callee {
    /// A known function.
    Function(FunctionIndex),
    /// A function that follows the calling convention ([`crate::Convention`]): compiled code calls it by its address.
    Conventional,
    /// A hand-written function that compiled code calls: it may do anything, but returns with the stack pointer that
    /// the compiler expects.
    HandWritten,
    /// An unknown function: it is outside the program, or the program has no convention.
    Unknown,
}

/// The successor, after a call if there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// A block of the same function.
    Block(BlockIndex),
    /// The caller.
    Caller,
    /// Nowhere: the call does not return, or control does not reach this point.
    Nowhere,
    /// An unknown place.
    Anywhere,
}

/// One instruction of a block.
#[derive(Clone, Copy, Debug)]
pub struct Instruction<'a> {
    /// Its effects.
    pub effects: &'a [Effect],
    /// The registers that it reads, including [`FLAGS`]: all of them, whatever its effects show.
    pub reads: u64,
    /// Whether it may read memory that its effects do not show.
    pub reads_unseen: bool,
}

impl Instruction<'_> {
    /// Returns the registers that it overwrites completely, including [`FLAGS`].
    pub fn overwrites(&self) -> u64 {
        // A conditional effect may not happen.
        let certain = self.effects.iter().take_while(|effect| !matches!(effect, Effect::OnlyIf(_)));
        certain.fold(0, |set, effect| {
            let flags = if effect.flags() == Flags::Overwritten { FLAGS } else { 0 };
            set | effect.registers_overwritten() | flags
        })
    }

    /// Returns the registers that it may change, including [`FLAGS`].
    pub fn writes(&self) -> u64 {
        let written = self.effects.iter().fold(0, |set, effect| {
            let flags = if effect.flags() == Flags::Kept { 0 } else { FLAGS };
            set | effect.registers_written() | flags
        });
        written & !bit(TEMPORARY)
    }
}

/// Maximum number of blocks of a small function.
const SMALL: usize = 12;

/// A function of a program as a separate graph.
pub struct FunctionCfg<'p> {
    /// The program's number of each block.
    pub blocks: &'p [BlockIndex],
    /// The edges out of each block.
    pub ways: Vec<&'p [Way]>,
    successors: Vec<SmallVec<[BlockIndex; 2]>>,
}

impl<'p> FunctionCfg<'p> {
    /// Creates the graph of a function.
    pub fn of(program: &'p impl Program, function: FunctionIndex) -> FunctionCfg<'p> {
        let blocks = program.blocks_of(function);
        // A linear search of a few blocks is faster than a map.
        let is_small = blocks.len() <= SMALL;
        let numbered = blocks.iter().enumerate().filter(|_| !is_small);
        let own: FxHashMap<BlockIndex, BlockIndex> =
            numbered.map(|(index, &block)| (block, BlockIndex::from(index))).collect();
        let find = |to: BlockIndex| match is_small {
            true => blocks.iter().position(|&block| block == to).map(BlockIndex::from),
            false => own.get(&to).copied(),
        };
        let ways: Vec<&[Way]> = blocks.iter().map(|&block| program.ways(block)).collect();
        let successors = ways.iter().map(|ways| {
            let mut successors = SmallVec::new();
            for way in *ways {
                let Then::Block(to) = way.then else { continue };
                if let Some(to) = find(to).filter(|to| !successors.contains(to)) {
                    successors.push(to);
                }
            }
            successors
        });
        let successors = successors.collect();
        FunctionCfg { blocks, ways, successors }
    }

    /// Returns the index of `to` among the successors of a block.
    pub fn successor(&self, block: BlockIndex, to: BlockIndex) -> Option<usize> {
        self.successors[block.get()].iter().position(|next| self.blocks[next.get()] == to)
    }
}

impl Cfg for FunctionCfg<'_> {
    fn blocks(&self) -> usize {
        self.blocks.len()
    }

    fn successors(&self, block: BlockIndex) -> &[BlockIndex] {
        &self.successors[block.get()]
    }
}

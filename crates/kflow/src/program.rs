//! What the analyses across functions ask of a program.

use kisa::{Condition, Effect, Flags, Reg, TEMPORARY};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::remembered::Fingerprint;
use crate::{BlockIndex, Cfg};

/// The flags, among the registers of a set of bits.
pub const FLAGS: u64 = 1 << 63;

/// Every register, and the flags.
pub const EVERYTHING: u64 = u64::MAX;

/// A register as a set of bits.
pub fn bit(reg: Reg) -> u64 {
    1 << reg.0
}

/// The number of a function of a program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FunctionIndex(pub u32);

impl FunctionIndex {
    /// The number as a `usize`, to index a slice.
    pub fn get(self) -> usize {
        self.0 as usize
    }
}

impl From<usize> for FunctionIndex {
    fn from(index: usize) -> FunctionIndex {
        FunctionIndex(index as u32)
    }
}

/// A program: functions made of blocks, which are numbered throughout the program.
pub trait Program: Sync {
    /// How many blocks there are.
    fn blocks(&self) -> usize;

    /// How many functions there are.
    fn functions(&self) -> usize;

    /// The blocks of a function; the first is where it begins. Each block belongs to one function.
    fn blocks_of(&self, function: FunctionIndex) -> &[BlockIndex];

    /// The ways out of a block.
    fn ways(&self, block: BlockIndex) -> &[Way];

    /// The register whose number says which of its ways control takes out of a block, counted from 0 in their order; `None`
    /// if that is decided otherwise.
    fn switch_index(&self, _block: BlockIndex) -> Option<Reg> {
        None
    }

    /// The register that is compared with 0 to decide which of its ways control takes out of a block; `None` if their
    /// conditions are about the last comparison.
    fn compared_register(&self, _block: BlockIndex) -> Option<Reg> {
        None
    }

    /// The registers, and the flags, that deciding between those ways reads, instructions aside.
    fn read_by_exit(&self, block: BlockIndex) -> u64;

    /// Whether control may also leave a block from any of its instructions, for a handler that is not known: where an
    /// instruction may fault, or is patched.
    fn may_leave_early(&self, block: BlockIndex) -> bool;

    /// A number by which the instructions of a block can be told from others, see [`crate::fingerprint`]: where it is the same,
    /// [`Program::for_each_instruction`] shows the same.
    fn fingerprint(&self, block: BlockIndex) -> Fingerprint;

    /// Calls `f` with each instruction of a block, in order.
    fn for_each_instruction(&self, block: BlockIndex, f: &mut dyn FnMut(Instruction<'_>));

    /// The effects of the last instruction of a block that happen only on its first edge, like those of a conditional
    /// return. [`Program::for_each_instruction`] shows what that instruction reads, and not these effects.
    fn exit_effects(&self, _block: BlockIndex) -> &[Effect] {
        &[]
    }

    /// Whether control may come to the beginning of a function from where the ways of the blocks do not tell.
    fn has_unknown_callers(&self, function: FunctionIndex) -> bool;

    /// Whether it may come so to another block of the function.
    fn has_other_entries(&self, function: FunctionIndex) -> bool;

    /// Whether a function is called by compiled code of which the ways are not known, or keeps to no convention. Its callers may
    /// rely on registers that the convention lets it change and that its code leaves alone (`-fipa-ra` of GCC).
    fn has_opaque_callers(&self, function: FunctionIndex) -> bool;
}

/// One way out of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The condition of the last comparison on this edge, if known. With a [`Program::compared_register`], the
    /// comparison is with 0.
    pub condition: Option<Condition>,
    /// Which function is called on the way.
    pub callee: Option<Callee>,
    /// Where control goes then.
    pub then: Then,
}

impl Way {
    /// The way to a block without a condition.
    pub fn to(block: BlockIndex) -> Way {
        Way { condition: None, callee: None, then: Then::Block(block) }
    }
}

/// A called function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Callee {
    /// This one.
    Function(FunctionIndex),
    /// One that keeps to the calling convention ([`crate::Convention`]): compiled code calls it by its address.
    Conventional,
    /// One that is written by hand, and that compiled code calls: it may do anything, but comes back with the stack pointer
    /// where the compiler believes it to be.
    HandWritten,
    /// One of which nothing is known: it is outside of the program, or of a program that believes nothing.
    Unknown,
}

/// The successor, after a call if there is one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// To a block of the same function.
    Block(BlockIndex),
    /// Back to the caller.
    Caller,
    /// Nowhere: the call does not come back, or control does not get here.
    Nowhere,
    /// It is not known where.
    Anywhere,
}

/// One instruction of a block.
#[derive(Clone, Copy, Debug)]
pub struct Instruction<'a> {
    /// What it computes.
    pub effects: &'a [Effect],
    /// The registers that it reads, [`FLAGS`] among them: all that it does, whatever its effects say.
    pub reads: u64,
    /// Whether it may read memory that its effects do not say.
    pub reads_unseen: bool,
}

impl Instruction<'_> {
    /// The registers of which it leaves nothing as it was, [`FLAGS`] among them.
    pub fn overwrites(&self) -> u64 {
        // What happens on a condition may not happen.
        let certain = self.effects.iter().take_while(|effect| !matches!(effect, Effect::OnlyIf(_)));
        certain.fold(0, |set, effect| {
            let flags = if effect.flags() == Flags::Overwritten { FLAGS } else { 0 };
            set | effect.registers_overwritten() | flags
        })
    }

    /// The registers that it may change, [`FLAGS`] among them.
    pub fn writes(&self) -> u64 {
        let written = self.effects.iter().fold(0, |set, effect| {
            let flags = if effect.flags() == Flags::Kept { 0 } else { FLAGS };
            set | effect.registers_written() | flags
        });
        written & !bit(TEMPORARY)
    }
}

/// How many blocks a small function has.
const SMALL: usize = 12;

/// A function of a program as a graph of its own.
pub struct FunctionCfg<'p> {
    /// The blocks of the program that its blocks are.
    pub blocks: &'p [BlockIndex],
    /// The ways out of each.
    pub ways: Vec<&'p [Way]>,
    successors: Vec<SmallVec<[BlockIndex; 2]>>,
}

impl<'p> FunctionCfg<'p> {
    /// The graph of a function.
    pub fn of(program: &'p impl Program, function: FunctionIndex) -> FunctionCfg<'p> {
        let blocks = program.blocks_of(function);
        // To look at a few is faster than to make a map.
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

    /// Which of the successors of a block a way leads to.
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

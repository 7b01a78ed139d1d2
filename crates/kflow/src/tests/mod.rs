//! Small programs of x86 instructions, and the results of the analyses.

mod calls;
mod liveness;

use std::hash::Hash;

use kisa::x86::I386;
use kisa::x86::registers::{EAX, EBP, EBX, ECX, EDX, ESI, ESP};
use kisa::{Condition, Effect, Encoding, Isa, Reg, Rewritable, Value};

use super::constants::ConstantMemory;
use super::*;

const MACHINE: Machine = Machine { word: 4, registers: 8, stack_pointer: ESP, link: None, convention: None };

#[derive(Default)]
struct Block {
    code: &'static [u8],
    ways: Vec<Way>,
    reads: u64,
    leaves_early: bool,
}

/// Functions, each a list of blocks. Unless listed, they have no other callers.
#[derive(Default)]
struct Test {
    blocks: Vec<Block>,
    functions: Vec<Vec<BlockIndex>>,
    called_by_others: Vec<usize>,
    called_by_opaque: Vec<usize>,
    entered_elsewhere: Vec<usize>,
}

impl Test {
    /// Adds a function of these blocks.
    fn function(&mut self, blocks: impl IntoIterator<Item = Block>) -> &mut Test {
        let first = self.blocks.len();
        self.blocks.extend(blocks);
        self.functions.push((first..self.blocks.len()).map(BlockIndex::from).collect());
        self
    }

    fn summary(&self, function: usize) -> Summary {
        Summaries::of(self, MACHINE, ConstantMemory::default()).get(Callee::Function(function.into()))
    }

    /// Returns the live registers before a block.
    fn before(&self, block: usize) -> u64 {
        Liveness::of(self, &Summaries::of(self, MACHINE, ConstantMemory::default())).before(block.into())
    }
}

impl Program for Test {
    fn blocks(&self) -> usize {
        self.blocks.len()
    }

    fn functions(&self) -> usize {
        self.functions.len()
    }

    fn blocks_of(&self, function: FunctionIndex) -> &[BlockIndex] {
        &self.functions[function.get()]
    }

    fn ways(&self, block: BlockIndex) -> &[Way] {
        &self.blocks[block.get()].ways
    }

    fn read_by_exit(&self, block: BlockIndex) -> u64 {
        self.blocks[block.get()].reads
    }

    fn may_leave_early(&self, block: BlockIndex) -> bool {
        self.blocks[block.get()].leaves_early
    }

    fn fingerprint(&self, block: BlockIndex) -> Fingerprint {
        fingerprint(|hasher| self.blocks[block.get()].code.hash(hasher))
    }

    fn for_each_instruction(&self, block: BlockIndex, f: &mut dyn FnMut(Instruction<'_>)) {
        let mut bytes = self.blocks[block.get()].code;
        while !bytes.is_empty() {
            let mut effects = Vec::new();
            let inst = I386.decode(bytes, Encoding::Main.at(0)).unwrap();
            I386.relocated_effects(&inst, &[], &mut effects);
            let read = I386.reads(&inst);
            let says_so =
                |effect: &Effect| effect.memory_read().next().is_some() || effect.memory_written().is_some();
            let unseen = effects.contains(&Effect::Escape(Value::Unknown))
                || read.memory && !effects.iter().any(says_so);
            let reads = read.registers | if read.flags { FLAGS } else { 0 };
            f(Instruction { effects: &effects, reads, reads_unseen: unseen });
            bytes = &bytes[inst.bytes.len()..];
        }
    }

    fn has_other_entries(&self, function: FunctionIndex) -> bool {
        self.entered_elsewhere.contains(&function.get())
    }

    fn has_unknown_callers(&self, function: FunctionIndex) -> bool {
        self.called_by_others.contains(&function.get())
    }

    fn has_opaque_callers(&self, function: FunctionIndex) -> bool {
        self.called_by_opaque.contains(&function.get())
    }
}

const RETURN: Way = Way { condition: None, callee: None, then: Then::Caller };

fn call(function: u32, then: Then) -> Way {
    Way { condition: None, callee: Some(Callee::Function(FunctionIndex(function))), then }
}

fn block(code: &'static [u8], ways: impl Into<Vec<Way>>) -> Block {
    Block { code, ways: ways.into(), ..Block::default() }
}

/// Creates a block that ends with a conditional branch.
fn branch(code: &'static [u8], condition: Condition, taken: u32, next: u32) -> Block {
    let way = |condition, to| Way { condition: Some(condition), ..Way::to(BlockIndex(to)) };
    let ways = vec![way(condition, taken), way(condition.inverse(), next)];
    Block { code, ways, reads: FLAGS, ..Block::default() }
}

fn to(block: u32) -> Way {
    Way::to(BlockIndex(block))
}

fn set(registers: &[Reg]) -> u64 {
    registers.iter().fold(0, |set, &reg| set | bit(reg))
}

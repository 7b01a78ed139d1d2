//! The decoded instructions of a function.

use std::ops::Range;

use kflow::BlockIndex;
use kisa::Effect;

use crate::code::{Block, Code, Reader};
use crate::image::Addr;

/// The instructions of a function and their effects, decoded once for all visits of a block.
#[derive(Default)]
pub(super) struct Decoded {
    instructions: Vec<Instruction>,
    effects: Vec<Effect>,
    /// The range of each block's instructions, and the start of their effects.
    blocks: Vec<Option<(Range<usize>, usize)>>,
}

struct Instruction {
    at: Addr,
    /// The end of its effects.
    end: usize,
}

impl Decoded {
    /// Switches to a function of `blocks` blocks, none of them decoded.
    pub(super) fn begin(&mut self, blocks: usize) {
        self.instructions.clear();
        self.effects.clear();
        self.blocks.clear();
        self.blocks.resize(blocks, None);
    }

    pub(super) fn decode<'c>(
        &mut self,
        code: &Code<'c>,
        reader: &mut Reader<'c>,
        index: BlockIndex,
        block: &Block,
    ) {
        if self.blocks[index.get()].is_some() {
            return;
        }
        let (first, effects) = (self.instructions.len(), self.effects.len());
        let mut at = block.start;
        while at < block.end {
            code.read_effects(reader, at, &mut self.effects);
            self.instructions.push(Instruction { at, end: self.effects.len() });
            // An invalid instruction ends the block.
            at = at.plus(code.length(at).unwrap_or(u64::from(u32::MAX)));
        }
        self.blocks[index.get()] = Some((first..self.instructions.len(), effects));
    }

    /// Returns the instructions of a decoded block.
    pub(super) fn instructions(&self, block: BlockIndex) -> impl Iterator<Item = (Addr, &[Effect])> {
        let (range, start) = self.blocks[block.get()].clone().unwrap_or_default();
        let instructions = &self.instructions[range];
        let ends = instructions.iter().map(|instruction| instruction.end);
        let starts = std::iter::once(start).chain(ends);
        instructions.iter().zip(starts).map(|(insn, start)| (insn.at, &self.effects[start..insn.end]))
    }
}

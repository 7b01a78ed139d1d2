//! Tails that blocks share, down to single instructions.
//!
//! The comparison starts at the last instructions of blocks and continues backwards as long as at least two blocks are
//! equal. The result is a tree, and the tails are its branching points: there, a longer tail has fewer members.

use std::ops::Range;

use indexmap::IndexMap;
use kcfg::graph::Graph;
use kcfg::index::NodeId;
use rayon::prelude::*;
use rustc_hash::FxBuildHasher;

use super::Partition;

/// A block and the offset in bytes where its tail begins.
pub type End = (NodeId, u32);

/// Members by contents.
type Buckets = IndexMap<Vec<u8>, Vec<usize>, FxBuildHasher>;

/// The instructions of a block, last one first.
struct Backwards {
    block: NodeId,
    /// The instructions.
    instructions: Vec<Instruction>,
}

/// An instruction of a block.
pub struct Instruction {
    /// Its bytes in the block.
    pub range: Range<u32>,
    /// The condition from an `it`.
    pub condition: Option<u8>,
}

impl Instruction {
    /// Iterates over the instructions of a block, up to a `None` where the bytes cannot be decoded.
    pub fn all(graph: &Graph, block: NodeId) -> impl Iterator<Item = Option<Instruction>> {
        graph.decode(block).map(|step| {
            let inst = step?;
            let start = inst.at.address as u32;
            let range = start..start + inst.bytes.len() as u32;
            Some(Instruction { range, condition: inst.at.condition })
        })
    }
}

impl Backwards {
    /// Reads a block; `None` if it cannot be decoded completely.
    fn of(graph: &Graph, block: NodeId) -> Option<Backwards> {
        let mut instructions: Vec<Instruction> = Instruction::all(graph, block).collect::<Option<_>>()?;
        instructions.reverse();
        Some(Backwards { block, instructions })
    }

    /// Returns the tail of this many instructions, if a jump may precede it.
    fn end(&self, graph: &Graph, length: usize) -> Option<End> {
        let Some(before) = self.instructions.get(length) else { return Some((self.block, 0)) };
        let first = &self.instructions[length.checked_sub(1)?];
        let bytes = &graph.bytes_of(self.block)[before.range.start as usize..];
        let inst = graph.isa().decode(bytes, graph.encoding(self.block).at(0));
        let holds_interrupts = inst.is_some_and(|inst| graph.isa().holds_interrupts(&inst));
        let is_apart = first.condition.is_none() && !holds_interrupts;
        is_apart.then_some((self.block, first.range.start))
    }
}

impl Partition<'_> {
    /// Returns the tails that several of these blocks share, as classes of identical ones. Classes without a block that
    /// `may_go` are excluded, and so are parts of blocks unless some tail in the class `is_worth` a jump. All tails of
    /// a class are to be cut off, or none.
    pub fn tails(
        &self,
        blocks: &[NodeId],
        may_go: impl Fn(NodeId) -> bool,
        is_worth: impl Fn(End) -> bool,
    ) -> Vec<Vec<End>> {
        let mut alike = Buckets::default();
        let keys: Vec<Vec<u8>> = blocks.par_iter().map(|&block| self.key_of_end(block)).collect();
        for (i, key) in keys.into_iter().enumerate() {
            alike.entry(key).or_default().push(i);
        }
        let are_wanted =
            |members: &[NodeId]| members.len() > 1 && members.iter().any(|&member| may_go(member));
        let mut tails = Vec::new();
        for members in alike.into_values() {
            let members: Vec<NodeId> = members.into_iter().map(|i| blocks[i]).collect();
            if are_wanted(&members) {
                self.climb(&members, &are_wanted, &is_worth, &mut tails);
            }
        }
        tails
    }

    /// Adds the tails of blocks with equal terminators.
    fn climb(
        &self,
        blocks: &[NodeId],
        are_wanted: &impl Fn(&[NodeId]) -> bool,
        is_worth: &impl Fn(End) -> bool,
        tails: &mut Vec<Vec<End>>,
    ) {
        let graph = self.graph;
        let read: Vec<Backwards> = blocks.iter().filter_map(|&block| Backwards::of(graph, block)).collect();
        // The number of last instructions that these blocks share.
        let mut pending: Vec<(usize, Vec<usize>)> = vec![(0, (0..read.len()).collect())];
        while let Some((length, members)) = pending.pop() {
            let mut longer = Buckets::default();
            for &member in &members {
                if let Some(instruction) = read[member].instructions.get(length) {
                    let key = self.key_of(read[member].block, instruction);
                    longer.entry(key).or_default().push(member);
                }
            }
            let is_branching = longer.len() != 1 || longer[0].len() < members.len();
            if is_branching {
                let mut ends: Vec<End> =
                    members.iter().filter_map(|&member| read[member].end(graph, length)).collect();
                if !ends.iter().any(|&end| is_worth(end)) {
                    ends.retain(|&(_, start)| start == 0);
                }
                tails.extend((ends.len() > 1).then_some(ends));
            }
            for members in longer.into_values() {
                let blocks: Vec<NodeId> = members.iter().map(|&member| read[member].block).collect();
                if are_wanted(&blocks) {
                    pending.push((length + 1, members));
                }
            }
        }
    }

    fn key_of_end(&self, block: NodeId) -> Vec<u8> {
        let end = self.reader.read_end(block);
        self.key(end)
    }

    /// Returns bytes that are equal for instructions with the same effect.
    pub fn key_of(&self, block: NodeId, instruction: &Instruction) -> Vec<u8> {
        let contents = self.reader.read_bytes(block, instruction.range.clone());
        let mut key = self.key(contents);
        key.push(instruction.condition.map_or(0, |condition| condition + 1));
        key
    }
}

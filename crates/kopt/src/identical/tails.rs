//! Ends that blocks share, down to single instructions.
//!
//! The comparison of block ends begins with the last instructions and goes backwards, as long as at least two blocks
//! are equal. That is a tree, and the tails are its branching points: what more blocks share than share one
//! instruction more.

use std::ops::Range;

use indexmap::IndexMap;
use kcfg::graph::Graph;
use kcfg::index::NodeId;
use rayon::prelude::*;
use rustc_hash::FxBuildHasher;

use super::Partition;

/// The end of a block: the block, and where its end begins in it, in bytes.
pub type End = (NodeId, u32);

/// Members by what they hold.
type Buckets = IndexMap<Vec<u8>, Vec<usize>, FxBuildHasher>;

/// A block as it is read from its end.
struct Backwards {
    block: NodeId,
    /// Its instructions, the last one first.
    instructions: Vec<Instruction>,
}

/// An instruction of a block.
pub struct Instruction {
    /// Its offset in the block, in bytes.
    pub range: Range<u32>,
    /// What an `it` says of it, as part of an address; 0 if nothing.
    pub condition: u64,
}

impl Instruction {
    /// The instructions of a block; `None` instead of what is none, behind which nothing follows.
    pub fn all(graph: &Graph, block: NodeId) -> impl Iterator<Item = Option<Instruction>> {
        let encoding = graph.encoding(block);
        graph.decode(block).map(move |step| {
            let (at, address, insn) = step?;
            let condition = address ^ encoding.address(at.into());
            Some(Instruction { range: at..at + u32::from(insn.len), condition })
        })
    }
}

impl Backwards {
    /// Reads a block; `None` if it holds something else than instructions.
    fn of(graph: &Graph, block: NodeId) -> Option<Backwards> {
        let mut instructions: Vec<Instruction> = Instruction::all(graph, block).collect::<Option<_>>()?;
        instructions.reverse();
        Some(Backwards { block, instructions })
    }

    /// The end with so many instructions, if a jump may come in front of them.
    fn end(&self, graph: &Graph, length: usize) -> Option<End> {
        let Some(before) = self.instructions.get(length) else { return Some((self.block, 0)) };
        let first = &self.instructions[length.checked_sub(1)?];
        let bytes = &graph.bytes_of(self.block)[before.range.start as usize..];
        let is_apart = first.condition == 0 && !graph.isa().holds_interrupts(bytes);
        is_apart.then_some((self.block, first.range.start))
    }
}

impl Partition<'_> {
    /// The ends that several of these blocks share, as classes of identical ones. Classes without a block that
    /// `may_go` are excluded, and so are parts of blocks unless such an end `is_worth` a jump. Of a class, all ends
    /// are to be cut off, or none is.
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

    /// Adds the tails of blocks that end alike.
    fn climb(
        &self,
        blocks: &[NodeId],
        are_wanted: &impl Fn(&[NodeId]) -> bool,
        is_worth: &impl Fn(End) -> bool,
        tails: &mut Vec<Vec<End>>,
    ) {
        let graph = self.graph;
        let read: Vec<Backwards> = blocks.iter().filter_map(|&block| Backwards::of(graph, block)).collect();
        // So many last instructions are the same in these blocks.
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

    /// An instruction of a block as bytes that are equal for those that do the same.
    pub fn key_of(&self, block: NodeId, instruction: &Instruction) -> Vec<u8> {
        let contents = self.reader.read_bytes(block, instruction.range.clone());
        let mut key = self.key(contents);
        key.extend(instruction.condition.to_le_bytes());
        key
    }
}

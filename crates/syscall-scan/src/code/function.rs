//! Functions as views of runs: basic blocks and the edges between them.

use fixedbitset::FixedBitSet;
use indexmap::IndexSet;
use kflow::BlockIndex;
use kisa::Effect;
use rustc_hash::{FxBuildHasher, FxHashSet};
use smallvec::SmallVec;

use super::{Code, ExitId, ExitKind, RunId};
use crate::image::Addr;

/// The most instructions of a function that is followed where it is called, rather than assumed about.
const MAX_STRAIGHT: usize = 8;

/// How many blocks a chain has at most, see [`Function::chain_to`].
const MAX_CHAIN: usize = 6;

/// Instructions, one behind the other, with their effects.
pub type StraightInstructions = Vec<(Addr, Vec<Effect>)>;

/// A basic block.
#[derive(Clone, Debug)]
pub struct Block {
    /// The first instruction.
    pub start: Addr,
    /// The address after the last.
    pub end: Addr,
    /// Its last instruction, unless control simply goes on to the block that follows.
    pub exit: Option<ExitId>,
    /// Where control can go within the function.
    pub successors: SmallVec<[BlockIndex; 2]>,
}

/// The code that control can reach from an entry without a call, up to the entries of other functions. A
/// block that two functions jump into belongs to both.
#[derive(Clone, Debug)]
pub struct Function {
    /// Where it begins.
    pub entry: Addr,
    /// Its blocks; the first one begins at the entry.
    pub blocks: Vec<Block>,
}

impl Function {
    /// The function that begins at an address.
    pub fn new(code: &Code, entry: Addr) -> Function {
        let mut starts = IndexSet::<Addr, FxBuildHasher>::from_iter([entry]);
        let mut blocks = Vec::new();
        while let Some(&start) = starts.get_index(blocks.len()) {
            let (end, exit) = code.block_at(start);
            let next = [end];
            let targets: &[Addr] = match exit {
                Some(exit) => &code.exit(exit).successors,
                None => &next,
            };
            let mut successors = SmallVec::with_capacity(targets.len());
            for &target in targets {
                if target != entry && code.entry(target).is_some() {
                    continue; // a tail call
                }
                let successor = BlockIndex(starts.insert_full(target).0 as u32);
                if !successors.contains(&successor) {
                    successors.push(successor);
                }
            }
            blocks.push(Block { start, end, exit, successors });
        }
        Function { entry, blocks }
    }

    /// By block, those from which control can go there.
    pub(crate) fn predecessors(&self) -> Vec<Vec<BlockIndex>> {
        let mut predecessors = vec![Vec::new(); self.blocks.len()];
        for (index, block) in self.blocks.iter().enumerate() {
            block.successors.iter().for_each(|next| predecessors[next.get()].push(BlockIndex(index as u32)));
        }
        predecessors
    }

    /// A block and those in front of it that control goes through one after the other, whichever way it comes, as a
    /// function of their own.
    pub(crate) fn chain_to(&self, last: BlockIndex, predecessors: &[Vec<BlockIndex>]) -> Function {
        let mut chain = vec![last];
        let mut first = last;
        while let ([before], true) = (&predecessors[first.get()][..], chain.len() < MAX_CHAIN) {
            if first == BlockIndex(0) || chain.contains(before) {
                break;
            }
            first = *before;
            chain.push(first);
        }
        chain.reverse();
        let block = |(number, index): (usize, &BlockIndex)| {
            let Block { start, end, exit, .. } = self.blocks[index.get()];
            let next = (number + 1 < chain.len()).then_some(BlockIndex(number as u32 + 1));
            Block { start, end, exit, successors: next.into_iter().collect() }
        };
        let blocks: Vec<Block> = chain.iter().enumerate().map(block).collect();
        Function { entry: blocks[0].start, blocks }
    }

    /// The block that holds an instruction.
    pub fn block_at(&self, at: Addr) -> Option<BlockIndex> {
        let place = self.blocks.iter().position(|block| block.start <= at && at < block.end)?;
        Some(BlockIndex(place as u32))
    }
}

impl Code<'_> {
    /// The end of the block that begins at `start`, and its exit.
    fn block_at(&self, start: Addr) -> (Addr, Option<ExitId>) {
        let (at, begins) = self.marks.straight(start);
        match self.exit_at(at).filter(|_| !begins) {
            Some(exit) => (self.exit(exit).next.max(at.plus(1)), Some(exit)),
            None => (at, None),
        }
    }

    /// The start of the shortest of the runs that end with an exit, if all longer ones pass through it. (They may not,
    /// where instructions overlap.)
    pub fn last_run(&self, exit: ExitId) -> Option<Addr> {
        let starts = || self.exit(exit).runs.iter().map(|&run| self.marks.run(run).start);
        let last = starts().max()?;
        let meets = |start| self.instructions_from(start).find(|&at| at >= last) == Some(last);
        starts().all(meets).then_some(last)
    }

    /// An instruction that can run and those behind it, one after the other.
    pub fn instructions_from(&self, start: Addr) -> impl Iterator<Item = Addr> {
        std::iter::successors(Some(start), |&at| self.length(at).map(|length| at.plus(length)))
    }

    /// The entries of the functions that an instruction is in.
    pub fn functions_of(&self, at: Addr) -> Vec<Addr> {
        let mut seen = FxHashSet::default();
        self.functions_around(self.exit_after(at).map(|exit| (exit, at)).into_iter(), |run| seen.insert(run))
    }

    /// The entries of the functions that have one of these exits.
    pub(super) fn functions_with(&self, exits: impl Iterator<Item = ExitId>) -> Vec<Addr> {
        let mut seen = FixedBitSet::with_capacity(self.marks.runs());
        self.functions_around(exits.map(|exit| (exit, self.exit(exit).at)), |run| !seen.put(run.get()))
    }

    /// The entries of the functions that reach one of these exits from the address beside it or from in front of that,
    /// found by walking edges backwards. `is_new` says of each run once that it has not been seen before.
    fn functions_around(
        &self,
        exits: impl Iterator<Item = (ExitId, Addr)>,
        mut is_new: impl FnMut(RunId) -> bool,
    ) -> Vec<Addr> {
        let mut stack: Vec<(ExitId, Addr)> = exits.collect();
        let mut functions = Vec::new();
        while let Some((exit, limit)) = stack.pop() {
            for &id in &self.exit(exit).runs {
                let run = self.marks.run(id);
                if run.start > limit || !is_new(id) {
                    continue;
                }
                if self.entry(run.start).is_some() {
                    functions.push(run.start);
                    continue;
                }
                stack.extend(run.incoming.iter().map(|&exit| (exit, self.exit(exit).at)));
            }
        }
        functions.sort_unstable();
        functions
    }

    /// The instructions of a function, with their effects, that is a few straight ones and a return.
    pub fn straight_instructions(&self, function: Addr) -> Option<StraightInstructions> {
        let mut first = self.instructions_from(function).take(MAX_STRAIGHT);
        let (last, exit) = first.find_map(|at| Some((at, self.exit_at(at)?)))?;
        let instructions = self.instructions_from(function).take_while(|&at| at <= last);
        let effects = |at| (at, self.effects_at(at));
        (self.exit(exit).kind == ExitKind::Return).then(|| instructions.map(effects).collect())
    }

    /// The registers, as bits, that a function of a few straight instructions writes to: such as hand the program
    /// counter over in any register (`__x86.get_pc_thunk.bx`), and do not preserve it.
    pub fn written_by_leaf(&self, callee: Addr) -> u64 {
        let instructions = self.straight_instructions(callee).unwrap_or_default();
        let effects = instructions.iter().flat_map(|(_, effects)| effects);
        effects.fold(0, |written, effect| written | effect.registers_written())
    }

    /// The exit of the run that an instruction is in.
    fn exit_after(&self, at: Addr) -> Option<ExitId> {
        match self.marks.straight(at) {
            (next, true) => self.marks.exit_of_run(next),
            (end, false) => self.exit_at(end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first addresses of the chain to a block, given the successors of all blocks.
    fn chain(successors: &[&[u32]], last: u32) -> Vec<u64> {
        let blocks = successors.iter().enumerate().map(|(index, next)| Block {
            start: Addr(index as u64),
            end: Addr(index as u64 + 1),
            exit: None,
            successors: next.iter().map(|&next| BlockIndex(next)).collect(),
        });
        let function = Function { entry: Addr(0), blocks: blocks.collect() };
        let chain = function.chain_to(BlockIndex(last), &function.predecessors());
        chain.blocks.iter().map(|block| block.start.0).collect()
    }

    #[test]
    fn chains_begin_where_ways_meet() {
        // There are two ways to 2.
        assert_eq!(chain(&[&[1, 2], &[2], &[3, 4], &[], &[]], 4), [2, 4]);
        assert_eq!(chain(&[&[1], &[2], &[]], 2), [0, 1, 2]);
        assert_eq!(chain(&[&[1], &[2], &[0]], 2), [0, 1, 2]);
        // A loop that control does not come into.
        assert_eq!(chain(&[&[], &[2], &[1]], 2), [1, 2]);
        let long: Vec<Vec<u32>> = (1..20).map(|next| vec![next]).chain([vec![]]).collect();
        let long: Vec<&[u32]> = long.iter().map(Vec::as_slice).collect();
        assert_eq!(chain(&long, 19).len(), MAX_CHAIN);
    }
}

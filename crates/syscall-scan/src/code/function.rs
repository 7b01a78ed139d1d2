//! Functions as views of runs: basic blocks and the edges between them.

use fixedbitset::FixedBitSet;
use indexmap::IndexSet;
use kflow::BlockIndex;
use kisa::Effect;
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::changes::{ChangedFunctions, Changes};
use super::reachable::Code;
use super::run::{ExitId, ExitKind, RunId};
use crate::image::Addr;

/// Maximum number of instructions in a function that is applied at its calls, rather than summarised.
const MAX_STRAIGHT: usize = 8;

/// Maximum number of blocks in a chain, see [`Function::chain_to`].
const MAX_CHAIN: usize = 6;

/// Consecutive instructions with their effects.
pub type StraightInstructions = Vec<(Addr, Vec<Effect>)>;

/// A basic block.
#[derive(Clone, Debug)]
pub struct Block {
    /// The first instruction.
    pub start: Addr,
    /// The address after the last.
    pub end: Addr,
    /// Its last instruction, unless control falls through to the next block.
    pub exit: Option<ExitId>,
    /// The successors within the function.
    pub successors: SmallVec<[BlockIndex; 2]>,
}

/// The code reachable from an entry without calls, up to the entries of other functions. A block that two functions
/// jump into belongs to both.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its first address.
    pub entry: Addr,
    /// Its blocks; the first one begins at the entry.
    pub blocks: Vec<Block>,
    /// The places of its blocks by rising start, if there are many.
    places: Vec<Place>,
}

/// A block in the order of its function.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: Addr,
    /// The highest end of all blocks up to here: blocks overlap where instructions do.
    highest_end: Addr,
    block: BlockIndex,
}

/// Maximum number of blocks for a linear search.
const FEW_BLOCKS: usize = 16;

impl Function {
    /// Creates the function at an address.
    pub fn new(code: &Code, entry: Addr) -> Function {
        let mut starts = IndexSet::<Addr, FxBuildHasher>::from_iter([entry]);
        let mut blocks = Vec::new();
        // The last block that is known to lead to each block.
        let mut led_by = Vec::new();
        while let Some(&start) = starts.get_index(blocks.len()) {
            let (end, exit) = code.block_at(start);
            let next = [end];
            let targets: &[Addr] = match exit {
                Some(exit) => &code.exit(exit).successors,
                None => &next,
            };
            let mut successors = SmallVec::with_capacity(targets.len());
            for &target in targets {
                let successor = match starts.get_index_of(&target) {
                    Some(successor) => successor,
                    None if code.entry(target).is_some() => continue, // a tail call
                    None => starts.insert_full(target).0,
                };
                led_by.resize(starts.len(), None);
                if led_by[successor].replace(blocks.len()) != Some(blocks.len()) {
                    successors.push(BlockIndex(successor as u32));
                }
            }
            blocks.push(Block { start, end, exit, successors });
        }
        Function::with_blocks(entry, blocks)
    }

    fn with_blocks(entry: Addr, blocks: Vec<Block>) -> Function {
        let mut places = Vec::new();
        if blocks.len() > FEW_BLOCKS {
            let place = |(index, block): (usize, &Block)| {
                let block_index = BlockIndex(index as u32);
                Place { start: block.start, highest_end: block.end, block: block_index }
            };
            places.extend(blocks.iter().enumerate().map(place));
            places.sort_unstable_by_key(|place| (place.start, place.block));
            let mut highest = Addr(0);
            for place in &mut places {
                highest = highest.max(place.highest_end);
                place.highest_end = highest;
            }
        }
        Function { entry, blocks, places }
    }

    /// Returns the predecessors of each block.
    pub(crate) fn predecessors(&self) -> Vec<Vec<BlockIndex>> {
        let mut predecessors = vec![Vec::new(); self.blocks.len()];
        for (index, block) in self.blocks.iter().enumerate() {
            block.successors.iter().for_each(|next| predecessors[next.get()].push(BlockIndex(index as u32)));
        }
        predecessors
    }

    /// Returns the single-predecessor chain that leads to a block, as a separate function.
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
        Function::with_blocks(blocks[0].start, blocks)
    }

    /// Returns the block that contains an instruction; the first of several.
    pub fn block_at(&self, at: Addr) -> Option<BlockIndex> {
        let holds = |block: &Block| block.start <= at && at < block.end;
        if self.places.is_empty() {
            return Some(BlockIndex(self.blocks.iter().position(holds)? as u32));
        }
        let next = self.places.partition_point(|place| place.start <= at);
        let before = self.places[..next].iter().rev().take_while(|place| at < place.highest_end);
        before.map(|place| place.block).filter(|block| holds(&self.blocks[block.get()])).min()
    }

    /// Returns the block that begins at an address.
    pub(crate) fn block_from(&self, start: Addr) -> Option<BlockIndex> {
        if self.places.is_empty() {
            let place = self.blocks.iter().position(|block| block.start == start)?;
            return Some(BlockIndex(place as u32));
        }
        let place = self.places.binary_search_by_key(&start, |place| place.start).ok()?;
        Some(self.places[place].block)
    }
}

impl Code<'_> {
    /// Returns the end of the block that begins at `start`, and its exit.
    fn block_at(&self, start: Addr) -> (Addr, Option<ExitId>) {
        let (at, begins) = self.marks.straight(start);
        match self.exit_at(at).filter(|_| !begins) {
            Some(exit) => (self.exit(exit).next.max(at.plus(1)), Some(exit)),
            None => (at, None),
        }
    }

    /// Returns the start of the shortest run that ends with an exit, if all longer runs pass through it. (They may not
    /// if instructions overlap.)
    pub fn last_run(&self, exit: ExitId) -> Option<Addr> {
        let starts = || self.exit(exit).runs.iter().map(|&run| self.marks.run(run).start);
        let last = starts().max()?;
        let meets = |start| self.instructions_from(start).find(|&at| at >= last) == Some(last);
        starts().all(meets).then_some(last)
    }

    /// Returns a reachable instruction and the following ones.
    pub fn instructions_from(&self, start: Addr) -> impl Iterator<Item = Addr> {
        std::iter::successors(Some(start), |&at| self.length(at).map(|length| at.plus(length)))
    }

    /// Returns the entries of the functions that contain an instruction.
    pub fn functions_of(&self, at: Addr) -> Vec<Addr> {
        let (mut runs, mut exits) = (FxHashSet::default(), FxHashSet::default());
        let exit = self.exit_after(at).map(|exit| (exit, at));
        self.functions_around(exit.into_iter(), |run| runs.insert(run), |exit| exits.insert(exit))
    }

    /// Returns the entries of the functions that contain each exit, by exit and rising address: [`Code::functions_of`]
    /// for many exits at once.
    pub(crate) fn functions_of_jumps(&self, exits: &[ExitId]) -> FxHashMap<ExitId, Vec<Addr>> {
        let mut functions: FxHashMap<ExitId, Vec<Addr>> =
            exits.iter().map(|&exit| (exit, Vec::new())).collect();
        for entry in self.functions_with(exits.iter().copied()) {
            for block in Function::new(self, entry).blocks {
                let Some(found) = block.exit.and_then(|exit| functions.get_mut(&exit)) else { continue };
                // Blocks that end with the same exit may overlap.
                if found.last() != Some(&entry) {
                    found.push(entry);
                }
            }
        }
        functions
    }

    /// Returns the entries of the functions that contain any of these exits.
    pub(super) fn functions_with(&self, exits: impl Iterator<Item = ExitId>) -> Vec<Addr> {
        let mut seen_runs = FixedBitSet::with_capacity(self.marks.runs());
        let mut seen_exits = FixedBitSet::with_capacity(self.exits.len());
        let exits = exits.map(|exit| (exit, self.exit(exit).at));
        let is_new_run = |run: RunId| !seen_runs.put(run.get());
        self.functions_around(exits, is_new_run, |exit| !seen_exits.put(exit.0 as usize))
    }

    /// Returns the entries of the functions that reach any of these exits from its paired address or before, by walking
    /// edges backwards. `is_new_run` and `is_new_exit` return true once for each run and exit.
    fn functions_around(
        &self,
        exits: impl Iterator<Item = (ExitId, Addr)>,
        mut is_new_run: impl FnMut(RunId) -> bool,
        mut is_new_exit: impl FnMut(ExitId) -> bool,
    ) -> Vec<Addr> {
        let mut stack: Vec<(ExitId, Addr)> = exits.collect();
        let mut functions = Vec::new();
        while let Some((exit, limit)) = stack.pop() {
            for &id in &self.exit(exit).runs {
                let run = self.marks.run(id);
                if run.start > limit || !is_new_run(id) {
                    continue;
                }
                if self.entry(run.start).is_some() {
                    functions.push(run.start);
                    continue;
                }
                let incoming = run.incoming.iter().filter(|&&exit| is_new_exit(exit));
                stack.extend(incoming.map(|&exit| (exit, self.exit(exit).at)));
            }
        }
        functions.sort_unstable();
        functions
    }

    /// Returns the instructions of a function, with their effects, if it has only a few straight-line ones and a
    /// return.
    pub fn straight_instructions(&self, function: Addr) -> Option<StraightInstructions> {
        let mut first = self.instructions_from(function).take(MAX_STRAIGHT);
        let (last, exit) = first.find_map(|at| Some((at, self.exit_at(at)?)))?;
        let instructions = self.instructions_from(function).take_while(|&at| at <= last);
        let effects = |at| (at, self.effects_at(at));
        (self.exit(exit).kind == ExitKind::Return).then(|| instructions.map(effects).collect())
    }

    /// Returns the registers, as bits, that a function of a few straight-line instructions writes. Functions that
    /// return the program counter may use any register (`__x86.get_pc_thunk.bx`), and do not preserve it.
    pub fn written_by_leaf(&self, callee: Addr) -> u64 {
        let instructions = self.straight_instructions(callee).unwrap_or_default();
        let effects = instructions.iter().flat_map(|(_, effects)| effects);
        effects.fold(0, |written, effect| written | effect.registers_written())
    }

    /// Returns the exit of the run that contains an instruction.
    fn exit_after(&self, at: Addr) -> Option<ExitId> {
        match self.marks.straight(at) {
            (next, true) => self.marks.exit_of_run(next),
            (end, false) => self.exit_at(end),
        }
    }
}

impl Code<'_> {
    /// Returns the functions that have changed since the last call.
    pub fn take_changed(&mut self) -> ChangedFunctions {
        let Changes { mut exits, mut entries } = std::mem::take(&mut self.changes);
        entries.sort_unstable();
        entries.dedup();
        for &entry in &entries {
            let around =
                self.marks.exit_of_run(entry).into_iter().chain(self.incoming(entry).iter().copied());
            around.for_each(|exit| exits.grow_and_insert(exit.0 as usize));
        }
        let functions = self.functions_with(exits.ones().map(|exit| ExitId(exit as u32)));
        entries.retain(|&entry| self.entry(entry).is_none());
        ChangedFunctions { functions, gone: entries }
    }

    /// Returns the functions with computed jumps, by rising address.
    pub fn functions_that_jump(&self) -> Vec<Addr> {
        self.functions_with(self.computed_jumps.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the first addresses of the chain to a block, given the successors of all blocks.
    fn chain(successors: &[&[u32]], last: u32) -> Vec<u64> {
        let blocks = successors.iter().enumerate().map(|(index, next)| Block {
            start: Addr(index as u64),
            end: Addr(index as u64 + 1),
            exit: None,
            successors: next.iter().map(|&next| BlockIndex(next)).collect(),
        });
        let function = Function::with_blocks(Addr(0), blocks.collect());
        let chain = function.chain_to(BlockIndex(last), &function.predecessors());
        chain.blocks.iter().map(|block| block.start.0).collect()
    }

    /// `block_at` returns the first block that contains an address, however many blocks there are.
    #[test]
    fn blocks_are_found_where_they_overlap() {
        // Every third block has another one in its middle, and every fifth has a gap after it.
        let blocks = (0..60u64).map(|index| {
            let start = 16 * index + if index % 3 == 1 { 0 } else { 4 * (index % 3) };
            let size = if index % 3 == 0 { 40 } else { 16 - index % 5 };
            let (start, end) = (Addr(start), Addr(start + size));
            Block { start, end, exit: None, successors: SmallVec::new() }
        });
        let function = Function::with_blocks(Addr(0), blocks.collect());
        for at in (0..1100).map(Addr) {
            let holds = |block: &Block| block.start <= at && at < block.end;
            let first = function.blocks.iter().position(holds);
            assert_eq!(function.block_at(at).map(BlockIndex::get), first, "{at:?}");
            let from = function.blocks.iter().position(|block| block.start == at);
            assert_eq!(function.block_from(at).map(BlockIndex::get), from, "{at:?}");
        }
    }

    #[test]
    fn chains_begin_where_ways_meet() {
        // Two paths lead to 2.
        assert_eq!(chain(&[&[1, 2], &[2], &[3, 4], &[], &[]], 4), [2, 4]);
        assert_eq!(chain(&[&[1], &[2], &[]], 2), [0, 1, 2]);
        assert_eq!(chain(&[&[1], &[2], &[0]], 2), [0, 1, 2]);
        // An unreachable loop.
        assert_eq!(chain(&[&[], &[2], &[1]], 2), [1, 2]);
        let long: Vec<Vec<u32>> = (1..20).map(|next| vec![next]).chain([vec![]]).collect();
        let long: Vec<&[u32]> = long.iter().map(Vec::as_slice).collect();
        assert_eq!(chain(&long, 19).len(), MAX_CHAIN);
    }
}

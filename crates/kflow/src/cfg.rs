//! The view of a control-flow graph that the analyses need.

/// The number of a block of a graph; 0 is the entry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockIndex(pub u32);

impl BlockIndex {
    /// Returns the number as a `usize`, to index a slice.
    pub fn get(self) -> usize {
        self.0 as usize
    }
}

impl From<usize> for BlockIndex {
    fn from(index: usize) -> BlockIndex {
        BlockIndex(index as u32)
    }
}

impl From<BlockIndex> for usize {
    fn from(index: BlockIndex) -> usize {
        index.get()
    }
}

/// A control-flow graph, for example of a function.
pub trait Cfg {
    /// Returns the number of blocks; at least one.
    fn blocks(&self) -> usize;

    /// Returns the successors of a block, each once.
    fn successors(&self, block: BlockIndex) -> &[BlockIndex];

    /// Whether a block ends with a jump that adds no facts, so that the states of all such jumps to the same blocks can
    /// be joined once.
    fn has_plain_jump(&self, _block: BlockIndex) -> bool {
        false
    }
}

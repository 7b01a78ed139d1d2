//! What blocks read and overwrite.

use crate::BlockIndex;
use crate::program::{EVERYTHING, Program};

/// The registers that a block reads before it writes them, and those that it overwrites.
pub(crate) struct Touched {
    pub(crate) reads: u64,
    pub(crate) overwrites: u64,
}

impl Touched {
    pub(crate) fn by(program: &impl Program, block: BlockIndex) -> Touched {
        if program.may_leave_early(block) {
            return Touched { reads: EVERYTHING, overwrites: 0 };
        }
        let mut touched = Touched { reads: 0, overwrites: 0 };
        program.for_each_instruction(block, &mut |instruction| {
            touched.reads |= instruction.reads & !touched.overwrites;
            touched.overwrites |= instruction.overwrites();
        });
        touched.reads |= program.read_by_exit(block) & !touched.overwrites;
        touched
    }

    /// What is live in front of the block, given what is at its end.
    pub(crate) fn live_before(&self, live: u64) -> u64 {
        live & !self.overwrites | self.reads
    }
}

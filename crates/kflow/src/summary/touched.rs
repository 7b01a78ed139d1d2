//! The registers that blocks read and overwrite.

use crate::BlockIndex;
use crate::program::{EVERYTHING, Program};

/// The registers that a block reads before it writes them, and the registers that it overwrites.
#[derive(Clone)]
pub(crate) struct Touched {
    pub(crate) reads: u64,
    pub(crate) overwrites: u64,
}

impl Touched {
    /// The registers of a block without instructions.
    pub(crate) const NOTHING: Touched = Touched { reads: 0, overwrites: 0 };

    /// The registers of a block that is not reached.
    pub(crate) const UNREACHED: Touched = Touched { reads: 0, overwrites: EVERYTHING };

    pub(crate) fn by(program: &impl Program, block: BlockIndex) -> Touched {
        if program.may_leave_early(block) {
            return Touched { reads: EVERYTHING, overwrites: 0 };
        }
        let mut touched = Touched::NOTHING;
        program.for_each_instruction(block, &mut |instruction| {
            touched.add(instruction.reads, instruction.overwrites());
        });
        touched.reads |= program.read_by_exit(block) & !touched.overwrites;
        touched
    }

    /// Adds the registers of the next instruction.
    pub(crate) fn add(&mut self, reads: u64, overwrites: u64) {
        self.reads |= reads & !self.overwrites;
        self.overwrites |= overwrites;
    }

    /// Returns the registers that are live before the block, given those that are live at its end.
    pub(crate) fn live_before(&self, live: u64) -> u64 {
        live & !self.overwrites | self.reads
    }
}

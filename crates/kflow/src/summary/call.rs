//! The effect of a call: the registers that a function uses and changes, and its results.

use kisa::Reg;

use crate::constants::ConstantSet;
use crate::machine::{Convention, Machine};
use crate::program::{EVERYTHING, FLAGS};
use crate::values::{Names, State};

/// The effect of a call of a function. Sets of registers are bits by [`Reg`], and [`FLAGS`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Summary {
    /// The registers whose contents it may use. To save and restore a register is not a use.
    pub reads: u64,
    /// The registers that it may change.
    pub changes: u64,
    /// The registers that it overwrites completely on every path to a return.
    pub overwrites: u64,
    /// Whether it may write to the frame of its caller: to the arguments on the stack, or the return address.
    pub writes_frame: bool,
    /// Number of bytes that it may read of its arguments on the stack; [`Summary::WHOLE_STACK`] if unknown.
    pub reads_stack: u32,
}

impl Summary {
    /// See [`Summary::reads_stack`].
    pub const WHOLE_STACK: u32 = u32::MAX;

    /// The summary of an unknown function.
    pub const UNKNOWN: Summary = Summary {
        reads: EVERYTHING,
        changes: EVERYTHING,
        overwrites: 0,
        writes_frame: true,
        reads_stack: Summary::WHOLE_STACK,
    };

    /// Returns the summary of a function that follows a convention and uses these registers.
    pub(super) fn by(convention: Convention, reads: u64) -> Summary {
        Summary { reads, changes: convention.changed | FLAGS, ..Summary::UNKNOWN }
    }

    /// The initial assumption.
    pub(super) const NOTHING: Summary =
        Summary { reads: 0, changes: 0, overwrites: EVERYTHING, writes_frame: false, reads_stack: 0 };

    pub(super) fn join(self, other: Summary) -> Summary {
        Summary {
            reads: self.reads | other.reads,
            changes: self.changes | other.changes,
            overwrites: self.overwrites & other.overwrites,
            writes_frame: self.writes_frame || other.writes_frame,
            reads_stack: self.reads_stack.max(other.reads_stack),
        }
    }
}

/// The values that a function returns in the result registers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Results(pub(super) [ConstantSet; 2]);

impl Results {
    pub(super) fn in_state(state: &State, machine: Machine, names: &Names) -> Results {
        let value = |reg: Reg| ConstantSet::of_value(state.register(reg), names);
        machine.convention.map_or(Results::default(), |convention| Results(convention.results.map(value)))
    }

    pub(super) fn join(&mut self, other: &Results) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| mine.join(theirs));
    }
}

//! The functions that have changed since the last call of [`super::Code::take_changed`].
//!
//! Three events change the blocks of a function: a run begins in it, the successors of one of its exits change, or one
//! of the successors becomes or ceases to be the beginning of another function. These events are recorded for
//! the exit in question; the next call looks up the functions that contain it.

use fixedbitset::FixedBitSet;

use super::run::ExitId;
use crate::image::Addr;

/// The recorded changes.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) exits: FixedBitSet,
    /// Addresses that may have become or ceased to be the beginnings of functions.
    pub(super) entries: Vec<Addr>,
}

/// The functions that have changed.
pub struct ChangedFunctions {
    /// The functions that are new or may have other blocks.
    pub functions: Vec<Addr>,
    /// Addresses at which no function begins any longer.
    pub gone: Vec<Addr>,
}

impl Changes {
    /// Records a change of an exit, or of the runs that end with it.
    pub(super) fn exit(&mut self, exit: ExitId) {
        self.exits.grow_and_insert(exit.0 as usize);
    }

    /// Records that an address may have become or ceased to be the beginning of a function.
    pub(super) fn entry(&mut self, at: Addr) {
        self.entries.push(at);
    }
}

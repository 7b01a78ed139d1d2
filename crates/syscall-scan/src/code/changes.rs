//! The functions that have changed since the last call of [`Code::take_changed`].
//!
//! Three events change the blocks of a function: a run begins in it, the successors of one of its exits change, or one
//! of the successors becomes or ceases to be the beginning of another function. These events are recorded for
//! the exit in question; the next call looks up the functions that contain it.

use fixedbitset::FixedBitSet;

use super::{Code, Entry, ExitId};
use crate::image::Addr;

/// The recorded changes.
#[derive(Default)]
pub(super) struct Changes {
    exits: FixedBitSet,
    /// Addresses that may have become or ceased to be the beginnings of functions.
    entries: Vec<Addr>,
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

impl Code<'_> {
    /// Returns the entry for the beginning of a function, which is added if it is new.
    pub(super) fn entry_at(&mut self, at: Addr) -> &mut Entry {
        if self.entry(at).is_none() {
            self.changes.entry(at);
        }
        self.marks.set_entry(at);
        self.entries.entry(at).or_default()
    }

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

//! Which functions have changed since [`Code::take_changed`] was called last.
//!
//! A function has other blocks than before if a run begins in it, if one of its exits leads somewhere else, or if what
//! it leads to has become the beginning of another function, or has ceased to be one. All of that is noted by the exit
//! in question; what functions an exit is in is looked up at the next call.

use fixedbitset::FixedBitSet;

use super::{Code, Entry, ExitId};
use crate::image::Addr;

/// What has changed.
#[derive(Default)]
pub(super) struct Changes {
    exits: FixedBitSet,
    /// Addresses that may have become the beginnings of functions, or may have ceased to be.
    entries: Vec<Addr>,
}

/// The functions that have changed.
pub struct ChangedFunctions {
    /// Those that are new or may have other blocks.
    pub functions: Vec<Addr>,
    /// Addresses where none begins any more.
    pub gone: Vec<Addr>,
}

impl Changes {
    /// Something about an exit has changed, or about the runs that end with it.
    pub(super) fn exit(&mut self, exit: ExitId) {
        self.exits.grow_and_insert(exit.0 as usize);
    }

    /// An address may have become the beginning of a function, or have ceased to be.
    pub(super) fn entry(&mut self, at: Addr) {
        self.entries.push(at);
    }
}

impl Code<'_> {
    /// What is known about a place where a function begins, or begins once something is added.
    pub(super) fn entry_at(&mut self, at: Addr) -> &mut Entry {
        if self.entry(at).is_none() {
            self.changes.entry(at);
        }
        self.marks.set_entry(at);
        self.entries.entry(at).or_default()
    }

    /// The functions that have changed since the last time.
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

    /// The functions that have computed jumps, by rising address.
    pub fn functions_that_jump(&self) -> Vec<Addr> {
        self.functions_with(self.computed_jumps.iter().copied())
    }
}

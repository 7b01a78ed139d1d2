//! All reachable code, and what exploration knows of it so far.

use std::collections::BTreeMap;

use kisa::Isa;
use rustc_hash::{FxHashMap, FxHashSet};

use super::changes::Changes;
use super::constants::places::Constants;
use super::deferred::waiting::Deferred;
use super::distances::sums::Distances;
use super::entry::Entry;
use super::held::tracker::Tracker;
use super::live::readable::Live;
use super::marks::Marks;
use super::references::recorder::Recorder;
use super::run::{Exit, ExitId, Returns};
use super::taken::candidates::Candidates;
use super::thunks::Thunks;
use super::work::Work;
use crate::image::{Addr, Image};

/// Whether an object is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Activity {
    /// Not loaded, as far as is known.
    No,
    /// Loaded.
    Loaded,
    /// Loaded, and the pointers in its data have been added.
    Counts,
}

/// All reachable code.
pub struct Code<'a> {
    /// The program.
    pub image: &'a Image,
    pub(crate) isa: &'static dyn Isa,
    /// The instructions that enter the kernel, in order of discovery.
    pub sites: Vec<Addr>,
    pub(super) exits: Vec<Exit>,
    /// The exits that are computed jumps.
    pub(super) computed_jumps: Vec<ExitId>,
    pub(super) entries: FxHashMap<Addr, Entry>,
    pub(super) marks: Marks,
    pub(super) work: Vec<Work>,
    pub(super) taken: Candidates,
    pub(super) references: Recorder<'a>,
    /// The instructions that an `it` of Thumb code makes conditional, with the machine's number of the condition.
    pub(super) predicates: FxHashMap<Addr, u8>,
    /// The compilers' replacements of computed branches and returns.
    pub(super) thunks: Thunks,
    /// The numbers in registers, on machines where one instruction cannot load an address.
    pub(super) tracker: Option<Tracker>,
    /// The changes since the last call of [`Code::take_changed`].
    pub(super) changes: Changes,
    /// Words of data that belong to jump tables.
    pub(super) claimed: FxHashSet<Addr>,
    /// Tables of distances to functions.
    pub(super) distances: Distances,
    /// Slots of the global offset table whose functions are added, if several instructions assemble a slot's address.
    pub(super) slots_read: FxHashSet<Addr>,
    /// Pieces of functions whose landing pads are added, by their first address.
    pub(super) landed: FxHashSet<Addr>,
    /// Readable words of data that point into the middle of functions, with their targets.
    pub(super) inner: Vec<(Addr, Addr)>,
    /// Addresses in the middle of functions that instructions assemble, each with one such instruction.
    pub(super) made_inner: BTreeMap<Addr, Addr>,
    /// The activity of each object.
    pub(super) active: Vec<Activity>,
    /// The readable data.
    pub(super) live: Live,
    /// Code that counts only once other code does.
    pub(super) deferred: Deferred,
    /// The known contents of registers.
    pub(super) constants: Option<Constants>,
}

impl Code<'_> {
    /// Returns an exit by its number.
    pub fn exit(&self, id: ExitId) -> &Exit {
        &self.exits[id.0 as usize]
    }

    /// Returns all exits.
    pub fn exits(&self) -> impl Iterator<Item = (ExitId, &Exit)> {
        self.exits.iter().enumerate().map(|(index, exit)| (ExitId(index as u32), exit))
    }

    /// Returns the exit at an instruction.
    pub fn exit_at(&self, at: Addr) -> Option<ExitId> {
        self.marks.exit_at(at)
    }

    /// Returns the exits that lead to an address, except calls.
    pub fn incoming(&self, start: Addr) -> &[ExitId] {
        self.marks.run_at(start).map_or(&[], |run| self.marks.run(run).incoming.as_slice())
    }

    /// Returns the entry at an address at which functions begin: one that is called or whose address is taken.
    pub fn entry(&self, at: Addr) -> Option<&Entry> {
        let begins = |entry: &&Entry| entry.linked || !entry.callers.is_empty() || !entry.taken.is_empty();
        // Nothing begins at most addresses, which the mark shows faster than the map.
        let entry = if self.marks.may_be_entry(at) { self.entries.get(&at) } else { None };
        entry.filter(begins)
    }

    /// Returns all entries of functions.
    pub fn entries(&self) -> impl Iterator<Item = (Addr, &Entry)> {
        self.entries.iter().map(|(&at, entry)| (at, entry))
    }

    /// Returns the number of argument bytes that a function pops on return; `None` if it does not return or returns in
    /// several ways.
    pub fn popped(&self, entry: Addr) -> Option<u32> {
        match self.exit(self.marks.exit_of_run(entry)?).returns {
            Returns::Popping(bytes) => Some(bytes),
            Returns::Somehow => Some(0),
            Returns::No | Returns::Varying => None,
        }
    }

    /// Returns the number of reachable instructions.
    pub fn instructions(&self) -> usize {
        self.marks.count()
    }

    /// Returns the length of the instruction at an address, if it is reachable.
    pub fn length(&self, at: Addr) -> Option<u64> {
        self.marks.length(at)
    }
}

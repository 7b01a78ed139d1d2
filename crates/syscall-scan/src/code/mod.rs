//! The reachable code: decoded recursively from the program's entry.
//!
//! Exploration works with *runs*: straight-line code from a branch target to the next instruction that does not fall
//! through, its *exit*. A decoded run never changes, even if later branches lead into its middle, so that nothing has
//! to be split or redone. Basic blocks and functions are views of runs, which [`Function`] builds on demand.
//!
//! Two rules exclude unreachable code:
//!
//! - The instruction after a call is reached once the callee is known to return. Code after `call abort` is therefore
//!   not reached.
//! - Address-taken code is reached once reachable code loads the address, or data that such code can read contains it.
//!
//! Two more cases are deferred: the successor of a branch that constants rule out, until it becomes feasible
//! (`constants`), and some code of the C library that runs only if other code does (`deferred`).

mod changes;
mod constants;
mod contexts;
mod deferred;
mod distances;
mod explore;
mod fingerprint;
mod function;
mod held;
mod instructions;
mod known;
mod live;
mod marks;
mod pointers;
mod references;
mod rules;
mod taken;
mod thunks;
mod uses;
mod walk;

use std::collections::BTreeMap;

use kisa::Isa;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::image::{Addr, Image};

use marks::{Marks, RunId};

pub use changes::ChangedFunctions;
pub use fingerprint::Fingerprint;
pub use function::{Block, Function, StraightInstructions};
pub use instructions::Reader;
pub(crate) use known::{Constant, Facts, NumberSet};
pub use references::{Reference, References};
pub(crate) use walk::RunWalk;

/// The number of an [`Exit`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ExitId(u32);

/// An instruction that ends a run.
#[derive(Debug)]
pub struct Exit {
    /// The instruction.
    pub at: Addr,
    /// The address after it.
    pub next: Addr,
    /// Its kind.
    pub kind: ExitKind,
    /// Whether it is conditional, and otherwise continues with the next instruction. (A direct jump shows that by its
    /// successors instead.)
    pub conditional: bool,
    /// The successors within the function, or of a tail call.
    pub successors: SmallVec<[Addr; 2]>,
    /// Whether control can reach a return from here.
    returns: Returns,
    /// The runs that end here.
    runs: SmallVec<[RunId; 4]>,
    /// The calls of a function that begins with one of `runs` and is not yet known to return.
    waiting: SmallVec<[ExitId; 4]>,
}

/// The kinds of exits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitKind {
    /// A direct jump, conditional or not.
    Jump,
    /// A direct call.
    Call(Addr),
    /// A call of a computed address.
    IndirectCall,
    /// A jump to a computed address.
    IndirectJump,
    /// A return.
    Return,
    /// A dead end: a trap, or invalid bytes.
    Stop,
}

/// Whether and how a function returns. The value only ever grows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Returns {
    /// Not at all, as far as is known.
    No,
    /// Through a computed jump, which may be a tail call.
    Somehow,
    /// By an instruction that pops this number of argument bytes.
    Popping(u32),
    /// In several ways with different stack pointers.
    Varying,
}

impl Returns {
    fn join(self, other: Returns) -> Returns {
        match (self, other) {
            (Returns::Popping(a), Returns::Popping(b)) if a != b => Returns::Varying,
            _ => self.max(other),
        }
    }
}

/// The place that makes code callable by its address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Taken {
    /// The program's start, to which the kernel jumps.
    Start,
    /// An instruction that computes the address.
    Code(Addr),
    /// A word of data that holds the address.
    Data(Addr),
    /// The unwinder, which jumps there.
    Unwinder,
    /// A look-up by name, by this instruction or by code that refers to this string.
    Named(Addr),
}

/// The beginning of a function.
#[derive(Debug, Default)]
pub struct Entry {
    /// Direct calls.
    pub callers: Vec<ExitId>,
    /// The places that expose its address, so that it may be called from anywhere.
    pub taken: Vec<Taken>,
    /// The same as a set: an address may be taken at a hundred thousand places.
    takers: FxHashSet<Taken>,
    /// Whether the procedure linkage table of some object jumps there.
    linked: bool,
}

impl Entry {
    /// Adds a place that exposes its address.
    fn take(&mut self, by: Taken) {
        if self.takers.insert(by) {
            self.taken.push(by);
        }
    }

    /// Removes a place.
    fn release(&mut self, by: Taken) {
        if self.takers.remove(&by) {
            self.taken.retain(|&taken| taken != by);
        }
    }

    /// Returns whether only the unwinder reaches it.
    pub fn is_landing_pad(&self) -> bool {
        !self.linked && self.callers.is_empty() && self.taken.iter().all(|by| *by == Taken::Unwinder)
    }
}

/// Whether an object is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Activity {
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
    isa: &'static dyn Isa,
    /// The instructions that enter the kernel, in order of discovery.
    pub sites: Vec<Addr>,
    exits: Vec<Exit>,
    /// The exits that are computed jumps.
    computed_jumps: Vec<ExitId>,
    entries: FxHashMap<Addr, Entry>,
    marks: Marks,
    work: Vec<explore::Work>,
    taken: taken::Candidates,
    references: references::Recorder<'a>,
    /// The instructions that an `it` of Thumb code makes conditional, with the machine's number of the condition.
    predicates: FxHashMap<Addr, u8>,
    /// The compilers' replacements of computed branches and returns.
    thunks: thunks::Thunks,
    /// The numbers in registers, on machines where one instruction cannot load an address.
    tracker: Option<held::Tracker>,
    /// The changes since the last call of [`Code::take_changed`].
    changes: changes::Changes,
    /// Words of data that belong to jump tables.
    claimed: FxHashSet<Addr>,
    /// Tables of distances to functions.
    distances: distances::Distances,
    /// Slots of the global offset table whose functions are added, if several instructions assemble a slot's address.
    slots_read: FxHashSet<Addr>,
    /// Pieces of functions whose landing pads are added, by their first address.
    landed: FxHashSet<Addr>,
    /// Readable words of data that point into the middle of functions, with their targets.
    inner: Vec<(Addr, Addr)>,
    /// Addresses in the middle of functions that instructions assemble, each with one such instruction.
    made_inner: BTreeMap<Addr, Addr>,
    /// The activity of each object.
    active: Vec<Activity>,
    /// The readable data.
    live: live::Live,
    /// Code that counts only once other code does.
    deferred: deferred::Deferred,
    /// The known contents of registers.
    constants: Option<constants::Constants>,
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

    /// Returns the number of registers of the machine, see [`Isa::registers`].
    pub fn registers(&self) -> usize {
        self.isa.registers()
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

//! The code that can run: decoded recursively from where the program starts.
//!
//! Exploration works with *runs*: straight pieces of code from a branch target to the next instruction that
//! does not simply go on, its *exit*. A run never changes once it is decoded, whatever is found out later
//! about branches into its middle, so that nothing has to be split or redone; basic blocks and functions
//! are views that [`Function`] makes of runs when somebody asks.
//!
//! Two rules keep out code that cannot run:
//!
//! - the instruction after a call is reached once the callee is known to return, so that what happens to
//!   follow `call abort` is not;
//! - code whose address is taken is reached once code that can run takes the address, or data that such code
//!   can read holds it.
//!
//! So is the successor of a branch that constants rule out, until it becomes feasible (`constants`), and some code of
//! the C library that runs only if other code does (`deferred`).

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
    /// What it does.
    pub kind: ExitKind,
    /// Whether it is conditional, and otherwise continues with the next instruction. (A direct jump says so by its
    /// successors.)
    pub conditional: bool,
    /// The successors within the function, or of a tail call.
    pub successors: SmallVec<[Addr; 2]>,
    /// Whether control can come from here to a return.
    returns: Returns,
    /// The runs that end here.
    runs: SmallVec<[RunId; 4]>,
    /// The calls of a function that begins with one of `runs`, which wait to learn whether it returns.
    waiting: SmallVec<[ExitId; 4]>,
}

/// The ways to end a run.
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
    /// Control goes nowhere: a trap, or bytes that are no instruction.
    Stop,
}

/// Whether and how a function returns. Only ever grows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Returns {
    /// It does not, as far as is known.
    No,
    /// Through a computed jump, which may be a tail call.
    Somehow,
    /// By an instruction that takes this many bytes of arguments off the stack.
    Popping(u32),
    /// In several ways that leave the stack pointer at different places.
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

/// Who says that an address is one of code that may be called.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Taken {
    /// The kernel starts the program there.
    Start,
    /// This instruction computes the address.
    Code(Addr),
    /// This word of data holds it.
    Data(Addr),
    /// The unwinder jumps there.
    Unwinder,
    /// It is looked up by name, by this instruction or by whoever names this string.
    Named(Addr),
}

/// A place where functions begin.
#[derive(Debug, Default)]
pub struct Entry {
    /// Direct calls.
    pub callers: Vec<ExitId>,
    /// The places that make its address known, which is to say that it may be called from anywhere.
    pub taken: Vec<Taken>,
    /// The same, to be found at once: an address may be taken at a hundred thousand places.
    takers: FxHashSet<Taken>,
    /// Whether the procedure linkage table of some object jumps there.
    linked: bool,
}

impl Entry {
    /// Notes a place that makes its address known.
    fn take(&mut self, by: Taken) {
        if self.takers.insert(by) {
            self.taken.push(by);
        }
    }

    /// Forgets a place again.
    fn release(&mut self, by: Taken) {
        if self.takers.remove(&by) {
            self.taken.retain(|&taken| taken != by);
        }
    }

    /// Whether the unwinder is all that gets there.
    pub fn is_landing_pad(&self) -> bool {
        !self.linked && self.callers.is_empty() && self.taken.iter().all(|by| *by == Taken::Unwinder)
    }
}

/// Whether an object is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Activity {
    /// It is not, as far as is known.
    No,
    /// It is.
    Loaded,
    /// It is, and the pointers in its data have been taken.
    Counts,
}

/// All code that can run.
pub struct Code<'a> {
    /// The program.
    pub image: &'a Image,
    isa: &'static dyn Isa,
    /// The instructions that enter the kernel, in the order in which they were found.
    pub sites: Vec<Addr>,
    exits: Vec<Exit>,
    /// Those of them that are computed jumps.
    computed_jumps: Vec<ExitId>,
    entries: FxHashMap<Addr, Entry>,
    marks: Marks,
    work: Vec<explore::Work>,
    taken: taken::Candidates,
    references: references::Recorder<'a>,
    /// The instructions that `it` of Thumb makes conditional, with the machine's number of the condition.
    predicates: FxHashMap<Addr, u8>,
    /// What compilers put in the place of computed branches and returns.
    thunks: thunks::Thunks,
    /// What registers hold, where one instruction cannot make an address.
    tracker: Option<held::Tracker>,
    /// What has changed since [`Code::take_changed`] was called last.
    changes: changes::Changes,
    /// Words of data that belong to jump tables.
    claimed: FxHashSet<Addr>,
    /// Tables of distances to functions.
    distances: distances::Distances,
    /// Slots of the global offset table whose functions are taken, where several instructions name a slot.
    slots_read: FxHashSet<Addr>,
    /// Pieces of functions whose landing pads are taken, by their first address.
    landed: FxHashSet<Addr>,
    /// Words of data that can be read and that point into the middle of functions, with where they point.
    inner: Vec<(Addr, Addr)>,
    /// Addresses in the middle of functions that instructions put together, each with one of these.
    made_inner: BTreeMap<Addr, Addr>,
    /// Which objects are loaded.
    active: Vec<Activity>,
    /// The data that can be read.
    live: live::Live,
    /// What counts only once something else does.
    deferred: deferred::Deferred,
    /// What registers are known to hold.
    constants: Option<constants::Constants>,
}

impl Code<'_> {
    /// An exit by its number.
    pub fn exit(&self, id: ExitId) -> &Exit {
        &self.exits[id.0 as usize]
    }

    /// All exits.
    pub fn exits(&self) -> impl Iterator<Item = (ExitId, &Exit)> {
        self.exits.iter().enumerate().map(|(index, exit)| (ExitId(index as u32), exit))
    }

    /// The exit at an instruction.
    pub fn exit_at(&self, at: Addr) -> Option<ExitId> {
        self.marks.exit_at(at)
    }

    /// How many registers the machine has, see [`Isa::registers`].
    pub fn registers(&self) -> usize {
        self.isa.registers()
    }

    /// The exits that lead to an address, calls left out.
    pub fn incoming(&self, start: Addr) -> &[ExitId] {
        self.marks.run_at(start).map_or(&[], |run| self.marks.run(run).incoming.as_slice())
    }

    /// What is known about a place where functions begin: one that is called or whose address is taken.
    pub fn entry(&self, at: Addr) -> Option<&Entry> {
        let begins = |entry: &&Entry| entry.linked || !entry.callers.is_empty() || !entry.taken.is_empty();
        // At most addresses nothing begins, which the mark tells sooner than the map.
        let entry = if self.marks.may_be_entry(at) { self.entries.get(&at) } else { None };
        entry.filter(begins)
    }

    /// All places where functions begin.
    pub fn entries(&self) -> impl Iterator<Item = (Addr, &Entry)> {
        self.entries.iter().map(|(&at, entry)| (at, entry))
    }

    /// How many bytes of arguments a function takes off the stack when it returns: `None` if it does not
    /// return or does so in several ways.
    pub fn popped(&self, entry: Addr) -> Option<u32> {
        match self.exit(self.marks.exit_of_run(entry)?).returns {
            Returns::Popping(bytes) => Some(bytes),
            Returns::Somehow => Some(0),
            Returns::No | Returns::Varying => None,
        }
    }

    /// The number of instructions that can run.
    pub fn instructions(&self) -> usize {
        self.marks.count()
    }

    /// The length of the instruction at an address, if it can run.
    pub fn length(&self, at: Addr) -> Option<u64> {
        self.marks.length(at)
    }
}

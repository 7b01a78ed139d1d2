//! Runs and their exits.

use smallvec::SmallVec;

use crate::image::Addr;

/// The number of a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct RunId(pub(super) u32);

impl RunId {
    pub(super) fn get(self) -> usize {
        self.0 as usize
    }
}

/// The number of an [`Exit`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ExitId(pub(super) u32);

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
    pub(super) returns: Returns,
    /// The runs that end here.
    pub(super) runs: SmallVec<[RunId; 4]>,
    /// The calls of a function that begins with one of `runs` and is not yet known to return.
    pub(super) waiting: SmallVec<[ExitId; 4]>,
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
pub(super) enum Returns {
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
    pub(super) fn join(self, other: Returns) -> Returns {
        match (self, other) {
            (Returns::Popping(a), Returns::Popping(b)) if a != b => Returns::Varying,
            _ => self.max(other),
        }
    }
}

//! What a search looks for, and where it fails.

use rustc_hash::FxHashMap;

use crate::image::Addr;

/// The aim of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Aim {
    /// Writes to the pointer's target, which end the search.
    Writes,
    /// Calls of the function whose address is at the pointer's target.
    CallsThrough,
    /// Calls of the function that the pointer itself points to.
    Calls,
}

/// Bytes after a pointer: the first, and the one after the last.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Bytes {
    pub(super) from: i64,
    pub(super) to: i64,
}

/// A failure to track the pointer: the instruction or variable where it was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost(pub Addr);

/// The possible callees of computed calls, by instruction, if known.
pub type Callees = FxHashMap<Addr, Vec<Addr>>;

//! What passes are asked for besides the plan.

/// The options of passes besides the plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Assume that the plan lists every system call, although it states that it is incomplete.
    pub assume_complete: bool,
    /// Check the invariants of the graph after every step ([`kcfg::graph::Graph::verify`]).
    pub verify: bool,
    /// The identical blocks that pass `merge` may merge.
    pub merge: Scope,
    /// The quantity to minimize.
    pub optimize_for: OptimizeFor,
}

/// The code that a pass may make slower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Code that did not run in the traces of the plan; none if it has no traces.
    #[default]
    Cold,
    /// All code.
    All,
}

/// The quantity to minimize.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OptimizeFor {
    /// The memory that code and data take.
    #[default]
    Memory,
    /// The compressed image.
    Image,
}

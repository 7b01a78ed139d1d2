//! The worklist of exploration.

use super::entry::Taken;
use super::held::tracker::Held;
use super::run::ExitId;
use crate::image::Addr;

/// An item of the worklist.
pub(super) enum Work {
    /// Code that may be called from anywhere.
    Taken(Addr, Taken),
    /// A successor of an exit.
    Edge(ExitId, Addr),
    /// A call by an exit.
    Call(ExitId, Addr),
    /// An instruction that enters the kernel, with the number if the run determines it.
    Site(Addr, Option<u64>),
    /// Numbers that registers may hold at an address.
    Holds(Addr, Vec<Held>),
    /// A page address that the first loads from the function's frame may return.
    Reloads { function: Addr, page: u64, loads: usize },
}

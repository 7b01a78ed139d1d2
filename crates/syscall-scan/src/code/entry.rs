//! The beginnings of functions.

use rustc_hash::FxHashSet;

use super::run::ExitId;
use crate::image::Addr;

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
    pub(super) takers: FxHashSet<Taken>,
    /// Whether the procedure linkage table of some object jumps there.
    pub(super) linked: bool,
}

impl Entry {
    /// Adds a place that exposes its address.
    pub(super) fn take(&mut self, by: Taken) {
        if self.takers.insert(by) {
            self.taken.push(by);
        }
    }

    /// Removes a place.
    pub(super) fn release(&mut self, by: Taken) {
        if self.takers.remove(&by) {
            self.taken.retain(|&taken| taken != by);
        }
    }

    /// Returns whether only the unwinder reaches it.
    pub fn is_landing_pad(&self) -> bool {
        !self.linked && self.callers.is_empty() && self.taken.iter().all(|by| *by == Taken::Unwinder)
    }
}

//! Groups functions that belong together, and finds compiler-made code.

use rustc_hash::FxHashSet;

use crate::carried::{HAND_WRITTEN, NO_FUNCTION};
use crate::graph::Graph;
use crate::index::{FunctionId, NodeId};
use crate::special::World;

/// Sets of functions that belong together.
pub(super) struct Groups(Vec<usize>);

impl Groups {
    /// Creates this number of sets of one function each.
    pub(super) fn of_one(count: usize) -> Groups {
        Groups((0..count).collect())
    }

    /// Returns the least member of the set of a function.
    pub(super) fn of(&mut self, mut member: usize) -> usize {
        while self.0[member] != member {
            self.0[member] = self.0[self.0[member]];
            member = self.0[member];
        }
        member
    }

    /// Merges two sets.
    pub(super) fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.of(one), self.of(other));
        self.0[one.max(other)] = one.min(other);
    }
}

/// Returns the chunks of compiler-made code, by their first nodes.
pub(super) fn compiled(graph: &Graph) -> FxHashSet<NodeId> {
    let others = [HAND_WRITTEN, NO_FUNCTION];
    let opaque = graph.opaque.iter().filter(|opaque| !others.contains(&opaque.reason));
    opaque.map(|opaque| opaque.node).collect()
}

/// Returns the chunks of hand-written code that the compiled code of a kernel calls; no such function pops its
/// arguments.
pub(super) fn hand_written(graph: &Graph) -> FxHashSet<NodeId> {
    let is_kernel = matches!(graph.world, World::Kernel(_));
    let written = graph.opaque.iter().filter(|opaque| is_kernel && opaque.reason == HAND_WRITTEN);
    written.map(|opaque| opaque.node).collect()
}

/// Whether a function is the cold part of another one.
pub fn is_cold(graph: &Graph, function: FunctionId) -> bool {
    graph.function(function).name.contains(".cold")
}

/*!
Lowering: the graph becomes one relocatable object.

Every section with a live node becomes an output section, in the same order, so that the kernel's linker script places
them as in the original. Only sections of plain data are reordered, to waste less on alignment (`pack`). Nodes are in
the order of their section; a block whose fall-through successor is not the next node gets a jump; branches within a
section are encoded in the shortest form that reaches (`relax`). References to nodes are written against section
symbols, as assemblers do; references to global symbols stay symbolic, so that the linker resolves them. The index of
ARM's unwind tables is made anew for the code as it is placed (`unwind`).

On ARM, instructions reach literals and tables only near by: [`bring_near`] sees to that before.
*/

mod emit;
mod near;
mod pack;
mod relax;
mod symbols;
mod unwind;

use kelf::{Object, SectionIndex};

use crate::graph::Graph;
use crate::index::NodeId;

pub use near::bring_near;
pub use relax::Relax;
pub(crate) use symbols::{OUTLINED, OWN};

/// Why a graph cannot be lowered. Each of these is a defect of the pass that ran before.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A node that is alive refers to one that was removed.
    #[error("{from} is alive and refers to {to}, which was removed")]
    Dangling {
        /// Who refers.
        from: String,
        /// To what.
        to: String,
    },
    /// A branch does not reach its target.
    #[error("{from}: a branch over {displacement} bytes is farther than the instruction reaches")]
    TooFar {
        /// The block that it ends.
        from: String,
        /// Distance in bytes.
        displacement: i64,
    },
}

/// A lowered graph.
pub struct Lowered<'g> {
    /// The object.
    pub object: Object<'g>,
    /// The node that each part of its code comes from, in the order of the object.
    pub code: Vec<PlacedCode>,
}

/// A node of code with its place in the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedCode {
    /// The node.
    pub node: NodeId,
    /// The section of the object.
    pub section: SectionIndex,
    /// Offset in bytes in that section.
    pub offset: u32,
    /// Size there in bytes, with the branches that end it.
    pub size: u32,
}

/// Lowers the live part of a graph.
pub fn lower(graph: &Graph, relax: Relax) -> Result<Lowered<'_>, Error> {
    emit::Emitter::new(graph, relax)?.lowered()
}

/*!
Lowering: the graph becomes one relocatable object.

Every section with a live node becomes an output section, in the same order, so the kernel's linker script places them
as in the original. Only sections of plain data are reordered, to waste less space on alignment (`pack`). Nodes keep
the order of their section; a block whose fall-through successor is not the next node gets a jump; branches within a
section are encoded in the shortest form that reaches (`relax`). References to nodes are written against section
symbols, as assemblers do; references to global symbols remain symbolic, for the linker to resolve. The index of ARM's
unwind tables is generated anew for the placed code (`unwind`).

On ARM, instructions reach only nearby literals and tables: call [`bring_near`] first.
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

/// The reason why a graph cannot be lowered. Each is a defect of an earlier pass.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A live node refers to a removed node.
    #[error("{from} is alive and refers to {to}, which was removed")]
    Dangling {
        /// The source.
        from: String,
        /// The target.
        to: String,
    },
    /// A branch does not reach its target.
    #[error("{from}: a branch over {displacement} bytes is farther than the instruction reaches")]
    TooFar {
        /// The block that ends with the branch.
        from: String,
        /// Distance in bytes.
        displacement: i64,
    },
}

/// A lowered graph.
pub struct Lowered<'g> {
    /// The object.
    pub object: Object<'g>,
    /// The node of each part of its code, in the order of the object.
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
    /// Size there in bytes, including the final branches.
    pub size: u32,
}

/// Lowers the live part of a graph.
pub fn lower(graph: &Graph, relax: Relax) -> Result<Lowered<'_>, Error> {
    emit::Emitter::new(graph, relax)?.lowered()
}

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
mod lowered;
mod near;
mod pack;
mod relax;
mod symbols;
mod unwind;

use crate::graph::Graph;

pub use lowered::{Error, Lowered, PlacedCode};
pub use near::bring_near;
pub use relax::Relax;

/// Lowers the live part of a graph.
pub fn lower(graph: &Graph, relax: Relax) -> Result<Lowered<'_>, Error> {
    emit::Emitter::new(graph, relax)?.lowered()
}

/*!
The augmented whole-program control-flow graph of the kshrink tools.

[`lift::Lifter`] turns a linked program's objects into a [`graph::Graph`] of basic blocks and data chunks;
[`edges::Edges`] derives its control-flow and data reachability edges; [`lower::lower`] turns it back into
one relocatable object. Edges are not stored but derived from the *contents* of the nodes, so that a pass that edits code
and data cannot leave a stale edge behind.
*/

mod carried;

pub mod edges;
pub mod flow;
pub mod graph;
pub mod index;
pub mod instructions;
pub mod lift;
pub mod lower;
pub mod print;
pub mod returns;
pub mod roots;
pub mod script;
pub mod special;
pub mod summary;

pub use carried::HAND_WRITTEN;

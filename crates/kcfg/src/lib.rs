/*!
The augmented whole-program control-flow graph of the kshrink tools.

[`lift::Lifter`] turns a linked program's objects into a [`graph::Graph`] of basic blocks and data chunks;
[`edges::Edges`] derives its control-flow and data reachability edges; [`lower::lower`] turns it back into one
relocatable object. Edges are derived from the *contents* of the nodes instead of being stored, so a pass that edits
code and data cannot leave a stale edge.
*/

// Some unit tests share a module with the integration tests.
#[cfg(test)]
extern crate self as kcfg;

mod carried;

pub mod edges;
mod error;
pub mod flow;
pub mod graph;
pub mod index;
pub mod instructions;
pub mod lift;
pub mod lower;
mod mapping;
mod own;
pub mod parameters;
pub mod print;
pub mod returns;
pub mod roots;
pub mod script;
pub mod special;
pub mod summary;

pub use carried::HAND_WRITTEN;
pub use error::Error;

//! The result of lowering.

use kelf::{Object, SectionIndex};

use crate::index::NodeId;

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

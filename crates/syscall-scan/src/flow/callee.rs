//! The properties of a function that its callers know.

use std::rc::Rc;

use crate::code::StraightInstructions;

/// The summary of a function for its callers.
#[derive(Clone)]
pub(super) enum Callee {
    /// A few straight-line instructions, which are applied to the caller's state.
    Leaf(Rc<StraightInstructions>),
    /// Any other function.
    Function {
        /// The registers, as bits, that it preserves in addition to those of the ABI.
        kept: u64,
        /// See [`crate::code::Code::returns_twice`].
        returns_twice: bool,
    },
}

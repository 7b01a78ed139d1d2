//! Places in stack frames.

use crate::values::OriginId;

/// A place in a stack frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Place {
    /// The stack pointer that offsets are relative to: at the function's entry, or after alignment.
    pub frame: OriginId,
    /// Offset in bytes; negative for local variables.
    pub offset: i64,
}

impl Place {
    pub(super) fn plus(self, bytes: u8) -> i64 {
        self.offset.saturating_add(bytes.into())
    }
}

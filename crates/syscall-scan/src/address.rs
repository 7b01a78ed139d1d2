//! Addresses in a process.

use std::fmt;

/// A virtual address of the process. On ARM, bit 0 marks Thumb code, as in ELF and branch instructions: such an address
/// denotes the instruction at the even address below.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Addr(pub u64);

impl Addr {
    /// Returns the address `bytes` further on.
    pub fn plus(self, bytes: u64) -> Addr {
        Addr(self.0.wrapping_add(bytes))
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

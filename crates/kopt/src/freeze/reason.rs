//! The reasons why code and data must not freeze.

use std::fmt;

/// The reason why something must not freeze.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The kernel patches it, so that it must be in memory.
    Patched,
    /// It is hand-written: the state in which it runs is not known.
    HandWritten,
    /// The linker script or another linked object names it, or it must not change.
    Named,
    /// It takes part in thawing.
    Thaw,
    /// It runs while the page allocator is in use.
    Allocator,
    /// It runs before anything can be thawed.
    Early,
    /// It enters the kernel, or handles an exception that may occur at any time.
    Exception,
    /// It stops or starts a processor, or replaces the contents of memory.
    Power,
    /// It may be used by its physical address, or through another mapping.
    Physical,
}

impl Reason {
    /// Every reason.
    pub const ALL: &[Reason] = &[
        Reason::Patched,
        Reason::HandWritten,
        Reason::Named,
        Reason::Thaw,
        Reason::Allocator,
        Reason::Early,
        Reason::Exception,
        Reason::Power,
        Reason::Physical,
    ];

    /// The name under which reports count the bytes that are pinned for this reason.
    pub fn counted(self) -> &'static str {
        match self {
            Reason::Patched => "bytes pinned: patched by the kernel",
            Reason::HandWritten => "bytes pinned: written by hand",
            Reason::Named => "bytes pinned: named outside of the objects",
            Reason::Thaw => "bytes pinned: thawing",
            Reason::Allocator => "bytes pinned: the page allocator",
            Reason::Early => "bytes pinned: before anything can thaw",
            Reason::Exception => "bytes pinned: entry and exceptions",
            Reason::Power => "bytes pinned: suspend, kexec, starting processors",
            Reason::Physical => "bytes pinned: used by physical address",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.counted().strip_prefix("bytes pinned: ").unwrap_or_default())
    }
}

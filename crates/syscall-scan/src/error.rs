//! Why a file cannot be scanned.

use crate::image::Addr;

/// Why a file cannot be scanned. The message does not name the file; whoever read it does.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// It begins with `#!`.
    #[error("a script, not an ELF program: scan its interpreter instead")]
    Script,
    /// It has no ELF header.
    #[error("not an ELF file")]
    NotElf,
    /// Its headers make no sense.
    #[error("a truncated or damaged ELF file: {error}")]
    Damaged {
        /// What is wrong.
        error: String,
    },
    /// It ends before its segments do.
    #[error("truncated: {size} bytes, but its segments end at {needed}")]
    Truncated {
        /// The size of the file in bytes.
        size: u64,
        /// The size that the segments need.
        needed: u64,
    },
    /// It is for another machine.
    #[error("for {name}, expected i386 or x86_64")]
    OtherMachine {
        /// The machine.
        name: String,
    },
    /// It is an ELF file, but no program.
    #[error("{what}, expected an executable")]
    NotExecutable {
        /// What it is.
        what: &'static str,
    },
    /// It needs shared libraries.
    #[error("dynamically linked, and this version scans static executables only; link it with -static")]
    Dynamic,
    /// It starts outside of its code.
    #[error("a damaged ELF file: its entry point {entry} is not in executable memory")]
    NoEntry {
        /// The entry point.
        entry: Addr,
    },
}

//! Why a file cannot be scanned.

use crate::image::Addr;

/// Why a file cannot be scanned. The message does not name the file; whoever read it does.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// It begins with `#!`, and that leads nowhere.
    #[error("a script that names no interpreter, or one that is a script itself, and so on")]
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
    #[error("for {name}, expected i386, x86_64, arm or aarch64")]
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
    /// It needs a file that is not there.
    #[error(
        "needs {name} (named by {by}), which is not in the root file system or not for its machine; \
             see --root"
    )]
    Missing {
        /// The library or interpreter.
        name: String,
        /// Who needs it.
        by: String,
    },
    /// It starts outside of its code.
    #[error("a damaged ELF file: its entry point {entry} is not in executable memory")]
    NoEntry {
        /// The entry point.
        entry: Addr,
    },
}

//! Errors of scanning a file.

use crate::address::Addr;

/// The reason that a file cannot be scanned. The message does not name the file; the reader of the file does.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A script whose `#!` line names no program.
    #[error("a script that names no interpreter, or too many nested script interpreters")]
    Script,
    /// A file without an ELF header.
    #[error("not an ELF file")]
    NotElf,
    /// Invalid headers.
    #[error("a truncated or damaged ELF file: {error}")]
    Damaged {
        /// The fault.
        error: String,
    },
    /// A file that ends before its segments do.
    #[error("truncated: {size} bytes, but its segments end at {needed}")]
    Truncated {
        /// The size of the file in bytes.
        size: u64,
        /// The size that the segments need.
        needed: u64,
    },
    /// A program for another machine.
    #[error("for {name}, expected i386, x86_64, arm or aarch64")]
    OtherMachine {
        /// The machine.
        name: String,
    },
    /// An ELF file that is not a program.
    #[error("{what}, expected an executable")]
    NotExecutable {
        /// The kind of file.
        what: &'static str,
    },
    /// A required file that does not exist.
    #[error(
        "needs {name} (named by {by}), which is missing from the root file system or for another machine; \
             see --root"
    )]
    Missing {
        /// The library or interpreter.
        name: String,
        /// The file that requires it.
        by: String,
    },
    /// An entry point outside of the program's code.
    #[error("a damaged ELF file: its entry point {entry} is not in executable memory")]
    NoEntry {
        /// The entry point.
        entry: Addr,
    },
}

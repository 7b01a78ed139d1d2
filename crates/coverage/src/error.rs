//! Errors, each with the file, the expectation and advice.

use std::io;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why there is no coverage.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read {name}: {source}")]
    Read {
        /// The file.
        name: String,
        /// The reason.
        source: io::Error,
    },
    /// The kernel, or the map of its blocks, cannot be used.
    #[error(transparent)]
    Kernel(#[from] ktext::Error),
    /// The image of memory cannot be used.
    #[error(transparent)]
    Dump(#[from] kelf::DumpError),
    /// The file is not a trace of this kind.
    #[error("{name}: {problem}; expected {expected}")]
    NotATrace {
        /// The file.
        name: String,
        /// The problem with it.
        problem: String,
        /// The expected content.
        expected: String,
    },
    /// The trace or dump belongs to another kernel.
    #[error("{name}: of another kernel than {kernel}: {problem}; give the vmlinux that was running")]
    OtherKernel {
        /// The trace.
        name: String,
        /// The kernel that it should belong to.
        kernel: String,
        /// The evidence.
        problem: String,
    },
}

impl kcli::Fault for Error {
    fn is_bad_input(&self) -> bool {
        match self {
            Error::Read { .. } => false,
            Error::Kernel(error) => error.is_bad_input(),
            Error::Dump(error) => error.is_bad_input(),
            _ => true,
        }
    }
}

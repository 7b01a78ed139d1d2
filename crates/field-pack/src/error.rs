//! Errors, each with the file, the place in it, the expectation and advice.

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The memory cannot be read.
    #[error(transparent)]
    Census(#[from] census::error::Error),
    /// The debugging information cannot be read.
    #[error(transparent)]
    Types(#[from] ktypes::Error),
    /// The file is no log of accesses.
    #[error("{name}: line {line}: {problem}; expected {expected}")]
    NotALog {
        /// The file.
        name: String,
        /// The number of the line.
        line: usize,
        /// The problem with it.
        problem: String,
        /// The expectation.
        expected: &'static str,
    },
    /// The log is of another run than the core.
    #[error("{name}: of another run than {core}: {problem}; give the core and the log of one run")]
    OtherRun {
        /// The log.
        name: String,
        /// The core.
        core: String,
        /// The evidence.
        problem: String,
    },
    /// An argument names something that the kernel or the profile does not have.
    #[error("{name}: {problem}; {advice}")]
    Unknown {
        /// The file.
        name: String,
        /// The finding.
        problem: String,
        /// Advice.
        advice: String,
    },
}

impl kcli::Fault for Error {
    fn is_bad_input(&self) -> bool {
        match self {
            Error::Census(error) => error.is_bad_input(),
            _ => true,
        }
    }
}

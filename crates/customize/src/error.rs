//! Errors, each with the file, the place in it, the expectation and advice.

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The debugging information cannot be read.
    #[error(transparent)]
    Types(#[from] ktypes::Error),
    /// The declaration names something that the kernel does not have.
    #[error("{name}: {problem}; {advice}")]
    Unknown {
        /// The declaration.
        name: String,
        /// The finding.
        problem: String,
        /// Advice.
        advice: String,
    },
    /// The file is no output of the script, or of a script for another declaration.
    #[error(
        "{name}: line {line}: {problem}; expected the output of gdb for `customize script` with the same declaration"
    )]
    NotALog {
        /// The file.
        name: String,
        /// The number of the line.
        line: usize,
        /// The problem with it.
        problem: String,
    },
    /// The kernel did not call the function, or seldom.
    #[error(
        "{name}: {calls} calls of {entry}; expected at least {least}: a value that is the same each time proves little otherwise"
    )]
    FewCalls {
        /// The output of gdb.
        name: String,
        /// The function.
        entry: String,
        /// The number of calls.
        calls: usize,
        /// The minimum.
        least: usize,
    },
}

impl kcli::Fault for Error {
    fn is_bad_input(&self) -> bool {
        true
    }
}

//! Errors, each with the file, the place in it, the expectation and advice.

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The memory cannot be read.
    #[error(transparent)]
    Census(#[from] census::error::Error),
    /// The file is not the expected document.
    #[error("{name}: {problem}; expected {expected}")]
    Document {
        /// The file.
        name: String,
        /// The finding.
        problem: String,
        /// The expectation.
        expected: &'static str,
    },
}

impl kcli::Fault for Error {
    fn is_bad_input(&self) -> bool {
        match self {
            Error::Census(error) => error.is_bad_input(),
            Error::Document { .. } => true,
        }
    }
}

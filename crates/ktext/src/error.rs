//! Errors of reading a kernel or the map of its blocks.

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a kernel, or the map of its blocks, cannot be used. Every message begins with the name of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The linked kernel.
    #[error(transparent)]
    Kernel(#[from] kelf::Error),
    /// The map of its blocks.
    #[error(transparent)]
    Blocks(#[from] kplan::Error),
}

impl kcli::Fault for Error {
    fn is_bad_input(&self) -> bool {
        match self {
            Error::Kernel(error) => error.is_bad_input(),
            Error::Blocks(error) => error.is_bad_input(),
        }
    }
}

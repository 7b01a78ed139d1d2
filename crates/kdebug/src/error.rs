//! Errors, each with the file.

use gimli::write::ConvertError;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file is not a linked kernel.
    #[error(transparent)]
    Elf(#[from] kelf::Error),
    /// A file is not valid ELF.
    #[error("{file}: {error}")]
    Parse {
        /// The file.
        file: String,
        /// The problem.
        error: object::read::Error,
    },
    /// The original has no debugging information.
    #[error(
        "{file}: it has no debugging information; expected a kernel with CONFIG_DEBUG_INFO_DWARF5=y or _DWARF4=y"
    )]
    NoDebugInfo {
        /// The file.
        file: String,
    },
    /// The debugging information contradicts itself, or uses a form that is not supported.
    #[error("{file}: its debugging information cannot be converted: {error}")]
    Dwarf {
        /// The file.
        file: String,
        /// The problem.
        error: ConvertError,
    },
    /// The file cannot be copied with other sections.
    #[error("{file}: cannot add debugging information: {error}")]
    Copy {
        /// The file.
        file: String,
        /// The problem.
        error: object::build::Error,
    },
}

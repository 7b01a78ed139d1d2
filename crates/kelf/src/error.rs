//! Errors, each with the file, the place in it, the expectation and advice.
//!
//! The crate has one error type: most callers print the error, and otherwise only distinguish bad input from a failed
//! job ([`Error::is_bad_input`]).

use std::io;
use std::path::PathBuf;

use crate::machine::Machine;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file is complete, but not of the expected kind.
    #[error("{file}: this is {found}; expected {expected}")]
    WrongKind {
        /// The file.
        file: String,
        /// The actual kind.
        found: String,
        /// The expected kind.
        expected: String,
    },
    /// The file contradicts itself or ends too early.
    #[error("{file}: {place}: {problem}; the file is damaged or not finished, build it again")]
    Damaged {
        /// The file.
        file: String,
        /// Section, symbol or offset.
        place: String,
        /// The finding and the expectation.
        problem: String,
    },
    /// The file uses a feature that kshrink does not support.
    #[error("{file}: {place}: {problem}")]
    Unsupported {
        /// The file.
        file: String,
        /// Section, symbol or offset.
        place: String,
        /// The feature, and advice.
        problem: String,
    },
    /// An [`crate::Object`] cannot be expressed as ELF.
    #[error("{object}: {place}: {problem}")]
    Unwritable {
        /// Name of the object.
        object: String,
        /// Section, symbol or offset.
        place: String,
        /// The inexpressible value, and the limit.
        problem: String,
    },
    /// The kernel build directory lacks something.
    #[error("{}: {problem}; {advice}", path.display())]
    Build {
        /// The file or directory in question.
        path: PathBuf,
        /// The missing or wrong part.
        problem: String,
        /// Advice.
        advice: String,
    },
    /// Two inputs are for different machines.
    #[error(
        "{file} is for {found}, but the inputs before it, from {first} on, are for {expected}; \
         link objects of one machine only"
    )]
    MixedMachines {
        /// The input that differs.
        file: String,
        /// Its machine.
        found: Machine,
        /// The first input.
        first: String,
        /// The machine of the first input.
        expected: Machine,
    },
    /// Two objects define the same symbol, and neither definition is weak.
    #[error(
        "symbol {symbol} is defined in {first} and again in {second}; \
         rename one of them or make it weak or static"
    )]
    DuplicateSymbol {
        /// The symbol.
        symbol: String,
        /// The object that defines it first.
        first: String,
        /// The object that defines it again.
        second: String,
    },
    /// The link has no objects.
    #[error(
        "no objects to link: there are no inputs, or only archives without a member that is \
         needed; name at least one object"
    )]
    NoInputs,
}

impl Error {
    /// Whether the input is at fault. If so, the same call on the same files cannot succeed.
    pub fn is_bad_input(&self) -> bool {
        !matches!(self, Error::Read { .. })
    }

    /// Creates an [`Error::Unsupported`] about a name that is not UTF-8.
    pub(crate) fn not_utf8(file: impl ToString, place: impl Into<String>, name: &[u8]) -> Error {
        let problem = format!(
            "its name \"{}\" is not UTF-8; kshrink supports no other names, rename it",
            name.escape_ascii()
        );
        Error::Unsupported { file: file.to_string(), place: place.into(), problem }
    }
}

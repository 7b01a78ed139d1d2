//! Errors, each with the file, the place in it, the expectation and advice.
//!
//! One type for the crate: a caller mostly prints the error, and otherwise wants to know only
//! whether the input was at fault ([`kcli::Fault`]).

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
        /// Why.
        source: io::Error,
    },
    /// The file is whole, but not of the kind that is wanted here.
    #[error("{file}: this is {found}; expected {expected}")]
    WrongKind {
        /// The file.
        file: String,
        /// What it is.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// The file contradicts itself or ends too early.
    #[error("{file}: {place}: {problem}; the file is damaged or not finished, build it again")]
    Damaged {
        /// The file.
        file: String,
        /// Section, symbol or offset.
        place: String,
        /// What was found there and what was expected.
        problem: String,
    },
    /// The file uses something that kshrink does not handle.
    #[error("{file}: {place}: {problem}")]
    Unsupported {
        /// The file.
        file: String,
        /// Section, symbol or offset.
        place: String,
        /// What it is, and what to do about it.
        problem: String,
    },
    /// An [`crate::Object`] cannot be expressed as ELF.
    #[error("{object}: {place}: {problem}")]
    Unwritable {
        /// Name of the object.
        object: String,
        /// Section, symbol or offset.
        place: String,
        /// What cannot be expressed, and the limit.
        problem: String,
    },
    /// The kernel build directory lacks something.
    #[error("{}: {problem}; {advice}", path.display())]
    Build {
        /// The file or directory in question.
        path: PathBuf,
        /// What is missing or wrong.
        problem: String,
        /// What to do about it.
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
    /// Two objects define the same symbol, neither of them weakly.
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
    /// There is nothing to link.
    #[error(
        "no objects to link: the list of inputs is empty, or all are archives of which nothing \
         is needed; name at least one object"
    )]
    NoInputs,
}

impl Error {
    /// An [`Error::Unsupported`] about a name that is not UTF-8.
    pub(crate) fn not_utf8(file: impl ToString, place: impl Into<String>, name: &[u8]) -> Error {
        let problem = format!(
            "its name \"{}\" is not UTF-8; kshrink supports no other names, rename it",
            name.escape_ascii()
        );
        Error::Unsupported { file: file.to_string(), place: place.into(), problem }
    }
}

impl kcli::Fault for Error {
    fn is_bad_input(&self) -> bool {
        !matches!(self, Error::Read { .. })
    }
}

//! Errors, each with the file, the place in it, the expectation and advice.

use kelf::DumpError;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why there is no census.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel's file cannot be used.
    #[error(transparent)]
    Kernel(#[from] kelf::Error),
    /// The core cannot be used.
    #[error(transparent)]
    Dump(#[from] DumpError),
    /// The kernel's file lacks something, or the kernel has a feature that is not supported.
    #[error("{kernel}: {problem}; {advice}")]
    Unsupported {
        /// The kernel's file.
        kernel: String,
        /// The missing or unsupported part.
        problem: String,
        /// Advice.
        advice: &'static str,
    },
    /// The debugging information lacks the layout of a structure.
    #[error(
        "{origin}: no {what} in the debugging information; expected a kernel from Linux 6.12 on, with all of it"
    )]
    Layout {
        /// The file with the debugging information.
        origin: String,
        /// The missing structure, member or constant.
        what: String,
    },
    /// The debugging information cannot be read.
    #[error("{origin}: its debugging information cannot be read ({problem}); build the kernel again")]
    Dwarf {
        /// The file with the debugging information.
        origin: String,
        /// The reason.
        problem: String,
    },
    /// The file is no recording of allocations.
    #[error("{name}: line {line}: {problem}; expected {expected}")]
    NotARecording {
        /// The file.
        name: String,
        /// The number of the line.
        line: usize,
        /// The problem with it.
        problem: String,
        /// The expectation.
        expected: &'static str,
    },
    /// The core or the recording is of another kernel.
    #[error("{name}: of another kernel than {kernel}: {problem}; give the vmlinux that was running")]
    OtherKernel {
        /// The core.
        name: String,
        /// The kernel that it should be of.
        kernel: String,
        /// The evidence.
        problem: String,
    },
    /// The recording is of another run than the core.
    #[error("{name}: of another run than the core: {problem}; give the core and the recording of one run")]
    OtherRun {
        /// The recording.
        name: String,
        /// The evidence.
        problem: String,
    },
    /// The memory in the core contradicts itself or the kernel's file, or a part is missing.
    #[error(
        "{name}: {place}: {problem}; expected {expected}; dump the memory of the machine again, or give the vmlinux that was running instead of {kernel}"
    )]
    Damaged {
        /// The core.
        name: String,
        /// The kernel, by whose symbols and layouts the core is read.
        kernel: String,
        /// The structure, with its address.
        place: String,
        /// The finding.
        problem: String,
        /// The expectation.
        expected: String,
    },
}

impl kcli::Fault for Error {
    fn is_bad_input(&self) -> bool {
        match self {
            Error::Kernel(error) => error.is_bad_input(),
            Error::Dump(error) => error.is_bad_input(),
            _ => true,
        }
    }
}

//! The reasons why a program cannot be lifted.

use std::path::PathBuf;

/// The reason why a program cannot be lifted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no decoder for the machine.
    #[error("cannot lift {0} code yet; kshrink decodes i386, x86_64 and 32-bit ARM")]
    Machine(kelf::Machine),
    /// The size or the relocations of a weak table fit no known layout.
    #[error("{object}: section {section}: {problem}; expected the layout of Linux 6.1 to 6.12")]
    Table {
        /// The object.
        object: String,
        /// The section.
        section: String,
        /// The problem.
        problem: String,
    },
    /// The list of opaque parts is damaged.
    #[error(
        "{object}: section .comment.kshrink: {problem}; the object is damaged, make it again with kshrink-spec"
    )]
    Carried {
        /// The object.
        object: String,
        /// The problem.
        problem: String,
    },
    /// The attributes of an ARM object are damaged.
    #[error("{object}: {problem}; the object is damaged, or made by an unsupported compiler")]
    Attributes {
        /// The object.
        object: String,
        /// The problem.
        problem: &'static str,
    },
    /// The linker script cannot be read.
    #[error("{path}: cannot read the linker script: {source}", path = path.display())]
    Script {
        /// Its path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// An entry point is not defined.
    #[error("no object defines the entry point {0}; name a global function of the objects")]
    NoEntry(String),
    /// The field of a relocation is not within one instruction or entry.
    #[error(
        "{object}: section {section}: the field of the relocation at {offset:#x} is not within one instruction or \
         table entry; the object is damaged, or made by an unsupported compiler"
    )]
    Straddling {
        /// The object.
        object: String,
        /// The section.
        section: String,
        /// The offset in the section.
        offset: u64,
    },
    /// A section ends with a conditional branch, which falls through.
    #[error(
        "{object}: section {section}: the conditional branch at {offset:#x} falls through into the code that the \
         linker places after the section, which kshrink cannot preserve; end the function with a jump, a return or a trap"
    )]
    RunsOff {
        /// The object.
        object: String,
        /// The section.
        section: String,
        /// The offset in the section.
        offset: u32,
    },
    /// A relocation for which the linker makes a table entry (global offset table, thread-local storage) refers to a
    /// place outside of every variable.
    #[error(
        "{object}: section {section}: the relocation at {offset:#x} refers to a place outside of every variable of \
         section {target}; the object is damaged, build it again"
    )]
    Outside {
        /// The object.
        object: String,
        /// The section with the relocation.
        section: String,
        /// The offset in the section.
        offset: u64,
        /// The section that should contain the place.
        target: String,
    },
    /// A reference to a section that is not part of the program.
    #[error(
        "{object}: section {section}: the relocation at {offset:#x} refers to section {target}, which is not \
         part of the program; was the object built for another linker script?"
    )]
    Discarded {
        /// The object.
        object: String,
        /// The section with the relocation.
        section: String,
        /// The offset in the section.
        offset: u64,
        /// The missing section.
        target: String,
    },
}

impl kcli::Fault for Error {
    fn is_bad_input(&self) -> bool {
        !matches!(self, Error::Script { .. })
    }
}

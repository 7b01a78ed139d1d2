//! The form of the records: roots, and functions where the closure ends.

use crate::freeze::reason::Reason;

/// A root.
pub struct Mark {
    /// The code that it names.
    pub what: What,
    /// The reason under which reports count it.
    pub reason: Reason,
    /// The extent of the root.
    pub reach: Reach,
    /// Whether a kernel may lack it, by its version or configuration, or because the compiler has inlined it.
    pub optional: bool,
}

/// The code that a root names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Functions with one of these names, separated by `|`, and the copies and parts of them that compilers make
    /// (`NAME.isra.0`, `NAME.part.0`).
    Function(&'static str),
    /// The code of the object whose path ends in this.
    Object(&'static str),
    /// The code of sections of this name.
    Section(&'static str),
    /// The functions whose addresses are taken by callers of one of these functions, separated by `|`: a registered
    /// function is called through a pointer.
    GivenTo(&'static str),
    /// All hand-written code.
    HandWritten,
    /// The functions in structures that the data of these sections, separated by `|`, refers to.
    OperationsOf(&'static str),
}

/// The extent of a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The code itself, and the data that it uses.
    Alone,
    /// Also all of its callees.
    Calls,
    /// The code before it calls this function, directly or through a pointer, and the callees of that code.
    UpTo(&'static str),
}

impl What {
    /// Its name in a message.
    pub fn name(self) -> &'static str {
        match self {
            What::Function(name)
            | What::Object(name)
            | What::Section(name)
            | What::GivenTo(name)
            | What::OperationsOf(name) => name,
            What::HandWritten => "assembly",
        }
    }
}

/// A function where the search ends, although pinned code calls it.
pub struct Stop {
    /// Its name, or several names separated by `|`.
    pub function: &'static str,
    /// The reason why it need not be pinned.
    pub why: &'static str,
}

pub(super) const fn needed(reason: Reason, reach: Reach, what: What) -> Mark {
    Mark { what, reason, reach, optional: false }
}

pub(super) const fn perhaps(reason: Reason, reach: Reach, what: What) -> Mark {
    Mark { what, reason, reach, optional: true }
}

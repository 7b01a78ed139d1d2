//! The roles of sections in reachability.

use std::fmt;

use serde::Serialize;

use super::tables::TableKind;

/// The role of a section in reachability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Code, split into basic blocks if a compiler made it.
    Code,
    /// Code that is copied over other code, split at the places that entries of `.altinstructions` refer to.
    Replacement,
    /// Data, alive if referenced.
    Data,
    /// Alive by itself.
    Root(RootReason),
    /// A weak table: one node for each entry, alive if its site is.
    Weak(TableKind),
    /// Exports to loadable modules: roots if the kernel supports modules, else omitted. The build reads them from the
    /// objects; the linker script discards them.
    Exports,
    /// Omitted: the linker script discards it, or it would be wrong after rewriting.
    Dropped,
}

/// The reason why a node is alive by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RootReason {
    /// The linker script names the symbol (`ENTRY`, `ASSERT`, an expression).
    LinkerScript,
    /// An object that the final link adds names the symbol.
    LinkedBeside,
    /// A tool of the kernel's build finds the symbol in the linked kernel, and changes the data there.
    ChangedAfterLink,
    /// Symbols of the linker script bound the section, and a loop walks it.
    LinkerTable,
    /// It is not loaded with the program (`.comment`).
    NotLoaded,
    /// It is exported: a loadable module may need it.
    Exported,
    /// The entry point that the user named.
    Entry,
    /// An unknown section.
    UnknownSection,
    /// The caller keeps it unchanged ([`crate::lift::Lifter::keep`]).
    Kept,
}

impl fmt::Display for RootReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RootReason::LinkerScript => "named by the linker script",
            RootReason::LinkedBeside => "named by an object that the final link adds",
            RootReason::ChangedAfterLink => "changed by the build after the link",
            RootReason::LinkerTable => "in a table that the linker script enumerates",
            RootReason::NotLoaded => "not loaded",
            RootReason::Exported => "exported to loadable modules",
            RootReason::Entry => "entry point",
            RootReason::UnknownSection => "in an unknown section",
            RootReason::Kept => "kept unchanged",
        })
    }
}

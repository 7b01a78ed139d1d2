/*!
What the sections of a program mean to reachability, by their names.

The kernel keeps tables that only the linker script enumerates, and tables that describe code without needing it. Both
are described as data, by machine, for Linux 6.1 to 6.12. Three rules cover them:

- a *root* is alive by itself, because symbols of the linker script bound it and a loop walks it
  (`special/sections.rs`);
- a *weak* table keeps nothing alive: each of its entries lives as long as the code that it is about, its
  *site*, and then keeps alive what else it names (`special/tables.rs`);
- plain code and data live as long as something refers to them (`special/sections.rs`).

A section with a name that is not listed is a root, whole, and the report names it. The names of the kernel's
tables mean nothing in a user program, which may use them for its own ends: which of the two a program is,
[`World`] says.
*/

mod layout;
mod sections;
mod tables;

use std::fmt;
use std::sync::Arc;

use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_NOTE};
use kelf::{KernelVersion, Machine};
use serde::Serialize;

use crate::script::LinkerScript;

pub use layout::{About, BUGFLAG_WARNING, Detail, EX_TYPE_ZEROPAD, EntryLayout, Versions};
pub use tables::TableKind;

/// How a section takes part in reachability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Code, lifted to blocks if a compiler made it.
    Code,
    /// Code that is copied over other code, cut up along the `.altinstructions` entries that name it.
    Replacement,
    /// Data, alive if referenced.
    Data,
    /// Alive by itself.
    Root(RootReason),
    /// One node an entry, each alive with its site.
    Weak(TableKind),
    /// What the kernel exports to loadable modules: roots where there can be any, else left out. The build
    /// reads it from the objects; the linker script discards it.
    Exports,
    /// Left out: the linker script discards it, or it would be wrong after rewriting.
    Dropped,
}

/// Why a node is alive by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RootReason {
    /// The linker script names the symbol (`ENTRY`, `ASSERT`, an expression).
    LinkerScript,
    /// An object that the final link adds names the symbol; with loadable modules, every export is one.
    LinkedBeside,
    /// Symbols of the linker script bound the section, and a loop walks it.
    LinkerTable,
    /// It is not loaded with the program (`.comment`).
    NotLoaded,
    /// A loadable module may need it.
    Exported,
    /// The entry point that the user named.
    Entry,
    /// A section that this version does not know.
    UnknownSection,
    /// The caller wants it unchanged ([`crate::lift::Lifter::keep`]).
    Kept,
}

impl fmt::Display for RootReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RootReason::LinkerScript => "named by the linker script",
            RootReason::LinkedBeside => "named by an object linked beside",
            RootReason::LinkerTable => "in a table that the linker script enumerates",
            RootReason::NotLoaded => "not loaded",
            RootReason::Exported => "exported to loadable modules",
            RootReason::Entry => "entry point",
            RootReason::UnknownSection => "in a section that kshrink does not know",
            RootReason::Kept => "kept as it was",
        })
    }
}

/// What decides which sections a kernel has, and how their entries lie.
#[derive(Debug)]
pub struct Kernel {
    /// The script that links it.
    pub script: LinkerScript,
    /// Its machine.
    pub machine: Machine,
    /// Its version, if the build says that.
    pub version: Option<KernelVersion>,
}

/// Whose names of sections a program uses.
#[derive(Clone, Debug)]
pub enum World {
    /// A kernel's.
    Kernel(Arc<Kernel>),
    /// A user program's, linked by a script that is not known: the linker's own, as a rule.
    Program,
}

impl World {
    /// The world of a kernel; `version` if its build says that.
    pub fn kernel(script: LinkerScript, machine: Machine, version: Option<KernelVersion>) -> World {
        World::Kernel(Arc::new(Kernel { script, machine, version }))
    }

    /// The rule for a section.
    pub fn rule(&self, name: &str, kind: u32, flags: u64) -> Rule {
        if flags & u64::from(SHF_ALLOC) == 0 {
            let kept = name == ".comment" || name.starts_with(".note");
            return if kept { Rule::Root(RootReason::NotLoaded) } else { Rule::Dropped };
        }
        match name {
            // Unwind tables of user programs: their ranges and steps would be wrong after rewriting.
            ".eh_frame" | ".eh_frame_hdr" | ".gcc_except_table" => return Rule::Dropped,
            ".init" | ".fini" => return Rule::Root(RootReason::LinkerTable),
            _ if kind == SHT_NOTE || sections::is_program_table(name) => {
                return Rule::Root(RootReason::LinkerTable);
            }
            _ => {}
        }
        let code = flags & u64::from(SHF_EXECINSTR) != 0;
        let known = match self {
            World::Kernel(kernel) => match tables::named(name, kernel.machine) {
                Some(kind) => Some(Rule::Weak(kind)),
                None => sections::of_kernel(name, kernel.machine, code),
            },
            World::Program => sections::of_program(name, code),
        };
        known.unwrap_or(Rule::Root(RootReason::UnknownSection))
    }

    /// The kernel's version, if this is a kernel whose build says that.
    pub fn version(&self) -> Option<KernelVersion> {
        match self {
            World::Kernel(kernel) => kernel.version,
            World::Program => None,
        }
    }

    /// Whether the link throws sections of this name away. A built-in driver's `.exitcall.exit` is the one that
    /// matters: nothing ever calls what it lists.
    pub fn discards(&self, name: &str) -> bool {
        matches!(self, World::Kernel(kernel) if kernel.script.discards(name))
    }

    /// The name under which a section goes to the linker: its own, but where a kernel's script does not know the
    /// `.data.NAME` of `-fdata-sections` (nor `.text.NAME`), which it would then leave outside of the image's bounds.
    /// Names with two dots are the kernel's own.
    pub fn output_name<'n>(&self, name: &'n str) -> &'n str {
        match self {
            World::Kernel(kernel) if !kernel.script.takes(name) => kernel_base(name).unwrap_or(name),
            _ => name,
        }
    }

    /// What is the same for all sections that the linker puts behind one another in the order in which it finds them,
    /// with nothing between: the first name of a list in the linker script.
    pub fn class<'n>(&'n self, name: &'n str) -> &'n str {
        let name = self.output_name(name);
        match self {
            World::Kernel(kernel) => kernel.script.list(name).unwrap_or(name),
            World::Program => sections::program_class(name).unwrap_or(name),
        }
    }
}

/// For `.data.NAME` and the like, `.data`.
fn kernel_base(name: &str) -> Option<&'static str> {
    const BASES: &[&str] =
        &[".text", ".data", ".bss", ".init.data", ".init.rodata", ".init.text", ".exit.text", ".ref.data"];
    let is_base = |base: &&&str| {
        let rest = name.strip_prefix(**base);
        rest.is_some_and(|rest| rest.starts_with('.') && !rest.starts_with(".."))
    };
    BASES.iter().find(is_base).copied()
}

/// Whether a function is a retpoline, which jumps where a register says: GCC and Clang call it by such names
/// (`-mindirect-branch=thunk-extern`, `-mretpoline-external-thunk`).
pub fn is_retpoline(name: &str) -> bool {
    ["__x86_indirect_", "__llvm_retpoline_"].iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests;

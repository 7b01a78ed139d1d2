/*!
The role of a program's sections in reachability, by their names.

The kernel has tables that are found only through symbols of the linker script, and tables that describe code. Both are
listed here, by machine, for Linux 6.1 to 7.2. There are three rules:

- a *root* is alive by itself, because symbols of the linker script bound it and a loop walks it
  (`special/sections.rs`);
- a *weak* table keeps nothing alive: each of its entries is alive if the code that it describes, its *site*, is alive,
  and then keeps its other targets alive (`special/tables.rs`);
- plain code and data are alive if something alive refers to them (`special/sections.rs`).

A section with an unlisted name is a root, is not split, and is in the report. The names of the kernel's tables have no
special meaning in a user program; [`World`] distinguishes the two.
*/

mod layout;
mod names;
mod rules;
mod sections;
mod tables;

use std::sync::Arc;

use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_NOTE};
use kelf::{KernelVersion, Machine};

use crate::script::LinkerScript;

pub use layout::{About, BUGFLAG_WARNING, Detail, EX_TYPE_ZEROPAD, EntryLayout, Versions};
pub use rules::{RootReason, Rule};
pub use tables::TableKind;

/// The properties of a kernel that determine its special sections, and the layout of their entries.
#[derive(Debug)]
pub struct Kernel {
    /// Its linker script.
    pub script: LinkerScript,
    /// Its machine.
    pub machine: Machine,
    /// Its version, if the build records it.
    pub version: Option<KernelVersion>,
}

/// Whether a program is a kernel, which gives the names of its sections their meaning.
#[derive(Clone, Debug)]
pub enum World {
    /// A kernel.
    Kernel(Arc<Kernel>),
    /// A user program, linked by an unknown script; usually the linker's default.
    Program,
}

impl World {
    /// Creates the world of a kernel. `version` is given if its build records it.
    pub fn kernel(script: LinkerScript, machine: Machine, version: Option<KernelVersion>) -> World {
        World::Kernel(Arc::new(Kernel { script, machine, version }))
    }

    /// Returns the rule for a section.
    pub fn rule(&self, name: &str, kind: u32, flags: u64) -> Rule {
        let table = match self {
            World::Kernel(kernel) => tables::named(name, kernel.machine),
            World::Program => None,
        };
        if let Some(kind) = table.filter(|kind| kind.is_for_objtool()) {
            return Rule::Weak(kind);
        }
        if flags & u64::from(SHF_ALLOC) == 0 {
            let kept = name == ".comment" || name.starts_with(".note");
            return if kept { Rule::Root(RootReason::NotLoaded) } else { Rule::Dropped };
        }
        match name {
            // Unwind tables of user programs: their ranges and steps would be wrong after rewriting.
            ".eh_frame" | ".eh_frame_hdr" | ".gcc_except_table" => return Rule::Dropped,
            _ if matches!(self, World::Program) && sections::is_unwind_table_of_arm(name) => {
                return Rule::Dropped;
            }
            ".init" | ".fini" => return Rule::Root(RootReason::LinkerTable),
            _ if kind == SHT_NOTE || sections::is_program_table(name) => {
                return Rule::Root(RootReason::LinkerTable);
            }
            _ => {}
        }
        let code = flags & u64::from(SHF_EXECINSTR) != 0;
        let known = match self {
            World::Kernel(kernel) => {
                table.map(Rule::Weak).or_else(|| sections::of_kernel(name, kernel.machine, code))
            }
            World::Program => sections::of_program(name, code),
        };
        known.unwrap_or(Rule::Root(RootReason::UnknownSection))
    }

    /// Whether objtool checks the code and makes its unwind tables. It follows control within each function, and expects
    /// one state of the stack at each instruction and restored registers at each return (tools/objtool/check.c).
    pub fn is_checked_by_objtool(&self) -> bool {
        matches!(self, World::Kernel(kernel) if kernel.machine.is_64())
    }

    /// Returns the kernel's version, if this is a kernel whose build records it.
    pub fn version(&self) -> Option<KernelVersion> {
        match self {
            World::Kernel(kernel) => kernel.version,
            World::Program => None,
        }
    }

    /// Whether the linker script discards sections of this name. The important case is `.exitcall.exit` of built-in
    /// drivers, because the listed functions are never called.
    pub fn discards(&self, name: &str) -> bool {
        matches!(self, World::Kernel(kernel) if kernel.script.discards(name))
    }

    /// Returns the name of a section in the emitted object. This is its own name, with one exception. If no list of a
    /// kernel's script contains the `.data.NAME` of `-fdata-sections` or the `.text.NAME` of `-ffunction-sections`, the
    /// section would become an orphan outside of the symbols that bound the image. It is then called `.data` or
    /// `.text`. Names with two dots (`.data..percpu`) are the kernel's own and are kept.
    pub fn output_name<'n>(&self, name: &'n str) -> &'n str {
        match self {
            World::Kernel(kernel) if !kernel.script.takes(name) => kernel_base(name).unwrap_or(name),
            _ => name,
        }
    }

    /// Returns the class of a section: a name shared by all sections of one list of the linker script, which the linker
    /// places one after the other in the order of the object. It is the first name of that list.
    pub fn class<'n>(&'n self, name: &'n str) -> &'n str {
        let name = self.output_name(name);
        match self {
            World::Kernel(kernel) => kernel.script.list(name).unwrap_or(name),
            World::Program => sections::program_class(name).unwrap_or(name),
        }
    }
}

/// Returns `.data` for `.data.NAME` and the like.
fn kernel_base(name: &str) -> Option<&'static str> {
    const BASES: &[&str] =
        &[".text", ".data", ".bss", ".init.data", ".init.rodata", ".init.text", ".exit.text", ".ref.data"];
    let is_base = |base: &&&str| {
        let rest = name.strip_prefix(**base);
        rest.is_some_and(|rest| rest.starts_with('.') && !rest.starts_with(".."))
    };
    BASES.iter().find(is_base).copied()
}

/// Whether a function is a retpoline, which jumps to the address in a register. GCC and Clang use these names
/// (`-mindirect-branch=thunk-extern`, `-mretpoline-external-thunk`).
pub fn is_retpoline(name: &str) -> bool {
    ["__x86_indirect_", "__llvm_retpoline_"].iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests;

/*!
What the sections of a program mean to reachability, by their names.

The kernel keeps tables that only the linker script enumerates, and tables that describe code without
needing it. This page is the list of both (kernel 6.1 to 6.12; the layouts are in `special/tables.rs`). Three rules
cover them:

- a *root* is alive by itself, because symbols of the linker script bound it and a loop walks it;
- a *weak* table keeps nothing alive: each of its entries lives as long as the code that it is about, its
  *site*, and then keeps alive what else it names;
- plain code and data live as long as something refers to them.

A section with a name that is not listed is a root, whole, and the report names it. The names of the kernel's
tables mean nothing in a user program, which may use them for its own ends: which of the two a program is,
[`World`] says.
*/

mod tables;

use std::fmt;
use std::sync::Arc;

use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_NOTE};
use serde::Serialize;

use crate::script::LinkerScript;

pub use tables::{BUGFLAG_WARNING, EX_TYPE_ZEROPAD, Layout, TableKind};

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

/// Whose names of sections a program uses.
#[derive(Clone, Debug)]
pub enum World {
    /// A kernel's, linked by this script.
    Kernel(Arc<LinkerScript>),
    /// A user program's, linked by a script that is not known: the linker's own, as a rule.
    Program,
}

impl World {
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
            _ if kind == SHT_NOTE || has_prefix(name, PROGRAM_TABLES) => {
                return Rule::Root(RootReason::LinkerTable);
            }
            _ => {}
        }
        let code = flags & u64::from(SHF_EXECINSTR) != 0;
        let known = match self {
            World::Kernel(_) => kernel_rule(name, code),
            World::Program if code => has_prefix(name, PROGRAM_CODE).then_some(Rule::Code),
            World::Program if has_prefix(name, PROGRAM_DATA) => Some(Rule::Data),
            // The linker defines `__start_NAME` and `__stop_NAME`.
            World::Program => is_identifier(name).then_some(Rule::Root(RootReason::LinkerTable)),
        };
        known.unwrap_or(Rule::Root(RootReason::UnknownSection))
    }

    /// Whether the link throws sections of this name away. A built-in driver's `.exitcall.exit` is the one that
    /// matters: nothing ever calls what it lists.
    pub fn discards(&self, name: &str) -> bool {
        matches!(self, World::Kernel(script) if script.discards(name))
    }

    /// The name under which a section goes to the linker: its own, but where a kernel's script does not know the
    /// `.data.NAME` of `-fdata-sections` (nor `.text.NAME`), which it would then leave outside of the image's bounds.
    /// Names with two dots are the kernel's own.
    pub fn output_name<'n>(&self, name: &'n str) -> &'n str {
        match self {
            World::Kernel(script) if !script.takes(name) => kernel_base(name).unwrap_or(name),
            _ => name,
        }
    }

    /// What is the same for all sections that the linker puts behind one another in the order in which it finds them,
    /// with nothing between: the first name of a list in the linker script.
    pub fn class<'n>(&'n self, name: &'n str) -> &'n str {
        let name = self.output_name(name);
        match self {
            World::Kernel(script) => script.list(name).unwrap_or(name),
            World::Program => {
                let first =
                    |prefixes: &'static [&str]| prefixes.iter().find(|prefix| has_prefix(name, &[prefix]));
                first(PROGRAM_APART)
                    .or_else(|| first(PROGRAM_CODE))
                    .or_else(|| first(PROGRAM_DATA))
                    .unwrap_or(&name)
            }
        }
    }
}

/// The rule for a section of a kernel; `None` for a name that is not listed.
fn kernel_rule(name: &str, code: bool) -> Option<Rule> {
    if let Some(kind) = weak_table(name) {
        return Some(Rule::Weak(kind));
    }
    match name {
        ".altinstr_replacement" => return Some(Rule::Replacement),
        ".export_symbol" => return Some(Rule::Exports),
        _ => {}
    }
    if has_prefix(name, &[".discard", ".orc_"]) {
        return Some(Rule::Dropped);
    }
    if has_prefix(name, EXPORT_TABLES) {
        return Some(Rule::Root(RootReason::Exported));
    }
    if LINKER_TABLES.contains(&name) || has_prefix(name, LINKER_TABLE_PREFIXES) {
        return Some(Rule::Root(RootReason::LinkerTable));
    }
    let (prefixes, rule) = if code { (CODE_PREFIXES, Rule::Code) } else { (DATA_PREFIXES, Rule::Data) };
    has_prefix(name, prefixes).then_some(rule)
}

fn weak_table(name: &str) -> Option<TableKind> {
    Some(match name {
        "__ex_table" => TableKind::ExceptionTable,
        ".altinstructions" => TableKind::Alternative,
        "__jump_table" => TableKind::StaticKey,
        ".static_call_sites" => TableKind::StaticCall,
        ".parainstructions" => TableKind::Paravirt,
        ".retpoline_sites" | ".return_sites" | ".call_sites" | ".ibt_endbr_seal" | ".cfi_sites" => {
            TableKind::PatchSite
        }
        ".smp_locks" => TableKind::LockPrefix,
        "__mcount_loc" => TableKind::Mcount,
        "__bug_table" => TableKind::Bug,
        "_kprobe_blacklist" => TableKind::FunctionList,
        "_error_injection_whitelist" => TableKind::ErrorInjection,
        _ if name.starts_with("runtime_ptr_") || name.starts_with("runtime_shift_") => {
            TableKind::RuntimeConst
        }
        _ => return None,
    })
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

/// Whether a name is one of the language C, so that there can be symbols that end in it.
fn is_identifier(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(is_word) && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// A prefix here ends at the end of the name, or at a dot or a plus sign.
fn has_prefix(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| {
        name.strip_prefix(prefix).is_some_and(|rest| {
            rest.is_empty() || rest.starts_with(['.', '+']) || prefix.ends_with(['_', '.'])
        })
    })
}

const CODE_PREFIXES: &[&str] = &[
    ".text",
    ".init.text",
    ".exit.text",
    ".ref.text",
    ".meminit.text",
    ".memexit.text",
    ".noinstr.text",
    ".entry.text",
    ".head.text",
    ".sched.text",
    ".spinlock.text",
    ".lock.text",
    ".kprobes.text",
    ".cpuidle.text",
    ".irqentry.text",
    ".softirqentry.text",
    ".static_call.text",
    ".altinstr_aux",
    ".fixup",
    ".gnu.linkonce.t",
];

const DATA_PREFIXES: &[&str] = &[
    ".data",
    ".rodata",
    ".bss",
    ".init.data",
    ".init.rodata",
    ".exit.data",
    ".ref.data",
    ".ref.rodata",
    ".meminit.data",
    ".meminit.rodata",
    ".sdata",
    ".sbss",
    ".tdata",
    ".tbss",
    ".init.bss",
];

/// Sections that symbols of include/asm-generic/vmlinux.lds.h or of an architecture's script bound.
const LINKER_TABLES: &[&str] = &[
    "__param",
    "__modver",
    ".modinfo",
    ".exitcall.exit",
    ".con_initcall.init",
    ".x86_cpu_dev.init",
    ".apicdrivers",
    ".iommu_table",
    "__earlycon_table",
    "__tracepoints",
    "__tracepoints_ptrs",
    "__tracepoints_strings",
    "__tracepoint_str",
    "__trace_printk_fmt",
    "__bpf_raw_tp_map",
    "__syscalls_metadata",
    "_ftrace_events",
    "_ftrace_eval_map",
    "_ftrace_annotated_branch",
    "_ftrace_branch",
    "__dyndbg",
    "__dyndbg_classes",
    "__verbose",
    "__thermal_table_governor",
    "__lsm_info",
    "__early_lsm_info",
    "__kunit_suites",
    "__timer_acpi_probe_table",
    "__clk_of_table",
    "__irqchip_acpi_probe_table",
    ".builtin_fw",
    ".BTF_ids",
    ".tracedata",
    "__cpuidle_method_of_table",
    ".x86_intel_mid_dev.init",
    ".pci_fixup",
    // Space that is handed out at boot; the script adds up its size.
    ".bss..brk",
    ".brk_reservation",
    // The page that the vDSO reads, laid out by the script.
    ".vvar",
];

const LINKER_TABLE_PREFIXES: &[&str] = &[
    ".initcall",
    ".initcallearly",
    ".initcallrootfs",
    ".initcall0",
    ".initcall0s",
    ".initcall1",
    ".initcall1s",
    ".initcall2",
    ".initcall2s",
    ".initcall3",
    ".initcall3s",
    ".initcall4",
    ".initcall4s",
    ".initcall5",
    ".initcall5s",
    ".initcall6",
    ".initcall6s",
    ".initcall7",
    ".initcall7s",
    ".init.setup",
    ".init.ramfs",
    ".pci_fixup_",
    ".vvar_",
    ".dtb.init",
    ".proc.info.init",
    ".arch.info.init",
    ".taglist.init",
    "__dl_sched_class",
    "__rt_sched_class",
    "__fair_sched_class",
    "__ext_sched_class",
    "__idle_sched_class",
    "__stop_sched_class",
    "__reservedmem_of_table",
    "__clk_of_table",
    "__timer_of_table",
    "__irqchip_of_table",
    "__cpu_method_of_table",
    "__cpuidle_method_of_table",
    "__earlycon_of_table",
];

/// What a kernel before 6.5 exports to loadable modules, a section each (`___ksymtab+NAME`, include/linux/export.h):
/// sorted and bounded by the linker script, with their names and checksums.
const EXPORT_TABLES: &[&str] =
    &["___ksymtab", "___ksymtab_gpl", "___kcrctab", "___kcrctab_gpl", "__ksymtab_strings"];

/// Tables of user programs, bounded by the linker's own script.
const PROGRAM_TABLES: &[&str] =
    &[".init_array", ".fini_array", ".preinit_array", ".ctors", ".dtors", ".note"];

/// Code of user programs.
const PROGRAM_CODE: &[&str] = &[".text", ".gnu.linkonce.t"];

/// Data of user programs.
const PROGRAM_DATA: &[&str] = &[
    ".data",
    ".rodata",
    ".bss",
    ".tdata",
    ".tbss",
    ".data1",
    ".rodata1",
    ".sdata",
    ".sbss",
    ".gnu.linkonce.d",
    ".gnu.linkonce.r",
    ".gnu.linkonce.b",
    ".gnu.linkonce.td",
    ".gnu.linkonce.tb",
];

/// Code and data that the linker's own script keeps apart from what else begins with their names.
const PROGRAM_APART: &[&str] =
    &[".text.unlikely", ".text.hot", ".text.startup", ".text.exit", ".data.rel.ro"];

#[cfg(test)]
mod tests;

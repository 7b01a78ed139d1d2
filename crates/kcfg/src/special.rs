/*!
What the sections of a kernel mean to reachability.

The kernel keeps tables that only the linker script enumerates, and tables that describe code without
needing it. This page is the list of both (kernel 6.1 to 6.12). Three rules cover them:

- a *root* is alive by itself, because symbols of the linker script bound it and a loop walks it;
- a *weak* table keeps nothing alive: each of its entries lives as long as the code that it is about, its
  *site*, and then keeps alive what else it names;
- plain code and data live as long as something refers to them.

A section with a name that is not listed is a root, whole, and the report names it.
*/

use std::fmt;

use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_NOTE};
use kelf::Machine;
use serde::Serialize;

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

/// The tables whose entries describe code without keeping it alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TableKind {
    /// `__ex_table`: faulting instruction, fixup, handler (`struct exception_table_entry`).
    ExceptionTable,
    /// `.altinstructions` (`struct alt_instr`).
    Alternative,
    /// `__jump_table` (`struct jump_entry`).
    StaticKey,
    /// `.static_call_sites` (`struct static_call_site`).
    StaticCall,
    /// `.parainstructions` (`struct paravirt_patch_site`, before 6.8).
    Paravirt,
    /// `.retpoline_sites`, `.return_sites`, `.call_sites`, `.ibt_endbr_seal`: one place each.
    PatchSite,
    /// `.smp_locks`: `lock` prefixes.
    LockPrefix,
    /// `__mcount_loc`: calls of the function tracer.
    Mcount,
    /// `runtime_ptr_*`, `runtime_shift_*`: immediates that are set at boot.
    RuntimeConst,
    /// `__bug_table` (`struct bug_entry`).
    Bug,
    /// `_kprobe_blacklist`: functions, by their first byte.
    FunctionList,
    /// `_error_injection_whitelist` (`struct error_injection_entry`): functions and a kind.
    ErrorInjection,
}

impl TableKind {
    /// Size of an entry in bytes. `second` says whether the section has a relocation in the second word
    /// of its first entry, which tells a `bug_entry` with file name from one without.
    pub fn entry_size(self, machine: Machine, second: bool) -> u32 {
        let word = u32::from(machine.word_size());
        match self {
            TableKind::ExceptionTable => 12,
            TableKind::Alternative => 14,
            TableKind::StaticKey => 8 + word,
            TableKind::StaticCall => 8,
            TableKind::Paravirt => 2 * word,
            TableKind::PatchSite | TableKind::LockPrefix | TableKind::RuntimeConst => 4,
            TableKind::Mcount | TableKind::FunctionList => word,
            TableKind::ErrorInjection => 2 * word,
            TableKind::Bug if second => 12,
            TableKind::Bug => 8,
        }
    }

    /// Whether the kernel writes over the code at the site, or compares its bytes, so that it has to
    /// stay as it is.
    pub fn fixes_code(self) -> bool {
        !matches!(
            self,
            TableKind::ExceptionTable | TableKind::Bug | TableKind::FunctionList | TableKind::ErrorInjection
        )
    }
}

/// `struct alt_instr` (arch/x86/include/asm/alternative.h): offsets in bytes of the fields that matter.
pub mod alt_instr {
    /// Place of the replacement, a relative 32-bit field.
    pub const REPLACEMENT: u32 = 4;
    /// Length in bytes of the original.
    pub const LENGTH: u32 = 12;
    /// Length in bytes of the replacement.
    pub const REPLACEMENT_LENGTH: u32 = 13;
}

/// `BUGFLAG_WARNING` (include/linux/bug.h): the trap handler resumes behind the `ud2`.
pub const BUGFLAG_WARNING: u16 = 1;

/// The rule for a section.
pub fn rule(name: &str, kind: u32, flags: u64) -> Rule {
    use RootReason::{LinkerTable, NotLoaded, UnknownSection};
    use Rule::{Code, Data, Dropped, Exports, Replacement, Root, Weak};

    if flags & u64::from(SHF_ALLOC) == 0 {
        return if name == ".comment" || name.starts_with(".note") { Root(NotLoaded) } else { Dropped };
    }
    let weak = match name {
        "__ex_table" => Some(TableKind::ExceptionTable),
        ".altinstructions" => Some(TableKind::Alternative),
        "__jump_table" => Some(TableKind::StaticKey),
        ".static_call_sites" => Some(TableKind::StaticCall),
        ".parainstructions" => Some(TableKind::Paravirt),
        ".retpoline_sites" | ".return_sites" | ".call_sites" | ".ibt_endbr_seal" | ".cfi_sites" => {
            Some(TableKind::PatchSite)
        }
        ".smp_locks" => Some(TableKind::LockPrefix),
        "__mcount_loc" => Some(TableKind::Mcount),
        "__bug_table" => Some(TableKind::Bug),
        "_kprobe_blacklist" => Some(TableKind::FunctionList),
        "_error_injection_whitelist" => Some(TableKind::ErrorInjection),
        _ if name.starts_with("runtime_ptr_") || name.starts_with("runtime_shift_") => {
            Some(TableKind::RuntimeConst)
        }
        _ => None,
    };
    if let Some(kind) = weak {
        return Weak(kind);
    }
    match name {
        ".altinstr_replacement" => return Replacement,
        ".export_symbol" => return Exports,
        // Unwind tables of user programs: their ranges and steps would be wrong after rewriting.
        ".eh_frame" | ".eh_frame_hdr" | ".gcc_except_table" => return Dropped,
        _ => {}
    }
    if has_prefix(name, &[".discard", ".orc_"]) {
        return Dropped;
    }
    if kind == SHT_NOTE || LINKER_TABLES.contains(&name) || has_prefix(name, LINKER_TABLE_PREFIXES) {
        return Root(LinkerTable);
    }
    if flags & u64::from(SHF_EXECINSTR) != 0 {
        return if has_prefix(name, CODE_PREFIXES) { Code } else { Root(UnknownSection) };
    }
    if has_prefix(name, DATA_PREFIXES) { Data } else { Root(UnknownSection) }
}

/// A prefix here ends at the end of the name or at a dot.
fn has_prefix(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| {
        name.strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.') || prefix.ends_with(['_', '.']))
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
    "__ksymtab_strings",
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
    "__kcrctab",
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
    // User programs.
    ".init",
    ".fini",
    ".init_array",
    ".fini_array",
    ".preinit_array",
    ".ctors",
    ".dtors",
    ".note",
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
    "__ksymtab",
    "___ksymtab",
    "___kcrctab",
    ".dtb.init",
    ".proc.info.init",
    ".arch.info.init",
    ".taglist.init",
    ".init_array",
    ".fini_array",
    ".ctors",
    ".dtors",
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

/// The name under which a section goes to the linker. The kernel's script knows `.data` but not the
/// `.data.NAME` of `-fdata-sections` (nor `.text.NAME`), and would leave those outside of the image's
/// bounds; the names with two dots are the kernel's own.
pub fn output_name(name: &str) -> &str {
    const KNOWN: &[&str] = &[".text.unlikely", ".text.hot", ".text.startup", ".text.exit", ".text.unknown"];
    if has_prefix(name, KNOWN) {
        return name;
    }
    for base in
        [".text", ".data", ".bss", ".init.data", ".init.rodata", ".init.text", ".exit.text", ".ref.data"]
    {
        if let Some(rest) = name.strip_prefix(base)
            && rest.starts_with('.')
            && !rest.starts_with("..")
        {
            return base;
        }
    }
    name
}

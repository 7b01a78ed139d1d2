//! The rules for sections other than weak tables, by name.

use kelf::Machine;

use super::names::{ALL, ARM, Name, X86};
use super::rules::{RootReason, Rule};

/// Sections of a kernel with one rule.
struct Special {
    names: &'static [Name],
    /// The machines whose kernels have them.
    machines: &'static [Machine],
    rule: Rule,
}

/// Returns the rule for a section of a kernel that is not a weak table; `None` for an unlisted name. `code` is whether
/// it holds instructions: rules for code do not apply to data, nor the other way round.
pub(super) fn of_kernel(name: &str, machine: Machine, code: bool) -> Option<Rule> {
    let mut listed = SPECIAL.iter().filter(|special| special.machines.contains(&machine));
    let fits = |special: &&Special| match special.rule {
        Rule::Code => code,
        Rule::Data => !code,
        _ => true,
    };
    listed
        .find(|special| fits(special) && special.names.iter().any(|one| one.matches(name)))
        .map(|found| found.rule)
}

/// Returns the rule for a section of a user program; `None` for an unlisted name.
pub(super) fn of_program(name: &str, code: bool) -> Option<Rule> {
    match code {
        true => family(PROGRAM_CODE, name).map(|_| Rule::Code),
        false if family(PROGRAM_DATA, name).is_some() => Some(Rule::Data),
        // The linker defines `__start_NAME` and `__stop_NAME`.
        false => is_identifier(name).then_some(Rule::Root(RootReason::LinkerTable)),
    }
}

/// Whether symbols of the linker's default script bound sections of this name.
pub(super) fn is_program_table(name: &str) -> bool {
    family(PROGRAM_TABLES, name).is_some()
}

/// Whether a section holds unwind tables of ARM (IHI 0038).
pub(super) fn is_unwind_table_of_arm(name: &str) -> bool {
    family(&[".ARM.exidx", ".ARM.extab"], name).is_some()
}

/// Returns the class ([`World::class`](super::World::class)) of a section of a user program, by the linker's default
/// script.
pub(super) fn program_class(name: &str) -> Option<&'static str> {
    [PROGRAM_APART, PROGRAM_CODE, PROGRAM_DATA].iter().find_map(|families| family(families, name))
}

/// Returns the first of these names whose [`Name::Family`] contains a section.
fn family(families: &[&'static str], name: &str) -> Option<&'static str> {
    families.iter().find(|&&first| Name::Family(first).matches(name)).copied()
}

/// Whether a name is a C identifier, so that the linker defines `__start_NAME` and `__stop_NAME`.
fn is_identifier(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(is_word) && !name.starts_with(|c: char| c.is_ascii_digit())
}

use Name::{Family, Is};

/// The sections of kernels. The first record that matches applies.
const SPECIAL: &[Special] = &[
    // The code that `.altinstructions` copies over other code (arch/x86/include/asm/alternative.h).
    Special { names: &[Is(".altinstr_replacement")], machines: X86, rule: Rule::Replacement },
    // From 6.5 on (include/linux/export-internal.h); scripts/mod/modpost reads it from the objects.
    Special { names: &[Is(".export_symbol")], machines: ALL, rule: Rule::Exports },
    // The version of the unwind tables (include/asm/orc_header.h); `.orc_header` is the whole output section.
    Special { names: &[Is(".orc_header")], machines: X86, rule: Rule::Root(RootReason::LinkerTable) },
    // The linker script discards `.discard`. objtool makes the unwind tables of ORC for the rewritten code.
    Special { names: &[Family(".discard"), Family(".orc_")], machines: ALL, rule: Rule::Dropped },
    // The exports of a kernel before 6.5 to loadable modules, a section each (`___ksymtab+NAME`,
    // include/linux/export.h): sorted and bounded by the linker script, with their names and checksums.
    Special {
        names: &[
            Family("___ksymtab"),
            Family("___ksymtab_gpl"),
            Family("___kcrctab"),
            Family("___kcrctab_gpl"),
            Family("__ksymtab_strings"),
        ],
        machines: ALL,
        rule: Rule::Root(RootReason::Exported),
    },
    Special { names: LINKER_TABLES, machines: ALL, rule: Rule::Root(RootReason::LinkerTable) },
    Special { names: X86_LINKER_TABLES, machines: X86, rule: Rule::Root(RootReason::LinkerTable) },
    Special { names: ARM_LINKER_TABLES, machines: ARM, rule: Rule::Root(RootReason::LinkerTable) },
    Special { names: CODE, machines: ALL, rule: Rule::Code },
    // The tests of CPU features that `static_cpu_has` moves out of line (arch/x86/include/asm/cpufeature.h).
    Special { names: &[Family(".altinstr_aux")], machines: X86, rule: Rule::Code },
    Special { names: DATA, machines: ALL, rule: Rule::Data },
    // The targets of entries of `.ARM.exidx`.
    Special { names: &[Family(".ARM.extab")], machines: ARM, rule: Rule::Data },
];

const CODE: &[Name] = &[
    Family(".text"),
    Family(".init.text"),
    Family(".exit.text"),
    Family(".ref.text"),
    Family(".meminit.text"),
    Family(".memexit.text"),
    Family(".noinstr.text"),
    Family(".entry.text"),
    Family(".head.text"),
    Family(".sched.text"),
    Family(".spinlock.text"),
    Family(".lock.text"),
    Family(".kprobes.text"),
    Family(".cpuidle.text"),
    Family(".irqentry.text"),
    Family(".softirqentry.text"),
    Family(".static_call.text"),
    Family(".fixup"),
    Family(".gnu.linkonce.t"),
];

const DATA: &[Name] = &[
    Family(".data"),
    Family(".rodata"),
    Family(".bss"),
    Family(".init.data"),
    Family(".init.rodata"),
    Family(".exit.data"),
    Family(".ref.data"),
    Family(".ref.rodata"),
    Family(".meminit.data"),
    Family(".meminit.rodata"),
    Family(".sdata"),
    Family(".sbss"),
    Family(".tdata"),
    Family(".tbss"),
    Family(".init.bss"),
];

/// Sections that symbols of include/asm-generic/vmlinux.lds.h bound.
const LINKER_TABLES: &[Name] = &[
    Is("__param"),
    Is("__modver"),
    Is(".modinfo"),
    Is(".exitcall.exit"),
    Is(".con_initcall.init"),
    Is("__earlycon_table"),
    Is("__tracepoints"),
    Is("__tracepoints_ptrs"),
    Is("__tracepoints_strings"),
    Is("__tracepoint_str"),
    Is("__trace_printk_fmt"),
    Is("__bpf_raw_tp_map"),
    Is("__syscalls_metadata"),
    Is("_ftrace_events"),
    Is("_ftrace_eval_map"),
    Is("_ftrace_annotated_branch"),
    Is("_ftrace_branch"),
    Is("__dyndbg"),
    Is("__dyndbg_classes"),
    Is("__verbose"),
    Is("__thermal_table_governor"),
    Is("__lsm_info"),
    Is("__early_lsm_info"),
    Is("__kunit_suites"),
    Is("__timer_acpi_probe_table"),
    Is("__irqchip_acpi_probe_table"),
    Is(".builtin_fw"),
    Is(".BTF_ids"),
    Is(".tracedata"),
    Is(".pci_fixup"),
    Family(".initcall"),
    Family(".initcallearly"),
    Family(".initcallrootfs"),
    Family(".initcall0"),
    Family(".initcall0s"),
    Family(".initcall1"),
    Family(".initcall1s"),
    Family(".initcall2"),
    Family(".initcall2s"),
    Family(".initcall3"),
    Family(".initcall3s"),
    Family(".initcall4"),
    Family(".initcall4s"),
    Family(".initcall5"),
    Family(".initcall5s"),
    Family(".initcall6"),
    Family(".initcall6s"),
    Family(".initcall7"),
    Family(".initcall7s"),
    Family(".init.setup"),
    Family(".init.ramfs"),
    Family(".pci_fixup_"),
    Family(".dtb.init"),
    Family("__dl_sched_class"),
    Family("__rt_sched_class"),
    Family("__fair_sched_class"),
    Family("__ext_sched_class"),
    Family("__idle_sched_class"),
    Family("__stop_sched_class"),
    Family("__reservedmem_of_table"),
    Family("__clk_of_table"),
    Family("__timer_of_table"),
    Family("__irqchip_of_table"),
    Family("__cpu_method_of_table"),
    Family("__cpuidle_method_of_table"),
    Family("__earlycon_of_table"),
];

/// Sections that symbols of arch/x86/kernel/vmlinux.lds.S bound.
const X86_LINKER_TABLES: &[Name] = &[
    Is(".x86_cpu_dev.init"),
    Is(".apicdrivers"),
    Is(".iommu_table"),
    Is(".x86_intel_mid_dev.init"),
    // Space that is allocated at boot; the script adds up its size.
    Is(".bss..brk"),
    Is(".brk_reservation"),
    // The page that the vDSO reads, laid out by the script.
    Is(".vvar"),
    Family(".vvar_"),
];

/// Sections that symbols of arch/arm/include/asm/vmlinux.lds.h and arch/arm/kernel/vmlinux.lds.S bound.
const ARM_LINKER_TABLES: &[Name] =
    &[Family(".proc.info.init"), Family(".arch.info.init"), Family(".taglist.init")];

/// Tables of user programs, bounded by symbols of the linker's default script.
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

/// Families of code and data that the linker's default script places separately from the rest of `.text` and `.data`.
const PROGRAM_APART: &[&str] =
    &[".text.unlikely", ".text.hot", ".text.startup", ".text.exit", ".data.rel.ro"];

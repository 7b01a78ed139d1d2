//! The kernel's weak tables: their sections, by machine, and the layout of their entries.
//!
//! [`TABLES`] is the only place that describes them. An unlisted table is kept whole and keeps its targets alive.

use kelf::{KernelVersion, Machine, RelocClass, Section};
use serde::Serialize;

use super::layout::{About, Detail, EntryLayout, Versions};
use super::names::{ARM, Name, X86};
use Name::{Family, Is};

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
    /// `.parainstructions` (`struct paravirt_patch_site`).
    Paravirt,
    /// `.retpoline_sites`, `.return_sites`, `.call_sites`, `.ibt_endbr_seal`, `.cfi_sites`: one place each.
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
    /// `.pv_table`: instructions whose immediate is the distance of virtual from physical addresses.
    PhysicalOffset,
    /// `.alt.smp.init`: instructions, each with its replacement on a machine with one processor.
    SmpAlternative,
    /// `.ARM.exidx`: unwinding instructions of functions, by their first byte.
    UnwindIndex,
    /// `.discard.unwind_hints` and the like: what objtool is told about an instruction.
    Annotation,
    /// `.discard.reachable` and `.discard.unreachable`: whether control passes the end of an instruction. The site is
    /// that end.
    DeadEnd,
    /// `.discard.func_stack_frame_non_standard`: functions that objtool does not read.
    FunctionAnnotation,
}

/// A weak table.
struct Table {
    kind: TableKind,
    /// The sections that hold it.
    names: &'static [Name],
    about: About,
    /// The possible layouts of its entries; each kernel uses one. The layouts of one machine differ in size, in the
    /// relocated fields or in their versions, by rising version, which identify the right one. A machine without a
    /// layout here does not have the table.
    layouts: &'static [EntryLayout],
}

const I386: &[Machine] = &[Machine::I386];
const X86_64: &[Machine] = &[Machine::X86_64];
const AARCH64: &[Machine] = &[Machine::Aarch64];
const I386_AND_AARCH64: &[Machine] = &[Machine::I386, Machine::Aarch64];
const MACHINES_32: &[Machine] = &[Machine::I386, Machine::Arm];
const MACHINES_64: &[Machine] = &[Machine::X86_64, Machine::Aarch64];

const BEFORE_6_19: Versions = Versions::Before(KernelVersion::new(6, 19));
const FROM_6_19: Versions = Versions::From(KernelVersion::new(6, 19));

/// Creates a layout of every version.
const fn layout(
    machines: &'static [Machine],
    size: u32,
    relocated: &'static [u32],
    detail: Detail,
) -> EntryLayout {
    EntryLayout { machines, versions: Versions::All, size, relocated, optional: &[], cut: 0, detail }
}

/// Creates a layout of some versions.
const fn of_versions(versions: Versions, layout: EntryLayout) -> EntryLayout {
    EntryLayout { versions, ..layout }
}

/// The tables.
const TABLES: &[Table] = &[
    Table {
        kind: TableKind::ExceptionTable,
        names: &[Is("__ex_table")],
        about: About::Instruction,
        // arch/x86/include/asm/extable.h; arch/arm64/include/asm/asm-extable.h, whose handlers do not depend on the
        // distance of the fixup; include/asm-generic/extable.h.
        layouts: &[
            layout(X86, 12, &[0, 4], Detail::Handler(8)),
            layout(AARCH64, 12, &[0, 4], Detail::None),
            layout(ARM, 8, &[0, 4], Detail::None),
        ],
    },
    Table {
        kind: TableKind::Alternative,
        names: &[Is(".altinstructions")],
        about: About::PatchedCode,
        layouts: &[
            // arch/x86/include/asm/alternative.h: `cpuid` has 16 bits up to 6.2, and 32 bits since, with flags.
            of_versions(
                Versions::Before(KernelVersion::new(6, 3)),
                layout(
                    X86,
                    12,
                    &[0, 4],
                    Detail::PatchedAndReplacementLengths { lengths: 10, replacement: 4 },
                ),
            ),
            of_versions(
                Versions::From(KernelVersion::new(6, 3)),
                layout(
                    X86,
                    14,
                    &[0, 4],
                    Detail::PatchedAndReplacementLengths { lengths: 12, replacement: 4 },
                ),
            ),
            // arch/arm64/include/asm/alternative.h. For a callback, the second field names a function, and the length
            // is 0.
            layout(
                AARCH64,
                12,
                &[0, 4],
                Detail::PatchedAndReplacementLengths { lengths: 10, replacement: 4 },
            ),
        ],
    },
    Table {
        kind: TableKind::StaticKey,
        names: &[Is("__jump_table")],
        about: About::PatchedJump,
        // Offsets of code, target and key, the last as long as a word (include/linux/jump_label.h); on 32-bit ARM,
        // addresses (arch/arm/include/asm/jump_label.h).
        layouts: &[
            layout(MACHINES_32, 12, &[0, 4, 8], Detail::None),
            layout(MACHINES_64, 16, &[0, 4, 8], Detail::None),
        ],
    },
    Table {
        kind: TableKind::StaticCall,
        names: &[Is(".static_call_sites")],
        about: About::PatchedCode,
        // include/linux/static_call_types.h.
        layouts: &[layout(X86, 8, &[0, 4], Detail::None)],
    },
    Table {
        kind: TableKind::Paravirt,
        names: &[Is(".parainstructions")],
        about: About::PatchedCode,
        // arch/x86/include/asm/paravirt_types.h: address, type, length, padding.
        layouts: &[
            of_versions(
                Versions::Before(KernelVersion::new(6, 8)),
                layout(I386, 8, &[0], Detail::PatchedLength(5)),
            ),
            of_versions(
                Versions::Before(KernelVersion::new(6, 8)),
                layout(X86_64, 16, &[0], Detail::PatchedLength(9)),
            ),
        ],
    },
    Table {
        kind: TableKind::PatchSite,
        names: &[
            Is(".retpoline_sites"),
            Is(".return_sites"),
            Is(".call_sites"),
            Is(".ibt_endbr_seal"),
            Is(".cfi_sites"),
        ],
        about: About::PatchedCode,
        // tools/objtool/check.c; read in arch/x86/kernel/alternative.c.
        layouts: &[layout(X86, 4, &[0], Detail::None)],
    },
    Table {
        kind: TableKind::LockPrefix,
        names: &[Is(".smp_locks")],
        about: About::PatchedCode,
        // `LOCK_PREFIX_HERE` in arch/x86/include/asm/alternative.h.
        layouts: &[layout(X86, 4, &[0], Detail::None)],
    },
    Table {
        kind: TableKind::Mcount,
        names: &[Is("__mcount_loc")],
        about: About::PatchedCode,
        // GCC's -mrecord-mcount, scripts/recordmcount.c.
        layouts: &[layout(I386, 4, &[0], Detail::None), layout(X86_64, 8, &[0], Detail::None)],
    },
    Table {
        kind: TableKind::RuntimeConst,
        names: &[Family("runtime_ptr_"), Family("runtime_shift_")],
        about: About::PatchedCode,
        // arch/x86/include/asm/runtime-const.h. On AArch64, four instructions are patched after each place.
        layouts: &[layout(X86, 4, &[0], Detail::None)],
    },
    Table {
        kind: TableKind::Bug,
        names: &[Is("__bug_table")],
        about: About::Instruction,
        // include/asm-generic/bug.h, without and with the name of the source file (`CONFIG_DEBUG_BUGVERBOSE`). On
        // 32-bit ARM the name is always present (arch/arm/include/asm/bug.h), and entries of assembly have no flags
        // (arch/arm/include/asm/assembler.h). From 6.19 on, `format` precedes the name on x86-64, and on i386 with
        // `CONFIG_DEBUG_BUGVERBOSE_DETAILED` (arch/x86/include/asm/bug.h).
        layouts: &[
            layout(I386_AND_AARCH64, 8, &[0], Detail::BugFlags(4)),
            layout(I386_AND_AARCH64, 12, &[0, 4], Detail::BugFlags(10)),
            of_versions(BEFORE_6_19, layout(X86_64, 8, &[0], Detail::BugFlags(4))),
            of_versions(BEFORE_6_19, layout(X86_64, 12, &[0, 4], Detail::BugFlags(10))),
            of_versions(FROM_6_19, layout(X86_64, 12, &[0, 4], Detail::BugFlags(8))),
            of_versions(FROM_6_19, layout(X86, 16, &[0, 4, 8], Detail::BugFlags(14))),
            cut(2, layout(ARM, 12, &[0, 4], Detail::BugFlags(10))),
        ],
    },
    Table {
        kind: TableKind::FunctionList,
        names: &[Is("_kprobe_blacklist")],
        about: About::Function,
        // include/asm-generic/kprobes.h.
        layouts: &[layout(MACHINES_32, 4, &[0], Detail::None), layout(MACHINES_64, 8, &[0], Detail::None)],
    },
    Table {
        kind: TableKind::ErrorInjection,
        names: &[Is("_error_injection_whitelist")],
        about: About::Function,
        // include/asm-generic/error-injection.h.
        layouts: &[layout(MACHINES_32, 8, &[0], Detail::None), layout(MACHINES_64, 16, &[0], Detail::None)],
    },
    Table {
        kind: TableKind::PhysicalOffset,
        names: &[Is(".pv_table")],
        about: About::PatchedCode,
        // arch/arm/include/asm/memory.h; read in arch/arm/kernel/phys2virt.S, which patches one instruction an entry.
        layouts: &[layout(ARM, 4, &[0], Detail::None)],
    },
    Table {
        kind: TableKind::SmpAlternative,
        names: &[Is(".alt.smp.init")],
        about: About::PatchedCode,
        // `__ALT_SMP_ASM` in arch/arm/include/asm/processor.h, `ALT_UP` and `ALT_UP_B` in
        // arch/arm/include/asm/assembler.h; read in arch/arm/kernel/head.S, which copies 4 bytes. Only assembly has
        // branches as replacements (`ALT_UP_B`), by the distance to a label of the same section, which is opaque.
        layouts: &[layout(ARM, 8, &[0], Detail::Patched(4))],
    },
    Table {
        kind: TableKind::UnwindIndex,
        names: &[Family(".ARM.exidx")],
        about: About::Function,
        // IHI 0038, section 5: a function, and either the unwinding instructions, or their address in `.ARM.extab`.
        layouts: &[with_optional(&[4], layout(ARM, 8, &[0], Detail::None))],
    },
    // The rest is for tools/objtool/check.c; the linker script discards it.
    Table {
        kind: TableKind::Annotation,
        names: &[
            Is(".discard.unwind_hints"),
            Is(".discard.intra_function_calls"),
            Is(".discard.noendbr"),
            Is(".discard.retpoline_safe"),
            Is(".discard.ignore_alts"),
            Is(".discard.instr_begin"),
            Is(".discard.instr_end"),
            Is(".discard.validate_unret"),
            Is(".discard.annotate_insn"),
        ],
        about: About::Instruction,
        // include/linux/objtool.h: a place; with a type (from 6.14 on); with the state of the stack (`struct
        // unwind_hint`).
        layouts: &[
            layout(X86_64, 4, &[0], Detail::None),
            layout(X86_64, 8, &[0], Detail::None),
            layout(X86_64, 12, &[0], Detail::None),
        ],
    },
    Table {
        kind: TableKind::DeadEnd,
        names: &[Is(".discard.reachable"), Is(".discard.unreachable")],
        about: About::Instruction,
        layouts: &[layout(X86_64, 4, &[0], Detail::InstructionBefore)],
    },
    Table {
        kind: TableKind::FunctionAnnotation,
        names: &[Is(".discard.func_stack_frame_non_standard")],
        about: About::Function,
        // `STACK_FRAME_NON_STANDARD` of C and of assembly.
        layouts: &[layout(X86_64, 8, &[0], Detail::None), layout(X86_64, 4, &[0], Detail::None)],
    },
];

/// Creates a layout with a field that only some entries fill.
const fn with_optional(optional: &'static [u32], layout: EntryLayout) -> EntryLayout {
    EntryLayout { optional, ..layout }
}

/// Creates a layout whose last entry may lack this number of bytes.
const fn cut(cut: u32, layout: EntryLayout) -> EntryLayout {
    EntryLayout { cut, ..layout }
}

/// Returns the table in a section of this name on a machine.
pub(super) fn named(name: &str, machine: Machine) -> Option<TableKind> {
    let matches = |table: &&Table| {
        table.names.iter().any(|one| one.matches(name)) && table.layouts_on(machine).next().is_some()
    };
    TABLES.iter().find(matches).map(|table| table.kind)
}

impl Table {
    fn layouts_on(&self, machine: Machine) -> impl Iterator<Item = &EntryLayout> {
        self.layouts.iter().filter(move |layout| layout.machines.contains(&machine))
    }
}

impl TableKind {
    /// Whether it is read by objtool in the objects, and not by the kernel: it is not loaded, and the linker script
    /// discards it.
    pub fn is_for_objtool(self) -> bool {
        matches!(self, TableKind::Annotation | TableKind::DeadEnd | TableKind::FunctionAnnotation)
    }

    fn table(self) -> &'static Table {
        TABLES.iter().find(|table| table.kind == self).expect("every kind has a table")
    }

    /// Returns the kind of site of its entries.
    pub fn about(self) -> About {
        self.table().about
    }

    /// Returns the layout of the entries in a section, from its size and its relocations. `version` is the kernel's, if
    /// its build records it.
    ///
    /// # Errors
    /// A description of the problem, if they fit no layout of the machine, or one of another version.
    pub fn layout(
        self,
        machine: Machine,
        version: Option<KernelVersion>,
        section: &Section<'_>,
    ) -> Result<&'static EntryLayout, String> {
        let layouts = || self.table().layouts_on(machine);
        let fields = || section.relocs.iter().filter(|reloc| reloc.class != RelocClass::None);
        let offsets = || fields().map(|reloc| reloc.offset);
        let fitting: Vec<_> = layouts().filter(|layout| layout.fits(section.size, offsets())).collect();
        let Some(&first) = fitting.first() else {
            let known: Vec<String> = layouts().map(EntryLayout::to_string).collect();
            let (size, relocs, known) = (section.size, section.relocs.len(), known.join(", or "));
            return Err(format!(
                "its {size} bytes with {relocs} relocations are not whole entries of {known}"
            ));
        };
        if version.is_none() && section.size > 0 && fitting.iter().any(|other| other.detail != first.detail) {
            return Err(format!(
                "its entries have {first}, which mean something else in {} than in other versions, and no \
                 include/config/kernel.release tells the version",
                first.versions
            ));
        }
        let of_version =
            |layout: &&&EntryLayout| version.is_none_or(|version| layout.versions.contain(version));
        let found = fitting.iter().find(of_version).map_or(first, |found| *found);
        match version.filter(|&version| !found.versions.contain(version)) {
            Some(version) if section.size > 0 => Err(format!(
                "its entries have {found}, as in {}, but include/config/kernel.release says Linux {version}",
                found.versions
            )),
            _ => Ok(found),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::special::names::ALL;

    #[test]
    fn every_layout_can_be_told_from_the_others_of_its_machine() {
        for table in TABLES {
            for &machine in ALL {
                let layouts: Vec<&EntryLayout> = table.layouts_on(machine).collect();
                for (i, layout) in layouts.iter().enumerate() {
                    let is_other = |other: &&EntryLayout| {
                        let same_shape = (other.size, other.relocated) == (layout.size, layout.relocated);
                        !same_shape || other.versions.precede(layout.versions)
                    };
                    assert!(layouts[..i].iter().all(is_other), "{:?} on {machine}", table.kind);
                    // The first reference of an entry supplies its edges.
                    assert_eq!(layout.relocated[0], 0, "{:?}", table.kind);
                }
            }
            let same = TABLES.iter().filter(|other| other.kind == table.kind).count();
            assert_eq!(same, 1, "{:?}", table.kind);
        }
    }
}

//! The kernel's tables about code, and how their entries lie.

use std::fmt;

use kelf::Machine;
use serde::Serialize;

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
    /// The layouts that entries of this kind have in kernels from 6.1 to 6.12, of which a kernel has one.
    pub fn layouts(self, machine: Machine) -> Vec<Layout> {
        let word = u32::from(machine.word_size());
        let layout = |size, relocated, detail| Layout { size, relocated, detail };
        match self {
            TableKind::ExceptionTable => vec![layout(12, &[0, 4], 8)],
            // `cpuid` is a 16-bit field up to 6.2, and has 32 bits since, with flags.
            TableKind::Alternative => vec![layout(12, &[0, 4], 10), layout(14, &[0, 4], 12)],
            TableKind::StaticKey => vec![layout(8 + word, &[0, 4, 8], 0)],
            TableKind::StaticCall => vec![layout(8, &[0, 4], 0)],
            TableKind::Paravirt => vec![layout(2 * word, &[0], word + 1)],
            TableKind::PatchSite | TableKind::LockPrefix | TableKind::RuntimeConst => {
                vec![layout(4, &[0], 0)]
            }
            TableKind::Mcount | TableKind::FunctionList => vec![layout(word, &[0], 0)],
            TableKind::ErrorInjection => vec![layout(2 * word, &[0], 0)],
            // Without and with the name of the source file (`CONFIG_DEBUG_BUGVERBOSE`).
            TableKind::Bug => vec![layout(8, &[0], 4), layout(12, &[0, 4], 10)],
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

/// How the entries of a table lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Size of an entry in bytes.
    pub size: u32,
    /// Offsets in bytes of the fields that relocations fill; the first names the site. Tells layouts apart.
    pub relocated: &'static [u32],
    /// Offset in bytes of what else is read: of the type of an exception's handler (its low byte), of the two
    /// lengths of an alternative (original, replacement), of the length of a paravirt site, of the 16 bits of
    /// flags of a bug.
    pub detail: u32,
}

impl Layout {
    /// Whether a section of `size` bytes with relocations at `relocs`, in ascending order, is made of such entries.
    pub fn fits(&self, size: u64, relocs: impl Iterator<Item = u64>) -> bool {
        let starts = (0..size).step_by(self.size as usize);
        let expected =
            starts.flat_map(|start| self.relocated.iter().map(move |&field| start + u64::from(field)));
        size % u64::from(self.size) == 0 && relocs.eq(expected)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<String> = self.relocated.iter().map(u32::to_string).collect();
        write!(f, "{} bytes with relocations at {}", self.size, fields.join(", "))
    }
}

/// `BUGFLAG_WARNING` (include/linux/bug.h): the trap handler resumes behind the `ud2`.
pub const BUGFLAG_WARNING: u16 = 1;

/// `EX_TYPE_ZEROPAD` (arch/x86/include/asm/extable_fixup_types.h): the handler takes what lies between the
/// instruction and its fixup for the instruction (`ex_handler_zeropad` in arch/x86/mm/extable.c, the only handler of
/// Linux 6.1 to 6.12 to which their distance matters).
pub const EX_TYPE_ZEROPAD: u8 = 20;

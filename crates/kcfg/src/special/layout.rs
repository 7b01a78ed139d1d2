//! The layout of the entries of weak tables, and the fields that are read from them.

use std::fmt;

use kelf::{KernelVersion, Machine};

/// The kind of an entry's site, and the permitted changes of its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// An instruction that may trap. Its bytes may change, as long as its effect is the same.
    Instruction,
    /// Code that the kernel patches, or whose bytes it compares. It must not change.
    PatchedCode,
    /// Like [`About::PatchedCode`], but on x86 the length of a direct jump may change, because the kernel reads it from
    /// the opcode (arch/x86/kernel/jump_label.c). On ARM it patches 4 bytes (arch/arm/kernel/jump_label.c).
    PatchedJump,
    /// The first byte of a function, which may be in another object or undefined.
    Function,
}

impl About {
    /// Whether the bytes of the site must not change.
    pub fn fixes_code(self) -> bool {
        matches!(self, About::PatchedCode | About::PatchedJump)
    }

    /// Whether the length of a direct jump at the site may change nevertheless.
    pub fn lets_jumps_change(self, machine: Machine) -> bool {
        self == About::PatchedJump && matches!(machine, Machine::I386 | Machine::X86_64)
    }
}

/// The fields of an entry that lifting reads besides its references. Offsets are in bytes from the start of the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Nothing.
    None,
    /// Nothing. The entry is about the instruction that ends at the site.
    InstructionBefore,
    /// The type of the exception handler, with its low byte at this offset: [`EX_TYPE_ZEROPAD`] is a special case.
    Handler(u32),
    /// This number of bytes of code is patched.
    Patched(u32),
    /// The length in bytes of the patched code, a byte at this offset.
    PatchedLength(u32),
    /// Two bytes: the lengths of the patched code and of its replacement, to which the field at `replacement` refers.
    PatchedAndReplacementLengths {
        /// Offset of the two bytes.
        lengths: u32,
        /// Offset of the field that refers to the replacement.
        replacement: u32,
    },
    /// The 16 bits of flags of a bug, at this offset: [`BUGFLAG_WARNING`] means that execution resumes.
    BugFlags(u32),
}

/// The layout of the entries of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryLayout {
    /// The machines whose kernels use this layout.
    pub machines: &'static [Machine],
    /// The versions of Linux that use it.
    pub versions: Versions,
    /// Size of an entry in bytes.
    pub size: u32,
    /// Offsets in bytes of the fields that relocations fill. The first is the site, at 0.
    pub relocated: &'static [u32],
    /// Offsets in bytes of further fields, which relocations fill in some entries.
    pub optional: &'static [u32],
    /// Number of bytes that the last entry of a section may lack; they are 0 if the linker aligns the next section.
    pub cut: u32,
    /// The other fields that are read.
    pub detail: Detail,
}

/// Versions of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// All from 6.1 to 6.12.
    All,
    /// Versions before this one.
    Before(KernelVersion),
    /// This one and later ones.
    From(KernelVersion),
}

impl EntryLayout {
    /// Whether a section of `size` bytes with relocations at `relocs`, in ascending order, consists of such entries.
    pub fn fits(&self, size: u64, relocs: impl Iterator<Item = u64>) -> bool {
        let mut relocs = relocs.peekable();
        let starts = (0..size).step_by(self.size as usize);
        let filled = starts.flat_map(|start| {
            let mut fields: Vec<u32> = self.relocated.iter().chain(self.optional).copied().collect();
            fields.sort_unstable();
            fields.into_iter().map(move |field| (field, start + u64::from(field)))
        });
        let mut complete = true;
        for (field, at) in filled {
            let found = relocs.next_if_eq(&at).is_some();
            complete &= found || self.optional.contains(&field);
        }
        let rest = size % u64::from(self.size);
        let whole = rest == 0 || self.cut > 0 && rest == u64::from(self.size - self.cut);
        whole && complete && relocs.next().is_none()
    }
}

impl fmt::Display for EntryLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fields: Vec<String> = self.relocated.iter().map(u32::to_string).collect();
        write!(f, "{} bytes with relocations at {}", self.size, fields.join(", "))
    }
}

impl Versions {
    /// Whether a version is in this range.
    pub fn contain(self, version: KernelVersion) -> bool {
        match self {
            Versions::All => true,
            Versions::Before(end) => version < end,
            Versions::From(first) => version >= first,
        }
    }

    /// Whether these versions all precede the others.
    #[cfg(test)]
    pub(super) fn precede(self, others: Versions) -> bool {
        matches!((self, others), (Versions::Before(end), Versions::From(first)) if end <= first)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Versions::All => write!(f, "Linux 6.1 to 6.12"),
            Versions::Before(end) => write!(f, "Linux before {end}"),
            Versions::From(first) => write!(f, "Linux {first} and later"),
        }
    }
}

/// `BUGFLAG_WARNING` (include/linux/bug.h): the trap handler resumes after the trap.
pub const BUGFLAG_WARNING: u16 = 1;

/// `EX_TYPE_ZEROPAD` (arch/x86/include/asm/extable_fixup_types.h): the handler computes the length of the faulting
/// instruction as its distance to the fixup. (`ex_handler_zeropad` in arch/x86/mm/extable.c is the only handler of
/// Linux 6.1 to 6.12 that uses that distance.)
pub const EX_TYPE_ZEROPAD: u8 = 20;

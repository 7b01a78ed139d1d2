//! A relocatable object as plain data. [`crate::read`] makes it from bytes and [`crate::write`] makes bytes from it.
//! Everything that a rewriter does not change is written as it was read.

use std::borrow::Cow;

use goblin::elf::section_header::{
    SHF_ALLOC, SHF_EXECINSTR, SHT_GROUP, SHT_NULL, SHT_REL, SHT_RELA, SHT_STRTAB, SHT_SYMTAB,
    SHT_SYMTAB_SHNDX,
};
use goblin::elf::sym::{STB_LOCAL, STB_WEAK, STT_NOTYPE, st_visibility};

use crate::error::Error;
use crate::index::{SectionIndex, SymbolIndex};
use crate::machine::Machine;
use crate::reloc::Reloc;

/// `SHT_LLVM_ADDRSIG`: symbol numbers, which renumbering would invalidate. Linkers do not need it, and GNU ld has never
/// used it.
pub(crate) const SHT_LLVM_ADDRSIG: u32 = 0x6fff_4c03;

/// Flag of a section group that a link keeps only once.
pub const GRP_COMDAT: u32 = 1;

/// One relocatable object (`ET_REL`).
#[derive(Clone, Debug, PartialEq)]
pub struct Object<'a> {
    /// Path, or `archive(member)`, for messages.
    pub name: String,
    /// Instruction set and word size.
    pub machine: Machine,
    /// `e_flags`, which carries the ABI on ARM.
    pub flags: u32,
    /// Sections by ELF number; entry 0 is the null section. Symbol, string, relocation and group tables have an entry
    /// (to preserve the numbers) but no content: their data is in the fields below.
    pub sections: Vec<Section<'a>>,
    /// Symbols by ELF number; entry 0 is the null symbol.
    pub symbols: Vec<Symbol<'a>>,
    /// Section groups (`SHT_GROUP`).
    pub groups: Vec<Group>,
}

/// One section.
#[derive(Clone, Debug, PartialEq)]
pub struct Section<'a> {
    /// Section name.
    pub name: &'a str,
    /// `sh_type`.
    pub kind: u32,
    /// `sh_flags`.
    pub flags: u64,
    /// `sh_addralign` in bytes; at least 1.
    pub align: u64,
    /// `sh_entsize` in bytes, 0 if the section has no fixed entries.
    pub entsize: u64,
    /// Size in bytes; the length of `data` unless the section is `SHT_NOBITS`.
    pub size: u64,
    /// Content; empty for `SHT_NOBITS`.
    pub data: Cow<'a, [u8]>,
    /// Relocations, in ascending order of offset.
    pub relocs: Vec<Reloc>,
    /// The section that this one is ordered by (`SHF_LINK_ORDER`).
    pub link_order: Option<SectionIndex>,
}

/// One symbol.
#[derive(Clone, Debug, PartialEq)]
pub struct Symbol<'a> {
    /// Name; empty for section symbols.
    pub name: &'a str,
    /// Offset in bytes within the section, the value of an absolute symbol, or the alignment of a
    /// common one.
    pub value: u64,
    /// Whether it is a function in Thumb code, whose value has bit 0 set in a file (IHI 0044, 5.5.3). A relocation
    /// against it sets that bit in an address.
    pub thumb: bool,
    /// Size in bytes, 0 if unknown.
    pub size: u64,
    /// `STB_*`.
    pub binding: u8,
    /// `STT_*`.
    pub kind: u8,
    /// `st_other`: visibility, and on some machines ABI bits.
    pub other: u8,
    /// The place of the definition.
    pub place: Place,
}

/// The place of a symbol's definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Not in this object.
    Undefined,
    /// A plain number (`SHN_ABS`).
    Absolute,
    /// Allocated by the linker (`SHN_COMMON`); the value is the alignment.
    Common,
    /// In a section of this object.
    Section(SectionIndex),
}

/// A section group: its members are kept or dropped together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// `GRP_COMDAT` or 0.
    pub flags: u32,
    /// The symbol whose name identifies the group.
    pub signature: SymbolIndex,
    /// Member sections, without their relocation sections.
    pub members: Vec<SectionIndex>,
}

impl<'a> Object<'a> {
    /// Returns the section at `index`.
    ///
    /// # Panics
    /// If there is none; the reader checks every index that it returns.
    pub fn section(&self, index: SectionIndex) -> &Section<'a> {
        &self.sections[index.get()]
    }

    /// Returns the symbol at `index`.
    ///
    /// # Panics
    /// If there is none; the reader checks every index that it returns.
    pub fn symbol(&self, index: SymbolIndex) -> &Symbol<'a> {
        &self.symbols[index.get()]
    }

    /// Returns the error for a part of the object that a file cannot express.
    pub(crate) fn unwritable(&self, place: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Unwritable { object: self.name.clone(), place: place.into(), problem: problem.into() }
    }
}

impl Section<'_> {
    /// Returns the null section, which has number 0 in every object.
    pub fn null() -> Self {
        Section {
            name: "",
            kind: SHT_NULL,
            flags: 0,
            align: 1,
            entsize: 0,
            size: 0,
            data: Cow::Borrowed(&[]),
            relocs: Vec::new(),
            link_order: None,
        }
    }

    /// Whether this is one of the file's own tables (null, symbols, their strings, relocations, groups): an entry
    /// without content that preserves the numbers of the other sections.
    pub fn is_table(&self) -> bool {
        match self.kind {
            SHT_NULL | SHT_SYMTAB | SHT_SYMTAB_SHNDX | SHT_REL | SHT_RELA | SHT_GROUP | SHT_LLVM_ADDRSIG => {
                true
            }
            // An object may have string tables of its own, such as `.stabstr`.
            SHT_STRTAB => self.size == 0,
            _ => false,
        }
    }

    /// Whether the section has a place in memory at run time (`SHF_ALLOC`).
    pub fn is_allocated(&self) -> bool {
        self.flags & u64::from(SHF_ALLOC) != 0
    }

    /// Whether the section holds code (`SHF_EXECINSTR`).
    pub fn is_code(&self) -> bool {
        self.flags & u64::from(SHF_EXECINSTR) != 0
    }
}

impl Symbol<'_> {
    /// Returns the null symbol, which has number 0 in every object.
    pub fn null() -> Self {
        Symbol {
            name: "",
            value: 0,
            thumb: false,
            size: 0,
            binding: STB_LOCAL,
            kind: STT_NOTYPE,
            other: 0,
            place: Place::Undefined,
        }
    }

    /// Whether the symbol is visible only in its own object (`STB_LOCAL`).
    pub fn is_local(&self) -> bool {
        self.binding == STB_LOCAL
    }

    /// Whether the symbol is weak (`STB_WEAK`).
    pub fn is_weak(&self) -> bool {
        self.binding == STB_WEAK
    }

    /// Whether the symbol is undefined in its object.
    pub fn is_undefined(&self) -> bool {
        self.place == Place::Undefined
    }

    /// Whether the symbol has a value here: it is neither undefined nor common.
    pub fn is_defined(&self) -> bool {
        !matches!(self.place, Place::Undefined | Place::Common)
    }

    /// Returns its visibility, `STV_*`.
    pub fn visibility(&self) -> u8 {
        st_visibility(self.other)
    }
}

//! The symbols that the dynamic linker binds, with their versions.
//!
//! A dynamic section does not contain their number: the hash tables list the defined symbols, and relocations name the
//! rest. Symbols are therefore read by index on demand, and defined symbols are listed by name once. The hash tables
//! and version tables have the formats of the System V ABI, its GNU extension, and the Linux Standard Base.

use goblin::elf::dynamic::{
    DT_GNU_HASH, DT_HASH, DT_SYMTAB, DT_VERDEF, DT_VERDEFNUM, DT_VERNEED, DT_VERNEEDNUM, DT_VERSYM,
};
use goblin::elf::section_header::{SHN_ABS, SHN_UNDEF};
use goblin::elf::sym::{
    STB_GLOBAL, STB_LOCAL, STB_WEAK, STT_COMMON, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, STT_OBJECT, STT_TLS,
    STV_HIDDEN, STV_INTERNAL, STV_PROTECTED, Sym, Symtab,
};
use rustc_hash::FxHashMap;

use super::bytes::{name, u16_at, u32_at};
use super::entries::Entries;
use super::parts::Parts;
use super::relocs::highest_symbol;
use super::segment::{Segment, bytes_at};

/// The binding of symbols that are unique in a process (`STB_GNU_UNIQUE`).
const STB_GNU_UNIQUE: u8 = 10;

/// The bit of a version index that prevents other objects from binding to the symbol unless they request this version.
const VERSION_HIDDEN: u16 = 0x8000;

/// The flag of the version that names the object itself.
const VER_FLG_BASE: u16 = 1;

/// Maximum number of versions that an object defines or needs; the largest library has a few hundred.
const MAX_VERSIONS: u64 = 0x7fff;

/// The dynamic symbols of an object.
#[derive(Debug, Default)]
pub struct DynamicSymbols {
    symbols: Vec<DynamicSymbol>,
    /// The symbols that other objects may bind to, by name.
    exports: FxHashMap<Box<[u8]>, Vec<u32>>,
    /// The names of versions, by index.
    versions: Vec<Option<Version>>,
    /// Whether symbols have versions.
    versioned: bool,
}

/// A version of a symbol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version {
    /// Its name (`GLIBC_2.34`).
    name: Box<[u8]>,
    /// Whether a reference accepts only this version, and no symbol without a version.
    hidden: bool,
}

/// A dynamic symbol.
#[derive(Clone, Debug)]
pub struct DynamicSymbol {
    /// Its name.
    pub name: Box<[u8]>,
    /// Its address in the object, or its value if it is absolute.
    pub value: u64,
    /// Its size in bytes; 0 if unknown.
    pub size: u64,
    /// Its kind.
    pub kind: SymbolKind,
    /// Whether it is an absolute number rather than an address.
    pub absolute: bool,
    /// Whether the object defines it.
    pub defined: bool,
    /// Whether it may remain undefined.
    pub weak: bool,
    /// Whether the object's own references always bind to it.
    pub local: bool,
    /// The version index, including the bit for hidden versions.
    version: u16,
    /// Whether it is visible to other objects.
    exported: bool,
}

/// The kind of a symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SymbolKind {
    /// A function.
    Function,
    /// A function that selects a function when a reference is bound.
    Ifunc,
    /// A variable.
    Object,
    /// A thread-local variable; its value is an offset.
    ThreadLocal,
    /// An untyped symbol, often from assembly code.
    Unknown,
}

impl DynamicSymbols {
    pub(super) fn read(
        parts: &Parts,
        segments: &[Segment],
        entries: &Entries,
        strings: &[u8],
    ) -> DynamicSymbols {
        let Some(address) = entries.value(DT_SYMTAB) else { return DynamicSymbols::default() };
        let bytes = bytes_at(segments, address);
        let entry = Sym::size(parts.ctx.container);
        let table = |tag| entries.value(tag).map(|at| bytes_at(segments, at));
        // Without a hash table, no reference can bind to the symbols; all linkers place the strings after the symbols.
        let hashed = table(DT_HASH)
            .and_then(sysv_count)
            .or_else(|| table(DT_GNU_HASH).and_then(|table| gnu_count(table, parts.machine.word_size())));
        let referenced = highest_symbol(parts, segments, entries);
        let count = hashed.unwrap_or(0).max(referenced.map_or(0, |index| index as usize + 1));
        let count = count.min(bytes.len() / entry);
        let Ok(table) = Symtab::parse(bytes, 0, count, parts.ctx) else { return DynamicSymbols::default() };
        let versions_of = entries.value(DT_VERSYM).map(|at| bytes_at(segments, at));
        let version = |index: usize| versions_of.and_then(|bytes| u16_at(bytes, 2 * index)).unwrap_or(1);
        let symbols: Vec<DynamicSymbol> = table
            .iter()
            .enumerate()
            .map(|(index, symbol)| DynamicSymbol::new(&symbol, strings, version(index)))
            .collect();
        let mut exports: FxHashMap<Box<[u8]>, Vec<u32>> = FxHashMap::default();
        for (index, symbol) in symbols.iter().enumerate().filter(|(_, symbol)| symbol.exported) {
            exports.entry(symbol.name.clone()).or_default().push(index as u32);
        }
        let versions = read_versions(segments, entries, strings);
        DynamicSymbols { symbols, exports, versions, versioned: versions_of.is_some() }
    }

    /// Returns a symbol by its index, as in relocations.
    pub fn get(&self, index: u32) -> Option<&DynamicSymbol> {
        self.symbols.get(index as usize)
    }

    /// Returns the version that a reference requests, if any.
    pub fn version_of(&self, symbol: &DynamicSymbol) -> Option<&Version> {
        self.versions.get(usize::from(symbol.version & !VERSION_HIDDEN))?.as_ref()
    }

    /// Returns the symbol of this name that a reference binds to (`check_match` in glibc's `elf/dl-lookup.c`). `call`:
    /// the reference is only for calls, so that the PLT entry of a function in a program at a fixed address does not
    /// count as its definition.
    pub fn find(&self, name: &[u8], version: Option<&Version>, call: bool) -> Option<&DynamicSymbol> {
        let candidates = self.exports.get(name)?.iter().map(|&index| &self.symbols[index as usize]);
        let mut newer = None;
        for symbol in candidates.filter(|symbol| symbol.defined || !call) {
            if !self.versioned {
                return Some(symbol);
            }
            let hidden = symbol.version & VERSION_HIDDEN != 0;
            match version {
                Some(version) => {
                    let own = self.version_of(symbol);
                    let same = own.is_some_and(|own| own.name == version.name);
                    if same || own.is_none() && !version.hidden && !hidden {
                        return Some(symbol);
                    }
                }
                None if symbol.version & !VERSION_HIDDEN < 3 => return Some(symbol),
                // The default version, if there is no first one.
                None if !hidden && newer.is_none() => newer = Some(symbol),
                None => {}
            }
        }
        newer
    }

    /// Returns all visible symbols of this name, of every version.
    pub fn named(&self, name: &[u8]) -> impl Iterator<Item = &DynamicSymbol> {
        let indices = self.exports.get(name).map_or(&[][..], Vec::as_slice);
        indices.iter().map(|&index| &self.symbols[index as usize]).filter(|symbol| symbol.defined)
    }

    /// Returns the functions that other objects can call, unordered.
    pub fn exported_functions(&self) -> impl Iterator<Item = &DynamicSymbol> {
        self.symbols.iter().filter(|symbol| symbol.exported && symbol.defined && symbol.kind.is_code())
    }

    /// Returns all symbols.
    pub fn iter(&self) -> impl Iterator<Item = &DynamicSymbol> {
        self.symbols.iter()
    }
}

impl SymbolKind {
    /// Returns whether it may be code.
    pub fn is_code(self) -> bool {
        matches!(self, SymbolKind::Function | SymbolKind::Ifunc | SymbolKind::Unknown)
    }
}

impl DynamicSymbol {
    fn new(symbol: &Sym, strings: &[u8], version: u16) -> DynamicSymbol {
        let kind = match symbol.st_type() {
            STT_FUNC => Some(SymbolKind::Function),
            STT_GNU_IFUNC => Some(SymbolKind::Ifunc),
            STT_OBJECT | STT_COMMON => Some(SymbolKind::Object),
            STT_TLS => Some(SymbolKind::ThreadLocal),
            STT_NOTYPE => Some(SymbolKind::Unknown),
            _ => None,
        };
        let section = symbol.st_shndx;
        let absolute = section == SHN_ABS as usize;
        let binding = symbol.st_bind();
        let visibility = symbol.st_visibility();
        let invisible = matches!(visibility, STV_HIDDEN | STV_INTERNAL);
        let bindable = matches!(binding, STB_GLOBAL | STB_WEAK | STB_GNU_UNIQUE);
        // An undefined symbol with a value is a PLT entry that represents a function in a program at a fixed address.
        let has_value = symbol.st_value != 0 || absolute || kind == Some(SymbolKind::ThreadLocal);
        let name = name(strings, symbol.st_name).unwrap_or(&[]);
        DynamicSymbol {
            name: name.into(),
            value: symbol.st_value,
            size: symbol.st_size,
            kind: kind.unwrap_or(SymbolKind::Unknown),
            absolute,
            defined: section != SHN_UNDEF as usize,
            weak: binding == STB_WEAK,
            local: binding == STB_LOCAL || invisible || visibility == STV_PROTECTED,
            version,
            exported: bindable && !invisible && has_value && kind.is_some() && !name.is_empty(),
        }
    }
}

/// Returns the number of symbols that a `DT_HASH` table covers.
fn sysv_count(table: &[u8]) -> Option<usize> {
    usize::try_from(u32_at(table, 4)?).ok()
}

/// Returns the number of symbols up to the last one in a `DT_GNU_HASH` table.
fn gnu_count(table: &[u8], word: u8) -> Option<usize> {
    let word_at = |offset| u32_at(table, offset).and_then(|number| usize::try_from(number).ok());
    let (buckets, first, words) = (word_at(0)?, word_at(4)?, word_at(8)?);
    let start = 16usize.checked_add(words.checked_mul(word.into())?)?;
    let chains = start.checked_add(buckets.checked_mul(4)?)?;
    table.get(start..chains)?;
    let mut last = (0..buckets).filter_map(|bucket| word_at(start + 4 * bucket)).max()?;
    if last < first {
        return Some(first);
    }
    // The last symbol of a bucket has bit 0 of its hash set.
    while word_at((last - first).checked_mul(4)?.checked_add(chains)?)? & 1 == 0 {
        last += 1;
    }
    Some(last + 1)
}

/// Reads the names of versions by index: the versions that the object defines, and those that it needs.
fn read_versions(segments: &[Segment], entries: &Entries, strings: &[u8]) -> Vec<Option<Version>> {
    let mut versions = Vec::new();
    let mut read = 0;
    let mut add = |index: u16, name_at: u32| {
        let hidden = index & VERSION_HIDDEN != 0;
        let index = usize::from(index & !VERSION_HIDDEN);
        if versions.len() <= index {
            versions.resize(index + 1, None);
        }
        versions[index] = name(strings, name_at as usize).map(|name| Version { name: name.into(), hidden });
        // In a damaged file, lists may share their entries.
        read += 1;
        (read < MAX_VERSIONS).then_some(())
    };
    let table = |at, count| {
        let count = entries.value(count)?.min(MAX_VERSIONS);
        Some((bytes_at(segments, entries.value(at)?), count))
    };
    if let Some((bytes, count)) = table(DT_VERDEF, DT_VERDEFNUM) {
        let _ = each(bytes, 0, count, 16, |at| {
            let (flags, index) = (u16_at(bytes, at + 2)?, u16_at(bytes, at + 4)?);
            let names = at.checked_add(u32_at(bytes, at + 12)? as usize)?;
            if flags & VER_FLG_BASE == 0 { add(index, u32_at(bytes, names)?) } else { Some(()) }
        });
    }
    if let Some((bytes, count)) = table(DT_VERNEED, DT_VERNEEDNUM) {
        let _ = each(bytes, 0, count, 12, |at| {
            let count = u16_at(bytes, at + 2)?;
            let first = at.checked_add(u32_at(bytes, at + 8)? as usize)?;
            each(bytes, first, count.into(), 12, |at| add(u16_at(bytes, at + 6)?, u32_at(bytes, at + 8)?))
        });
    }
    versions
}

/// Visits the entries of a list, each with the distance to the next entry at offset `next`.
fn each(
    bytes: &[u8],
    first: usize,
    count: u64,
    next: usize,
    mut visit: impl FnMut(usize) -> Option<()>,
) -> Option<()> {
    let mut at = first;
    for _ in 0..count {
        visit(at)?;
        match u32_at(bytes, at.checked_add(next)?)? {
            0 => break,
            distance => at = at.checked_add(distance as usize)?,
        }
    }
    Some(())
}

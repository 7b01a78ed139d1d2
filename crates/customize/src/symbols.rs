//! The symbols of a linked kernel that facts may name.

use std::path::Path;

use goblin::elf::section_header::SHN_UNDEF;
use goblin::elf::sym::{STB_LOCAL, STT_FUNC, STT_NOTYPE, STT_OBJECT, Sym};
use kcli::Failure;
use kelf::ElfFile;
use rustc_hash::{FxHashMap, FxHashSet};

/// The functions and variables of a linked kernel.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// Those whose name no other one has, by address.
    by_address: FxHashMap<u64, String>,
    /// The addresses of those by name.
    by_name: FxHashMap<String, u64>,
}

impl Symbols {
    /// Reads the symbols of the linked kernel `vmlinux`.
    ///
    /// # Errors
    /// If it cannot be read, or is not a linked file.
    pub fn read(vmlinux: &Path) -> Result<Symbols, Failure> {
        let (name, bytes) = (vmlinux.display().to_string(), kelf::read_linked(vmlinux).map_err(Failure::of)?);
        let file = ElfFile::parse_linked(&name, &bytes, "vmlinux, the linked kernel").map_err(Failure::of)?;
        let is_defined = |symbol: &Sym| symbol.st_shndx != SHN_UNDEF as usize;
        let all = file.symbols().map_err(Failure::of)?;
        let is_named = |symbol: &Sym| match symbol.st_type() {
            STT_OBJECT | STT_FUNC => true,
            // Symbols of the linker script, and of assembly.
            STT_NOTYPE => symbol.st_bind() != STB_LOCAL,
            _ => false,
        };
        let named = all
            .into_iter()
            .filter(|(symbol, name)| is_named(symbol) && is_defined(symbol) && !name.is_empty());
        Ok(Symbols::of(named.map(|(symbol, name)| (name, symbol.st_value, symbol.st_type() != STT_NOTYPE))))
    }

    /// Takes symbols with their addresses, and whether each is a function or variable.
    fn of<'a>(named: impl Iterator<Item = (&'a str, u64, bool)>) -> Symbols {
        let mut found: FxHashMap<&str, Option<u64>> = FxHashMap::default();
        let mut has_content = FxHashSet::default();
        for (name, address, is_content) in named {
            let known = found.entry(name).or_insert(Some(address));
            *known = known.filter(|&known| known == address);
            has_content.extend(is_content.then_some(name));
        }
        let unique = found.iter().filter_map(|(name, address)| Some(((*name).to_owned(), (*address)?)));
        let by_name: FxHashMap<String, u64> = unique.collect();
        let mut by_address: FxHashMap<u64, String> = FxHashMap::default();
        for (name, &address) in by_name.iter().filter(|(name, _)| has_content.contains(name.as_str())) {
            // Of several names, the first in the alphabet.
            let entry = by_address.entry(address).or_insert_with(|| name.clone());
            if name < entry {
                entry.clone_from(name);
            }
        }
        Symbols { by_address, by_name }
    }

    /// Returns the function or variable that begins at an address; `None` if there is none, or others have its name.
    pub fn at(&self, address: u64) -> Option<&str> {
        self.by_address.get(&address).map(String::as_str)
    }

    /// Returns the address of a function or variable; `None` if there is none, or several.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.by_name.get(name).copied()
    }
}

#[cfg(test)]
impl Symbols {
    /// Symbols for tests.
    pub(crate) fn for_test(named: &[(&str, u64)]) -> Symbols {
        Symbols::of(named.iter().map(|&(name, address)| (name, address, true)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_several_places_are_unknown() {
        let symbols = Symbols::for_test(&[("a", 1), ("b", 2), ("a", 3), ("c", 2), ("b", 2)]);
        assert_eq!((symbols.at(1), symbols.at(2), symbols.at(3)), (None, Some("b"), None));
        assert_eq!((symbols.address("a"), symbols.address("c")), (None, Some(2)));
    }
}

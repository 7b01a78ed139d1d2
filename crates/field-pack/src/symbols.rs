//! The symbols of a linked kernel, by address.

use std::path::Path;

use goblin::elf::section_header::SHN_UNDEF;
use goblin::elf::sym::{STB_LOCAL, STT_FUNC, STT_OBJECT, Sym};
use kcli::Failure;
use kelf::ElfFile;

/// A symbol that occupies memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Symbol {
    address: u64,
    /// Global symbols come first.
    is_local: bool,
    size: u64,
    name: String,
}

/// The symbols of a linked kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// By ascending address.
    symbols: Vec<Symbol>,
}

impl Symbols {
    /// Reads the symbols of the linked kernel `vmlinux`.
    ///
    /// # Errors
    /// If it cannot be read, or is not a linked file.
    pub fn read(vmlinux: &Path) -> Result<Symbols, Failure> {
        let (name, bytes) = (vmlinux.display().to_string(), kelf::read_linked(vmlinux).map_err(Failure::of)?);
        let file = ElfFile::parse_linked(&name, &bytes, "vmlinux, the linked kernel").map_err(Failure::of)?;
        let all = file.symbols().map_err(Failure::of)?;
        let has_memory = |symbol: &Sym| {
            let is_defined = symbol.st_shndx != SHN_UNDEF as usize;
            matches!(symbol.st_type(), STT_OBJECT | STT_FUNC) && is_defined && symbol.st_size > 0
        };
        let named = all.into_iter().filter(|(symbol, name)| has_memory(symbol) && !name.is_empty());
        let mut symbols: Vec<Symbol> = named
            .map(|(symbol, name)| Symbol {
                address: symbol.st_value,
                is_local: symbol.st_bind() == STB_LOCAL,
                size: symbol.st_size,
                name: name.to_owned(),
            })
            .collect();
        symbols.sort_unstable();
        Ok(Symbols { symbols })
    }

    /// Returns the symbol at a linked address, as `name` or `name+0x10`; `None` if there is none.
    pub fn at(&self, address: u64) -> Option<String> {
        let after = self.symbols.partition_point(|symbol| symbol.address <= address);
        let start = self.symbols[..after].last()?.address;
        let mut found = self.symbols[..after]
            .iter()
            .rev()
            .take_while(|symbol| symbol.address == start)
            .collect::<Vec<_>>();
        found.reverse();
        let symbol = found.into_iter().find(|symbol| address - symbol.address < symbol.size)?;
        Some(match address - symbol.address {
            0 => symbol.name.clone(),
            offset => format!("{}+{offset:#x}", symbol.name),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_the_name_of_their_symbol() {
        let symbol =
            |address, is_local, size, name: &str| Symbol { address, is_local, size, name: name.into() };
        let symbols = Symbols {
            symbols: vec![
                symbol(0x1000, false, 16, "first"),
                symbol(0x1000, true, 16, "alias"),
                symbol(0x1020, true, 4, "second"),
            ],
        };
        assert_eq!(symbols.at(0x1000).as_deref(), Some("first"));
        assert_eq!(symbols.at(0x100f).as_deref(), Some("first+0xf"));
        assert_eq!(symbols.at(0x1010), None);
        assert_eq!(symbols.at(0x1020).as_deref(), Some("second"));
        assert_eq!(symbols.at(0xfff), None);
    }
}

//! The symbols of a linked kernel, by address.

use kcli::Failure;
use object::{Object, ObjectSymbol, SymbolKind};

use crate::error::Error;

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
    /// Reads the symbols of a linked kernel. `origin` is its name for messages.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn read(origin: &str, bytes: &[u8]) -> Result<Symbols, Failure> {
        let file = object::File::parse(bytes).map_err(|error| {
            Failure::of(Error::Dwarf { origin: origin.into(), problem: error.to_string() })
        })?;
        let mut symbols: Vec<Symbol> = file
            .symbols()
            .filter(|symbol| {
                matches!(symbol.kind(), SymbolKind::Data | SymbolKind::Text) && !symbol.is_undefined()
            })
            .filter_map(|symbol| {
                let name = symbol.name().ok().filter(|name| !name.is_empty())?.to_owned();
                let size = symbol.size();
                (size > 0).then_some(Symbol {
                    address: symbol.address(),
                    is_local: !symbol.is_global(),
                    size,
                    name,
                })
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

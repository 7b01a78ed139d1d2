//! The order of the symbols in a written object.

use crate::error::Result;
use crate::object::{Object, Symbol};

/// 32-bit relocations have 24 bits for the symbol number.
const MAX_SYMBOLS_32: usize = 1 << 24;

/// The order in which symbols are written.
pub(super) struct SymbolOrder {
    /// Number in the object of each symbol, local ones first.
    pub old: Vec<usize>,
    /// Number in the file of each symbol.
    pub new: Vec<u32>,
    /// Number of local symbols, including the null symbol.
    pub locals: u32,
}

impl SymbolOrder {
    pub fn of(object: &Object<'_>) -> Result<SymbolOrder> {
        let count = object.symbols.len();
        if count == 0 || object.symbols[0] != Symbol::null() {
            return Err(object.unwritable("symbol 0", "is not the null symbol"));
        }
        if !object.machine.is_64() && count > MAX_SYMBOLS_32 {
            let problem = format!("{count} symbols; a 32-bit object holds {MAX_SYMBOLS_32}");
            return Err(object.unwritable("symbol table", problem));
        }
        let (mut old, globals): (Vec<usize>, Vec<usize>) =
            (0..count).partition(|&index| object.symbols[index].is_local());
        let locals = old.len() as u32;
        old.extend(globals);
        let mut new = vec![0; count];
        for (number, &index) in old.iter().enumerate() {
            new[index] = number as u32;
        }
        Ok(SymbolOrder { old, new, locals })
    }
}

//! Names for addresses, if the program has symbols.

use std::ops::Range;

use goblin::elf::section_header::{SHT_STRTAB, SHT_SYMTAB};
use goblin::elf::sym::{STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};

use super::bytes::name;
use super::dynamic::Dynamic;
use super::dynsym::SymbolKind;
use super::parts::{Parts, file_range};
use super::ranges::contains;
use crate::address::Addr;

/// The functions in the symbol tables, by address in the object.
#[derive(Debug, Default)]
pub struct Symbols {
    functions: Vec<NamedFunction>,
}

/// Maximum number of labels skipped in the search for the beginning of a function.
const MAX_LABELS: usize = 256;

#[derive(Debug)]
struct NamedFunction {
    start: Addr,
    /// Size in bytes; 0 for hand-written code without a size.
    size: u64,
    name: String,
}

impl Symbols {
    pub(super) fn read(parts: &Parts, dynamic: Option<&Dynamic>) -> Symbols {
        let code = parts.code();
        let mut functions = table(parts, &code).unwrap_or_default();
        let exported = dynamic.into_iter().flat_map(|dynamic| dynamic.symbols.exported_functions());
        functions.extend(exported.filter(|symbol| contains(&code, symbol.value, 1)).map(|symbol| {
            let name = String::from_utf8_lossy(&symbol.name).into_owned();
            let untyped = symbol.kind == SymbolKind::Unknown;
            (untyped, NamedFunction { start: Addr(symbol.value), size: symbol.size, name })
        }));
        // The shortest typed name of an address is the usual one.
        functions.sort_by(|(untyped_a, a), (untyped_b, b)| {
            (a.start, untyped_a, a.name.len(), &a.name).cmp(&(b.start, untyped_b, b.name.len(), &b.name))
        });
        functions.dedup_by_key(|(_, function)| function.start);
        Symbols { functions: functions.into_iter().map(|(_, function)| function).collect() }
    }

    /// Returns the name of the function at this address.
    pub fn function_at(&self, address: Addr) -> Option<&str> {
        let next = self.functions.partition_point(|function| function.start <= address);
        let function = self.functions[..next].last()?;
        let inside = function.size == 0 || address.0 - function.start.0 < function.size;
        inside.then_some(function.name.as_str())
    }

    /// Returns the bounds of the function at this address, if a symbol has them. Labels have no size.
    pub(super) fn bounds(&self, address: Addr) -> Option<Range<Addr>> {
        let next = self.functions.partition_point(|function| function.start <= address);
        let mut before = self.functions[..next].iter().rev().take(MAX_LABELS);
        let &NamedFunction { start, size, .. } = before.find(|function| function.size > 0)?;
        (address.0 - start.0 < size).then(|| start..start.plus(size))
    }

    /// Returns whether a function starts at this address.
    pub fn is_function(&self, address: Addr) -> bool {
        self.functions.binary_search_by_key(&address, |function| function.start).is_ok()
    }
}

/// Returns the functions of the symbol table, and whether each lacks a type.
fn table(parts: &Parts, code: &[Range<u64>]) -> Option<Vec<(bool, NamedFunction)>> {
    let table = parts.sections.iter().find(|section| section.sh_type == SHT_SYMTAB)?;
    let strings = parts.sections.get(usize::try_from(table.sh_link).ok()?)?;
    if strings.sh_type != SHT_STRTAB {
        return None;
    }
    let strings = &parts.bytes[file_range(parts.bytes, strings.sh_offset, strings.sh_size)?];
    let symbols = parts.symbols(table)?;
    let functions = symbols
        .iter()
        .filter(|symbol| {
            // Assembly code often omits the type.
            matches!(symbol.st_type(), STT_FUNC | STT_GNU_IFUNC | STT_NOTYPE)
                && contains(code, symbol.st_value, 1)
        })
        .filter_map(|symbol| {
            let name = name(strings, symbol.st_name).filter(|name| !name.is_empty())?;
            let name = String::from_utf8_lossy(name).into_owned();
            let untyped = symbol.st_type() == STT_NOTYPE;
            if untyped && parts.machine.is_mapping_symbol(&name) {
                return None;
            }
            Some((untyped, NamedFunction { start: Addr(symbol.st_value), size: symbol.st_size, name }))
        });
    Some(functions.collect())
}

//! Finding the code that a plan names in a graph.

use kcfg::graph::{CodeName, Graph};
use kplan::FunctionName;
use rustc_hash::FxHashMap;

/// The code symbols of a graph, by the names that plans use.
pub struct CodeNames<'g> {
    by_name: FxHashMap<(&'g str, Option<&'g str>, u32), CodeName<'g>>,
}

impl<'g> CodeNames<'g> {
    /// Collects the code symbols of a graph.
    pub fn of(graph: &'g Graph) -> CodeNames<'g> {
        let key = |named: &CodeName<'g>| {
            let symbol = named.symbol;
            (symbol.name.as_str(), symbol.file.as_deref(), named.nth)
        };
        CodeNames { by_name: graph.code_names().map(|named| (key(&named), named)).collect() }
    }

    /// Returns the symbol with this name.
    pub fn find<'n>(&'n self, function: &'n FunctionName) -> Option<CodeName<'n>> {
        let FunctionName { name, file, nth } = function;
        self.by_name.get(&(name.as_str(), file.as_deref(), *nth)).copied()
    }
}

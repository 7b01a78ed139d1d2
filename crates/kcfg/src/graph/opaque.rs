//! The opaque code of a graph, by function.

use std::collections::BTreeMap;

use goblin::elf::sym::STT_FUNC;

use super::{Graph, Opaque, SymbolPlace};
use crate::carried::HAND_WRITTEN;
use crate::index::NodeId;

impl Graph {
    /// Returns the opaque code by function: a chunk of compiled code occurs once for each function in it.
    pub fn opaque_functions(&self) -> Vec<Opaque> {
        let mut functions: BTreeMap<NodeId, BTreeMap<u32, &str>> = BTreeMap::new();
        for symbol in self.symbols.iter().filter(|symbol| symbol.kind == STT_FUNC) {
            if let SymbolPlace::Node(node, offset) = symbol.place {
                functions.entry(node).or_default().entry(offset).or_insert(&symbol.name);
            }
        }
        let by_function = |opaque: &Opaque| match functions.get(&opaque.node) {
            Some(names) if opaque.reason != HAND_WRITTEN => {
                names.values().map(|&name| Opaque { name: name.to_owned(), ..opaque.clone() }).collect()
            }
            _ => vec![opaque.clone()],
        };
        self.opaque.iter().flat_map(by_function).collect()
    }
}

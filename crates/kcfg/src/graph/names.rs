//! The names of nodes.

use goblin::elf::section_header::SHF_EXECINSTR;
use rustc_hash::FxHashMap;
use typed_index_collections::ti_vec;

use super::{CodeName, Graph, Origin, Provenance, SymbolPlace};
use crate::index::{FunctionId, NodeId, NodeMap};
use crate::mapping::content_behind;

impl Graph {
    /// Returns the symbols of code, in link order.
    pub fn code_names(&self) -> impl Iterator<Item = CodeName<'_>> {
        let mut counts: FxHashMap<(&str, Option<&str>), u32> = FxHashMap::default();
        self.symbols.iter_enumerated().filter_map(move |(id, symbol)| {
            let SymbolPlace::Node(node, offset) = symbol.place else { return None };
            if self.section_of(node).flags & u64::from(SHF_EXECINSTR) == 0
                || content_behind(self.machine, &symbol.name).is_some()
            {
                return None;
            }
            let count = counts.entry((&symbol.name, symbol.file.as_deref())).or_default();
            let nth = *count;
            *count += 1;
            Some(CodeName { id, symbol, nth, node, offset })
        })
    }

    /// Returns the symbols in a node.
    pub fn names_in(&self, id: NodeId) -> impl Iterator<Item = &str> {
        self.placed_names().filter(move |(node, _)| *node == id).map(|(_, name)| name)
    }

    /// Returns the symbols in each node.
    pub fn names_by_node(&self) -> NodeMap<Vec<&str>> {
        let mut names = ti_vec![Vec::new(); self.nodes.len()];
        for (node, name) in self.placed_names() {
            names[node].push(name);
        }
        names
    }

    /// Returns the symbols in nodes, each with its node, except mapping symbols.
    fn placed_names(&self) -> impl Iterator<Item = (NodeId, &str)> {
        self.symbols.iter().filter_map(|symbol| match symbol.place {
            SymbolPlace::Node(node, _) if content_behind(self.machine, &symbol.name).is_none() => {
                Some((node, symbol.name.as_str()))
            }
            _ => None,
        })
    }

    /// Returns a node's human-readable name: function or symbol, else `object:section`, with an offset.
    pub fn name_of(&self, id: NodeId) -> String {
        let node = self.node(id);
        let origin = match node.provenance {
            Provenance::Input(origin) => origin,
            Provenance::Made(pass) => return self.name_of_made(id, pass),
        };
        if let Some(home) = self.home_of(id) {
            let function = self.function(home);
            let start = self.start_of(home).map_or(origin.offset, |start| start.offset);
            let offset = origin.offset.saturating_sub(start);
            if offset == 0 && function.entry() != id {
                // The function begins with another block, made by a pass.
                return format!("{}+0x0", function.name);
            }
            return with_offset(&function.name, offset);
        }
        let input = &self.inputs[origin.section];
        with_offset(&format!("{}:{}", input.object, input.name), origin.offset)
    }

    /// Returns the input place of the first block of a function that comes from the input.
    pub fn start_of(&self, function: FunctionId) -> Option<&Origin> {
        self.function(function).blocks.iter().find_map(|&block| self.node(block).origin())
    }

    fn name_of_made(&self, id: NodeId, pass: &str) -> String {
        match self.function_of(id) {
            Some(function) => format!("{} (made by {pass})", self.function(function).name),
            None => format!("{} (made by {pass})", self.section_of(id).name),
        }
    }
}

fn with_offset(name: &str, offset: u32) -> String {
    if offset == 0 { name.to_owned() } else { format!("{name}+{offset:#x}") }
}

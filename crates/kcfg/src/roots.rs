//! Symbols that are roots because something outside of the graph refers to them.

use kelf::{Place, Program};
use rustc_hash::FxHashMap;

use crate::graph::{Graph, Root, SymbolPlace};
use crate::index::NodeId;
use crate::lift::Error;
use crate::script::LinkerScript;
use crate::special::RootReason;

/// Names of global symbols that are roots.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    names: Vec<(String, RootReason)>,
}

impl Roots {
    /// The roots of a kernel: symbols in the linker script, and the undefined symbols of the objects that the final link
    /// adds. One of these, with loadable modules, holds the table of all that is exported (`.vmlinux.export.o`).
    pub fn of_kernel(script: &LinkerScript, program: &Program<'_>) -> Roots {
        let script = script.words().map(|word| (word.to_owned(), RootReason::LinkerScript));
        let beside = program.beside.iter().flat_map(|object| {
            let exports = object.sections.iter().any(|section| section.name.starts_with("___ksymtab"));
            let reason = if exports { RootReason::Exported } else { RootReason::LinkedBeside };
            let undefined = object.symbols.iter().filter(|symbol| symbol.place == Place::Undefined);
            undefined.map(move |symbol| (symbol.name.to_owned(), reason))
        });
        Roots { names: script.chain(beside).collect() }
    }

    /// The roots of a user program: the functions that enter it.
    pub fn of_entries(entries: &[String]) -> Roots {
        Roots { names: entries.iter().map(|entry| (entry.clone(), RootReason::Entry)).collect() }
    }

    /// Adds them to a graph. Names that it does not define are left out, except for entry points.
    ///
    /// # Errors
    /// [`Error::NoEntry`] if an entry point is not defined.
    pub(crate) fn add_to(&self, graph: &mut Graph) -> Result<(), Error> {
        let mut defined: FxHashMap<&str, (NodeId, u32)> = FxHashMap::default();
        for symbol in &graph.symbols {
            if let SymbolPlace::Node(node, offset) = symbol.place
                && symbol.binding != goblin::elf::sym::STB_LOCAL
            {
                defined.insert(&symbol.name, (node, offset));
            }
        }
        for (name, reason) in &self.names {
            match defined.get(name.as_str()) {
                Some(&(node, offset)) => {
                    graph.roots.push(Root { node, range: offset..offset + 1, reason: *reason });
                }
                None if *reason == RootReason::Entry => return Err(Error::NoEntry(name.clone())),
                None => {}
            }
        }
        Ok(())
    }
}

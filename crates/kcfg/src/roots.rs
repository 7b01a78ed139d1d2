//! Symbols that are roots because something outside of the graph refers to them.

use kelf::{Place, Program};
use rustc_hash::FxHashMap;

use crate::error::Error;
use crate::graph::{Graph, Root, SymbolPlace};
use crate::index::NodeId;
use crate::script::LinkerScript;
use crate::special::RootReason;

/// Symbols that tools of a kernel's build find by name in the linked kernel, and change: `sorttable` records there that
/// the exception table is sorted (scripts/sorttable.h).
const CHANGED_AFTER_LINK: &[&str] = &["main_extable_sort_needed"];

/// Names of global symbols that are roots.
#[derive(Clone, Debug, Default)]
pub struct Roots {
    names: Vec<(String, RootReason)>,
}

impl Roots {
    /// Returns the roots of a kernel: symbols in the linker script, and the undefined symbols of the objects that the
    /// final link adds. With loadable modules, one of these objects holds the table of all exports
    /// (`.vmlinux.export.o`).
    pub fn of_kernel(script: &LinkerScript, program: &Program<'_>) -> Roots {
        let script = script.words().map(|word| (word.to_owned(), RootReason::LinkerScript));
        let beside = program.beside.iter().flat_map(|object| {
            let exports = object.sections.iter().any(|section| section.name.starts_with("___ksymtab"));
            let reason = if exports { RootReason::Exported } else { RootReason::LinkedBeside };
            let undefined = object.symbols.iter().filter(|symbol| symbol.place == Place::Undefined);
            undefined.map(move |symbol| (symbol.name.to_owned(), reason))
        });
        let changed =
            CHANGED_AFTER_LINK.iter().map(|name| ((*name).to_owned(), RootReason::ChangedAfterLink));
        Roots { names: script.chain(beside).chain(changed).collect() }
    }

    /// Returns the roots of a user program: its entry functions.
    pub fn of_entries(entries: &[String]) -> Roots {
        Roots { names: entries.iter().map(|entry| (entry.clone(), RootReason::Entry)).collect() }
    }

    /// Adds the roots to a graph. Ignores names that it does not define, except entry points.
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

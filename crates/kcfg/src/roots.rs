//! Lifting a whole kernel or program, with the nodes that are alive because something outside of the
//! graph names them.

use kelf::{KernelBuild, Place, Program};
use rustc_hash::FxHashMap;

use crate::graph::{Graph, Root, SymbolPlace};
use crate::index::NodeId;
use crate::lift;
use crate::special::RootReason;

/// Makes the nodes that hold these global symbols roots. Names that the graph does not define are the
/// business of whoever does.
pub fn add<'n>(graph: &mut Graph, names: impl IntoIterator<Item = &'n str>, reason: RootReason) {
    let mut defined: FxHashMap<&str, NodeId> = FxHashMap::default();
    for symbol in &graph.symbols {
        if let SymbolPlace::Node(node, _) = symbol.place
            && symbol.binding != goblin::elf::sym::STB_LOCAL
        {
            defined.insert(&symbol.name, node);
        }
    }
    let nodes: Vec<NodeId> = names.into_iter().filter_map(|name| defined.get(name).copied()).collect();
    graph.roots.extend(nodes.into_iter().map(|node| Root { node, reason }));
}

/// Every word of a linker script that could be a symbol. The script's own keywords and section names are
/// among them, and harmless.
pub fn words_of_script(script: &str) -> impl Iterator<Item = &str> {
    script
        .split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$')))
        .filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
}

/// Lifts a kernel with its roots: what the linker script names, and what the objects that its final link
/// adds refer to.
///
/// # Errors
/// As for [`crate::lift::lift`], and if the linker script cannot be read.
pub fn lift_kernel(build: &KernelBuild, program: &Program<'_>) -> Result<Graph, lift::Error> {
    let options = lift::Options { keep_exports: build.is_enabled("CONFIG_MODULES") };
    let mut graph = lift::lift(program, options)?;
    let script = std::fs::read_to_string(&build.linker_script)
        .map_err(|source| lift::Error::Script { path: build.linker_script.clone(), source })?;
    add(&mut graph, words_of_script(&script), RootReason::LinkerScript);
    let beside = program.beside.iter().flat_map(|object| &object.symbols);
    let undefined = beside.filter(|symbol| symbol.place == Place::Undefined).map(|symbol| symbol.name);
    add(&mut graph, undefined, RootReason::LinkedBeside);
    Ok(graph)
}

/// Lifts a user program that is entered by the symbols `entries`.
///
/// # Errors
/// As for [`crate::lift::lift`].
pub fn lift_objects(program: &Program<'_>, entries: &[String]) -> Result<Graph, lift::Error> {
    let mut graph = lift::lift(program, lift::Options::default())?;
    for entry in entries {
        let before = graph.roots.len();
        add(&mut graph, [entry.as_str()], RootReason::Entry);
        if graph.roots.len() == before {
            return Err(lift::Error::NoEntry(entry.clone()));
        }
    }
    Ok(graph)
}

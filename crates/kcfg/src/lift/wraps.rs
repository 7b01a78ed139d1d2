//! Branches to functions that the link wraps everywhere. The assembler resolves some branches within a section itself, and
//! no relocation names their target, so they still lead to the definition.

use kelf::Program;

use crate::graph::{Editor, Graph, SymbolPlace};
use crate::index::NodeId;

/// Redirects these branches to the wrapper. Those of the wrapped function itself stay: a loop may begin at its entry.
pub fn redirect(graph: &mut Graph, program: &Program<'_>) {
    let entry = |graph: &Graph, name: &str| -> Option<NodeId> {
        let symbol = graph.symbols().iter().find(|symbol| symbol.name == name)?;
        match symbol.place {
            SymbolPlace::Node(node, 0) => Some(node),
            _ => None,
        }
    };
    for (name, real) in &program.wrapped {
        let (Some(wrapper), Some(definition)) = (entry(graph, name), entry(graph, real)) else { continue };
        let own = [wrapper, definition].map(|entry| graph.function_of(entry));
        let is_other = |&id: &NodeId| graph.is_code(id) && !own.contains(&graph.function_of(id));
        let others: Vec<NodeId> = graph.node_ids().filter(is_other).collect();
        let mut editor = Editor::new(graph, "graph");
        others.into_iter().for_each(|id| editor.redirect_end(id, definition, wrapper));
        editor.finish();
    }
}

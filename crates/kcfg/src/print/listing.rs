/*!
The graph as text: the live nodes, section by section, in lowering order.

```text
.text (hello.o)
hello:  # global
    push %ebx
    mov %eax,%ebx
hello+0x3:
    dec %ebx
    js hello+0x12
…
.rodata.str1.1 (hello.o)
"hello":  # 6 bytes
```

Blocks and chunks begin with their names, which give their places in the input; a chunk of data has a line for each of
its references. A line in brackets completes the last instruction of a block: it gives the continuation if that is not
the next node of the listing, or marks a call that does not return.
*/

use std::io::{self, Write};

use goblin::elf::sym::{STB_GLOBAL, STB_WEAK, STT_GNU_IFUNC};
use indexmap::IndexSet;

use super::scope::Scope;
use super::{Printer, Selection, spelling};
use crate::edges::EdgeKind;
use crate::graph::{Chunk, Graph, Life, Provenance, Role, Section, Symbol, Terminator};
use crate::index::NodeId;

/// Writes a listing of the selection.
///
/// # Errors
/// Errors of `out`.
pub fn write(printer: &Printer<'_>, selection: &Selection, out: &mut impl Write) -> io::Result<()> {
    let scope = Scope::of(printer, selection);
    let graph = printer.graph;
    for section in &graph.sections {
        let nodes: Vec<NodeId> = section.nodes.iter().copied().filter(|&id| graph.node(id).live).collect();
        let mut heading = Some(heading(graph, section, &nodes));
        for (i, &node) in nodes.iter().enumerate().filter(|&(_, &node)| scope.has(node)) {
            if let Some(heading) = heading.take() {
                writeln!(out, "{heading}")?;
            }
            let notes = printer.notes(node);
            let comment = if notes.is_empty() { String::new() } else { format!("  # {}", notes.join("; ")) };
            writeln!(out, "{}:{comment}", printer.label(node))?;
            for line in printer.content(node, nodes.get(i + 1).copied()) {
                writeln!(out, "    {line}")?;
            }
        }
    }
    Ok(())
}

/// Returns a section's name, and the objects of its nodes.
fn heading(graph: &Graph, section: &Section, live: &[NodeId]) -> String {
    let objects: IndexSet<&str> = live.iter().filter_map(|&id| Some(&*graph.input_of(id)?.object)).collect();
    let objects: Vec<&str> = objects.into_iter().collect();
    let mut heading = section.name.to_string();
    if !objects.is_empty() {
        heading += &format!(" ({})", objects.join(", "));
    }
    if let Some(group) = section.group {
        heading += &format!(", group {}", graph.symbols[group].name);
    }
    heading
}

impl Printer<'_> {
    /// Returns the name of a node's first byte.
    fn label(&self, id: NodeId) -> String {
        self.name_of_place(id, 0)
    }

    /// Returns the properties of a node: its symbols, why it is a root or opaque, its alignment and provenance.
    fn notes(&self, id: NodeId) -> Vec<String> {
        let (graph, label) = (self.graph, self.label(id));
        let node = graph.node(id);
        let mut notes: Vec<String> =
            self.symbols_in(id).filter_map(|(offset, symbol)| note(symbol, offset, &label)).collect();
        notes.extend(self.roots_of(id).iter().map(|reason| format!("root: {reason}")));
        if let Some(Chunk { code, life, .. }) = graph.chunk(id) {
            if let Life::Site(kind) = life {
                let about = graph.site(id).map(|site| self.name_of_target(site.target, site.addend));
                notes.push(format!("{} of {}", spelling(kind), about.as_deref().unwrap_or("nothing")));
            } else if !code {
                notes.push(format!("{} bytes", node.size));
            }
        }
        notes.extend(self.opaque.get(&id).map(|opaque| format!("opaque: {}", opaque.reason)));
        if node.align > 1 {
            notes.push(format!("aligned to {}", node.align));
        }
        if let Some(before) = node.glued_to {
            notes.push(format!("glued to {}", self.label(before)));
        }
        if let Provenance::Made(pass) = node.provenance {
            notes.push(format!("made by {pass}"));
        }
        if graph.block(id).is_some_and(|block| block.is_fixed()) {
            notes.push("patched".to_owned());
        }
        notes
    }

    /// Returns the lines of a node before `behind`: instructions or references.
    fn content(&self, id: NodeId, behind: Option<NodeId>) -> Vec<String> {
        let graph = self.graph;
        let mut lines = self.instructions(id);
        if let Some(block) = graph.block(id) {
            lines.extend(self.way_on(id, &block.end, behind));
        } else if lines.is_empty() {
            let refs = graph.refs_of(id).iter().filter(|reference| reference.role != Role::Site);
            lines.extend(refs.map(|reference| {
                let name = self.name_of_target(reference.target, reference.addend);
                let gone = self.graph.resolve_node(reference.target).is_some_and(|to| !graph.node(to).live);
                let comment = match (reference.role, gone) {
                    (Role::Slot(_), false) => "  # slot of a jump table",
                    (Role::Slot(_), true) => "  # unused slot of a jump table",
                    (_, false) => "",
                    (_, true) => "  # removed",
                };
                format!("{:+#x}: {name}{comment}", reference.offset)
            }));
        }
        lines
    }

    /// Returns the continuation after a block, if its last instruction and the listing do not show it.
    fn way_on(&self, id: NodeId, end: &Terminator, behind: Option<NodeId>) -> Option<String> {
        if let Some(next) = end.next().filter(|&next| Some(next) != behind && self.graph.node(next).live) {
            return Some(format!("[continues at {}]", self.label(next)));
        }
        let mut returns = true;
        self.edges.for_each(id, |edge| returns &= edge.kind != EdgeKind::NoReturn);
        match end {
            _ if !returns => Some("[does not return]".to_owned()),
            Terminator::Unreachable => Some("[end is unreachable]".to_owned()),
            Terminator::Trap { next: None } => Some("[does not resume]".to_owned()),
            _ => None,
        }
    }
}

/// Returns a symbol as a note, without the parts in the label of its node.
fn note(symbol: &Symbol, offset: u32, label: &str) -> Option<String> {
    let mut words = Vec::new();
    match symbol.binding {
        _ if symbol.unlinked => words.push("unlinked"),
        STB_WEAK => words.push("weak"),
        STB_GLOBAL => words.push("global"),
        _ => {}
    }
    if symbol.kind == STT_GNU_IFUNC {
        words.push("indirect");
    }
    let is_label = offset == 0 && symbol.name == label;
    if !is_label {
        words.push(&symbol.name);
    }
    let place = if offset > 0 { format!(" at {offset:+#x}") } else { String::new() };
    (!words.is_empty()).then(|| words.join(" ") + &place)
}

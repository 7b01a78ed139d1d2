/*!
The graph as Graphviz input (`dot -Tsvg`).

The drawing is a petgraph [`DiGraph`] of node numbers and edge kinds. Labels are made when petgraph's [`Dot`] writes
them, so the drawing of a whole kernel fits in memory (too large to look at, but other programs may read it). Functions
are clusters with the text of their instructions in the blocks; destinations outside of the selection are ovals with
their names.
*/

use std::fmt;
use std::io::{self, Write};

use petgraph::dot::{Config, Dot};
use petgraph::graph::{DiGraph, EdgeReference, NodeIndex};
use rustc_hash::FxHashMap;

use super::scope::Scope;
use super::{Printer, Selection, spelling};
use crate::edges::{Destination, EdgeKind};
use crate::index::{NodeId, SymbolId};

/// Writes a drawing of the selection.
///
/// # Errors
/// Errors of `out`.
pub fn write(printer: &Printer<'_>, selection: &Selection, out: &mut impl Write) -> io::Result<()> {
    let scope = Scope::of(printer, selection);
    let drawing = Drawing::of(printer, &scope);
    writeln!(out, "digraph kcfg {{")?;
    writeln!(out, "    node [ fontname = \"monospace\" fontsize = 10 ]")?;
    let config = [Config::GraphContentOnly, Config::EdgeNoLabel];
    let arrow = |_: &DiGraph<_, Arrow>, arrow: EdgeReference<'_, Arrow>| arrow.weight().style().to_owned();
    let vertex = |_: &DiGraph<_, Arrow>, (_, vertex): (NodeIndex, &Vertex<'_>)| vertex.style().to_owned();
    write!(out, "{}", Dot::with_attr_getters(&drawing.graph, &config, &arrow, &vertex))?;
    for &id in &scope.functions {
        let function = &printer.graph.functions[id];
        writeln!(out, "    subgraph cluster_{} {{", id.0)?;
        writeln!(out, "        label = {}", quoted(&function.name))?;
        let blocks = function.blocks.iter().copied();
        let numbers = blocks.filter_map(|block| drawing.vertices.get(&What::Node(block)));
        for number in numbers {
            writeln!(out, "        {}", number.index())?;
        }
        writeln!(out, "    }}")?;
    }
    writeln!(out, "}}")
}

/// A petgraph drawing of a selection.
struct Drawing<'p> {
    printer: &'p Printer<'p>,
    graph: DiGraph<Vertex<'p>, Arrow>,
    vertices: FxHashMap<What, NodeIndex>,
}

impl<'p> Drawing<'p> {
    fn of(printer: &'p Printer<'p>, scope: &Scope) -> Drawing<'p> {
        let mut drawing = Drawing { printer, graph: DiGraph::new(), vertices: FxHashMap::default() };
        let inside: Vec<NodeId> = printer.graph.node_ids().filter(|&node| scope.has(node)).collect();
        for &node in &inside {
            drawing.vertex(What::Node(node), true);
        }
        for &node in &inside {
            let from = drawing.vertex(What::Node(node), true);
            printer.edges.for_each(node, |edge| {
                let what = match edge.to {
                    Destination::Node(node) => What::Node(node),
                    Destination::Unknown => What::Unknown,
                    Destination::Outside(symbol) => What::Outside(symbol),
                };
                let to = drawing.vertex(what, false);
                // Several references of a block to the same node are one edge of the drawing.
                if edge.kind != EdgeKind::Data || !drawing.graph.contains_edge(from, to) {
                    drawing.graph.add_edge(from, to, Arrow(edge.kind));
                }
            });
        }
        drawing
    }

    fn vertex(&mut self, what: What, inside: bool) -> NodeIndex {
        let vertex = Vertex { printer: self.printer, what, inside };
        *self.vertices.entry(what).or_insert_with(|| self.graph.add_node(vertex))
    }
}

/// The meaning of a vertex.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum What {
    Node(NodeId),
    Unknown,
    Outside(SymbolId),
}

/// A vertex of the drawing, with its label as text.
struct Vertex<'p> {
    printer: &'p Printer<'p>,
    what: What,
    /// Whether it is part of the selection.
    inside: bool,
}

impl Vertex<'_> {
    fn style(&self) -> &'static str {
        match self.what {
            What::Node(node) if self.printer.graph.block(node).is_some_and(|block| block.is_fixed()) => {
                "shape = box peripheries = 2"
            }
            What::Node(_) if self.inside => "shape = box",
            What::Node(node) if self.printer.graph.block(node).is_some() => "shape = oval",
            What::Node(_) => "shape = note",
            What::Outside(_) => "shape = oval style = dashed",
            What::Unknown => "shape = diamond",
        }
    }
}

impl fmt::Display for Vertex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = match self.what {
            What::Node(node) => node,
            What::Unknown => return f.write_str("unknown"),
            What::Outside(symbol) => return f.write_str(&self.printer.graph.symbols[symbol].name),
        };
        f.write_str(&self.printer.name_of_place(node, 0))?;
        let lines = if self.inside { self.printer.instructions(node) } else { Vec::new() };
        if lines.is_empty() {
            return Ok(());
        }
        // A line break after each line makes Graphviz align it to the left.
        lines.iter().try_fold((), |(), line| write!(f, "\n{line}"))?;
        f.write_str("\n")
    }
}

/// An edge of the drawing.
struct Arrow(EdgeKind);

impl Arrow {
    fn style(&self) -> &'static str {
        match self.0 {
            EdgeKind::FallThrough => "style = bold",
            EdgeKind::Jump => "color = black",
            EdgeKind::Switch => "color = darkgreen",
            EdgeKind::Call => "color = blue",
            EdgeKind::NoReturn => "color = red",
            EdgeKind::TailCall => "color = blue style = bold",
            EdgeKind::Return => "style = dashed",
            EdgeKind::Data => "color = gray40 style = dotted",
            EdgeKind::Site => "color = orange style = dotted",
        }
    }
}

impl fmt::Display for Arrow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&spelling(self.0))
    }
}

/// Quotes a string of the Graphviz language.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

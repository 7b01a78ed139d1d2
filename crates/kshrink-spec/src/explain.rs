//! `--explain`: prints the chain of edges that keeps a function or variable alive.

use std::io::Write;

use kcfg::edges::EdgeKind;
use kcfg::graph::{Graph, Life, Provenance};
use kcfg::index::NodeId;
use kcli::{Failure, Output};
use kopt::explain::{Chain, chain, nodes_named};

/// Prints the shortest chain for every node of the symbol.
pub fn print(graph: &Graph, symbol: &str) -> Result<(), Failure> {
    let nodes = nodes_named(graph, symbol);
    if nodes.is_empty() {
        return Err(no_such_symbol(symbol));
    }
    let mut out = Output::stdout();
    for node in nodes {
        match chain(graph, node) {
            Some(chain) => print_chain(graph, &chain, symbol, &mut out)?,
            None => writeln!(out, "{symbol} ({}) is unreachable", place(graph, node))?,
        }
    }
    Ok(out.commit()?)
}

/// Returns the error for a name that the program does not define.
pub fn no_such_symbol(symbol: &str) -> Failure {
    Failure::bad_input(format!(
        "the program defines no symbol `{symbol}`; expected the name of a function or variable, as in System.map"
    ))
}

fn print_chain(graph: &Graph, chain: &Chain, symbol: &str, out: &mut impl Write) -> std::io::Result<()> {
    writeln!(out, "{symbol} ({}) is alive:", place(graph, chain.links[chain.links.len() - 1].node))?;
    // Edges within one function are left out.
    let mut previous: Option<NodeId> = None;
    for link in &chain.links {
        let function = |node| graph.function_of(node);
        let same = previous.and_then(function).is_some_and(|previous| Some(previous) == function(link.node));
        match link.by {
            None => writeln!(out, "  {}, {}", name(graph, link.node), chain.root)?,
            Some(by) if !same => writeln!(out, "  {} {}", verb(by), name(graph, link.node))?,
            Some(_) => {}
        }
        previous = Some(link.node);
    }
    Ok(())
}

/// Returns the function or the symbols of a node, and its place.
fn name(graph: &Graph, node: NodeId) -> String {
    if let Some(block) = graph.block(node) {
        return graph.functions()[block.function].name.clone();
    }
    let symbols: Vec<&str> = graph.names_in(node).take(4).collect();
    let place = place(graph, node);
    match (symbols.len(), graph.chunk(node).map(|chunk| chunk.life)) {
        (_, Some(Life::Site(kind))) => format!("an entry of {} ({kind:?})", place),
        (0, _) => place,
        (4, _) => format!("{place}, which holds {}, …", symbols[..3].join(", ")),
        _ => format!("{place}, which holds {}", symbols.join(", ")),
    }
}

/// Returns the object and the section of a node.
pub fn place(graph: &Graph, node: NodeId) -> String {
    match (graph.input_of(node), graph.node(node).provenance) {
        (Some(input), _) => format!("{}:{}", input.object, input.name),
        (None, Provenance::Made(pass)) => format!("{}, made by {pass}", graph.section_of(node).name),
        (None, Provenance::Input(_)) => unreachable!("an origin names an input section"),
    }
}

/// Returns the verb of an edge, with the source as its subject.
pub fn verb(edge: EdgeKind) -> &'static str {
    match edge {
        EdgeKind::FallThrough => "falls through to",
        EdgeKind::Jump | EdgeKind::TailCall => "jumps to",
        EdgeKind::Switch => "switches to",
        EdgeKind::Call | EdgeKind::NoReturn => "calls",
        EdgeKind::Return => "returns to",
        EdgeKind::Data => "refers to",
        EdgeKind::Site => "has",
    }
}

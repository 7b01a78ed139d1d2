//! `--retained`: prints the bytes that functions and variables retain.

use std::io::Write;

use kcfg::graph::Graph;
use kcfg::index::NodeId;
use kcli::{Failure, Output, Table, human};
use kopt::explain::nodes_named;
use kopt::retained::of_sets;

use crate::explain;

/// Prints a row for every node of the symbols.
pub fn print(graph: &Graph, symbols: &[String]) -> Result<(), Failure> {
    let mut found: Vec<(&str, NodeId)> = Vec::new();
    for symbol in symbols {
        let nodes = nodes_named(graph, symbol);
        if nodes.is_empty() {
            return Err(explain::no_such_symbol(symbol));
        }
        found.extend(nodes.into_iter().map(|node| (symbol.as_str(), node)));
    }
    let mut sets: Vec<Vec<NodeId>> = found.iter().map(|&(_, node)| vec![node]).collect();
    sets.sort_unstable();
    sets.dedup();
    let figures = of_sets(graph, &sets);
    let mut table = Table::new(["", "retains", "code", "init", "in"]);
    for (symbol, node) in found {
        let Ok(at) = sets.binary_search(&vec![node]) else { continue };
        let figure = figures[at];
        let place = explain::place(graph, node);
        table.row([symbol.to_owned(), human(figure.bytes), human(figure.code), human(figure.init), place]);
    }
    let mut out = Output::stdout();
    write!(out, "{table}")?;
    Ok(out.commit()?)
}

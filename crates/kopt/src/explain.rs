//! Why something is alive: the shortest chain of edges from a root.

use std::collections::VecDeque;

use kcfg::edges::{Destination, EdgeKind, Edges};
use kcfg::graph::{Graph, SymbolPlace};
use kcfg::index::NodeId;
use kcfg::special::RootReason;

/// One link of a chain: a node, and the edge by which it was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The node.
    pub node: NodeId,
    /// The edge that leads to it; `None` for the root.
    pub by: Option<EdgeKind>,
}

/// A shortest chain that keeps a node alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Why its first node is alive.
    pub root: RootReason,
    /// From the root to the node.
    pub links: Vec<Link>,
}

/// The nodes with a symbol of this name; several if local symbols share the name.
pub fn nodes_named(graph: &Graph, name: &str) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = graph
        .symbols
        .iter()
        .filter(|symbol| symbol.name == name)
        .filter_map(|symbol| match symbol.place {
            SymbolPlace::Node(node, _) => Some(node),
            _ => None,
        })
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// The shortest chain from any root to `goal`; `None` if there is none, so that pass `reach` removes it.
pub fn chain(graph: &Graph, goal: NodeId) -> Option<Chain> {
    let edges = Edges::of(graph);
    let mut from: Vec<Option<(EdgeKind, NodeId)>> = vec![None; graph.nodes.len()];
    let mut seen = vec![false; graph.nodes.len()];
    let mut worklist = VecDeque::new();
    for root in graph.roots.iter().filter(|root| graph.node(root.node).live) {
        if !std::mem::replace(&mut seen[root.node.get()], true) {
            worklist.push_back(root.node);
        }
    }
    while let Some(node) = worklist.pop_front() {
        if node == goal {
            return Some(walk_back(graph, &from, goal));
        }
        edges.for_each(node, |edge| {
            if let Destination::Node(to) = edge.to
                && graph.node(to).live
                && !std::mem::replace(&mut seen[to.get()], true)
            {
                from[to.get()] = Some((edge.kind, node));
                worklist.push_back(to);
            }
        });
    }
    None
}

fn walk_back(graph: &Graph, from: &[Option<(EdgeKind, NodeId)>], goal: NodeId) -> Chain {
    let mut links = Vec::new();
    let mut node = goal;
    loop {
        let step = from[node.get()];
        links.push(Link { node, by: step.map(|(kind, _)| kind) });
        match step {
            Some((_, previous)) => node = previous,
            None => break,
        }
    }
    links.reverse();
    let root = graph.roots.iter().find(|root| root.node == node).expect("the search began at a root");
    Chain { root: root.reason, links }
}

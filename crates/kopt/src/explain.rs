//! Reasons why code or data is alive: the shortest chain of edges from a root.

use kcfg::edges::{Destination, EdgeKind, Edges};
use kcfg::graph::{Graph, SymbolPlace};
use kcfg::index::{NodeId, NodeMap};
use kcfg::special::RootReason;
use rustc_hash::FxHashMap;
use typed_index_collections::ti_vec;

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
    /// The reason why its first node is alive.
    pub root: RootReason,
    /// From the root to the node.
    pub links: Vec<Link>,
}

/// The nodes with a symbol of this name; several if local symbols share the name.
pub fn nodes_named(graph: &Graph, name: &str) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = graph
        .symbols()
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
    Chains::find(graph).chain(goal)
}

/// The shortest chains from the roots to all nodes: a tree, found by one breadth-first search.
pub struct Chains {
    /// For each node the step that leads to it; `None` for roots and for nodes that are not reachable.
    from: NodeMap<Option<(EdgeKind, NodeId)>>,
    roots: FxHashMap<NodeId, RootReason>,
    /// The reachable nodes in the order in which the search found them.
    found: Vec<NodeId>,
}

impl Chains {
    /// Searches from the roots of a graph.
    pub fn find(graph: &Graph) -> Chains {
        let edges = Edges::of(graph);
        let mut from: NodeMap<Option<(EdgeKind, NodeId)>> = ti_vec![None; graph.nodes().len()];
        let mut seen = ti_vec![false; graph.nodes().len()];
        let mut roots = FxHashMap::default();
        // The worklist, too.
        let mut found = Vec::new();
        for root in graph.roots().iter().filter(|root| graph.node(root.node).live) {
            roots.entry(root.node).or_insert(root.reason);
            if !std::mem::replace(&mut seen[root.node], true) {
                found.push(root.node);
            }
        }
        let mut next = 0;
        while let Some(&node) = found.get(next) {
            next += 1;
            edges.for_each(node, |edge| {
                if let Destination::Node(to) = edge.to
                    && graph.node(to).live
                    && !std::mem::replace(&mut seen[to], true)
                {
                    from[to] = Some((edge.kind, node));
                    found.push(to);
                }
            });
        }
        Chains { from, roots, found }
    }

    /// The reachable nodes. Each comes after the node that leads to it.
    pub fn nodes(&self) -> &[NodeId] {
        &self.found
    }

    /// The edge and the node that lead to a node; `None` for roots and for nodes that are not reachable.
    pub fn step(&self, node: NodeId) -> Option<(EdgeKind, NodeId)> {
        self.from[node]
    }

    /// The reason why a node is a root; `None` if it is none.
    pub fn root(&self, node: NodeId) -> Option<RootReason> {
        self.roots.get(&node).copied()
    }

    /// The shortest chain to `goal`; `None` if it is not reachable.
    pub fn chain(&self, goal: NodeId) -> Option<Chain> {
        let mut links = Vec::new();
        let mut node = goal;
        while let Some((kind, previous)) = self.step(node) {
            links.push(Link { node, by: Some(kind) });
            node = previous;
        }
        let root = self.root(node)?;
        links.push(Link { node, by: None });
        links.reverse();
        Some(Chain { root, links })
    }
}

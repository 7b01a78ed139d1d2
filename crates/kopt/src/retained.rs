/*!
Retained sizes: the bytes that would be unreachable without a node or a set of nodes.

In the graph of everything that is alive, with one node before all roots, a node X *dominates* Y if every chain of
edges from a root to Y leads through X. X retains everything that it dominates, including itself. petgraph's
`simple_fast` computes this (Cooper, Harvey, Kennedy: A Simple, Fast Dominance Algorithm).

Edges that depend on more than their source need no special care:

- An entry of a weak table has one edge to it, from its site.
- The edge from a call to the code after it exists if the callee may return ([`kcfg::returns`]). Removing the nodes
  that X dominates cannot turn a returning call into one that does not return, because control from the rest enters
  them through X only.
- A reference that may mean the end of a variable is an edge to that variable as well ([`kcfg::edges`]).

The figure excludes padding, the savings of branches that become shorter (they count with their length in the input),
and finer splitting of data whose references are gone.

[`Removals`] answers the same question for sets that overlap, one search a set, and lists the nodes.
*/

use kcfg::edges::{Destination, Edges};
use kcfg::graph::Graph;
use kcfg::index::{NodeId, NodeMap, NodeSet};
use petgraph::algo::dominators::simple_fast;
use petgraph::graph::{DiGraph, NodeIndex};
use rustc_hash::FxHashMap;
use serde::Serialize;

/// Bytes that a node or a set of nodes retains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Retained {
    /// All bytes.
    pub bytes: u64,
    /// Bytes of code among them.
    pub code: u64,
    /// Bytes of them that the kernel frees after it has started (sections that begin with `.init`).
    pub init: u64,
}

impl Retained {
    fn of_node(graph: &Graph, id: NodeId) -> Retained {
        let bytes = u64::from(graph.size_with_branch(id));
        let is_init = graph.section_of(id).name.starts_with(".init");
        let when = |holds| if holds { bytes } else { 0 };
        Retained { bytes, code: when(graph.is_code(id)), init: when(is_init) }
    }

    fn add(&mut self, other: Retained) {
        self.bytes += other.bytes;
        self.code += other.code;
        self.init += other.init;
    }
}

/// Returns the bytes that each set of nodes retains: the bytes that are reachable only through its members. The sets
/// must be disjoint. Unreachable nodes count nothing.
pub fn of_sets(graph: &Graph, sets: &[Vec<NodeId>]) -> Vec<Retained> {
    sums(graph, sets).split_off(graph.nodes().len())
}

/// Returns the bytes that each node retains.
pub fn of_nodes(graph: &Graph) -> NodeMap<Retained> {
    sums(graph, &[]).into()
}

/// The nodes that would be unreachable without a set of nodes, for any number of sets. Sets may overlap.
pub struct Removals {
    /// The reachable nodes.
    reachable: NodeSet,
    roots: Vec<NodeId>,
    /// For each node the place in `successors` where its successors begin, and the end of the last.
    starts: Vec<u32>,
    successors: Vec<NodeId>,
}

impl Removals {
    /// Collects the edges of a graph.
    pub fn of(graph: &Graph) -> Removals {
        let edges = Edges::of(graph);
        let mut removals = Removals {
            reachable: NodeSet::default(),
            roots: Vec::new(),
            starts: Vec::with_capacity(graph.nodes().len() + 1),
            successors: Vec::new(),
        };
        for id in graph.node_ids() {
            removals.starts.push(removals.successors.len() as u32);
            if !graph.node(id).live {
                continue;
            }
            edges.for_each(id, |edge| {
                if let Destination::Node(to) = edge.to
                    && graph.node(to).live
                {
                    removals.successors.push(to);
                }
            });
        }
        removals.starts.push(removals.successors.len() as u32);
        let roots = graph.roots().iter().filter(|root| graph.node(root.node).live);
        removals.roots = roots.map(|root| root.node).collect();
        removals.reachable = removals.search(&NodeSet::default());
        removals
    }

    /// Returns the reachable nodes that are unreachable without the nodes of `set`, ascending. They include the
    /// reachable nodes of the set.
    pub fn without(&self, set: &[NodeId]) -> Vec<NodeId> {
        let mut absent = NodeSet::with_capacity(self.starts.len());
        absent.extend(set.iter().copied());
        let left = self.search(&absent);
        self.reachable.difference(&left).collect()
    }

    /// Returns the nodes that are reachable if the nodes in `absent` do not exist.
    fn search(&self, absent: &NodeSet) -> NodeSet {
        let mut seen = NodeSet::with_capacity(self.starts.len());
        let mut worklist = Vec::new();
        let mut visit = |node: NodeId, worklist: &mut Vec<NodeId>| {
            if !absent.contains(node) && !seen.put(node) {
                worklist.push(node);
            }
        };
        self.roots.iter().for_each(|&root| visit(root, &mut worklist));
        while let Some(node) = worklist.pop() {
            let range = self.starts[node.get()] as usize..self.starts[node.get() + 1] as usize;
            self.successors[range].iter().for_each(|&to| visit(to, &mut worklist));
        }
        seen
    }
}

/// The figures of all nodes, followed by the figures of the sets.
fn sums(graph: &Graph, sets: &[Vec<NodeId>]) -> Vec<Retained> {
    let edges = Edges::of(graph);
    // One vertex for each node and each set, and one before the roots.
    let (first_set, nodes) = (graph.nodes().len(), graph.nodes().len() + sets.len() + 1);
    let mut vertices: DiGraph<(), ()> = DiGraph::with_capacity(nodes, 4 * nodes);
    for _ in 0..nodes {
        vertices.add_node(());
    }
    let start = NodeIndex::new(nodes - 1);
    let mut set_of: FxHashMap<NodeId, usize> = FxHashMap::default();
    for (number, set) in sets.iter().enumerate() {
        for &member in set {
            set_of.insert(member, number);
            vertices.add_edge(NodeIndex::new(first_set + number), NodeIndex::new(member.get()), ());
        }
    }
    // An edge to a member of a set is an edge to the set.
    let vertex = |id: NodeId| NodeIndex::new(set_of.get(&id).map_or(id.get(), |set| first_set + set));
    for root in graph.roots().iter().filter(|root| graph.node(root.node).live) {
        vertices.add_edge(start, vertex(root.node), ());
    }
    for id in graph.node_ids().filter(|&id| graph.node(id).live) {
        edges.for_each(id, |edge| {
            if let Destination::Node(to) = edge.to
                && graph.node(to).live
                // Edges between members stay inside the set.
                && (!set_of.contains_key(&to) || set_of.get(&to) != set_of.get(&id))
            {
                vertices.add_edge(NodeIndex::new(id.get()), vertex(to), ());
            }
        });
    }
    let dominators = simple_fast(&vertices, start);
    let mut sums: Vec<Retained> = vec![Retained::default(); nodes];
    for id in graph.node_ids().filter(|&id| graph.node(id).live) {
        sums[id.get()] = Retained::of_node(graph, id);
    }
    // From the leaves of the dominator tree to its root: deeper vertices first.
    let mut depths: Vec<Option<u32>> = vec![None; nodes];
    depths[start.index()] = Some(0);
    let mut order: Vec<(u32, usize)> = Vec::new();
    for index in 0..nodes {
        let mut path = Vec::new();
        let mut at = NodeIndex::new(index);
        while depths[at.index()].is_none() {
            path.push(at);
            match dominators.immediate_dominator(at) {
                Some(above) => at = above,
                None => break,
            }
        }
        let Some(mut depth) = depths[at.index()] else { continue };
        for vertex in path.into_iter().rev() {
            depth += 1;
            depths[vertex.index()] = Some(depth);
            order.push((depth, vertex.index()));
        }
    }
    order.sort_unstable_by(|a, b| b.cmp(a));
    for (_, index) in order {
        if let Some(above) = dominators.immediate_dominator(NodeIndex::new(index)) {
            let sum = sums[index];
            sums[above.index()].add(sum);
        }
    }
    sums.truncate(nodes - 1);
    for (sum, _) in sums.iter_mut().zip(&depths).filter(|(_, depth)| depth.is_none()) {
        *sum = Retained::default();
    }
    sums
}

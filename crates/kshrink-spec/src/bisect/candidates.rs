//! Candidates of the search: the parts of a program that a rewrite changes.

use std::io::{self, Write};

use fixedbitset::FixedBitSet;
use kcfg::edges::{Destination, Edges};
use kcfg::graph::{Graph, Life};
use kcfg::index::{FunctionId, NodeId, NodeMap};
use kcfg::lift::{Keep, Part};
use petgraph::algo::kosaraju_scc;
use petgraph::graph::DiGraph;
use rustc_hash::FxHashMap;
use typed_index_collections::ti_vec;

use crate::explain::place;

/// Maximum number of places in a function that a description lists.
const LISTED: usize = 8;

/// Parts of a program, in topological order: referrers come first.
pub struct Candidates {
    /// The way in which they are kept.
    pub keep: Keep,
    all: Vec<Candidate>,
    /// For each candidate, the candidates that refer to it. It is kept if one of them is.
    referrers: Vec<Vec<usize>>,
}

/// Parts that are kept together, because they refer to one another: a strongly connected component.
#[derive(Clone)]
struct Candidate {
    parts: Vec<Part>,
    /// A description of each, for messages.
    texts: Vec<String>,
}

impl Default for Candidates {
    fn default() -> Candidates {
        Candidates { keep: Keep::Alive, all: Vec::new(), referrers: Vec::new() }
    }
}

impl Candidates {
    /// Returns the functions that lost blocks, and the data that was removed.
    pub fn removed(graph: &Graph) -> Candidates {
        let groups = Groups::of(graph);
        let mut digraph: DiGraph<(), ()> = DiGraph::new();
        let indices: Vec<_> = groups.members.iter().map(|_| digraph.add_node(())).collect();
        let edges = Edges::of(graph);
        for node in graph.node_ids() {
            let Some(from) = groups.of_node[node] else { continue };
            edges.for_each(node, |edge| {
                if let Destination::Node(to) = edge.to
                    && let Some(to) = groups.of_node[to].filter(|&to| to != from)
                {
                    digraph.update_edge(indices[from], indices[to], ());
                }
            });
        }
        // petgraph gives components in reverse topological order.
        let mut components = kosaraju_scc(&digraph);
        components.reverse();
        let mut number = vec![0; groups.members.len()];
        for (i, component) in components.iter().enumerate() {
            component.iter().for_each(|group| number[group.index()] = i);
        }
        let mut referrers = vec![Vec::new(); components.len()];
        for edge in digraph.raw_edges() {
            let (from, to) = (number[edge.source().index()], number[edge.target().index()]);
            if from != to {
                referrers[to].push(from);
            }
        }
        let all = components.iter().map(|component| {
            let members = component.iter().map(|group| groups.members[group.index()].as_slice());
            let (parts, texts) = members.map(|nodes| removed(graph, nodes)).unzip();
            Candidate { parts, texts }
        });
        Candidates { keep: Keep::Alive, all: all.collect(), referrers }
    }

    /// Returns all functions, and all sections of data that are split.
    pub fn rewritten(graph: &Graph) -> Candidates {
        let mut all = Vec::new();
        for function in graph.functions() {
            let first = function.entry();
            let blocks = function.blocks.len();
            let text = format!("{}: {blocks} {}", named(graph, first), plural(blocks, "block"));
            all.push((first, part(graph, &function.blocks), text));
        }
        for section in graph.sections() {
            let plain = |&node: &NodeId| {
                graph.chunk(node).is_some_and(|chunk| !chunk.code && chunk.life == Life::Referenced)
            };
            if section.nodes.len() > 1 && section.nodes.iter().all(plain) {
                let first = section.nodes[0];
                let text = format!("{}: {} pieces of data", place(graph, first), section.nodes.len());
                all.push((first, part(graph, &section.nodes), text));
            }
        }
        all.sort_by_key(|(first, ..)| *first);
        let referrers = vec![Vec::new(); all.len()];
        let all = all.into_iter().map(|(_, part, text)| Candidate { parts: vec![part], texts: vec![text] });
        Candidates { keep: Keep::Whole, all: all.collect(), referrers }
    }

    /// Number of candidates.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are no candidates.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the parts of all candidates.
    pub fn parts(&self) -> Vec<Part> {
        self.all.iter().flat_map(|candidate| candidate.parts.iter().cloned()).collect()
    }

    /// Returns the candidates that are not in a set.
    pub fn without(&self, set: &FixedBitSet) -> Candidates {
        let others = self.all.iter().enumerate().filter(|(i, _)| !set.contains(*i));
        let all = others.map(|(_, candidate)| candidate.clone()).collect();
        Candidates { keep: self.keep, all, referrers: Vec::new() }
    }

    /// Returns the closure of a set under references to it: a candidate changes only if all of its referrers change
    /// too, because they would keep it alive.
    pub fn closure(&self, set: &[usize]) -> FixedBitSet {
        let mut closure = FixedBitSet::with_capacity(self.len());
        let mut pending = set.to_vec();
        while let Some(candidate) = pending.pop() {
            if !closure.put(candidate) {
                pending.extend(&self.referrers[candidate]);
            }
        }
        closure
    }

    /// Prints a description of a candidate, a line for each part.
    pub fn describe(&self, candidate: usize, out: &mut impl Write) -> io::Result<()> {
        let texts = &self.all[candidate].texts;
        if texts.len() > 1 {
            writeln!(
                out,
                "  {} parts that refer to one another and are kept or removed together:",
                texts.len()
            )?;
        }
        texts.iter().try_for_each(|text| writeln!(out, "  {text}"))
    }
}

/// The removed nodes, grouped by function; each piece of data is a group.
struct Groups {
    members: Vec<Vec<NodeId>>,
    of_node: NodeMap<Option<usize>>,
}

impl Groups {
    fn of(graph: &Graph) -> Groups {
        let mut groups = Groups { members: Vec::new(), of_node: ti_vec![None; graph.nodes().len()] };
        let mut functions: FxHashMap<FunctionId, usize> = FxHashMap::default();
        let is_site = |node| graph.chunk(node).is_some_and(|chunk| matches!(chunk.life, Life::Site(_)));
        let removed = || graph.node_ids().filter(|&node| !graph.node(node).live);
        for node in removed().filter(|&node| !is_site(node)) {
            let new = groups.members.len();
            let group = match graph.block(node) {
                Some(block) => *functions.entry(block.function).or_insert(new),
                None => new,
            };
            if group == new {
                groups.members.push(Vec::new());
            }
            groups.members[group].push(node);
            groups.of_node[node] = Some(group);
        }
        // An entry about code belongs to the group of its site: only its references matter.
        for node in removed().filter(|&node| is_site(node)) {
            let site = graph.site(node).and_then(|site| graph.resolve_node(site.target));
            groups.of_node[node] = site.and_then(|site| groups.of_node[site]);
        }
        groups
    }
}

/// Returns the part that loses these nodes, and a description of the loss.
fn removed(graph: &Graph, nodes: &[NodeId]) -> (Part, String) {
    let Some(block) = graph.block(nodes[0]) else {
        let size = graph.input_size(nodes[0]);
        let text = format!("{}: {size} {} removed", named(graph, nodes[0]), plural(size as usize, "byte"));
        return (part(graph, nodes), text);
    };
    let (blocks, entry) = (&graph.function(block.function).blocks, graph.function(block.function).entry());
    let mut text = named(graph, entry);
    if nodes.len() == blocks.len() {
        text += ": removed as unreachable";
    } else {
        let start = offset(graph, entry);
        let offsets = nodes.iter().take(LISTED).map(|&node| format!("+{:#x}", offset(graph, node) - start));
        let more = if nodes.len() > LISTED { ", …" } else { "" };
        let offsets = offsets.collect::<Vec<_>>().join(", ") + more;
        text += &format!(": {} of {} blocks removed: {offsets}", nodes.len(), blocks.len());
    }
    (part(graph, blocks), text)
}

/// Returns the part of a section that adjacent nodes make up.
fn part(graph: &Graph, nodes: &[NodeId]) -> Part {
    let origins = || nodes.iter().filter_map(|&node| graph.node(node).origin());
    let section = origins().next().map(|origin| origin.section).expect("a removed node was in the input");
    let start = origins().map(|origin| origin.offset).min().unwrap_or(0);
    let end = origins().map(|origin| origin.offset + origin.size.max(1)).max().unwrap_or(0);
    Part { section, range: start..end }
}

/// Offset in bytes of a node in its input section.
fn offset(graph: &Graph, node: NodeId) -> u32 {
    graph.node(node).origin().map_or(0, |origin| origin.offset)
}

/// Returns the function or symbols of a node, and its place.
fn named(graph: &Graph, node: NodeId) -> String {
    let place = format!("{}+{:#x}", place(graph, node), offset(graph, node));
    let name = match graph.block(node) {
        Some(block) => graph.functions()[block.function].name.clone(),
        None => graph.names_in(node).take(4).collect::<Vec<_>>().join(", "),
    };
    if name.is_empty() { place } else { format!("{name} ({place})") }
}

fn plural(count: usize, what: &str) -> String {
    if count == 1 { what.to_owned() } else { format!("{what}s") }
}

/*!
Partitioning code into regions with a single entry (Chanet et al. 2007, section 4.3).

A region freezes as one unit. Only its first block, the *entry*, may be used from elsewhere, through a stub that does
not freeze. So a block starts a region if its address is taken, if a block that does not freeze leads to it, or if two
regions do. Any other block belongs to the region that leads to it, also across functions: a function that only one
region calls is part of that region. A region therefore consists of the blocks that its entry dominates, in the graph
of freezing nodes with a root before every required entry. Thawing has room for one page; a larger region is cut at
subtrees of the dominator tree.

A region is worth freezing if `K + γS < S`, where S is its size, γ the packed fraction of S, and K the fixed cost of a
region. Blocks of other regions do not freeze. Their successors become entries, and everything is partitioned again.
Blocks also do not freeze if other blocks (`bonds.rs`) keep them in their place.

Literals of ARM code move with the region if no other code reads them. Lowering gives each region a copy of the other
literals (`lower/near.rs` of kcfg).
*/

use kcfg::graph::for_each_successor;
use kcfg::graph::{Graph, Life, Ref, Role};
use kcfg::index::{FunctionMap, NodeId, NodeMap, NodeSet};
use kcfg::special::TableKind;
use kelf::RelocClass;
use kisa::{Encoding, Rewritable};
use petgraph::algo::dominators::simple_fast;
use petgraph::graph::{DiGraph, NodeIndex};
use rustc_hash::FxHashMap;
use typed_index_collections::ti_vec;

use super::bonds::Bonds;
use super::region::{is_literal, literals, size};
use crate::layout::split::growth;
use crate::unwinding;

pub use super::region::Region;

/// Size of a region in the packed file besides its stream: its entry in the index (4 bytes), and the start and end of
/// the stream (4; docs/frozen-format.md).
const IN_FILE: u64 = 8;

/// Packed size of a region in percent, without [`IN_FILE`], as measured on kernels (docs/freezing.md), by the unit of
/// the lengths of instructions.
fn packed_percent(graph: &Graph, region: &Region) -> u64 {
    match graph.isa().unit(graph.encoding(region.nodes[0])) {
        4 => 50,
        2 => 62,
        _ => 55,
    }
}

/// The size in bytes of the stub of code in this encoding.
fn stub_size(isa: &dyn Rewritable, encoding: Encoding) -> u64 {
    let mut stub = Vec::new();
    isa.encode_push_link(encoding, &mut stub);
    isa.encode_call(encoding, &mut stub);
    stub.len() as u64
}

/// Maximum size of a region, from the sizes of blocks in the input, with longer branches where they leave. The rest of
/// the page is a reserve for growth, and for the runtime's own data there.
const LARGEST: u64 = 3600;

/// Partitions blocks, given as a set of bits, into the regions that freeze. Regions are ordered by their entries and
/// grouped by unwind information. With a `minimum`, regions of at least that many bytes freeze and smaller ones do not;
/// without it, a region freezes if that saves memory.
pub fn partition(graph: &Graph, mut blocks: NodeSet, minimum: Option<u64>) -> Vec<Region> {
    let uses = Uses::of(graph);
    let bonds = Bonds::of(graph);
    blocks.difference_with(&uses.inside);
    let too_large = |&node: &NodeId| size(graph, node) + literals(graph, &[node]) > LARGEST;
    for node in blocks.iter().filter(too_large).collect::<Vec<_>>() {
        blocks.set(node, false);
    }
    loop {
        let mut cuts = NodeSet::with_capacity(graph.nodes().len());
        let mut regions = loop {
            let tree = Tree::of(graph, &uses, &mut blocks, &cuts);
            let more = tree.cuts(graph, &blocks);
            if more.is_empty() {
                break tree.regions(graph, &uses, &bonds);
            }
            cuts.extend(more);
        };
        let worth = |region: &Region| match minimum {
            Some(minimum) => region.bytes >= minimum,
            None => {
                let stub = stub_size(graph.isa(), graph.encoding(region.nodes[0]));
                stub + IN_FILE + uses.growth(graph, region)
                    < region.bytes * (100 - packed_percent(graph, region)) / 100
            }
        };
        let mut losses = bonds.broken(graph, &blocks, &regions);
        if losses.is_empty() {
            let small = regions.iter().filter(|region| !worth(region));
            losses = small.flat_map(|region| &region.nodes).copied().collect();
        }
        if losses.is_empty() {
            uses.add_literals(graph, &mut regions);
            let word = |region: &Region| graph.owner(region.nodes[0]).map(|function| uses.words[function]);
            // An unwind entry also covers the following code, if that has the same unwind information.
            regions.sort_by_key(|region| {
                (word(region), graph.owner(region.nodes[0]) != region.last_owner(graph))
            });
            return regions;
        }
        for node in losses {
            blocks.set(node, false);
        }
    }
}

/// The uses of the blocks of a graph.
struct Uses {
    /// Pairs of a block and a block that it leads to or calls.
    edges: Vec<(NodeId, NodeId)>,
    /// Blocks whose address is used in another way.
    taken: NodeSet,
    /// Blocks that cannot freeze, because something refers to their inside or their bytes are patched.
    inside: NodeSet,
    /// The position of each node in the link.
    rank: NodeMap<u32>,
    /// The unwind word of each function, if it has one.
    words: FunctionMap<Option<u32>>,
}

impl Uses {
    fn of(graph: &Graph) -> Uses {
        let count = graph.nodes().len();
        let mut uses = Uses {
            edges: Vec::new(),
            taken: NodeSet::with_capacity(count),
            inside: NodeSet::with_capacity(count),
            rank: ti_vec![0; count],
            words: unwinding::words(graph),
        };
        for (rank, node) in graph.sections().iter().flat_map(|section| &section.nodes).enumerate() {
            uses.rank[*node] = rank as u32;
        }
        for id in graph.node_ids().filter(|&id| graph.node(id).live) {
            if let Some(block) = graph.block(id) {
                for_each_successor(graph, &block.end, |to| uses.edges.push((id, to)));
                // A jump by a table may fall through to the node that is glued to it.
                uses.edges.extend(graph.node(id).glued_to.map(|before| (before, id)));
            }
            for reference in graph.refs_of(id) {
                uses.add(graph, id, reference);
            }
        }
        uses.taken.extend(graph.roots().iter().map(|root| root.node));
        uses.edges.sort_unstable_by_key(|&(from, to)| (to, from));
        uses
    }

    fn add(&mut self, graph: &Graph, from: NodeId, &Ref { class, target, addend, role, .. }: &Ref) {
        let Some((to, inside)) = graph.resolve(target) else { return };
        // The address of a label in Thumb code has bit 0 set.
        let bit = if graph.encoding(to) == Encoding::Thumb { addend & 1 } else { 0 };
        let at = i64::from(inside) + addend - bit;
        match (role, graph.chunk(from).map(|chunk| chunk.life)) {
            // The runtime translates the address of a thawed instruction to its kernel address. A trap is found by that
            // address, and so is the unwind information.
            (
                Role::Site,
                Some(Life::Site(TableKind::Bug | TableKind::ExceptionTable | TableKind::UnwindIndex)),
            ) => {}
            // The jump by the table already leads there.
            (Role::Slot(_), _) if class == RelocClass::Literal => {}
            // A literal moves with its reader. An instruction may also compute the address of nearby code.
            (_, None) if class == RelocClass::Literal && graph.is_among_code(to) => {}
            (_, None) if class == RelocClass::Literal => self.inside.extend([from, to]),
            (Role::Site, Some(Life::Site(TableKind::FunctionList | TableKind::ErrorInjection)))
                if at == 0 =>
            {
                self.taken.insert(to);
            }
            (Role::Callee, _) if at == 0 => self.edges.push((from, to)),
            (Role::Address | Role::Slot(_), _) if at == 0 => self.taken.insert(to),
            _ => self.inside.insert(to),
        }
    }

    /// Adds to each region the literals of the input that no other code reads.
    fn add_literals(&self, graph: &Graph, regions: &mut [Region]) {
        let places: FxHashMap<NodeId, usize> = regions
            .iter()
            .enumerate()
            .flat_map(|(number, region)| region.nodes.iter().map(move |&node| (node, number)))
            .collect();
        // For each literal, the region that reads it; `None` if other code reads it as well.
        let mut readers: FxHashMap<NodeId, Option<usize>> = FxHashMap::default();
        for id in graph.node_ids().filter(|&id| graph.node(id).live) {
            let place = places.get(&id).copied();
            for to in graph.refs_of(id).iter().filter_map(|reference| graph.resolve_node(reference.target)) {
                if is_literal(graph, to) {
                    let reader = readers.entry(to).or_insert(place);
                    *reader = reader.filter(|_| *reader == place);
                }
            }
        }
        let mut own: Vec<Vec<NodeId>> = vec![Vec::new(); regions.len()];
        for (literal, reader) in readers {
            if let Some(region) = reader {
                own[region].push(literal);
            }
        }
        for (region, literals) in regions.iter_mut().zip(own) {
            let glued = |node: &&NodeId| graph.node(**node).glued_to.is_some();
            let first = 1 + region.nodes[1..].iter().take_while(glued).count();
            region.nodes.extend(literals);
            self.sort_behind(graph, &mut region.nodes, first);
        }
    }

    /// Sorts the nodes of a region after the first ones: first the rest of the function that it begins with, then the
    /// others, grouped by unwind information, each in the order of the link.
    fn sort_behind(&self, graph: &Graph, nodes: &mut [NodeId], first: usize) {
        let begun = graph.owner(nodes[0]);
        nodes[first..].sort_by_key(|&node| {
            let function = graph.owner(node);
            let word = function.map(|function| self.words[function]);
            (function != begun, word, self.rank[node])
        });
    }

    /// Bytes by which the remaining code grows if a region is moved away.
    fn growth(&self, graph: &Graph, region: &Region) -> u64 {
        let entry = region.nodes[0];
        let first = self.edges.partition_point(|&(_, to)| to < entry);
        let into = self.edges[first..].iter().take_while(|&&(_, to)| to == entry);
        into.filter(|(from, _)| graph.block(*from).is_some())
            .map(|&(from, _)| growth(graph, from, |to| to == entry))
            .sum()
    }
}

/// The dominator tree of the blocks that freeze.
struct Tree {
    /// The blocks by their numbers in the tree, each after its dominator.
    nodes: Vec<NodeId>,
    /// For each block, its dominator; `None` for entries.
    parents: Vec<Option<usize>>,
}

impl Tree {
    /// Computes the tree. Blocks that no entry reaches do not freeze, and are removed from `blocks`.
    fn of(graph: &Graph, uses: &Uses, blocks: &mut NodeSet, cuts: &NodeSet) -> Tree {
        loop {
            let mut flow: DiGraph<NodeId, ()> = DiGraph::new();
            let numbers: FxHashMap<NodeId, NodeIndex> =
                blocks.iter().map(|node| (node, flow.add_node(node))).collect();
            let root = flow.add_node(NodeId::from(0));
            let mut entered = NodeSet::with_capacity(graph.nodes().len());
            for (from, to) in &uses.edges {
                let Some(&to) = numbers.get(to) else { continue };
                match numbers.get(from) {
                    Some(&from) => drop(flow.add_edge(from, to, ())),
                    None => entered.insert(flow[to]),
                }
            }
            for (node, &number) in &numbers {
                if [&entered, &uses.taken, cuts].iter().any(|set| set.contains(*node)) {
                    flow.add_edge(root, number, ());
                }
            }
            let dominators = simple_fast(&flow, root);
            let lost: Vec<NodeId> = numbers
                .iter()
                .filter(|&(_, &number)| dominators.immediate_dominator(number).is_none())
                .map(|(&node, _)| node)
                .collect();
            if lost.is_empty() {
                let parent = |node: NodeId| dominators.immediate_dominator(numbers[&node]);
                return Tree::ordered(blocks, |node| {
                    parent(node).filter(|&at| at != root).map(|at| flow[at])
                });
            }
            for node in lost {
                blocks.set(node, false);
            }
        }
    }

    /// Orders blocks so that each comes after its dominator.
    fn ordered(blocks: &NodeSet, parent: impl Fn(NodeId) -> Option<NodeId>) -> Tree {
        let mut children: FxHashMap<Option<NodeId>, Vec<NodeId>> = FxHashMap::default();
        for node in blocks.iter() {
            children.entry(parent(node)).or_default().push(node);
        }
        let mut tree = Tree { nodes: Vec::new(), parents: Vec::new() };
        let mut parent = None;
        loop {
            for &node in children.get(&parent.map(|at: usize| tree.nodes[at])).into_iter().flatten() {
                tree.nodes.push(node);
                tree.parents.push(parent);
            }
            let next = parent.map_or(0, |at| at + 1);
            if next >= tree.nodes.len() {
                return tree;
            }
            parent = Some(next);
        }
    }

    /// The blocks that have to become entries to keep every region small enough.
    fn cuts(&self, graph: &Graph, blocks: &NodeSet) -> Vec<NodeId> {
        let weight = |&node: &NodeId| {
            size(graph, node) + literals(graph, &[node]) + growth(graph, node, |to| !blocks.contains(to))
        };
        let mut weights: Vec<u64> = self.nodes.iter().map(weight).collect();
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        let mut cuts = Vec::new();
        for at in (0..self.nodes.len()).rev() {
            let below = &mut children[at];
            below.sort_by_key(|&child| weights[child]);
            let mut sum = weights[at] + below.iter().map(|&child| weights[child]).sum::<u64>();
            while sum > LARGEST
                && let Some(child) = below.pop()
            {
                sum -= weights[child];
                cuts.push(self.nodes[child]);
            }
            weights[at] = sum;
            if let Some(parent) = self.parents[at] {
                children[parent].push(at);
            }
        }
        cuts
    }

    /// The regions.
    fn regions(&self, graph: &Graph, uses: &Uses, bonds: &Bonds) -> Vec<Region> {
        let mut numbers = vec![0; self.nodes.len()];
        let mut parts: Vec<Vec<NodeId>> = Vec::new();
        for (at, &node) in self.nodes.iter().enumerate() {
            match self.parents[at] {
                Some(parent) => {
                    numbers[at] = numbers[parent];
                    parts[numbers[at]].push(node);
                }
                None => {
                    numbers[at] = parts.len();
                    parts.push(vec![node]);
                }
            }
        }
        parts.sort_by_key(|nodes| uses.rank[nodes[0]]);
        let region = |mut nodes: Vec<NodeId>| {
            uses.sort_behind(graph, &mut nodes, 1);
            let inside: NodeSet = nodes.iter().copied().collect();
            let leaves = |to: NodeId| !inside.contains(to);
            let of_blocks =
                nodes.iter().map(|&node| size(graph, node) + growth(graph, node, leaves)).sum::<u64>();
            let nodes = bonds.with_glued(graph, &nodes);
            let data = nodes.iter().filter(|&&node| graph.block(node).is_none());
            let of_data: u64 = data.map(|&node| size(graph, node)).sum();
            let bytes = of_blocks + of_data + literals(graph, &nodes);
            Region { nodes, bytes }
        };
        parts.into_iter().map(region).collect()
    }
}

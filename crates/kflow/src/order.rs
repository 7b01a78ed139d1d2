//! The visiting order of the blocks of a function. The blocks of a loop are adjacent, its head first, and so are the
//! blocks of inner loops (Bourdoncle's weak topological order).
//!
//! Interpreters end each of their operations with a computed jump to all the others. If several jumps have the same
//! targets, a *hub* is inserted between them: an empty node that is visited like a block. The states of all jumps are
//! joined there once, instead of once for each target.

use std::cmp::Reverse;
use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::{BlockIndex, Cfg};

/// Maximum nesting depth of loops. Irreducible loops, with many entries, could have nearly as many levels as blocks.
const MAX_DEPTH: usize = 32;

/// The number of a node: a block, or a hub, numbered after all blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct NodeIndex(u32);

impl NodeIndex {
    pub(crate) fn get(self) -> usize {
        self.0 as usize
    }
}

/// The number of an edge between two nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EdgeIndex(u32);

impl EdgeIndex {
    pub(crate) fn get(self) -> usize {
        self.0 as usize
    }
}

/// The priority of a node on the worklist; the lowest is visited first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Turn {
    /// The position of the node in the order, or of the last node of the loop that must be finished first.
    place: u32,
    /// The head of that loop. If several loops end there, the innermost is first.
    again: Option<Reverse<u32>>,
    /// The node.
    pub(crate) node: NodeIndex,
}

/// The visiting order of the nodes.
pub struct Order {
    graph: Graph,
    /// The position of each node: after its predecessors, except in loops.
    place: Vec<u32>,
    /// For each head of a loop, the position of the last node of the loop.
    end: Vec<Option<u32>>,
    /// The edges grouped by the node where they end, in the order of their sources; and, by node, the start of its
    /// group.
    arriving: Vec<EdgeIndex>,
    own: Vec<usize>,
}

impl Order {
    /// Computes the order of the blocks of a graph.
    pub fn of(cfg: &impl Cfg) -> Order {
        Order::new(Graph::of(cfg))
    }

    fn new(graph: Graph) -> Order {
        let count = graph.nodes();
        let (nodes, end) = Arranging::new(&graph).arrange();
        let mut place = vec![0; count];
        for (number, node) in nodes.iter().enumerate() {
            place[node.get()] = number as u32;
        }
        let mut own = vec![0; count + 1];
        graph.targets.iter().for_each(|next| own[next.get() + 1] += 1);
        for node in 0..count {
            own[node + 1] += own[node];
        }
        let mut arriving = vec![EdgeIndex(0); graph.targets.len()];
        let mut free = own.clone();
        for &node in &nodes {
            for edge in graph.edges_from(node) {
                let next = graph.targets[edge];
                arriving[free[next.get()]] = EdgeIndex(edge as u32);
                free[next.get()] += 1;
            }
        }
        Order { graph, place, end, arriving, own }
    }

    /// Returns the number of nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.graph.nodes()
    }

    /// Returns the number of edges.
    pub(crate) fn edges(&self) -> usize {
        self.graph.targets.len()
    }

    /// Returns the block of a node, unless it is a hub.
    pub(crate) fn block(&self, node: NodeIndex) -> Option<BlockIndex> {
        (node.get() < self.graph.blocks).then_some(BlockIndex(node.0))
    }

    /// Returns one of the blocks that jump to a hub.
    pub(crate) fn jump(&self, hub: NodeIndex) -> BlockIndex {
        self.graph.jumps[hub.get() - self.graph.blocks]
    }

    /// Whether a node is the head of a loop.
    pub(crate) fn is_head(&self, node: NodeIndex) -> bool {
        self.end[node.get()].is_some()
    }

    /// Returns the priority of the function's entry block.
    pub(crate) fn first(&self) -> Turn {
        Turn { place: 0, again: None, node: NodeIndex(0) }
    }

    /// Returns the priorities of the successors of a node whose state has changed. The head of a loop is queued again
    /// after all nodes of the loop that are on the worklist.
    pub(crate) fn next(&self, node: NodeIndex) -> impl Iterator<Item = Turn> {
        let here = self.place[node.get()];
        self.graph.targets[self.edges_from(node)].iter().map(move |&next| {
            let place = self.place[next.get()];
            match self.end[next.get()].filter(|_| place <= here) {
                Some(end) => Turn { place: end, again: Some(Reverse(place)), node: next },
                None => Turn { place, again: None, node: next },
            }
        })
    }

    /// Returns the edges that begin at a node, in the order of its successors. A block before a hub has one.
    pub(crate) fn edges_from(&self, node: NodeIndex) -> Range<usize> {
        self.graph.edges_from(node)
    }

    /// Returns the edges that end at a node.
    pub(crate) fn edges_to(&self, node: NodeIndex) -> &[EdgeIndex] {
        &self.arriving[self.own[node.get()]..self.own[node.get() + 1]]
    }
}

/// The blocks of a function and the hubs between them.
struct Graph {
    /// The number of blocks.
    blocks: usize,
    /// For each hub, one of the blocks that jump to it.
    jumps: Vec<BlockIndex>,
    /// The targets of the edges, grouped by source; and, by node, the start of its group.
    targets: Vec<NodeIndex>,
    first: Vec<usize>,
}

impl Graph {
    fn of(cfg: &impl Cfg) -> Graph {
        let blocks = cfg.blocks();
        let same = same_targets(cfg);
        let mut hubs = vec![None; blocks];
        let mut jumps = Vec::new();
        for group in &same {
            let hub = NodeIndex((blocks + jumps.len()) as u32);
            group.iter().for_each(|block| hubs[block.get()] = Some(hub));
            jumps.push(group[0]);
        }
        let mut graph = Graph { blocks, jumps, targets: Vec::new(), first: vec![0] };
        for (block, hub) in hubs.into_iter().enumerate() {
            match hub {
                Some(hub) => graph.targets.push(hub),
                None => graph.lead_to(cfg.successors(block.into())),
            }
            graph.first.push(graph.targets.len());
        }
        for group in same {
            graph.lead_to(cfg.successors(group[0]));
            graph.first.push(graph.targets.len());
        }
        graph
    }

    fn lead_to(&mut self, blocks: &[BlockIndex]) {
        self.targets.extend(blocks.iter().map(|block| NodeIndex(block.0)));
    }

    fn nodes(&self) -> usize {
        self.blocks + self.jumps.len()
    }

    fn edges_from(&self, node: NodeIndex) -> Range<usize> {
        self.first[node.get()]..self.first[node.get() + 1]
    }
}

/// Returns the groups of blocks that end with plain jumps to the same targets, more than one.
fn same_targets(cfg: &impl Cfg) -> Vec<Vec<BlockIndex>> {
    let mut groups: FxHashMap<Vec<BlockIndex>, Vec<BlockIndex>> = FxHashMap::default();
    for block in (0..cfg.blocks()).map(BlockIndex::from) {
        let successors = cfg.successors(block);
        if successors.len() > 1 && cfg.has_plain_jump(block) {
            let mut targets = successors.to_vec();
            targets.sort_unstable();
            groups.entry(targets).or_default().push(block);
        }
    }
    let mut groups: Vec<Vec<BlockIndex>> = groups.into_values().filter(|group| group.len() > 1).collect();
    groups.sort_unstable();
    groups
}

/// The depth-first search that finds the weak topological order (F. Bourdoncle, Efficient chaotic iteration strategies
/// with widenings): strongly connected components, and recursively the components within each, without its head.
struct Arranging<'g> {
    graph: &'g Graph,
    /// The discovery number of each node; 0 before, [`Arranging::DONE`] once it has its position.
    found: Vec<u32>,
    count: u32,
    /// The discovered nodes without a position, in order of discovery: Tarjan's stack.
    stack: Vec<NodeIndex>,
    /// The path of the search, from the root.
    open: Vec<Open>,
    depth: usize,
    /// The nodes with a position, the last one first.
    nodes: Vec<NodeIndex>,
    /// For each head of a loop, the number of nodes after the loop.
    behind: Vec<Option<u32>>,
}

/// A node on the path of the search.
struct Open {
    node: NodeIndex,
    /// Its next edge.
    edge: usize,
    /// Tarjan's low link: the lowest discovery number that can be reached from here.
    head: u32,
    /// Whether an edge leads back to it.
    in_loop: bool,
    /// If this is the head of a loop that is being ordered, the number of nodes after the loop.
    behind: Option<u32>,
}

impl<'g> Arranging<'g> {
    const DONE: u32 = u32::MAX;

    fn new(graph: &'g Graph) -> Arranging<'g> {
        let count = graph.nodes();
        Arranging {
            graph,
            found: vec![0; count],
            count: 0,
            stack: Vec::new(),
            open: Vec::new(),
            depth: 0,
            nodes: Vec::with_capacity(count),
            behind: vec![None; count],
        }
    }

    /// Returns the nodes in order; and for each head of a loop, the position of the last node of the loop.
    fn arrange(mut self) -> (Vec<NodeIndex>, Vec<Option<u32>>) {
        self.begin(NodeIndex(0));
        while let Some(open) = self.open.last_mut() {
            let own = self.graph.edges_from(open.node);
            match self.graph.targets[own].get(open.edge) {
                Some(&next) => {
                    open.edge += 1;
                    match self.found[next.get()] {
                        0 => self.begin(next),
                        found => open.reach(found),
                    }
                }
                None => self.finish(),
            }
        }
        let last = self.nodes.len() as u32 - 1;
        let end = self.behind.into_iter().map(|behind| behind.map(|behind| last - behind)).collect();
        self.nodes.reverse();
        (self.nodes, end)
    }

    fn begin(&mut self, node: NodeIndex) {
        self.count += 1;
        self.found[node.get()] = self.count;
        self.stack.push(node);
        self.open.push(Open { node, edge: 0, head: self.count, in_loop: false, behind: None });
    }

    /// Completes the current node, all of whose edges have been followed.
    fn finish(&mut self) {
        let Some(Open { node, head, in_loop, behind, .. }) = self.open.pop() else { return };
        if let Some(behind) = behind {
            self.depth -= 1;
            self.behind[node.get()] = Some(behind);
            self.nodes.push(node);
        } else if head != self.found[node.get()] {
            self.open.last_mut().into_iter().for_each(|open| open.reach(head));
        } else if in_loop {
            self.arrange_loop(node);
        } else {
            self.found[node.get()] = Self::DONE;
            self.stack.pop();
            self.nodes.push(node);
        }
    }

    /// Orders the loop with the head `head`.
    fn arrange_loop(&mut self, head: NodeIndex) {
        let behind = self.nodes.len() as u32;
        let begin = self.stack.iter().rposition(|&node| node == head).unwrap_or(0);
        let all = self.stack.split_off(begin);
        if self.depth == MAX_DEPTH {
            // Any node may be the head of a loop.
            for &node in all.iter().rev() {
                self.found[node.get()] = Self::DONE;
                self.behind[node.get()] = Some(behind);
                self.nodes.push(node);
            }
            return;
        }
        self.depth += 1;
        all.iter().for_each(|node| self.found[node.get()] = 0);
        self.found[head.get()] = Self::DONE;
        let behind = Some(behind);
        self.open.push(Open { node: head, edge: 0, head: Self::DONE, in_loop: false, behind });
    }
}

impl Open {
    /// Records an edge to a node with this discovery number.
    fn reach(&mut self, found: u32) {
        if found <= self.head {
            (self.head, self.in_loop) = (found, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a graph without hubs.
    fn graph(successors: &[&[u32]]) -> Graph {
        let mut graph =
            Graph { blocks: successors.len(), jumps: Vec::new(), targets: Vec::new(), first: vec![0] };
        for own in successors {
            graph.targets.extend(own.iter().map(|&next| NodeIndex(next)));
            graph.first.push(graph.targets.len());
        }
        graph
    }

    fn arrange(successors: &[&[u32]]) -> (Vec<u32>, Vec<Option<u32>>) {
        let (nodes, end) = Arranging::new(&graph(successors)).arrange();
        (nodes.into_iter().map(|node| node.0).collect(), end)
    }

    #[test]
    fn loops_are_in_one_piece() {
        // The successor (5) of the outer loop comes after it, though it is the first successor of the loop's head.
        let (nodes, end) = arrange(&[&[1], &[5, 2], &[3], &[2, 4], &[1], &[]]);
        assert_eq!(nodes, [0, 1, 2, 3, 4, 5]);
        assert_eq!(end, [None, Some(4), Some(3), None, None, None]);
    }

    #[test]
    fn heads_come_again_after_their_loops() {
        let order = Order::new(graph(&[&[1], &[2, 3, 4], &[1], &[1], &[]]));
        let turn_of =
            |from: u32, to: u32| order.next(NodeIndex(from)).find(|turn| turn.node == NodeIndex(to)).unwrap();
        let inside = [turn_of(1, 2), turn_of(1, 3)];
        for again in [turn_of(2, 1), turn_of(3, 1)] {
            assert!(inside.into_iter().all(|turn| turn < again));
            assert!(again < turn_of(1, 4));
        }
    }

    /// If each node is connected to all others, every back edge leads to the head of a loop.
    #[test]
    fn loops_with_many_entries() {
        let all: Vec<u32> = (0..100).collect();
        let (nodes, end) = arrange(&vec![&all[..]; all.len()]);
        assert_eq!(nodes.len(), all.len());
        assert_eq!(nodes.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
        assert!(end.iter().all(|end| *end == Some(99)));
    }
}

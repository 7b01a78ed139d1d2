//! The visiting order of the blocks of a function. The blocks of a loop are adjacent, its head first, and so are the
//! blocks of inner loops (Bourdoncle's weak topological order).
//!
//! Interpreters end each of their operations with a computed jump, which leads to all the others. Where several jumps
//! have the same targets, a *hub* stands between them: a node that is visited like a block and does nothing. The
//! states of all jumps are joined there once, and not for each target again.

use std::cmp::Reverse;
use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::{BlockIndex, Cfg};

/// How deep loops may be nested. Irreducible loops, with many entries, would make nearly as many levels as there are
/// blocks.
const MAX_DEPTH: usize = 32;

/// The number of a node: a block, or one of the hubs, which come behind all blocks.
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

/// The priority of a node on the worklist; the least is visited first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Turn {
    /// The place of the node in the order, or of the last node of the loop that has to be done first.
    place: u32,
    /// The head of that loop. If several loops end there, the innermost is first.
    again: Option<Reverse<u32>>,
    /// The node.
    pub(crate) node: NodeIndex,
}

/// The order in which nodes are visited.
pub struct Order {
    graph: Graph,
    /// Places by node: a node comes after those that lead to it, loops aside.
    place: Vec<u32>,
    /// By node, the place of the last node of the loop that it is the head of.
    end: Vec<Option<u32>>,
    /// The edges by the node where they end, those of lower place first; and, by node, where its own begin.
    arriving: Vec<EdgeIndex>,
    own: Vec<usize>,
}

impl Order {
    /// The order of the blocks of a graph.
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

    /// How many nodes there are.
    pub(crate) fn nodes(&self) -> usize {
        self.graph.nodes()
    }

    /// How many edges there are.
    pub(crate) fn edges(&self) -> usize {
        self.graph.targets.len()
    }

    /// The block that a node is, unless it is a hub.
    pub(crate) fn block(&self, node: NodeIndex) -> Option<BlockIndex> {
        (node.get() < self.graph.blocks).then_some(BlockIndex(node.0))
    }

    /// One of the blocks that lead to a hub.
    pub(crate) fn jump(&self, hub: NodeIndex) -> BlockIndex {
        self.graph.jumps[hub.get() - self.graph.blocks]
    }

    /// Whether a node is the head of a loop.
    pub(crate) fn is_head(&self, node: NodeIndex) -> bool {
        self.end[node.get()].is_some()
    }

    /// The priority of the block where the function begins.
    pub(crate) fn first(&self) -> Turn {
        Turn { place: 0, again: None, node: NodeIndex(0) }
    }

    /// The priorities of the successors of a node whose state has changed. The head of a loop comes back to the worklist
    /// behind all nodes of the loop that are on it.
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

    /// The edges that begin at a node, in the order of its successors. A block in front of a hub has one.
    pub(crate) fn edges_from(&self, node: NodeIndex) -> Range<usize> {
        self.graph.edges_from(node)
    }

    /// The edges that end at a node.
    pub(crate) fn edges_to(&self, node: NodeIndex) -> &[EdgeIndex] {
        &self.arriving[self.own[node.get()]..self.own[node.get() + 1]]
    }
}

/// The blocks of a function and the hubs between them.
struct Graph {
    /// How many blocks there are.
    blocks: usize,
    /// By hub, one of the blocks that lead there.
    jumps: Vec<BlockIndex>,
    /// Where the edges end, by the nodes where they begin; and, by node, where its own begin.
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

/// The blocks that end with plain jumps which have their targets, more than one, in common with others.
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
/// with widenings): strongly connected components, and those within them without their heads.
struct Arranging<'g> {
    graph: &'g Graph,
    /// By node, its number in the order of discovery; 0 before, [`Arranging::DONE`] once it has its place.
    found: Vec<u32>,
    count: u32,
    /// The nodes that have been discovered and have no place yet, in that order: Tarjan's stack.
    stack: Vec<NodeIndex>,
    /// The path of the search, from the root.
    open: Vec<Open>,
    depth: usize,
    /// The nodes that have their places, the last one first.
    nodes: Vec<NodeIndex>,
    /// Of the heads of loops, how many nodes come behind the loop.
    behind: Vec<Option<u32>>,
}

/// A node on the path of the search.
struct Open {
    node: NodeIndex,
    /// Its next edge.
    edge: usize,
    /// Tarjan's low link: the least number of discovery that can be reached from here.
    head: u32,
    /// Whether an edge leads back there.
    in_loop: bool,
    /// If the loop that the node is the head of is being put in order, how many nodes come behind that.
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

    /// The nodes in order; and by node, the place of the last one of the loop that it is the head of.
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

    /// All edges of the node that is being visited have been followed.
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

    /// Puts the loop in order that `head` is the head of.
    fn arrange_loop(&mut self, head: NodeIndex) {
        let behind = self.nodes.len() as u32;
        let begin = self.stack.iter().rposition(|&node| node == head).unwrap_or(0);
        let all = self.stack.split_off(begin);
        if self.depth == MAX_DEPTH {
            // Any of them may be the head of a loop.
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
    /// An edge leads to a node with this number of discovery.
    fn reach(&mut self, found: u32) {
        if found <= self.head {
            (self.head, self.in_loop) = (found, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph without hubs.
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
        // What follows the outer loop (5) comes behind it, though it is the first successor of the loop's head.
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

    /// Where each node leads to all others, every edge that leads back is one to the head of a loop.
    #[test]
    fn loops_with_many_entries() {
        let all: Vec<u32> = (0..100).collect();
        let (nodes, end) = arrange(&vec![&all[..]; all.len()]);
        assert_eq!(nodes.len(), all.len());
        assert_eq!(nodes.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
        assert!(end.iter().all(|end| *end == Some(99)));
    }
}

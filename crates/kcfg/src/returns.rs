/*!
Which calls come back.

A block *may return* if control can get from it to the end of its function. The set is the least that
satisfies the rules below, so that a function that only loops, or only calls functions that do not return,
is found not to return either. Whatever is not understood may return. This makes reachability
context-sensitive where it matters: the code behind a call is reached through the callee's return, not
through the call (Chanet et al. 2007, section 2.4).

A label whose address is taken, other than by a jump table, may be jumped to while its function waits for a call, and the
function then goes on there: `__builtin_longjmp` and jumps out of nested functions do that (GCC manual, "Nonlocal
Gotos"). So if a label may return, all of its function may.
*/

use fixedbitset::FixedBitSet;

use crate::edges::{SiteIndex, for_each_successor};
use crate::graph::{Graph, NodeKind, Role, Target, Terminator};
use crate::index::{FunctionId, NodeId};

/// The blocks from which control may return to the caller.
pub struct Returns {
    may_return: FixedBitSet,
}

impl Returns {
    /// Solves for all blocks of a graph.
    pub(crate) fn of(graph: &Graph, sites: &SiteIndex) -> Returns {
        Solver::new(graph, sites).solve()
    }

    /// Whether a call of the target may come back; what is outside of the program may.
    pub fn target(&self, graph: &Graph, target: Target) -> bool {
        graph.resolve_node(target).is_none_or(|node| self.may_return.contains(node.get()))
    }
}

struct Solver<'g> {
    graph: &'g Graph,
    may_return: FixedBitSet,
    pending: Vec<NodeId>,
    /// For each node, who has to be looked at again once it may return.
    waiting: Vec<Vec<NodeId>>,
    /// Blocks that reach their return point without the call as well: a fault's fixup is there.
    skips_call: FixedBitSet,
    /// Labels whose address is taken, with each of the functions that may be entered there once more, sorted.
    labels: Vec<(NodeId, FunctionId)>,
    /// Functions of which all blocks are marked.
    whole: FixedBitSet,
}

impl<'g> Solver<'g> {
    fn new(graph: &'g Graph, sites: &SiteIndex) -> Solver<'g> {
        let mut solver = Solver {
            graph,
            may_return: FixedBitSet::with_capacity(graph.nodes.len()),
            pending: Vec::new(),
            waiting: vec![Vec::new(); graph.nodes.len()],
            skips_call: FixedBitSet::with_capacity(graph.nodes.len()),
            labels: labels(graph),
            whole: FixedBitSet::with_capacity(graph.functions.len()),
        };
        for node in graph.node_ids() {
            match &graph.node(node).kind {
                // Hand-written or opaque code; data is never asked about.
                NodeKind::Chunk(chunk) if chunk.code => solver.mark(node),
                NodeKind::Chunk(_) => {}
                NodeKind::Block(block) => solver.start(node, &block.end, sites),
            }
        }
        solver
    }

    /// Marks the blocks that return by themselves and notes whom the others depend on.
    fn start(&mut self, node: NodeId, end: &Terminator, sites: &SiteIndex) {
        let outside = |target: Target| self.graph.resolve_node(target).is_none();
        let leaves = match end {
            Terminator::Return | Terminator::IndirectJump => true,
            Terminator::Jump(dest) | Terminator::Branch { taken: dest, .. } => outside(dest.target),
            // Control may also go where the patch says.
            Terminator::Patched { .. } => {
                self.graph.refs_of(node).iter().any(|reference| outside(reference.target))
            }
            _ => false,
        };
        if leaves {
            self.mark(node);
            return;
        }
        let graph = self.graph;
        for_each_successor(graph, end, |to| self.waiting[to.get()].push(node));
        if let Some(callee) = graph.callee(node)
            && let Some(to) = graph.resolve_node(callee.target)
        {
            self.waiting[to.get()].push(node);
        }
        if matches!(end, Terminator::Patched { .. }) {
            for reference in graph.refs_of(node) {
                if let Some(to) = graph.resolve_node(reference.target) {
                    self.waiting[to.get()].push(node);
                }
            }
        }
        // A fault goes to the fixup, a static key to its target, an alternative to its replacement.
        for &entry in sites.entries(node) {
            for reference in graph.refs_of(entry).iter().filter(|reference| reference.role != Role::Site) {
                if let Some(to) = graph.resolve_node(reference.target) {
                    self.waiting[to.get()].push(node);
                    if matches!(end, Terminator::Call { next } if *next == Some(to)) {
                        self.skips_call.insert(node.get());
                    }
                }
            }
        }
    }

    fn mark(&mut self, node: NodeId) {
        if !self.may_return.put(node.get()) {
            self.pending.push(node);
        }
    }

    fn solve(mut self) -> Returns {
        while let Some(node) = self.pending.pop() {
            self.mark_functions_of_label(node);
            for waiter in std::mem::take(&mut self.waiting[node.get()]) {
                if self.may_return.contains(waiter.get()) {
                    continue;
                }
                if self.returns_through(waiter, node) {
                    self.mark(waiter);
                } else {
                    // A call: its callee returns, and its return point may do so later, or the other way
                    // round.
                    if let Some(other) = self.other_half(waiter, node) {
                        self.waiting[other.get()].push(waiter);
                    }
                }
            }
        }
        Returns { may_return: self.may_return }
    }

    /// Marks the functions that go on at a block that may return, if its address is taken.
    fn mark_functions_of_label(&mut self, node: NodeId) {
        let first = self.labels.partition_point(|(label, _)| *label < node);
        for at in first..self.labels.len() {
            let (label, function) = self.labels[at];
            if label != node {
                break;
            }
            if !self.whole.put(function.get()) {
                self.graph.function(function).blocks.iter().for_each(|&block| self.mark(block));
            }
        }
    }

    /// Whether `waiter` may return now that `node`, which it leads to, may.
    fn returns_through(&self, waiter: NodeId, node: NodeId) -> bool {
        let Some(block) = self.graph.block(waiter) else { return true };
        let Terminator::Call { next } = block.end else { return true };
        let callee = self.graph.callee(waiter).expect("a direct call names its callee").target;
        let callee = self.graph.resolve_node(callee);
        // Reached through an entry of a table that is about the block.
        if Some(node) != callee && Some(node) != next {
            return true;
        }
        if Some(node) == next && self.skips_call.contains(waiter.get()) {
            return true;
        }
        let may_return = |node: NodeId| self.may_return.contains(node.get());
        callee.is_none_or(may_return) && next.is_some_and(may_return)
    }

    fn other_half(&self, waiter: NodeId, node: NodeId) -> Option<NodeId> {
        let Terminator::Call { next } = self.graph.block(waiter)?.end else { return None };
        let callee = self.graph.resolve_node(self.graph.callee(waiter)?.target);
        if Some(node) == next { callee } else { next }
    }
}

/// The labels whose address code takes, with their function and, for a label in a cold part, the one that takes it. A
/// function is carried whole, and may return, if data names a label of it, or another function does
/// (`lift/pointers.rs`).
fn labels(graph: &Graph) -> Vec<(NodeId, FunctionId)> {
    let mut labels = Vec::new();
    for node in graph.node_ids() {
        let Some(taker) = graph.block(node) else { continue };
        for reference in graph.refs_of(node).iter().filter(|reference| reference.role != Role::Callee) {
            let Some(label) = graph.resolve_node(reference.target) else { continue };
            let Some(block) = graph.block(label) else { continue };
            let function = graph.function(block.function);
            // A cold part has no callers: its first block is a label like the others.
            if function.entry() != label || function.name.contains(".cold") {
                labels.extend([(label, block.function), (label, taker.function)]);
            }
        }
    }
    labels.sort_unstable();
    labels.dedup();
    labels
}

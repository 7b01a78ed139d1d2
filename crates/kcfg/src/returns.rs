/*!
Finds the calls that return.

A block *may return* if control can get from it to a return of its function. The set of these blocks is a least fixed
point, computed with a worklist, so a function that only loops, or only calls functions that do not return, does not
return either. Opaque code may return. This makes reachability context-sensitive: the code after a call is reached
through the callee's return, not through the call (Chanet et al. 2007, section 2.4).

If the address of a label is taken, other than by a jump table, a function that its own function has called may jump to
it (`__builtin_longjmp`, jumps out of nested functions; GCC manual, "Nonlocal Gotos"). If such a label may return, all
blocks of its function may therefore return.
*/

use std::num::NonZeroU32;

use typed_index_collections::ti_vec;

use crate::graph::{Graph, NodeKind, Ref, Role, SiteIndex, Target, Terminator, for_each_successor};
use crate::index::{FunctionId, FunctionSet, NodeId, NodeMap, NodeSet};

/// The blocks from which control may return to the caller.
pub struct Returns {
    may_return: NodeSet,
}

impl Returns {
    /// Computes these for all blocks of a graph.
    pub(crate) fn of(graph: &Graph, sites: &SiteIndex) -> Returns {
        Solver::new(graph, sites).solve()
    }

    /// Whether a call of the target may return. A call to code outside of the graph may.
    pub fn target(&self, graph: &Graph, target: Target) -> bool {
        graph.resolve_node(target).is_none_or(|node| self.may_return.contains(node))
    }
}

/// A block that may return once two nodes may: the one that it is listed for, and `other`, which may be the same.
#[derive(Clone, Copy)]
struct Dependent {
    block: NodeId,
    other: NodeId,
}

/// For each node, a linked list of the blocks whose result depends on it, as indices of the next elements.
struct Dependents {
    first: NodeMap<Option<NonZeroU32>>,
    /// Element number 1 is the first.
    all: Vec<(Dependent, Option<NonZeroU32>)>,
}

impl Dependents {
    fn add(&mut self, node: NodeId, dependent: Dependent) {
        let first = &mut self.first[node];
        self.all.push((dependent, *first));
        *first = NonZeroU32::new(self.all.len() as u32);
    }

    /// Removes one of the dependents of a node.
    fn take(&mut self, node: NodeId) -> Option<Dependent> {
        let number = self.first[node]?;
        let (dependent, next) = self.all[number.get() as usize - 1];
        self.first[node] = next;
        Some(dependent)
    }
}

struct Solver<'g> {
    graph: &'g Graph,
    may_return: NodeSet,
    worklist: Vec<NodeId>,
    dependents: Dependents,
    /// Labels whose address is taken, each with every function that may continue there, sorted.
    labels: Vec<(NodeId, FunctionId)>,
    is_label: NodeSet,
    /// Functions whose blocks are all marked.
    all_marked: FunctionSet,
}

impl<'g> Solver<'g> {
    fn new(graph: &'g Graph, sites: &SiteIndex) -> Solver<'g> {
        let labels = labels(graph);
        let mut is_label = NodeSet::with_capacity(graph.nodes.len());
        is_label.extend(labels.iter().map(|&(label, _)| label));
        let mut solver = Solver {
            graph,
            may_return: NodeSet::with_capacity(graph.nodes.len()),
            worklist: Vec::new(),
            dependents: Dependents { first: ti_vec![None; graph.nodes.len()], all: Vec::new() },
            labels,
            is_label,
            all_marked: FunctionSet::with_capacity(graph.functions.len()),
        };
        for node in graph.node_ids() {
            match &graph.node(node).kind {
                // Hand-written or opaque code.
                NodeKind::Chunk(chunk) if chunk.code => solver.mark(node),
                NodeKind::Chunk(_) => {}
                NodeKind::Block(block) => solver.start(node, &block.end, sites),
            }
        }
        solver
    }

    /// Marks a block that returns by itself; for another block, records the nodes that it depends on.
    fn start(&mut self, node: NodeId, end: &Terminator, sites: &SiteIndex) {
        let outside = |target: Target| self.graph.resolve_node(target).is_none();
        let leaves = match end {
            Terminator::Return | Terminator::IndirectJump | Terminator::Conditional { .. } => true,
            Terminator::Jump(dest) | Terminator::Branch { taken: dest, .. } => outside(dest.target),
            // The patched instruction may be a jump to any of its references.
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
        let mut add = |to: NodeId, other: NodeId| self.dependents.add(to, Dependent { block: node, other });
        let callee = graph.callee(node).and_then(|callee| graph.resolve_node(callee.target));
        // The return point of a call, which the call needs besides its callee.
        let mut call = None;
        match *end {
            // A call returns if both its callee and its return point do; one to code outside of the graph may.
            Terminator::Call { next } => {
                if let Some(next) = next {
                    add(callee.unwrap_or(next), next);
                }
                call = callee.filter(|_| callee != next);
            }
            _ => {
                for_each_successor(graph, end, |to| add(to, to));
                callee.into_iter().for_each(|to| add(to, to));
            }
        }
        if matches!(end, Terminator::Patched { .. }) {
            for reference in graph.refs_of(node) {
                graph.resolve_node(reference.target).into_iter().for_each(|to| add(to, to));
            }
        }
        // A fault continues at the fixup, which may be the return point, a static key at its target, an alternative at
        // its replacement.
        for &entry in sites.entries(node) {
            for reference in graph.refs_of(entry).iter().filter(|reference| reference.role != Role::Site) {
                let to = graph.resolve_node(reference.target).filter(|&to| Some(to) != call);
                to.into_iter().for_each(|to| add(to, to));
            }
        }
    }

    fn mark(&mut self, node: NodeId) {
        if !self.may_return.put(node) {
            self.worklist.push(node);
        }
    }

    fn solve(mut self) -> Returns {
        while let Some(node) = self.worklist.pop() {
            self.mark_functions_of_label(node);
            while let Some(dependent) = self.dependents.take(node) {
                if self.may_return.contains(dependent.block) {
                    continue;
                }
                match self.may_return.contains(dependent.other) {
                    true => self.mark(dependent.block),
                    // It waits for the other node.
                    false => self.dependents.add(dependent.other, dependent),
                }
            }
        }
        Returns { may_return: self.may_return }
    }

    /// If the address of a block that may return is taken, marks the functions that may continue there.
    fn mark_functions_of_label(&mut self, node: NodeId) {
        if !self.is_label.contains(node) {
            return;
        }
        let first = self.labels.partition_point(|(label, _)| *label < node);
        for at in first..self.labels.len() {
            let (label, function) = self.labels[at];
            if label != node {
                break;
            }
            if !self.all_marked.put(function) {
                self.graph.function(function).blocks.iter().for_each(|&block| self.mark(block));
            }
        }
    }
}

/// Returns the labels whose address code takes, each with its own function and with the function that takes the
/// address, to which a label in a cold part belongs. (If data or another function takes the address of a label, its
/// function is opaque: `lift/pointers.rs`.)
fn labels(graph: &Graph) -> Vec<(NodeId, FunctionId)> {
    let mut labels = Vec::new();
    for node in graph.node_ids() {
        let Some(taker) = graph.owner(node) else { continue };
        let takes = |reference: &&Ref| !matches!(reference.role, Role::Callee | Role::Slot(_));
        for reference in graph.refs_of(node).iter().filter(takes) {
            let Some(label) = graph.resolve_node(reference.target) else { continue };
            let Some(block) = graph.block(label) else { continue };
            let function = graph.function(block.function);
            // A cold part has no callers: its first block is a label like the others.
            if function.entry() != label || function.name.contains(".cold") {
                labels.extend([(label, block.function), (label, taker)]);
            }
        }
    }
    labels.sort_unstable();
    labels.dedup();
    labels
}

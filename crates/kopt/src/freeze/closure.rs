/*!
Code and data that must not freeze.

Frozen code and data are restored in a page fault. So nothing may be frozen that runs or is read before a fault can be
handled, during a fault, or while the page allocator cannot supply a page. Patched code must not freeze because a patch
bypasses the fault, and neither may data that may be used by its physical address. `roots.rs` finds the roots that
[`super::marks`] lists. From there the search follows the edges of control flow: calls, jumps, and functions whose
address pinned code holds or passes on. A call through a pointer is assumed to reach every function whose address is in
the data that the calling function refers to. The constant data that pinned code refers to, directly or through other
data, is pinned with it.
*/

use std::collections::VecDeque;
use std::fmt;

use kcfg::edges::{Destination, EdgeKind, Edges};
use kcfg::graph::{Graph, Life, NodeKind, Role, Terminator};
use kcfg::index::{FunctionId, NodeId, NodeMap};
use kcfg::special::{RootReason, TableKind, World};
use kelf::RelocClass;
use rustc_hash::FxHashSet;
use typed_index_collections::ti_vec;

use super::marks::{self, PHYSICAL, Reach, What};
use super::roots::{Functions, Roots, callee_of, hand_written};
use super::variables::{Part, Variables};

pub use super::reason::Reason;

/// Depth to which the data references of pinned code are followed: a table of pointers, its targets, and their targets.
const DATA_DEPTH: u8 = 2;

/// The size of a memory page in bytes.
const PAGE_SIZE: u32 = 4096;

/// A node that is pinned: it must not freeze.
#[derive(Clone, Copy)]
struct Pin {
    reason: Reason,
    /// The node from which this one was reached; `None` for a root.
    from: Option<NodeId>,
}

/// The nodes of a graph that must not freeze.
pub struct Closure {
    pins: NodeMap<Option<Pin>>,
}

/// Records of [`super::marks`] that match nothing, which would make the closure too small.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmatched(Vec<&'static str>);

impl fmt::Display for Unmatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this kernel has no {}, which identifies code that must not freeze; expected Linux 6.1 to 7.2",
            self.0.join(", no ")
        )
    }
}

impl std::error::Error for Unmatched {}

impl Closure {
    /// Finds the nodes that must not freeze. In a user program, only hand-written code and externally named nodes are
    /// pinned.
    ///
    /// # Errors
    /// If the graph is a kernel and lacks something that every kernel has.
    pub fn of(graph: &Graph) -> Result<Closure, Unmatched> {
        let (edges, variables) = (Edges::of(graph), Variables::of(graph));
        let mut search = Search {
            graph,
            edges: &edges,
            pins: ti_vec![None; graph.nodes().len()],
            worklist: VecDeque::new(),
            roots: FxHashSet::default(),
            cuts: FxHashSet::default(),
            stops: FxHashSet::default(),
            variables: &variables,
            parts: FxHashSet::default(),
        };
        search.pin_places();
        if matches!(graph.world(), World::Kernel(_)) {
            search.pin_kernel()?;
        }
        Ok(Closure { pins: search.pins })
    }

    /// Returns the reason why a node must not freeze; `None` if it may.
    pub fn reason(&self, node: NodeId) -> Option<Reason> {
        self.pins[node].map(|pin| pin.reason)
    }

    /// Returns the path by which a pinned node was reached, from a root to the node.
    pub fn chain(&self, node: NodeId) -> Vec<NodeId> {
        let mut chain = vec![node];
        // Data may name itself by a far address.
        let from = |node: NodeId| self.pins[node]?.from;
        while let Some(from) = chain.last().and_then(|&last| from(last)).filter(|from| !chain.contains(from))
        {
            chain.push(from);
        }
        chain.reverse();
        chain
    }
}

/// The search.
struct Search<'g> {
    graph: &'g Graph,
    edges: &'g Edges<'g>,
    pins: NodeMap<Option<Pin>>,
    /// Code whose edges are still to be followed, and the reason.
    worklist: VecDeque<(NodeId, Reason)>,
    roots: FxHashSet<NodeId>,
    /// Blocks at which a root ends ([`Reach::UpTo`]).
    cuts: FxHashSet<NodeId>,
    /// Functions that the search does not enter.
    stops: FxHashSet<NodeId>,
    variables: &'g Variables<'g>,
    /// Data whose references have been followed.
    parts: FxHashSet<Part>,
}

impl Search<'_> {
    /// Pins one node. Returns whether it was not pinned before. A node that is pinned for its place, and not a root, also
    /// gets the node from which the search first reached it.
    fn pin(&mut self, node: NodeId, reason: Reason, from: Option<NodeId>) -> bool {
        match &mut self.pins[node] {
            Some(pin) => {
                if pin.from.is_none() && !self.roots.contains(&node) {
                    pin.from = from;
                }
                false
            }
            free => {
                *free = Some(Pin { reason, from });
                true
            }
        }
    }

    /// Pins the nodes that never freeze in any program.
    fn pin_places(&mut self) {
        let graph = self.graph;
        for id in graph.node_ids() {
            let entry = graph.chunk(id).map(|chunk| chunk.life);
            if let Some(Life::Site(kind)) = entry
                && kind.about().fixes_code()
                && let Some(site) = graph.site(id).and_then(|site| graph.resolve_node(site.target))
            {
                self.pin(site, Reason::Patched, None);
            }
            if graph.block(id).is_some_and(|block| block.is_fixed()) {
                self.pin(id, Reason::Patched, None);
            }
        }
        for node in hand_written(graph) {
            self.pin(node, Reason::HandWritten, None);
        }
        for root in graph.roots() {
            let outside = matches!(
                root.reason,
                RootReason::LinkerScript
                    | RootReason::LinkedBeside
                    | RootReason::UnknownSection
                    | RootReason::Kept
            );
            if outside {
                self.pin(root.node, Reason::Named, None);
            }
        }
    }

    /// Pins the nodes that a kernel needs.
    fn pin_kernel(&mut self) -> Result<(), Unmatched> {
        let functions = Functions::of(self.graph);
        let roots = Roots { graph: self.graph, edges: self.edges, variables: self.variables, functions };
        let functions = &roots.functions;
        let mut unmatched = Vec::new();
        let machine = self.graph.machine();
        self.stops = marks::stops(machine).flat_map(|stop| functions.named(stop.function)).collect();
        for mark in marks::marks(machine) {
            let found = roots.of(mark, &mut self.cuts);
            // An existing function has to call the function that ends the root.
            let is_there = match (mark.what, mark.reach) {
                (What::Function(names), Reach::UpTo(_)) => !functions.named(names).is_empty(),
                _ => false,
            };
            if found.is_empty() && (!mark.optional || is_there) {
                unmatched.push(mark.what.name());
            }
            self.roots.extend(&found);
            for root in found {
                self.pin(root, mark.reason, None);
                if mark.reach != Reach::Alone {
                    self.worklist.push_back((root, mark.reason));
                }
                self.pin_data(root, mark.reason);
            }
        }
        if !unmatched.is_empty() {
            return Err(Unmatched(unmatched));
        }
        self.follow();
        self.pin_physical(functions);
        Ok(())
    }

    /// Follows the edges of pinned code.
    fn follow(&mut self) {
        let mut followed = FxHashSet::default();
        while let Some((node, reason)) = self.worklist.pop_front() {
            if !followed.insert(node) {
                continue;
            }
            let mut targets = Vec::new();
            let cut = self.cuts.contains(&node);
            self.edges.for_each(node, |edge| {
                let Destination::Node(to) = edge.to else { return };
                match edge.kind {
                    // The code after a cut, and the callees of the cut, are left out.
                    EdgeKind::Call | EdgeKind::NoReturn | EdgeKind::Return | EdgeKind::TailCall if cut => {}
                    EdgeKind::Site => targets.extend(self.goes_by_entry(to)),
                    // The addresses in a literal count as held by the code, and so do the cases of a table of
                    // addresses.
                    EdgeKind::Data if self.graph.is_among_code(to) => {
                        targets.extend(self.held_by_literal(to))
                    }
                    EdgeKind::Data if !self.graph.is_code(to) => {}
                    _ => targets.push(to),
                }
            });
            if self.calls_by_pointer(node) && !cut {
                targets.extend(self.held_by_data_of(node));
            }
            for to in targets {
                if self.stops.contains(&to) || !self.graph.node(to).live {
                    continue;
                }
                self.pin(to, reason, Some(node));
                // A node that another root has pinned alone is followed as well.
                self.worklist.push_back((to, reason));
                self.pin_data(to, reason);
            }
        }
    }

    /// The code that an entry of a table adds to its site: a fixup, or a replacement of the site.
    fn goes_by_entry(&self, entry: NodeId) -> Vec<NodeId> {
        let graph = self.graph;
        let life = graph.chunk(entry).map(|chunk| chunk.life);
        match life {
            Some(Life::Site(TableKind::ExceptionTable | TableKind::Alternative | TableKind::StaticKey)) => {}
            _ => return Vec::new(),
        }
        let addresses = graph.refs_of(entry).iter().filter(|reference| reference.role == Role::Address);
        addresses.filter_map(|to| graph.resolve_node(to.target)).filter(|&to| graph.is_code(to)).collect()
    }

    /// The code whose address a literal holds.
    fn held_by_literal(&self, literal: NodeId) -> impl Iterator<Item = NodeId> {
        let refs = self.graph.refs_of(literal).iter().filter(|reference| reference.role == Role::Address);
        refs.filter_map(|reference| self.graph.resolve_node(reference.target))
            .filter(|&to| self.graph.is_code(to))
    }

    /// Whether code ends in a call or jump through a pointer, or may do so on a condition.
    fn calls_by_pointer(&self, node: NodeId) -> bool {
        let end = self.graph.block(node).map(|block| &block.end);
        matches!(
            end,
            Some(Terminator::IndirectCall { .. } | Terminator::IndirectJump | Terminator::Conditional { .. })
        )
    }

    /// The functions whose addresses are in the data that a block's function refers to, or in the data that this data
    /// refers to.
    fn held_by_data_of(&self, node: NodeId) -> Vec<NodeId> {
        let blocks = match self.graph.function_of(node) {
            Some(function) => self.graph.function(function).blocks.as_slice(),
            None => &[node],
        };
        let mut level: Vec<Part> = blocks.iter().flat_map(|&block| self.variables.of_code(block)).collect();
        let mut held = Vec::new();
        for _ in 0..=DATA_DEPTH {
            held.extend(level.iter().flat_map(|part| self.variables.code_of_part(part).collect::<Vec<_>>()));
            level = level.iter().flat_map(|part| self.variables.of_part(part).collect::<Vec<_>>()).collect();
        }
        held
    }

    /// Pins the data that code refers to, and the data that this data refers to.
    fn pin_data(&mut self, code: NodeId, reason: Reason) {
        let mut level: Vec<(NodeId, Part)> =
            self.variables.of_code(code).into_iter().map(|part| (code, part)).collect();
        for _ in 0..=DATA_DEPTH {
            let mut next = Vec::new();
            for (from, part) in level {
                if self.parts.insert(part.clone()) {
                    self.pin(part.node, reason, Some(from));
                    next.extend(self.variables.of_part(&part).map(|further| (part.node, further)));
                }
            }
            level = next;
        }
    }

    /// Pins data that may be used by its physical address: data that is aligned to a page; data that is named with an
    /// offset outside of it (such as the distance of virtual from physical addresses); and the data of functions that
    /// call a translator of addresses or, on ARM, translate addresses themselves (the kernel patches the distance into
    /// them).
    fn pin_physical(&mut self, functions: &Functions<'_>) {
        let graph = self.graph;
        let translators: FxHashSet<NodeId> = PHYSICAL.iter().flat_map(|name| functions.named(name)).collect();
        let mut users: FxHashSet<FunctionId> = FxHashSet::default();
        for id in graph.node_ids() {
            let node = graph.node(id);
            if node.align >= PAGE_SIZE && !graph.is_code(id) {
                self.pin(id, Reason::Physical, None);
            }
            if let (NodeKind::Block(block), Some(callee)) = (&node.kind, callee_of(graph, id))
                && translators.contains(&callee)
            {
                users.insert(block.function);
            }
            if graph.chunk(id).is_some_and(|chunk| chunk.life == Life::Site(TableKind::PhysicalOffset)) {
                let site = graph.site(id).and_then(|site| graph.resolve_node(site.target));
                users.extend(site.and_then(|site| graph.function_of(site)));
            }
            for reference in graph.refs_of(id) {
                let Some((to, inside)) = graph.resolve(reference.target) else { continue };
                let at = i64::from(inside) + reference.addend;
                let far = !(-i64::from(PAGE_SIZE)..=i64::from(graph.node(to).size) + i64::from(PAGE_SIZE))
                    .contains(&at);
                if far && reference.class == RelocClass::Absolute {
                    self.pin(to, Reason::Physical, Some(id));
                }
            }
        }
        for function in users {
            for &block in &graph.function(function).blocks {
                self.pin_data(block, Reason::Physical);
            }
        }
    }
}

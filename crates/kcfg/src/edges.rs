/*!
The edges of the graph, derived from the contents of its nodes.

An edge means: if the source is alive, so is the destination. Control-flow edges come from terminators, data edges from
references, and site edges lead from code to the entries of weak tables that describe it. Edges out of the *unknown*
node, to the possible targets of indirect branches, are not listed. Such an edge matters only once the address of its
destination is computable (Chanet et al. 2007, section 2.4), that is, once a node with the address is alive, and the
data edge of that node already says so.
*/

use serde::Serialize;

use crate::graph::{Dest, Graph, NodeKind, Ref, Role, SiteIndex, Target, Terminator};
use crate::index::{NodeId, SymbolId};
use crate::returns::Returns;

/// The kind of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EdgeKind {
    /// Fall-through into the next block.
    FallThrough,
    /// A jump, or a conditional branch that is taken.
    Jump,
    /// One case of a `switch`.
    Switch,
    /// A call that returns; it has a [`EdgeKind::Return`] edge as well.
    Call,
    /// A call that does not return.
    NoReturn,
    /// A jump to another function.
    TailCall,
    /// From a call to its return point.
    Return,
    /// A reference: code that runs or reads the source can compute the address of the destination.
    Data,
    /// From code to an entry of a weak table whose site it is.
    Site,
}

/// The destination of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A node.
    Node(NodeId),
    /// The unknown node: anything whose address is computable.
    Unknown,
    /// A symbol outside the program.
    Outside(SymbolId),
}

/// An edge, without its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Its kind.
    pub kind: EdgeKind,
    /// Its destination.
    pub to: Destination,
}

/// The edges of a graph, derived on demand.
pub struct Edges<'g> {
    graph: &'g Graph,
    sites: SiteIndex,
    returns: Returns,
}

impl<'g> Edges<'g> {
    /// Computes the context of the edges: the weak-table entries of each site, and the calls that return.
    pub fn of(graph: &'g Graph) -> Edges<'g> {
        let sites = SiteIndex::of(graph);
        let returns = Returns::of(graph, &sites);
        Edges { graph, sites, returns }
    }

    /// Calls `f` with every edge out of the node.
    pub fn for_each(&self, node: NodeId, mut f: impl FnMut(Edge)) {
        match &self.graph.node(node).kind {
            NodeKind::Block(block) => self.block_edges(node, &block.end, &mut f),
            NodeKind::Chunk(_) => {}
        }
        for reference in self.graph.refs_of(node) {
            match reference.role {
                Role::Address => self.reference(reference, &mut f),
                // These belong to other edges: a call edge of this block, a site edge of another node, a switch edge of
                // another block.
                Role::Callee | Role::Site | Role::Slot(_) => {}
            }
        }
        for &entry in self.sites.entries(node) {
            f(Edge { kind: EdgeKind::Site, to: Destination::Node(entry) });
        }
    }

    fn block_edges(&self, node: NodeId, end: &Terminator, f: &mut impl FnMut(Edge)) {
        let next = |kind, next: NodeId| Edge { kind, to: Destination::Node(next) };
        match end {
            Terminator::FallThrough(to) => f(next(EdgeKind::FallThrough, *to)),
            Terminator::Jump(dest) => f(self.jump(node, dest)),
            Terminator::Branch { taken, next: behind, .. } => {
                f(self.jump(node, taken));
                f(next(EdgeKind::FallThrough, *behind));
            }
            Terminator::Call { next: behind } => {
                let callee = self.graph.callee(node).expect("a direct call names its callee");
                let returns = behind.filter(|_| self.returns.target(self.graph, callee.target));
                let kind = if returns.is_some() { EdgeKind::Call } else { EdgeKind::NoReturn };
                f(self.to(kind, callee.target));
                if let Some(behind) = returns {
                    f(next(EdgeKind::Return, behind));
                }
            }
            Terminator::IndirectCall { next: behind } => {
                let kind = if behind.is_some() { EdgeKind::Call } else { EdgeKind::NoReturn };
                f(Edge { kind, to: Destination::Unknown });
                if let Some(behind) = behind {
                    f(next(EdgeKind::Return, *behind));
                }
            }
            Terminator::Switch(table) => {
                for slot in self.graph.slots(*table) {
                    f(self.to(EdgeKind::Switch, slot.target));
                }
            }
            Terminator::IndirectJump => f(Edge { kind: EdgeKind::Jump, to: Destination::Unknown }),
            Terminator::Trap { next: Some(behind) }
            | Terminator::Patched { next: Some(behind) }
            | Terminator::Conditional { next: Some(behind) } => {
                f(next(EdgeKind::FallThrough, *behind));
            }
            Terminator::Return
            | Terminator::Trap { next: None }
            | Terminator::Patched { next: None }
            | Terminator::Conditional { next: None }
            | Terminator::Unreachable => {}
        }
    }

    /// Adds the edges of a reference. A reference to the first byte of a glued node may be to the end of the previous
    /// node.
    fn reference(&self, reference: &Ref, f: &mut impl FnMut(Edge)) {
        f(self.to(EdgeKind::Data, reference.target));
        if let Target::Node(to) = reference.target
            && reference.addend == 0
            && let Some(before) = self.graph.node(to).glued_to
        {
            f(Edge { kind: EdgeKind::Data, to: Destination::Node(before) });
        }
    }

    fn jump(&self, from: NodeId, dest: &Dest) -> Edge {
        let kind = match self.graph.resolve_node(dest.target) {
            Some(to) if self.graph.function_of(to) == self.graph.function_of(from) => EdgeKind::Jump,
            _ => EdgeKind::TailCall,
        };
        self.to(kind, dest.target)
    }

    fn to(&self, kind: EdgeKind, target: Target) -> Edge {
        let to = match (self.graph.resolve_node(target), target) {
            (Some(node), _) => Destination::Node(node),
            (None, Target::Symbol(symbol)) => Destination::Outside(symbol),
            (None, Target::Node(_)) => unreachable!("a node is part of the program"),
        };
        Edge { kind, to }
    }
}

//! Planning what freezes: from the build of a kernel and its traces to the section `frozen` of a plan.
//!
//! The graph is the one that `kshrink-spec` has after the removing passes, so that only existing code and data count.
//! *Cold* are code that did not run ([`cold`]) and data that was not read ([`reads`]). Cold nodes that must not freeze
//! are *pinned* (`kopt::freeze::closure`). The others are named and counted.

pub mod cold;
pub mod kernel;
mod names;
mod places;
pub mod reads;
pub mod supported;
pub mod table;
pub mod why;

use kcfg::graph::Graph;
use kcfg::index::{NodeId, NodeSet};
use kopt::freeze::closure::Closure;
use kopt::freeze::select::{Selection, holds_frozen_code, holds_frozen_data};
use kplan::{Frozen, Mechanism};

use cold::Cold;

/// The freezing decisions for a graph.
pub struct Plan<'g> {
    /// The graph.
    pub graph: &'g Graph,
    /// The nodes that did not run, or only while the kernel booted.
    pub cold: Cold,
    /// The cold nodes that are used while the kernel boots, as a set of bits.
    pub at_boot: NodeSet,
    /// The nodes that must not freeze.
    pub closure: Closure,
    /// The nodes that the user pins in addition, as a set of bits.
    pub pinned: NodeSet,
    /// The mechanism that thaws frozen code and data.
    pub mechanism: Mechanism,
    /// The smallest region that freezes, in bytes, if regions are not weighed one by one.
    pub minimum: Option<u32>,
    /// The selection of pass `freeze` from these nodes.
    pub selection: Selection,
}

impl<'g> Plan<'g> {
    /// Decides what freezes, given the cold nodes, the ones among them that are used at boot, and the nodes that the
    /// user pins.
    pub fn new(
        graph: &'g Graph,
        cold: Cold,
        at_boot: NodeSet,
        closure: Closure,
        pinned: NodeSet,
        mechanism: Mechanism,
        minimum: Option<u32>,
    ) -> Plan<'g> {
        let mut wanted = cold.nodes.clone();
        wanted.difference_with(&pinned);
        let selection = Selection::of(graph, &wanted, &closure, mechanism, minimum.map(u64::from));
        Plan { graph, cold, at_boot, closure, pinned, mechanism, minimum, selection }
    }

    /// Returns the section: all cold nodes that may freeze. The pass decides where freezing would save nothing, because
    /// it sees the changes of earlier passes.
    pub fn frozen(&self) -> Frozen {
        let may = |node: NodeId| {
            let section = self.graph.section_of(node);
            self.cold.nodes.contains(node)
                && !self.pinned.contains(node)
                && self.closure.reason(node).is_none()
                && (holds_frozen_code(self.graph, section) || holds_frozen_data(self.graph, section))
        };
        let at_boot = |node: NodeId| self.at_boot.contains(node);
        names::frozen(self.graph, self.mechanism, self.minimum, may, at_boot)
    }
}

/// Returns the nodes of a symbol: all blocks of a function, or the node of a variable. Several if local symbols share
/// the name; none if there is no such symbol.
pub fn nodes_of(graph: &Graph, symbol: &str) -> Vec<NodeId> {
    let named = kopt::explain::nodes_named(graph, symbol);
    let all = named.into_iter().flat_map(|node| match graph.function_of(node) {
        Some(function) if graph.function(function).entry() == node => graph.function(function).blocks.clone(),
        _ => vec![node],
    });
    all.collect()
}

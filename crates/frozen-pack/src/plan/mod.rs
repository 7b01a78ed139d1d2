//! Planning what freezes: from the build of a kernel and what was seen to run, to the section `frozen` of a plan.
//!
//! The graph is that which `kshrink-spec` has after the passes that remove, so that nothing is counted that is not there.
//! *Cold* is what did not run ([`cold`]), and data that was not read ([`reads`]); what of that must not freeze anyway is *pinned* (`kopt::freeze::closure`);
//! the rest is named and counted.

pub mod cold;
pub mod kernel;
mod names;
mod places;
pub mod reads;
pub mod supported;
pub mod table;
pub mod why;

use fixedbitset::FixedBitSet;
use kcfg::graph::Graph;
use kcfg::index::NodeId;
use kopt::freeze::closure::Closure;
use kopt::freeze::select::{Selection, holds_frozen_code, holds_frozen_data};
use kplan::{Frozen, Mechanism};

use cold::Cold;

/// What freezes in a graph.
pub struct Plan<'g> {
    /// The graph.
    pub graph: &'g Graph,
    /// What did not run, or only while the kernel booted.
    pub cold: Cold,
    /// What of that is used while the kernel boots, as a set of bits.
    pub at_boot: FixedBitSet,
    /// What must not freeze.
    pub closure: Closure,
    /// What the user pins besides, as a set of bits.
    pub pinned: FixedBitSet,
    /// How what is frozen comes back.
    pub mechanism: Mechanism,
    /// The smallest region that freezes, in bytes, if regions are not weighed one by one.
    pub minimum: Option<u32>,
    /// What the pass `freeze` makes of that.
    pub selection: Selection,
}

impl<'g> Plan<'g> {
    /// Decides what freezes, given what is cold, what of that is used at boot, and what the user pins.
    pub fn new(
        graph: &'g Graph,
        cold: Cold,
        at_boot: FixedBitSet,
        closure: Closure,
        pinned: FixedBitSet,
        mechanism: Mechanism,
        minimum: Option<u32>,
    ) -> Plan<'g> {
        let mut wanted = cold.nodes.clone();
        wanted.difference_with(&pinned);
        let selection = Selection::of(graph, &wanted, &closure, mechanism, minimum.map(u64::from));
        Plan { graph, cold, at_boot, closure, pinned, mechanism, minimum, selection }
    }

    /// The section: all that is cold and may freeze. The pass decides where freezing would save nothing, because it
    /// sees the changes of earlier passes.
    pub fn frozen(&self) -> Frozen {
        let may = |node: NodeId| {
            let section = self.graph.section_of(node);
            self.cold.nodes.contains(node.get())
                && !self.pinned.contains(node.get())
                && self.closure.reason(node).is_none()
                && (holds_frozen_code(self.graph, section) || holds_frozen_data(self.graph, section))
        };
        let at_boot = |node: NodeId| self.at_boot.contains(node.get());
        names::frozen(self.graph, self.mechanism, self.minimum, may, at_boot)
    }
}

/// The nodes of what a symbol names: all blocks of a function, or the node of a variable. Several if local symbols share
/// the name; none if there is no such symbol.
pub fn nodes_of(graph: &Graph, symbol: &str) -> Vec<NodeId> {
    let named = kopt::explain::nodes_named(graph, symbol);
    let all = named.into_iter().flat_map(|node| match graph.function_of(node) {
        Some(function) if graph.function(function).entry() == node => graph.function(function).blocks.clone(),
        _ => vec![node],
    });
    all.collect()
}

//! Constraints that keep blocks of ARM code together, or keep a block from being the entry of a region.
//!
//! A node that is glued to a block directly follows it. A block that control enters between an exclusive load and its
//! store cannot be entered through a stub, because a stub stores.

use kcfg::graph::{Graph, Terminator};
use kcfg::index::{NodeId, NodeSet};
use kelf::RelocClass;
use rustc_hash::{FxHashMap, FxHashSet};

use super::region::Region;
use crate::instrument::exclusive::entered_between;

/// The bonds of all blocks of a graph.
pub struct Bonds {
    /// For each node, the node that is glued to it.
    behind: FxHashMap<NodeId, NodeId>,
    /// For each glued node, the node before it.
    before: FxHashMap<NodeId, NodeId>,
    /// Blocks that jump by a table of distances, and their targets.
    tables: Vec<(NodeId, Vec<NodeId>)>,
    /// Blocks that control enters between an exclusive load and its store.
    between: NodeSet,
}

impl Bonds {
    /// Finds the bonds of a graph.
    pub fn of(graph: &Graph) -> Bonds {
        let (mut behind, mut before) = (FxHashMap::default(), FxHashMap::default());
        let mut tables = Vec::new();
        for id in graph.node_ids().filter(|&id| graph.node(id).live) {
            if let Some(other) = graph.node(id).glued_to.filter(|&other| graph.node(other).live) {
                behind.insert(other, id);
                before.insert(id, other);
            }
            if let Some(Terminator::Switch(table)) = graph.block(id).map(|block| &block.end) {
                let near = graph.slots(*table).iter().filter(|slot| slot.class == RelocClass::Literal);
                let cases: Vec<NodeId> = near.filter_map(|slot| graph.resolve_node(slot.target)).collect();
                tables.push((id, cases));
            }
        }
        Bonds { behind, before, tables, between: entered_between(graph) }
    }

    /// Returns these blocks in their order, each followed by the data and the given blocks that are glued to it.
    pub fn with_glued(&self, graph: &Graph, blocks: &[NodeId]) -> Vec<NodeId> {
        let given: FxHashSet<NodeId> = blocks.iter().copied().collect();
        let before = |node: &NodeId| self.before.get(node).copied();
        // Data may lie in between.
        let comes_behind = |block: &NodeId| {
            let mut in_front = std::iter::successors(before(block), before);
            in_front.find(|&node| graph.block(node).is_some()).is_some_and(|front| given.contains(&front))
        };
        let next = |node: &NodeId| {
            let behind = self.behind.get(node).copied();
            behind.filter(|&behind| graph.block(behind).is_none() || given.contains(&behind))
        };
        let mut all = Vec::with_capacity(blocks.len());
        for &block in blocks.iter().filter(|&block| !comes_behind(block)) {
            all.extend(std::iter::successors(Some(block), next));
        }
        all
    }

    /// The blocks that cannot freeze because these regions would separate inseparable blocks, or would be entered at
    /// an impossible place.
    pub fn broken(&self, graph: &Graph, blocks: &NodeSet, regions: &[Region]) -> Vec<NodeId> {
        let mut places: FxHashMap<NodeId, (usize, bool)> = FxHashMap::default();
        for (number, region) in regions.iter().enumerate() {
            let is_entry = |node| node == region.nodes[0];
            places.extend(region.nodes.iter().map(|&node| (node, (number, is_entry(node)))));
        }
        let entries = regions.iter().map(|region| region.nodes[0]);
        let mut broken: Vec<NodeId> = entries.filter(|entry| self.between.contains(*entry)).collect();
        let freezes = |node: NodeId| blocks.contains(node);
        // Whether a node lies in the region of another node and is not its entry.
        let is_inside = |node: NodeId, of: NodeId| {
            let (place, other) = (places.get(&node), places.get(&of));
            matches!((place, other), (Some(&(number, false)), Some(&(same, _))) if number == same)
        };
        for (&front, &behind) in &self.behind {
            // A glued node that is not a block is taken along as data.
            let fits = match (freezes(front), graph.block(behind).is_some()) {
                (true, true) => freezes(behind) && is_inside(behind, front),
                (true, false) => graph.is_among_code(behind),
                (false, _) => !freezes(behind) || graph.block(front).is_none() && is_inside(behind, front),
            };
            if !fits {
                broken.extend([front, behind].into_iter().filter(|&node| freezes(node)));
            }
        }
        for (jump, cases) in &self.tables {
            if !cases.iter().all(|&case| match freezes(*jump) {
                true => is_inside(case, *jump),
                false => !freezes(case),
            }) {
                let all = cases.iter().chain([jump]).copied();
                broken.extend(all.filter(|&node| freezes(node)));
            }
        }
        broken
    }
}

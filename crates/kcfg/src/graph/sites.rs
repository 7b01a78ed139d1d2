//! The entries of weak tables, by the code that they describe.

use super::{Graph, Life};
use crate::index::NodeId;

/// The weak-table entries of each site.
pub(crate) struct SiteIndex {
    /// Start of each node's entries in `entries`.
    starts: Vec<u32>,
    entries: Vec<NodeId>,
}

impl SiteIndex {
    pub(crate) fn of(graph: &Graph) -> SiteIndex {
        let sites = graph.node_ids().filter_map(|node| {
            let chunk = graph.chunk(node)?;
            let Life::Site(_) = chunk.life else { return None };
            graph.resolve_node(graph.site(node)?.target).map(|site| (site, node))
        });
        let sites: Vec<(NodeId, NodeId)> = sites.collect();
        let mut starts = vec![0u32; graph.nodes.len() + 1];
        for (site, _) in &sites {
            starts[site.get() + 1] += 1;
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut entries = vec![NodeId(0); starts[graph.nodes.len()] as usize];
        let mut at = starts.clone();
        for (site, node) in sites {
            entries[at[site.get()] as usize] = node;
            at[site.get()] += 1;
        }
        SiteIndex { starts, entries }
    }

    pub(crate) fn entries(&self, node: NodeId) -> &[NodeId] {
        &self.entries[self.starts[node.get()] as usize..self.starts[node.get() + 1] as usize]
    }
}

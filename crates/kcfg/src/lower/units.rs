//! Which nodes become one output section.
//!
//! An input section becomes one, and a region of the graph becomes one in place of all its sections.

use crate::graph::{Graph, Node};
use crate::index::{NodeId, SectionId};

/// The live nodes of an output section, in their order.
pub(super) struct Unit {
    /// The input section that gives name and attributes.
    pub section: SectionId,
    pub nodes: Vec<NodeId>,
}

/// All units, in the order of the output, and for each input section the number of its unit.
pub(super) struct Units {
    pub units: Vec<Unit>,
    of_section: Vec<u32>,
}

impl Units {
    /// Collects the live nodes.
    pub fn of(graph: &Graph) -> Units {
        let mut regions = vec![None; graph.sections.len()];
        for (i, region) in graph.regions.iter().enumerate() {
            region.sections.iter().for_each(|section| regions[section.get()] = Some(i));
        }
        let mut of_region = vec![None; graph.regions.len()];
        let mut units = Units { units: Vec::new(), of_section: Vec::with_capacity(graph.sections.len()) };
        for (i, section) in graph.sections.iter().enumerate() {
            let number = units.units.len() as u32;
            let of_region = regions[i].map(|region| *of_region[region].get_or_insert(number));
            units.of_section.push(of_region.unwrap_or(number));
            let (named, nodes): (_, Vec<NodeId>) = match regions[i].map(|region| &graph.regions[region]) {
                None => (SectionId::from(i), section.nodes.clone().map(NodeId).collect()),
                Some(region) if of_region == Some(number) => (region.named, region.nodes.clone()),
                Some(_) => continue,
            };
            let nodes = nodes.into_iter().filter(|&node| graph.node(node).live).collect();
            units.units.push(Unit { section: named, nodes });
        }
        units
    }

    /// Whether two nodes come into the same output section.
    pub fn are_together(&self, one: &Node, other: &Node) -> bool {
        self.of_section[one.section.get()] == self.of_section[other.section.get()]
    }
}

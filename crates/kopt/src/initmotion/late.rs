/*!
Code and data that may be used after initialization.

Initialization code is in `.init.text`; none of it runs after it is freed. Initialization data is in `.init.data` and
`.init.rodata`, or in the tables of the functions that are called at boot (`.initcall*`, `.init.setup`,
`.con_initcall.init`). Any other live node may be used *late* if

- it is a root, or in a section whose content is not moved;
- its address is taken, by code that computes it or by data that holds it. Any holder may keep the address, even if it
  belongs to initialization. The tables of functions that are called at boot are an exception, because only the boot
  code reads them. An access to a variable at a fixed address does not take its address, and neither does passing a
  string to a function that prints, compares or copies it (`uses`);
- a node that may be used late calls it, jumps to it, or reads or writes it.

Only initialization code calls, reads and writes the remaining nodes, by direct calls and at fixed addresses. A
function or its data is late as a whole if a part of it is.
*/

use kcfg::edges::{Destination, Edges};
use kcfg::graph::{Graph, Life, Role, Section};
use kcfg::index::{NodeId, NodeMap, NodeSet, SectionId};
use kcfg::special::Rule;
use typed_index_collections::{TiVec, ti_vec};

use super::units::Unit;
use super::uses::Uses;

/// The nodes that may be used after initialization, as a set of bits.
pub fn find(graph: &Graph, units: &[Unit]) -> NodeSet {
    let mut finder = Finder {
        graph,
        edges: Edges::of(graph),
        uses: Uses::of(graph),
        initialization: graph.sections().iter().map(|section| is_initialization(graph, section)).collect(),
        replacements: graph.sections().iter().map(|section| is_replacement(graph, section)).collect(),
        unit_of: ti_vec![None; graph.nodes().len()],
        units,
        late: NodeSet::with_capacity(graph.nodes().len()),
        worklist: Vec::new(),
    };
    for (number, unit) in units.iter().enumerate() {
        unit.nodes.iter().for_each(|&node| finder.unit_of[node] = Some(number));
    }
    for root in graph.roots() {
        finder.mark(root.node);
    }
    for id in graph.node_ids().filter(|&id| graph.node(id).live) {
        if finder.stays(id) {
            finder.mark(id);
        }
        finder.addresses(id);
    }
    finder.solve()
}

struct Finder<'g> {
    graph: &'g Graph,
    edges: Edges<'g>,
    uses: Uses<'g>,
    /// For each section, whether it holds initialization code or data, and whether it holds code that is copied over
    /// other code.
    initialization: TiVec<SectionId, bool>,
    replacements: TiVec<SectionId, bool>,
    /// For each node, the number of its unit.
    unit_of: NodeMap<Option<usize>>,
    units: &'g [Unit],
    late: NodeSet,
    worklist: Vec<NodeId>,
}

impl Finder<'_> {
    /// Whether a node is not moved, and may be used late by itself. Entries of tables about code, and replacement code,
    /// are used only if the code that they belong to is.
    fn stays(&self, id: NodeId) -> bool {
        let is_entry = self.graph.chunk(id).is_some_and(|chunk| chunk.life != Life::Referenced);
        self.unit_of[id].is_none()
            && !self.is_initialization(id)
            && !is_entry
            && !self.replacements[self.graph.node(id).section]
    }

    /// Whether a node is initialization code or data by its section.
    fn is_initialization(&self, id: NodeId) -> bool {
        self.initialization[self.graph.node(id).section]
    }

    /// Marks the nodes whose addresses a node takes.
    fn addresses(&mut self, id: NodeId) {
        let graph = self.graph;
        if is_table_of_boot(&graph.section_of(id).name) {
            return;
        }
        let is_block = graph.block(id).is_some();
        let refs = graph.refs_of(id);
        let keeps_to_itself = match is_block {
            true => self.uses.of_block(id),
            false => vec![self.uses.of_literal(id); refs.len()],
        };
        for (number, reference) in refs.iter().enumerate() {
            let Some(to) = graph.resolve_node(reference.target) else { continue };
            let stays_here = keeps_to_itself[number];
            // Static keys and the like. Control enters code only if the site is late.
            let of_entry = reference.role == Role::Address && !graph.is_code(to);
            let is_entry = graph.chunk(id).is_some_and(|chunk| chunk.life != Life::Referenced);
            if graph.takes_address(id, reference) && !stays_here || is_entry && of_entry {
                self.mark(to);
                // The end of the node before has the same address.
                graph.node(to).glued_to.into_iter().for_each(|before| self.mark(before));
            }
        }
    }

    /// Marks a node and the rest of its unit. Skips initialization code and data, whose section already limits its use.
    fn mark(&mut self, id: NodeId) {
        if !self.graph.node(id).live || self.is_initialization(id) || self.late.put(id) {
            return;
        }
        self.worklist.push(id);
        if let Some(unit) = self.unit_of[id] {
            for &node in &self.units[unit].nodes {
                if !self.late.put(node) {
                    self.worklist.push(node);
                }
            }
        }
    }

    fn solve(mut self) -> NodeSet {
        while let Some(id) = self.worklist.pop() {
            let mut next = Vec::new();
            self.edges.for_each(id, |edge| {
                if let Destination::Node(to) = edge.to {
                    next.push(to);
                }
            });
            next.into_iter().for_each(|to| self.mark(to));
        }
        self.late
    }
}

/// Whether a section holds initialization code or data.
fn is_initialization(graph: &Graph, section: &Section) -> bool {
    let name = &section.name;
    is_table_of_boot(name)
        || [".init.text", ".init.data", ".init.rodata"].contains(&graph.world().class(name))
}

/// Whether a section holds code that is copied over other code.
fn is_replacement(graph: &Graph, section: &Section) -> bool {
    graph.world().rule(&section.name, section.kind, section.flags) == Rule::Replacement
}

/// Whether a section is a table of functions that are called at boot: `do_initcalls()`, `obsolete_checksetup()` and
/// `do_early_param()` in init/main.c, `console_init()` in kernel/printk/printk.c.
fn is_table_of_boot(name: &str) -> bool {
    name.starts_with(".initcall") || matches!(name, ".init.setup" | ".con_initcall.init")
}

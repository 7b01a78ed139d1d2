//! The movable parts of a program.

use goblin::elf::section_header::{SHF_EXECINSTR, SHF_MERGE, SHF_STRINGS, SHF_TLS, SHF_WRITE, SHT_NOBITS};
use kcfg::graph::{Graph, Life, Section, Terminator};
use kcfg::index::{NodeId, NodeSet, SectionId};
use kcfg::special::Rule;
use rustc_hash::FxHashSet;
use typed_index_collections::TiVec;

use crate::layout;
use crate::near;

/// The destination of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Code.
    Text,
    /// Writable data.
    Data,
    /// Writable data without bytes in the file.
    Zeros,
    /// Read-only data.
    ReadOnly,
    /// A string that the linker merges with equal ones.
    String,
}

/// A movable part of the program: a function, or a variable.
pub struct Unit {
    /// Its live nodes, in order.
    pub nodes: Vec<NodeId>,
    /// Its destination.
    pub place: Place,
}

impl Unit {
    /// Size in bytes, as in the input, with branches.
    pub fn size(&self, graph: &Graph) -> u64 {
        self.nodes.iter().map(|&node| u64::from(graph.size_with_branch(node))).sum()
    }
}

/// Returns all units. A node is part of at most one.
pub fn all(graph: &Graph) -> Vec<Unit> {
    let glued = glued(graph);
    let is_fixed_in_place = |&node: &NodeId| glued.contains(node);
    let places: TiVec<SectionId, Option<Place>> =
        graph.sections().iter().map(|section| place(graph, section)).collect();
    let place = |node: NodeId| places[graph.node(node).section];
    let mut units = Vec::new();
    for mut nodes in graph.owned() {
        nodes.retain(|&node| graph.node(node).live);
        let is_movable = nodes.iter().all(|&node| {
            place(node) == Some(Place::Text)
                && !is_fixed_in_place(&node)
                && (graph.block(node).is_none() || reaches(graph, node))
        });
        if is_movable && !nodes.is_empty() {
            units.push(Unit { nodes, place: Place::Text });
        }
    }
    for id in graph.node_ids().filter(|&id| graph.node(id).live) {
        let is_variable = graph
            .chunk(id)
            .is_some_and(|chunk| !chunk.code && chunk.life == Life::Referenced && chunk.function.is_none());
        if let Some(place) = place(id).filter(|_| is_variable && !is_fixed_in_place(&id)) {
            units.push(Unit { nodes: vec![id], place });
        }
    }
    units
}

/// Returns the units without a late part. A string is left out if the linker merges it with a string that is not moved:
/// it takes no memory there.
pub fn only_needed_early<'u>(graph: &Graph, units: &'u [Unit], late: &NodeSet) -> Vec<&'u Unit> {
    let is_late = |unit: &&Unit| unit.nodes.iter().any(|node| late.contains(*node));
    let text = |unit: &Unit| graph.bytes_of(unit.nodes[0]);
    let strings = units.iter().filter(|unit| unit.place == Place::String);
    let staying: FxHashSet<&[u8]> = strings.filter(is_late).map(text).collect();
    let stays = |unit: &&Unit| unit.place == Place::String && staying.contains(text(unit));
    units.iter().filter(|unit| !is_late(unit) && !stays(unit)).collect()
}

/// The destination of the content of a section; `None` if it is not moved.
fn place(graph: &Graph, section: &Section) -> Option<Place> {
    let has = |flag: u32| section.flags & u64::from(flag) != 0;
    let rule = graph.world().rule(&section.name, section.kind, section.flags);
    let name = graph.world().output_name(&section.name);
    let is_text = layout::class(graph.world(), &section.name) == ".text";
    match rule {
        _ if section.group.is_some() || has(SHF_TLS) => None,
        Rule::Data if has(SHF_MERGE) && has(SHF_STRINGS) && name.starts_with(".rodata.str") => {
            (!has(SHF_WRITE)).then_some(Place::String)
        }
        _ if has(SHF_MERGE) => None,
        Rule::Code if has(SHF_EXECINSTR) && is_text => Some(Place::Text),
        Rule::Data => data(section, name),
        _ => None,
    }
}

fn data(section: &Section, name: &str) -> Option<Place> {
    let is_writable = section.flags & u64::from(SHF_WRITE) != 0;
    match name {
        ".bss" if is_zero_initialized(section) => Some(Place::Zeros),
        ".data" | ".data..read_mostly" if is_writable && !is_zero_initialized(section) => Some(Place::Data),
        _ if name == ".rodata" || name.starts_with(".rodata.") => (!is_writable).then_some(Place::ReadOnly),
        _ => None,
    }
}

/// Whether a section has no bytes in the file.
fn is_zero_initialized(section: &Section) -> bool {
    section.kind == SHT_NOBITS
}

/// The nodes that are glued to others, the nodes they are glued to, nodes bound to nearby code, and tables that must be
/// found.
fn glued(graph: &Graph) -> NodeSet {
    let mut glued = near::bound(graph);
    for id in graph.node_ids().filter(|&id| graph.node(id).live) {
        if let Some(before) = graph.node(id).glued_to {
            glued.extend([id, before]);
        }
    }
    // objtool finds tables of jumps in `.rodata` only.
    if graph.world().is_checked_by_objtool() {
        glued.extend(graph.tables().iter().map(|table| table.chunk));
    }
    glued
}

/// Whether every branch of a block either reaches other sections or targets its own function.
fn reaches(graph: &Graph, id: NodeId) -> bool {
    let Some(block) = graph.block(id) else { return false };
    let leaves = |to: Option<NodeId>| to.is_none_or(|to| graph.function_of(to) != Some(block.function));
    let is_branch_short = match &block.end {
        Terminator::Branch { branch, taken, .. } => {
            leaves(graph.resolve_node(taken.target)) && !graph.isa().reaches_everywhere(*branch)
        }
        _ => false,
    };
    let mut refs = graph.refs_of(id).iter();
    !is_branch_short
        && !graph.knows_own_address(id)
        && !refs.any(|reference| reference.is_short() && leaves(graph.resolve_node(reference.target)))
}

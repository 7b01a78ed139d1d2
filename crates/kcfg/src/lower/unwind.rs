/*!
The index of ARM's unwind tables (`.ARM.exidx`; IHI 0038, section 5), generated anew for the placed code.

An entry describes all code from a function's first byte up to that of the next entry. The linker orders the sections
of the index by the code of each (`SHF_LINK_ORDER`), and unwinders search it by bisection. The entries of each section
of code are therefore in the order of its functions. A part of a function elsewhere, out of line or in another section,
has a separate entry with the same content.
*/

use indexmap::IndexMap;
use rustc_hash::FxHashMap;

use super::relax::{Placed, PlacedNode};
use crate::graph::Graph;
use crate::index::{FunctionId, NodeId, SectionId};

/// The name of sections of the index; the name of the section of code is appended unless it is `.text`.
const INDEX: &str = ".ARM.exidx";
/// Size of an entry in bytes.
const ENTRY: u32 = 8;

/// Replaces the placed sections of the index by ones that follow the placed code. Changes nothing if the place of any
/// described code is unknown.
pub(super) fn regroup(graph: &Graph, placed: &mut Vec<Placed>) {
    let Some(entries) = Entries::of(graph) else { return };
    let templates = Templates::of(graph);
    // A section that was placed leaves `None`, so that the others keep their order.
    let mut made: IndexMap<SectionId, Option<Placed>> = IndexMap::new();
    for code in placed.iter() {
        let found = entries.about(graph, &code.nodes);
        if let (false, Some(section)) = (found.is_empty(), templates.get(graph, code.section)) {
            made.insert(code.section, Some(index(graph, section, code.section, &found)));
        }
    }
    // In the places of the old sections.
    let mut all = Vec::with_capacity(placed.len());
    for piece in std::mem::take(placed) {
        if is_index(graph, piece.section) {
            let code = graph.sections[piece.section].order;
            all.extend(code.and_then(|code| made.get_mut(&code)?.take()));
        } else {
            all.push(piece);
        }
    }
    all.extend(made.into_values().flatten());
    *placed = all;
}

/// Creates a section of the index, for a section of code.
fn index(graph: &Graph, section: SectionId, code: SectionId, entries: &[(NodeId, u32)]) -> Placed {
    let place = |(i, &(node, _)): (usize, &(NodeId, u32))| PlacedNode {
        node,
        offset: i as u32 * ENTRY,
        branches: Vec::new(),
    };
    Placed {
        section,
        nodes: entries.iter().enumerate().map(place).collect(),
        size: entries.len() as u32 * ENTRY,
        align: graph.sections[section].align.max(1),
        about: entries.iter().map(|&(_, offset)| (code, offset)).collect(),
    }
}

/// The sections of the index, which supply names and attributes for new ones.
#[derive(Default)]
struct Templates<'g> {
    /// The first for each section of code that they follow.
    by_code: FxHashMap<SectionId, SectionId>,
    /// The first with each name.
    by_name: FxHashMap<&'g str, SectionId>,
    first: Option<SectionId>,
}

impl<'g> Templates<'g> {
    fn of(graph: &'g Graph) -> Templates<'g> {
        let mut templates = Templates::default();
        for id in graph.sections.keys().filter(|&id| is_index(graph, id)) {
            let section = &graph.sections[id];
            if let Some(code) = section.order {
                templates.by_code.entry(code).or_insert(id);
            }
            templates.by_name.entry(&section.name).or_insert(id);
            templates.first.get_or_insert(id);
        }
        templates
    }

    /// Returns the template for a section of code: its own, or one with the name that the compiler would give it, or
    /// else any.
    fn get(&self, graph: &Graph, code: SectionId) -> Option<SectionId> {
        let wanted = match graph.world.output_name(&graph.sections[code].name) {
            ".text" => INDEX.to_owned(),
            other => format!("{INDEX}{other}"),
        };
        let own = self.by_code.get(&code).or_else(|| self.by_name.get(&*wanted));
        own.copied().or(self.first)
    }
}

fn is_index(graph: &Graph, section: SectionId) -> bool {
    graph.sections[section].nodes.first().is_some_and(|&node| graph.is_unwind_entry(node))
}

/// The live entries.
struct Entries {
    /// For each node that entries describe, the entries and the offsets in bytes of the described code, by ascending
    /// offset.
    by_node: FxHashMap<NodeId, Vec<(u32, NodeId)>>,
    /// For each function, the entry of its first block.
    by_function: FxHashMap<FunctionId, NodeId>,
}

impl Entries {
    /// Returns the entries of a graph; `None` if there are none, or if the code of one is unknown.
    fn of(graph: &Graph) -> Option<Entries> {
        let mut entries = Entries { by_node: FxHashMap::default(), by_function: FxHashMap::default() };
        for node in graph.node_ids().filter(|&node| graph.node(node).live && graph.is_unwind_entry(node)) {
            let site = graph.site(node)?;
            let (to, inside) = graph.resolve(site.target)?;
            let offset = u32::try_from(i64::from(inside) + site.addend).ok()?;
            entries.by_node.entry(to).or_default().push((offset, node));
            if let Some(function) = graph.function_of(to) {
                entries.by_function.entry(function).or_insert(node);
            }
        }
        entries.by_node.values_mut().for_each(|entries| entries.sort_unstable());
        (!entries.by_node.is_empty()).then_some(entries)
    }

    /// Returns the entries about placed code, with the offset in bytes of the described code.
    fn about(&self, graph: &Graph, nodes: &[PlacedNode]) -> Vec<(NodeId, u32)> {
        let mut found: Vec<(NodeId, u32)> = Vec::new();
        let (mut before, mut covering) = (None, None);
        for &PlacedNode { node, offset, .. } in nodes {
            let function = graph.owner(node);
            let own = self.by_node.get(&node).map_or(&[][..], Vec::as_slice);
            if function.is_none() || function != before {
                let whole = function.filter(|_| own.is_empty()).and_then(|id| self.by_function.get(&id));
                found.extend(whole.map(|&entry| (entry, offset)));
                covering = whole.copied();
            }
            for &(inside, entry) in own.iter().filter(|&&(_, entry)| covering != Some(entry)) {
                found.push((entry, offset + inside));
            }
            covering = own.last().map(|&(_, entry)| entry).or(covering);
            before = function;
        }
        found
    }
}

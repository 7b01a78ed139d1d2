/*!
The index of ARM's unwind tables (`.ARM.exidx`; IHI 0038, section 5), made anew for the code as it is placed.

An entry is about all code from a function's first byte up to the next entry's. The linker orders the sections of the
index by the code that each is for (`SHF_LINK_ORDER`), and whoever unwinds searches it by halving. The entries of each
section of code are therefore in the order of its functions. A part of a function elsewhere, out of line or in another
section, has an entry of its own with the same content.
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

/// Replaces the placed sections of the index by ones that follow the placed code.
/// Changes nothing if it is not known where all code lies that the entries are about.
pub(super) fn regroup(graph: &Graph, placed: &mut Vec<Placed>) {
    let Some(entries) = Entries::of(graph) else { return };
    let templates = Templates::of(graph);
    // What has found its place leaves nothing behind, so that the others keep their order.
    let mut made: IndexMap<SectionId, Option<Placed>> = IndexMap::new();
    for code in placed.iter() {
        let found = entries.about(graph, &code.nodes);
        if let (false, Some(section)) = (found.is_empty(), templates.get(graph, code.section)) {
            made.insert(code.section, Some(index(graph, section, code.section, &found)));
        }
    }
    // In the places of those that were there.
    let mut all = Vec::with_capacity(placed.len());
    for piece in std::mem::take(placed) {
        if is_index(graph, piece.section) {
            let code = graph.sections[piece.section.get()].order;
            all.extend(code.and_then(|code| made.get_mut(&code)?.take()));
        } else {
            all.push(piece);
        }
    }
    all.extend(made.into_values().flatten());
    *placed = all;
}

/// A section of the index, for a section of code.
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
        align: graph.sections[section.get()].align.max(1),
        about: entries.iter().map(|&(_, offset)| (code, offset)).collect(),
    }
}

/// The sections of the index, of which one gives its name and attributes to each that is made.
#[derive(Default)]
struct Templates<'g> {
    /// By the section of code that they follow, the first.
    by_code: FxHashMap<SectionId, SectionId>,
    /// By name, the first.
    by_name: FxHashMap<&'g str, SectionId>,
    first: Option<SectionId>,
}

impl<'g> Templates<'g> {
    fn of(graph: &'g Graph) -> Templates<'g> {
        let mut templates = Templates::default();
        for id in (0..graph.sections.len()).map(SectionId::from).filter(|&id| is_index(graph, id)) {
            let section = &graph.sections[id.get()];
            if let Some(code) = section.order {
                templates.by_code.entry(code).or_insert(id);
            }
            templates.by_name.entry(&section.name).or_insert(id);
            templates.first.get_or_insert(id);
        }
        templates
    }

    /// That of a section of code: its own, or one of the name that the compiler would give it, or else any.
    fn get(&self, graph: &Graph, code: SectionId) -> Option<SectionId> {
        let wanted = match graph.world.output_name(&graph.sections[code.get()].name) {
            ".text" => INDEX.to_owned(),
            other => format!("{INDEX}{other}"),
        };
        let own = self.by_code.get(&code).or_else(|| self.by_name.get(&*wanted));
        own.copied().or(self.first)
    }
}

fn is_index(graph: &Graph, section: SectionId) -> bool {
    graph.sections[section.get()].nodes.first().is_some_and(|&node| graph.is_unwind_entry(node))
}

/// The entries that are alive.
struct Entries {
    /// For each node that one is about, the entries and the offsets in bytes of what they are about, by rising offset.
    by_node: FxHashMap<NodeId, Vec<(u32, NodeId)>>,
    /// For each function, the entry that is about its first block.
    by_function: FxHashMap<FunctionId, NodeId>,
}

impl Entries {
    /// Those of a graph; `None` if there are none, or if it is not known what one is about.
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

    /// The entries about placed code, with the offset in bytes of what each is about.
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

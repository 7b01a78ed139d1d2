//! The bytes that a kernel keeps because of a set of objects.

use std::collections::BTreeMap;

use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS};
use kcfg::graph::Graph;
use kcfg::index::NodeId;
use kelf::Program;
use kopt::retained::Removals;
use kplan::KeptBytes;
use ksize::is_given_back;
use rustc_hash::FxHashMap;

/// The kind of memory that bytes take.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Data,
    Bss,
    Init,
}

/// Whether the kernel frees a section of this name after it has started.
pub fn is_init(section: &str) -> bool {
    section.starts_with(".init") || section.ends_with(".init")
}

fn kind(section: &str, is_code: bool, has_content: bool) -> Kind {
    match (is_init(section), is_code, has_content) {
        (true, _, _) => Kind::Init,
        (false, true, _) => Kind::Text,
        (false, false, true) => Kind::Data,
        (false, false, false) => Kind::Bss,
    }
}

fn add(bytes: &mut KeptBytes, kind: Kind, size: u64) {
    match kind {
        Kind::Text => bytes.text += size,
        Kind::Data => bytes.data += size,
        Kind::Bss => bytes.bss += size,
        Kind::Init => bytes.init += size,
    }
}

/// A graph, prepared to measure sets of its objects.
pub struct Costs<'g> {
    graph: &'g Graph,
    removals: Removals,
    nodes: FxHashMap<&'g str, Vec<NodeId>>,
    /// The nodes by object, section, and offset.
    places: FxHashMap<(&'g str, &'g str, u32), NodeId>,
}

impl<'g> Costs<'g> {
    /// Collects the nodes of each object, and the edges.
    pub fn new(graph: &'g Graph) -> Costs<'g> {
        let mut nodes: FxHashMap<&str, Vec<NodeId>> = FxHashMap::default();
        let mut places = FxHashMap::default();
        for id in graph.node_ids().filter(|&id| graph.node(id).live) {
            if let Some(place) = place(graph, id) {
                nodes.entry(place.0).or_default().push(id);
                places.insert(place, id);
            }
        }
        Costs { graph, removals: Removals::of(graph), nodes, places }
    }

    /// Returns the nodes that are reachable only through these objects, and these nodes of `built`, a graph of the same
    /// program. They include the objects and nodes.
    pub fn nodes(&self, objects: &[&str], built: &Graph, parts: &[NodeId]) -> Vec<NodeId> {
        let own = objects.iter().filter_map(|object| self.nodes.get(object)).flatten();
        let parts = parts.iter().filter_map(|&id| self.places.get(&place(built, id)?));
        let own: Vec<NodeId> = own.chain(parts).copied().collect();
        if own.is_empty() { own } else { self.removals.without(&own) }
    }

    /// Returns the bytes of these nodes.
    pub fn of(&self, objects: &[&str], built: &Graph, parts: &[NodeId]) -> KeptBytes {
        bytes(self.graph, &self.nodes(objects, built, parts))
    }
}

/// Returns where a node comes from: object, section, and offset in bytes.
pub fn place(graph: &Graph, id: NodeId) -> Option<(&str, &str, u32)> {
    let input = graph.input_of(id)?;
    Some((&input.object, &input.name, graph.node(id).origin()?.offset))
}

/// Returns the bytes of some nodes, without padding.
pub fn bytes(graph: &Graph, nodes: &[NodeId]) -> KeptBytes {
    let mut bytes = KeptBytes::default();
    for &id in nodes {
        let section = graph.section_of(id);
        if is_given_back(&section.name) {
            continue;
        }
        let kind = kind(&section.name, graph.is_code(id), section.kind != SHT_NOBITS);
        add(&mut bytes, kind, u64::from(graph.size_with_branch(id)));
    }
    bytes
}

/// Returns the bytes of some nodes by the object that they come from.
pub fn by_object<'g>(graph: &'g Graph, nodes: &[NodeId]) -> BTreeMap<&'g str, KeptBytes> {
    let mut objects: BTreeMap<&str, Vec<NodeId>> = BTreeMap::new();
    for &id in nodes {
        if let Some(input) = graph.input_of(id) {
            objects.entry(&input.object).or_default().push(id);
        }
    }
    objects.into_iter().map(|(object, nodes)| (object, bytes(graph, &nodes))).collect()
}

/// Returns the bytes of the sections of each object that are in memory, by the object's name.
pub fn contents<'p>(program: &'p Program<'_>) -> BTreeMap<&'p str, KeptBytes> {
    let mut contents = BTreeMap::new();
    for input in &program.objects {
        let mut bytes = KeptBytes::default();
        for (number, section) in input.object.sections.iter().enumerate() {
            if section.flags & u64::from(SHF_ALLOC) == 0
                || input.is_discarded(number.into())
                || is_given_back(section.name)
            {
                continue;
            }
            let is_code = section.flags & u64::from(SHF_EXECINSTR) != 0;
            add(&mut bytes, kind(section.name, is_code, section.kind != SHT_NOBITS), section.size);
        }
        contents.insert(input.object.name.as_str(), bytes);
    }
    contents
}

/// Returns the sum of the contents of some objects.
pub fn sum(contents: &BTreeMap<&str, KeptBytes>, objects: &[&str]) -> KeptBytes {
    total(objects.iter().filter_map(|object| contents.get(object)))
}

/// Returns the sum of figures, by kind.
pub fn total<'b>(figures: impl IntoIterator<Item = &'b KeptBytes>) -> KeptBytes {
    figures.into_iter().copied().fold(KeptBytes::default(), plus)
}

/// Returns the sum of two figures, by kind.
pub fn plus(a: KeptBytes, b: KeptBytes) -> KeptBytes {
    KeptBytes { text: a.text + b.text, data: a.data + b.data, bss: a.bss + b.bss, init: a.init + b.init }
}

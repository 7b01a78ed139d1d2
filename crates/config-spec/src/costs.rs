//! The bytes that a kernel keeps because of a set of objects.

use std::collections::BTreeMap;

use goblin::elf::section_header::{SHF_ALLOC, SHF_EXECINSTR, SHT_NOBITS};
use kcfg::graph::{Graph, NodeKind};
use kcfg::index::NodeId;
use kelf::Program;
use kopt::retained::Removals;
use kplan::KeptBytes;
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
}

impl<'g> Costs<'g> {
    /// Collects the nodes of each object, and the edges.
    pub fn of(graph: &'g Graph) -> Costs<'g> {
        let mut nodes: FxHashMap<&str, Vec<NodeId>> = FxHashMap::default();
        for id in graph.node_ids().filter(|&id| graph.node(id).live) {
            if let Some(input) = graph.input_of(id) {
                nodes.entry(&input.object).or_default().push(id);
            }
        }
        Costs { graph, removals: Removals::of(graph), nodes }
    }

    /// Returns the bytes that are reachable only through these objects, including the objects. Padding does not count.
    pub fn of_objects(&self, objects: &[&str]) -> KeptBytes {
        let own = objects.iter().filter_map(|object| self.nodes.get(object)).flatten();
        let own: Vec<NodeId> = own.copied().collect();
        let mut bytes = KeptBytes::default();
        for id in self.removals.without(&own) {
            let size = u64::from(self.graph.size_with_branch(id));
            let is_code = match &self.graph.node(id).kind {
                NodeKind::Block(_) => true,
                NodeKind::Chunk(chunk) => chunk.code,
            };
            let section = self.graph.section_of(id);
            add(&mut bytes, kind(&section.name, is_code, section.kind != SHT_NOBITS), size);
        }
        bytes
    }
}

/// Returns the bytes of the sections of each object that are in memory, by the object's name.
pub fn contents<'p>(program: &'p Program<'_>) -> BTreeMap<&'p str, KeptBytes> {
    let mut contents = BTreeMap::new();
    for input in &program.objects {
        let mut bytes = KeptBytes::default();
        for (number, section) in input.object.sections.iter().enumerate() {
            if section.flags & u64::from(SHF_ALLOC) == 0 || input.is_discarded(number.into()) {
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
    let mut sum = KeptBytes::default();
    for bytes in objects.iter().filter_map(|object| contents.get(object)) {
        sum.text += bytes.text;
        sum.data += bytes.data;
        sum.bss += bytes.bss;
        sum.init += bytes.init;
    }
    sum
}

/*!
Prints the graph: as a JSON document ([`json`]), as human-readable text ([`listing`]) or as Graphviz input ([`dot`]).

All print a [`Selection`], everything or some functions, through a [`Printer`], which holds the shared indices: the
edges, and the symbols in each node. Output is streamed: the record of one function or chunk is built, written and
dropped, so printing a kernel takes no more memory than printing a function.

The layout of the JSON is stable ([`json::SCHEMA`], `docs/kcfg-json.md`); the layouts of the text and of the Graphviz
output are not.
*/

mod build;
pub mod dot;
pub mod json;
pub mod listing;
mod record;
mod scope;
mod select;
mod text;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::Serialize;

use crate::edges::Edges;
use crate::graph::{Graph, Opaque, Provenance, Symbol, SymbolPlace, Target, Terminator};
use crate::index::{FunctionId, NodeId, SymbolId};
use crate::mapping::{Content, content_behind};
use crate::special::RootReason;
use kisa::BranchForm;

pub use select::{Error, Selection};

/// A graph, with its edges, and its symbols, roots and opaque code by node.
pub struct Printer<'g> {
    graph: &'g Graph,
    edges: Edges<'g>,
    /// Defined symbols by node, then by their offset in it.
    symbols: Vec<(NodeId, u32, SymbolId)>,
    /// The contents after mapping symbols, by node, then by their offset in it.
    contents: Vec<(NodeId, u32, Content)>,
    roots: FxHashMap<NodeId, Vec<RootReason>>,
    opaque: FxHashMap<NodeId, &'g Opaque>,
    /// The blocks that are followed by data among the instructions.
    before_data: FxHashSet<NodeId>,
}

impl<'g> Printer<'g> {
    /// Indexes a graph.
    pub fn new(graph: &'g Graph) -> Printer<'g> {
        let (mut symbols, mut contents) = (Vec::new(), Vec::new());
        for (id, symbol) in graph.symbols.iter_enumerated() {
            let SymbolPlace::Node(node, offset) = symbol.place else { continue };
            match content_behind(graph.machine, &symbol.name) {
                Some(content) => contents.push((node, offset, content)),
                None => symbols.push((node, offset, id)),
            }
        }
        symbols.sort_unstable();
        contents.sort_by_key(|&(node, offset, _)| (node, offset));
        let mut roots: FxHashMap<NodeId, Vec<RootReason>> = FxHashMap::default();
        for root in &graph.roots {
            let reasons = roots.entry(root.node).or_default();
            if !reasons.contains(&root.reason) {
                reasons.push(root.reason);
            }
        }
        let opaque = graph.opaque.iter().map(|opaque| (opaque.node, opaque)).collect();
        let pairs = graph.sections.iter().flat_map(|section| section.nodes.windows(2));
        let before_data = pairs.filter(|pair| graph.is_among_code(pair[1])).map(|pair| pair[0]).collect();
        Printer { graph, edges: Edges::of(graph), symbols, contents, roots, opaque, before_data }
    }

    /// Returns the symbols in a node, by offset, each with its offset there in bytes.
    fn symbols_in(&self, node: NodeId) -> impl DoubleEndedIterator<Item = (u32, &'g Symbol)> {
        let from = self.symbols.partition_point(|&(other, ..)| other < node);
        let to = self.symbols.partition_point(|&(other, ..)| other <= node);
        self.symbols[from..to].iter().map(|&(_, offset, id)| (offset, &self.graph.symbols[id]))
    }

    /// Returns the human-readable name of a place in a node: `jiffies+0x4` if a symbol covers it, the text of a string,
    /// else as [`Graph::name_of`]. Labels of hand-written code, which have no size, cover the code after them.
    fn name_of_place(&self, node: NodeId, offset: i64) -> String {
        if let Some(chunk) = self.graph.chunk(node) {
            let covers = |(start, symbol): &(u32, &Symbol)| {
                let start = i64::from(*start);
                let is_label = chunk.code && symbol.size == 0;
                offset == start || offset > start && (is_label || offset - start < symbol.size as i64)
            };
            if let Some((start, symbol)) = self.symbols_in(node).rev().find(covers) {
                return with_offset(symbol.name.clone(), offset - i64::from(start));
            }
            if let Some(text) = self.string(node) {
                return with_offset(quoted(text), offset);
            }
            let place = self.place_of(node);
            let name = format!("{}:{}", place.object, place.section);
            return with_offset(name, i64::from(place.offset) + offset);
        }
        with_offset(self.graph.name_of(node), offset)
    }

    /// Returns the human-readable name of the target of a reference or a branch.
    fn name_of_target(&self, target: Target, offset: i64) -> String {
        match target {
            Target::Node(node) => self.name_of_place(node, offset),
            Target::Symbol(symbol) => with_offset(self.graph.symbols[symbol].name.clone(), offset),
        }
    }

    /// Returns the offset in bytes in its section of the end of a function, excluding padding.
    fn end_of_function(&self, id: FunctionId) -> u32 {
        let function = &self.graph.functions[id];
        let (entry, last) = (function.entry(), function.blocks[function.blocks.len() - 1]);
        let start = self.place_of(entry).offset;
        let covered = self
            .symbols_in(entry)
            .take_while(|&(offset, _)| offset == 0)
            .map(|(_, symbol)| start.saturating_add(u32::try_from(symbol.size).unwrap_or(0)))
            .max();
        // Code between functions has no sized symbol; its last branch has the length that an assembler gives it.
        match covered {
            Some(end) if end >= self.place_of(last).offset + self.graph.node(last).size => end,
            _ => self.end_of_block(last),
        }
    }

    /// Returns the offset in bytes in its section of the end of a block, excluding padding.
    fn end_of_block(&self, id: NodeId) -> u32 {
        self.place_of(id).offset + self.graph.node(id).size + self.length_of_branch(id)
    }

    /// Returns the length in bytes of a final branch that is not among the block's bytes, in the shortest encoding that
    /// reaches.
    fn length_of_branch(&self, id: NodeId) -> u32 {
        let node = self.graph.node(id);
        let (branch, dest) = match self.graph.block(id).map(|block| &block.end) {
            Some(Terminator::Jump(dest)) => (self.graph.isa().jump(self.graph.encoding(id)), dest),
            Some(Terminator::Branch { branch, taken, .. }) => (*branch, taken),
            _ => return 0,
        };
        let from = i64::from(self.place_of(id).offset + node.size);
        let local = match dest.target {
            Target::Node(to) if self.graph.node(to).section == node.section => {
                Some(i64::from(self.place_of(to).offset) + dest.offset)
            }
            _ => None,
        };
        let forms = self.graph.isa().branch_forms(branch);
        let reaches =
            |form: &&BranchForm| local.is_some_and(|to| form.reaches(to - from - i64::from(form.len)));
        forms.iter().find(reaches).or(forms.last()).map_or(0, |form| u32::from(form.len))
    }

    /// Returns the origin of a node.
    fn place_of(&self, id: NodeId) -> PlaceOf<'_> {
        match (self.graph.node(id).provenance, self.graph.input_of(id)) {
            (Provenance::Input(origin), Some(input)) => {
                PlaceOf { object: &input.object, section: &input.name, offset: origin.offset }
            }
            (Provenance::Made(pass), _) => {
                PlaceOf { object: pass, section: &self.graph.section_of(id).name, offset: 0 }
            }
            (Provenance::Input(_), None) => unreachable!("an origin names an input section"),
        }
    }
}

/// The origin of a node: a section of an object, or of code that a pass made.
struct PlaceOf<'p> {
    object: &'p str,
    section: &'p str,
    /// Offset in bytes in the section.
    offset: u32,
}

/// Returns the name of a variant as in the JSON documents, so that text and JSON agree.
pub fn spelling(variant: impl Serialize) -> String {
    match serde_json::to_value(variant) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

/// Quotes a string as in C, and truncates a long one.
fn quoted(text: &str) -> String {
    const LONGEST: usize = 40;
    let cut = text.char_indices().nth(LONGEST).map_or(text.len(), |(at, _)| at);
    let more = if cut < text.len() { "…" } else { "" };
    format!("\"{}{more}\"", text[..cut].escape_debug())
}

fn with_offset(name: String, offset: i64) -> String {
    match offset {
        0 => name,
        ..0 => format!("{name}-{:#x}", offset.unsigned_abs()),
        _ => format!("{name}+{offset:#x}"),
    }
}

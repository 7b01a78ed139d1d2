/*!
Splits data sections at their variables, where it can be proved correct.

Without `-fdata-sections`, all variables of a source file share a section. One needed variable keeps all of them, and
every function that one of them points to. The symbol table gives the boundaries of variables. However, a reference to
a local variable is encoded as section plus offset, and a compiler may use an address outside of the variable:
`table-8(,%eax,8)` for `table[i - 1]`. Without a proof, such a reference would be attached to the wrong variable. Every
reference into the section must therefore be *proved* to be to the variable at its offset. Three facts prove it
([`claims`]):

- The bytes of an access at a fixed address, or through an index with known bounds, belong to the variable that the
  reference is to.
- A pointer that is passed to a function, returned, stored in memory outside of the frame, or part of an initializer is
  a value of the source language. It points into its object or just after its last byte (C11 6.5.6p8); compilers keep
  other addresses only in registers and in the frame. (The kernel itself makes an exception for list heads; see
  `Variables::join_heads`.) The proof is accepted only for pointers to the first byte of a variable.
- A reference against a global symbol is to that symbol's variable.

A pointer to the first byte of a variable may also mean the end of the previous variable, like the pointer of an empty
stack that grows down. It keeps both alive, and the second is glued to the first ([`crate::graph::Node::glued_to`]). If
a single reference cannot be proved, the section is not split.
*/

mod claims;
mod dominators;
mod escape;

use std::collections::BTreeMap;
use std::ops::Range;

use goblin::elf::section_header::{SHF_ALLOC, SHF_MERGE, SHF_WRITE};
use goblin::elf::sym::{STT_NOTYPE, STT_OBJECT};
use rustc_hash::FxHashMap;
use typed_index_collections::TiVec;

use super::decode::spans::alignment;
use crate::graph::{Editor, Graph, Life, Node, SymbolPlace, Target};
use crate::index::{InputId, NodeId, SectionId};
use crate::special::Rule;

pub(super) use claims::Claim;

/// The cuts of each input section that is split at its variables.
pub(super) type Cuts = FxHashMap<InputId, Vec<Cut>>;

/// A cut in a section. The bytes between two cuts are a *piece*: one or more variables.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// Its offset in bytes from the start of the input section.
    pub start: u32,
    /// Whether the piece is glued to the previous one.
    pub glued: bool,
}

/// Returns the cuts in the data sections of a program, given a graph of it: only live references matter.
pub(super) fn cuts(graph: &Graph) -> Cuts {
    let mut sections = candidates(graph);
    for node in graph.node_ids() {
        let Some(origin) = graph.node(node).origin() else { continue };
        let Some(variables) = sections.get_mut(&origin.section) else { continue };
        // A relocation field may extend over several variables.
        for reference in graph.refs_of(node) {
            let start = i64::from(origin.offset) + i64::from(reference.offset);
            variables.add_access(start..start + i64::from(reference.width));
        }
    }
    let prover = claims::Prover::of(graph);
    for node in graph.node_ids().filter(|&node| graph.node(node).live) {
        for reference in graph.refs_of(node) {
            let Target::Node(to) = reference.target else { continue };
            let Some(to) = graph.node(to).origin() else { continue };
            // A section with an unproved reference is not split.
            let Some(variables) = sections.get_mut(&to.section).filter(|variables| !variables.unproved)
            else {
                continue;
            };
            match prover.claim(node, reference).at(to.offset) {
                Claim::Access(range) => variables.add_access(range),
                Claim::Pointer(at) if graph.block(node).is_some() => variables.add_entry(at),
                Claim::Pointer(at) => {
                    let from = graph.node(node).origin().filter(|from| from.section == to.section);
                    let holder = from.map(|from| i64::from(from.offset) + i64::from(reference.offset));
                    variables.add_initializer(at, holder);
                }
                Claim::Unknown => variables.unproved = true,
            }
        }
    }
    let cuts = sections.into_iter().filter_map(|(id, variables)| Some((id, variables.cuts()?)));
    cuts.collect()
}

/// Splits the nodes of a graph, and glues pieces together. Returns whether that changed the graph.
pub(super) fn apply(graph: &mut Graph, cuts: &Cuts) -> bool {
    let mut pieces = pieces(graph, cuts);
    let mut changed = false;
    let aligns: TiVec<SectionId, u64> = graph.sections.iter().map(|section| section.align.into()).collect();
    let mut editor = Editor::new(graph, "lift");
    for (input, nodes) in &pieces {
        for &node in nodes {
            let piece = editor.graph().node(node);
            let (start, size, align) = (offset(piece), piece.size, aligns[piece.section]);
            let inside =
                cuts[input].iter().map(|cut| cut.start).filter(|&at| start < at && at < start + size);
            let inside: Vec<(u32, u32)> = inside.map(|at| (at - start, alignment(align, at))).collect();
            changed |= !inside.is_empty();
            editor.split_data(node, &inside);
        }
    }
    editor.finish();
    if changed {
        pieces = self::pieces(graph, cuts);
    }
    for (input, nodes) in &pieces {
        for pair in nodes.windows(2) {
            let start = offset(graph.node(pair[1]));
            let Ok(cut) = cuts[input].binary_search_by_key(&start, |cut| cut.start) else { continue };
            let glued_to = cuts[input][cut].glued.then_some(pair[0]);
            let piece = &mut graph.nodes[pair[1]];
            changed |= piece.glued_to != glued_to;
            piece.glued_to = glued_to;
        }
    }
    changed
}

/// Returns the nodes of the split sections, by ascending offset.
fn pieces(graph: &Graph, cuts: &Cuts) -> BTreeMap<InputId, Vec<NodeId>> {
    let mut pieces: BTreeMap<InputId, Vec<NodeId>> = BTreeMap::new();
    for node in graph.node_ids() {
        if let Some(origin) = graph.node(node).origin().filter(|origin| cuts.contains_key(&origin.section)) {
            pieces.entry(origin.section).or_default().push(node);
        }
    }
    pieces.values_mut().for_each(|nodes| nodes.sort_by_key(|&node| offset(graph.node(node))));
    pieces
}

/// Returns the offset in bytes of a piece in its input section.
fn offset(piece: &Node) -> u32 {
    piece.origin().map_or(0, |origin| origin.offset)
}

/// Returns the sections with more than one variable.
fn candidates(graph: &Graph) -> FxHashMap<InputId, Variables> {
    let mut found: FxHashMap<InputId, Vec<Range<u32>>> = FxHashMap::default();
    for symbol in &graph.symbols {
        if let SymbolPlace::Node(node, offset) = symbol.place
            && matches!(symbol.kind, STT_OBJECT | STT_NOTYPE)
            && symbol.size > 0
            && is_candidate(graph, node)
            && let Some(origin) = graph.node(node).origin()
        {
            let start = origin.offset + offset;
            let section_size = graph.inputs[origin.section].size;
            let end = u64::from(start).saturating_add(symbol.size).min(section_size.into()) as u32;
            if start < end {
                found.entry(origin.section).or_default().push(start..end);
            }
        }
    }
    // Code may compute distances between labels of `asm`, which have no size.
    for symbol in graph.symbols.iter().filter(|symbol| symbol.size == 0 && symbol.kind == STT_NOTYPE) {
        if let SymbolPlace::Node(node, _) = symbol.place
            && let Some(origin) = graph.node(node).origin()
        {
            found.remove(&origin.section);
        }
    }
    let variables = found.into_iter().map(|(id, ranges)| {
        let (size, flags) = (graph.inputs[id].size, graph.sections[id.lifted()].flags);
        (id, Variables::new(ranges, size, flags & u64::from(SHF_WRITE) != 0))
    });
    variables.filter(|(_, variables)| variables.pieces.len() > 1).collect()
}

fn is_candidate(graph: &Graph, node: NodeId) -> bool {
    let Some(chunk) = graph.chunk(node) else { return false };
    let section = graph.section_of(node);
    let plain = graph.world.rule(&section.name, section.kind, section.flags) == Rule::Data
        && section.flags & u64::from(SHF_MERGE) == 0
        && section.flags & u64::from(SHF_ALLOC) != 0;
    plain && !chunk.code && chunk.life == Life::Referenced && !section.whole
}

/// The variables of one section, and the proved facts about the references into it.
struct Variables {
    /// The variables, and the bytes between them: together the whole section, by ascending offset.
    pieces: Vec<Range<u32>>,
    /// Whether each piece cannot be split from the previous one, because one access may touch both.
    joined: Vec<bool>,
    /// Whether each piece is glued to the previous one, because a pointer may be to the end of that.
    glued: Vec<bool>,
    /// Whether the program can write to the section.
    writable: bool,
    /// The lowest pointer, in bytes from the start of the section, that may be `list_entry()` of a list head after it.
    first_entry: i64,
    /// A reference could not be proved.
    unproved: bool,
}

impl Variables {
    fn new(mut ranges: Vec<Range<u32>>, size: u32, writable: bool) -> Variables {
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        let mut pieces: Vec<Range<u32>> = Vec::with_capacity(ranges.len());
        let mut at = 0;
        for range in ranges {
            match pieces.last_mut() {
                // An alias, or a symbol for a part of the variable.
                Some(last) if range.start < last.end => last.end = last.end.max(range.end),
                _ => {
                    if range.start > at {
                        pieces.push(at..range.start);
                    }
                    pieces.push(range);
                }
            }
            at = pieces[pieces.len() - 1].end;
        }
        if at < size {
            pieces.push(at..size);
        }
        let joined = vec![false; pieces.len()];
        let glued = joined.clone();
        Variables { pieces, joined, glued, writable, first_entry: i64::MAX, unproved: false }
    }

    /// Adds a pointer that code computes. It must be to the first byte of a variable: elsewhere it may have been
    /// computed from the address of the next variable (`table - 1`, for an array whose first index is 1). The kernel
    /// also computes `list_entry(&head, …)` of a list head, which points before the variable that holds the head, where
    /// another variable may begin. See [`Variables::join_heads`].
    fn add_entry(&mut self, at: i64) {
        self.add_pointer(at);
        self.first_entry = self.first_entry.min(at);
    }

    /// Adds a pointer in an initializer; `holder` is its offset, if it is in the same section. It must be to the first
    /// byte of a variable, or into the variable that contains it (the head of an empty list): elsewhere it may be an
    /// integer derived from the address of any variable (`(uintptr_t)&key + 12`).
    fn add_initializer(&mut self, at: i64, holder: Option<i64>) {
        match holder {
            Some(holder) if (0..self.size()).contains(&at) && self.piece(holder) == self.piece(at) => {}
            _ => self.add_entry(at),
        }
    }

    /// Adds a pointer to the first byte of a variable, or to the end of the previous one.
    fn add_pointer(&mut self, at: i64) {
        let piece = (0..self.size()).contains(&at).then(|| self.piece(at));
        match piece.filter(|&piece| i64::from(self.pieces[piece].start) == at) {
            Some(piece) => self.glued[piece] = piece > 0,
            None => self.unproved = true,
        }
    }

    /// Adds an access to these bytes, which belong to one variable.
    fn add_access(&mut self, range: Range<i64>) {
        if 0 <= range.start && range.start < range.end && range.end <= self.size() {
            let (first, last) = (self.piece(range.start), self.piece(range.end - 1));
            self.joined[first + 1..=last].fill(true);
        } else {
            self.unproved = true;
        }
    }

    fn size(&self) -> i64 {
        i64::from(self.pieces[self.pieces.len() - 1].end)
    }

    fn piece(&self, at: i64) -> usize {
        self.pieces.partition_point(|piece| i64::from(piece.start) <= at) - 1
    }

    /// Joins everything after the first pointer that may be `list_entry()` of a list head: the head may be in any
    /// variable after it, at any distance. Read-only sections hold no list heads, which change when an entry is added.
    fn join_heads(&mut self) {
        if self.writable && (0..self.size()).contains(&self.first_entry) {
            self.add_access(self.first_entry..self.size());
        }
    }

    /// Returns the cuts of the section; `None` if it cannot be split.
    fn cuts(mut self) -> Option<Vec<Cut>> {
        self.join_heads();
        if self.unproved {
            return None;
        }
        let pieces = self.pieces.iter().zip(&self.joined).zip(&self.glued);
        let apart = pieces.filter(|((_, joined), _)| !**joined);
        let cuts: Vec<Cut> = apart.map(|((piece, _), &glued)| Cut { start: piece.start, glued }).collect();
        (cuts.len() > 1).then_some(cuts)
    }
}

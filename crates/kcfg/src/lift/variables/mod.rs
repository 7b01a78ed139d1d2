/*!
Cutting data sections at their variables, where it can be proved right.

Without `-fdata-sections`, all variables of a source file share a section, and one of them that is needed
keeps all of them, and every function that any of them points to. The symbol table says where variables begin
and end; but a reference to a local one is encoded as section plus offset, and a compiler may use an address
outside of the variable that it means: `table-8(,%eax,8)` for `table[i - 1]`. Cutting on faith would give such
a reference to the wrong variable. So every reference into the section has to be *proved* to mean the
variable that its offset lies in. Three facts prove it ([`claims`]):

- An access at a fixed address, or through an index with known bounds, touches the bytes that it touches:
  they belong to the variable that is meant.
- A pointer that is passed to a function, returned, stored in memory outside of the frame, or part of an
  initializer is a value of the source language, so that it points into its object or just behind its last
  byte (C11 6.5.6p8); compilers keep addresses that do not only in registers and in the frame. (The kernel
  itself makes an exception for list heads; see `Variables::add_entry`.)
- A reference by a global symbol's name means that symbol's variable.

A pointer to the first byte of a variable that another one touches may also point just behind that other one,
as that of an empty stack that grows down does. It keeps both alive, and the two stay side by side
([`crate::graph::Node::follows`]). If a single reference cannot be proved, the section stays whole.
*/

mod claims;
mod escape;

use std::ops::Range;

use goblin::elf::section_header::{SHF_ALLOC, SHF_MERGE, SHF_WRITE};
use goblin::elf::sym::{STT_NOTYPE, STT_OBJECT};
use kelf::Program;
use rustc_hash::FxHashMap;

use super::nodes::{Cut, Cuts};
use crate::graph::{Graph, Life, Section, SymbolPlace, Target};
use crate::index::{NodeId, SectionId};
use crate::special::Rule;

pub(super) use claims::Claim;

/// Where the data sections of a program may be cut, given a graph of it: only what is alive there counts.
pub(super) fn cuts(program: &Program<'_>, graph: &Graph) -> Cuts {
    let mut sections = candidates(program, graph);
    let prover = claims::Prover::of(graph);
    for node in graph.node_ids().filter(|&node| graph.node(node).live) {
        for reference in graph.refs_of(node) {
            let Target::Node(to) = reference.target else { continue };
            let Some(variables) = sections.get_mut(&graph.node(to).section) else { continue };
            // Once lost, a section needs no more proofs.
            if !variables.lost {
                let id = graph.node(to).section;
                match prover.claim(node, reference).at(graph.node(to).offset) {
                    Claim::Pointer(at) if variables.writable && graph.block(node).is_some() => {
                        variables.add_entry(at, named_beside(graph, node, id));
                    }
                    claim => variables.add(claim),
                }
            }
        }
    }
    let cuts = sections.into_iter().filter_map(|(id, variables)| Some((id, variables.cuts()?)));
    cuts.collect()
}

/// The sections with more than one variable in them.
fn candidates(program: &Program<'_>, graph: &Graph) -> FxHashMap<SectionId, Variables> {
    let mut found: FxHashMap<SectionId, Vec<Range<u32>>> = FxHashMap::default();
    for symbol in &graph.symbols {
        if let SymbolPlace::Node(node, offset) = symbol.place
            && matches!(symbol.kind, STT_OBJECT | STT_NOTYPE)
            && symbol.size > 0
            && is_candidate(program, graph, node)
        {
            let start = graph.node(node).offset + offset;
            let end =
                u64::from(start).saturating_add(symbol.size).min(graph.section_of(node).size.into()) as u32;
            if start < end {
                found.entry(graph.node(node).section).or_default().push(start..end);
            }
        }
    }
    // Labels of `asm` have no size, and code may compute with the distances between them.
    for symbol in graph.symbols.iter().filter(|symbol| symbol.size == 0 && symbol.kind == STT_NOTYPE) {
        if let SymbolPlace::Node(node, _) = symbol.place {
            found.remove(&graph.node(node).section);
        }
    }
    let variables = found
        .into_iter()
        .map(|(id, ranges)| (id, Variables::new(ranges, &graph.sections[id.get()])))
        .filter(|(_, variables)| variables.pieces.len() > 1);
    variables.collect()
}

fn is_candidate(program: &Program<'_>, graph: &Graph, node: NodeId) -> bool {
    let Some(chunk) = graph.chunk(node) else { return false };
    let section = graph.section_of(node);
    let plain = graph.world.rule(&section.name, section.kind, section.flags) == Rule::Data
        && section.flags & u64::from(SHF_MERGE) == 0
        && section.flags & u64::from(SHF_ALLOC) != 0;
    plain
        && !chunk.code
        && chunk.life == Life::Referenced
        && !program.objects[section.origin.get()].hand_written
}

/// Size in bytes of the largest head of a list or tree (`struct rb_root_cached` on 64-bit machines).
const MAX_HEAD: usize = 16;

/// The places in a section that the function of a block names.
fn named_beside(graph: &Graph, node: NodeId, section: SectionId) -> impl Iterator<Item = i64> {
    let blocks = graph.block(node).map(|block| graph.functions[block.function.get()].blocks.clone());
    let refs = blocks.into_iter().flatten().flat_map(|block| graph.refs_of(NodeId(block)));
    refs.filter_map(move |reference| match reference.target {
        Target::Node(to) if graph.node(to).section == section => {
            Some(i64::from(graph.node(to).offset) + reference.addend)
        }
        _ => None,
    })
}

/// The variables of one section, and what is known of the references into it.
struct Variables {
    /// Every byte of the section belongs to one piece: a variable, or what lies between two.
    pieces: Vec<Range<u32>>,
    /// Whether each piece is one with the piece before it.
    joined: Vec<bool>,
    /// Whether each piece stays beside the piece before it.
    follows: Vec<bool>,
    /// Whether the program can write to the section.
    writable: bool,
    /// A reference could not be proved.
    lost: bool,
}

impl Variables {
    fn new(mut ranges: Vec<Range<u32>>, section: &Section) -> Variables {
        let (size, writable) = (section.size, section.flags & u64::from(SHF_WRITE) != 0);
        ranges.sort_unstable_by_key(|range| (range.start, range.end));
        let mut pieces: Vec<Range<u32>> = Vec::with_capacity(ranges.len());
        let mut at = 0;
        for range in ranges {
            match pieces.last_mut() {
                // An alias, or a name for a part.
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
        let follows = joined.clone();
        Variables { pieces, joined, follows, writable, lost: false }
    }

    /// Takes a pointer that code makes to a section that can be written. The kernel computes `list_entry(&head,
    /// …)` of list heads that are in no structure, which points in front of the head: to nothing, or, as it
    /// looks, into another variable. So the pointer has to be to the first byte of a variable, and all
    /// stays together up to the list heads further on that the same function names (`beside`).
    fn add_entry(&mut self, at: i64, beside: impl Iterator<Item = i64>) {
        let size = i64::from(self.pieces[self.pieces.len() - 1].end);
        if !(0..size).contains(&at) || i64::from(self.pieces[self.piece(at)].start) != at {
            self.lost = true;
            return;
        }
        for head in beside.filter(|head| (at + 1..size).contains(head)) {
            if self.pieces[self.piece(head)].len() <= MAX_HEAD {
                self.add(Claim::Access(at..head + 1));
            }
        }
        self.add(Claim::Pointer(at));
    }

    /// Takes a claim.
    fn add(&mut self, claim: Claim) {
        let size = i64::from(self.pieces[self.pieces.len() - 1].end);
        match claim {
            Claim::Access(range) if 0 <= range.start && range.end <= size && range.start < range.end => {
                let (first, last) = (self.piece(range.start), self.piece(range.end - 1));
                self.joined[first + 1..=last].fill(true);
            }
            Claim::Pointer(at) if (0..=size).contains(&at) => {
                let piece = self.piece(at.min(size - 1));
                if i64::from(self.pieces[piece].start) == at {
                    self.follows[piece] = piece > 0;
                }
            }
            _ => self.lost = true,
        }
    }

    fn piece(&self, at: i64) -> usize {
        self.pieces.partition_point(|piece| i64::from(piece.start) <= at) - 1
    }

    /// Where the section may be cut; `None` if nowhere.
    fn cuts(&self) -> Option<Vec<Cut>> {
        if self.lost {
            return None;
        }
        let pieces = self.pieces.iter().zip(&self.joined).zip(&self.follows);
        let apart = pieces.filter(|((_, joined), _)| !**joined);
        let cuts: Vec<Cut> =
            apart.map(|((piece, _), &follows)| Cut { start: piece.start, follows }).collect();
        (cuts.len() > 1).then_some(cuts)
    }
}

/// The alignment in bytes that a piece at `offset` of a section has: what its place shows, and no more than
/// the section's.
pub(super) fn alignment(section_align: u64, offset: u32) -> u64 {
    if offset == 0 { section_align } else { section_align.min(1 << offset.trailing_zeros()) }
}

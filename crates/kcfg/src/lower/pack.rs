//! Which data section comes after which, so that little is lost to alignment between them.
//!
//! The linker puts sections of one name behind one another in the order in which the object has them. Nothing
//! depends on that order for plain data. Those that are aligned to more than a cache line come first. For the
//! others the rule is greedy: next comes, of the sections that fit without padding, the one that leaves the
//! most even end for the next.

use goblin::elf::section_header::SHF_MERGE;
use indexmap::IndexMap;

use super::relax::Placed;
use crate::graph::{Graph, Section};
use crate::special::{Rule, output_name, rule};

/// The largest alignment in bytes that the place where a run of sections begins can be trusted with.
const CACHE_LINE: u32 = 64;

/// The largest alignment in bytes of sections whose pieces are placed one by one.
const FILLER: u32 = 8;

/// Reorders plain data among itself; everything else keeps its place.
pub(super) fn order(graph: &Graph, placed: &mut Vec<Placed>) {
    let section = |placed: &Placed| &graph.sections[placed.section.get()];
    let (plain, others): (Vec<_>, Vec<_>) =
        std::mem::take(placed).into_iter().partition(|placed| is_plain(section(placed)));
    *placed = others;
    let mut runs: IndexMap<&str, Vec<Placed>> = IndexMap::new();
    for piece in plain {
        runs.entry(output_name(&section(&piece).name)).or_default().push(piece);
    }
    for run in runs.into_values() {
        let (wide, narrow): (Vec<_>, Vec<_>) = run.into_iter().partition(|piece| piece.align > CACHE_LINE);
        pack(wide, placed);
        pack(narrow, placed);
    }
}

fn pack(mut rest: Vec<Placed>, out: &mut Vec<Placed>) {
    rest.sort_by_key(|piece| piece.align);
    let mut at = 0u32;
    while !rest.is_empty() {
        let evenness = |size: u32| (at + size).trailing_zeros().min(CACHE_LINE.trailing_zeros());
        let fitting = rest.iter().enumerate().filter(|(_, piece)| at % piece.align == 0);
        let best = fitting.max_by_key(|(_, piece)| (evenness(piece.size), piece.align));
        let best = best.map_or(rest.len() - 1, |(i, _)| i);
        let piece = rest.remove(best);
        at = at.next_multiple_of(piece.align) + piece.size;
        out.push(piece);
    }
}

/// Whether the pieces of a section fit between those of others: what is aligned to more wastes more apart
/// than together.
pub(super) fn fills_gaps(section: &Section) -> bool {
    is_plain(section) && section.align <= FILLER
}

fn is_plain(section: &Section) -> bool {
    rule(&section.name, section.kind, section.flags) == Rule::Data
        && section.flags & u64::from(SHF_MERGE) == 0
}

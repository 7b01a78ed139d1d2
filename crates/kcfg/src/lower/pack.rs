//! Which data section comes after which, so that little is lost to alignment between them.
//!
//! The linker puts sections of one name behind one another in the order in which the object has them. Nothing
//! depends on that order for plain data. Those that are aligned to more than a cache line stay together. For the
//! others the rule is greedy: next comes, of the sections that fit without padding, the one that leaves the
//! best place for the next; what is best, two rules say, and the one that wastes less wins.

use std::cmp::Reverse;

use goblin::elf::section_header::{SHF_MERGE, SHT_NOBITS};
use indexmap::IndexMap;

use super::relax::Placed;
use crate::graph::{Graph, Section};
use crate::special::Rule;

/// The largest alignment in bytes that the place where a run of sections begins can be trusted with.
const CACHE_LINE: u32 = 64;

/// How many bytes of narrow sections go in front of the wide ones. The linker's padding before those is half a
/// page on the average, and this much of it is put to use; zero-initialised data begins on a page, and the
/// wide ones with it.
const FRONT: u32 = 2048;

/// The largest alignment in bytes of sections whose pieces are placed one by one.
const FILLER: u32 = 8;

/// Reorders plain data among itself; everything else keeps its place.
pub(super) fn order(graph: &Graph, placed: &mut Vec<Placed>) {
    let section = |placed: &Placed| &graph.sections[placed.section.get()];
    let (plain, others): (Vec<_>, Vec<_>) =
        std::mem::take(placed).into_iter().partition(|placed| is_plain(graph, section(placed)));
    *placed = others;
    let mut runs: IndexMap<&str, Vec<Placed>> = IndexMap::new();
    for piece in plain {
        runs.entry(graph.world.class(&section(&piece).name)).or_default().push(piece);
    }
    for run in runs.into_values() {
        let zero = section(&run[0]).kind == SHT_NOBITS;
        let (wide, narrow): (Vec<_>, Vec<_>) = run.into_iter().partition(|piece| piece.align > CACHE_LINE);
        let mut packed = Vec::new();
        pack(narrow, &mut packed);
        let mut before = 0;
        let front = packed.iter().take_while(|piece| {
            before += piece.size;
            before <= if zero || wide.is_empty() { 0 } else { FRONT }
        });
        let behind = packed.split_off(front.count());
        placed.append(&mut packed);
        pack(wide, placed);
        placed.extend(behind);
    }
}

/// Adds the sections to `out` in the better of two orders.
fn pack(mut rest: Vec<Placed>, out: &mut Vec<Placed>) {
    rest.sort_by_key(|piece| piece.align);
    let widest = rest.last().map_or(1, |piece| piece.align);
    let even = |end: u32| CACHE_LINE.trailing_zeros() - end.trailing_zeros().min(CACHE_LINE.trailing_zeros());
    let lost = |end: u32| end.next_multiple_of(widest) - end;
    let (even, lost) = (greedy(&rest, even), greedy(&rest, lost));
    let best = if even.end <= lost.end { even } else { lost };
    let mut rest: Vec<Option<Placed>> = rest.into_iter().map(Some).collect();
    out.extend(best.order.into_iter().filter_map(|i| rest[i].take()));
}

/// An order, and the offset in bytes at which it ends.
struct Order {
    order: Vec<usize>,
    end: u32,
}

/// Takes next, of what fits without padding, the section that ends where `price` is least; the widest of those.
fn greedy(pieces: &[Placed], price: impl Fn(u32) -> u32) -> Order {
    let mut rest: Vec<usize> = (0..pieces.len()).collect();
    let (mut order, mut end) = (Vec::with_capacity(pieces.len()), 0u32);
    while !rest.is_empty() {
        let fitting = rest.iter().enumerate().filter(|&(_, &i)| end % pieces[i].align == 0);
        let best = fitting.min_by_key(|&(_, &i)| (price(end + pieces[i].size), Reverse(pieces[i].align)));
        let best = best.map_or(rest.len() - 1, |(position, _)| position);
        let piece = rest.remove(best);
        end = end.next_multiple_of(pieces[piece].align) + pieces[piece].size;
        order.push(piece);
    }
    Order { order, end }
}

/// Whether the pieces of a section fit between those of others: what is aligned to more wastes more apart
/// than together.
pub(super) fn fills_gaps(graph: &Graph, section: &Section) -> bool {
    is_plain(graph, section) && section.align <= FILLER
}

fn is_plain(graph: &Graph, section: &Section) -> bool {
    graph.world.rule(&section.name, section.kind, section.flags) == Rule::Data
        && section.flags & u64::from(SHF_MERGE) == 0
}

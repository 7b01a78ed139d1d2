//! Orders data sections to reduce the alignment padding between them.
//!
//! The linker places sections of one name one after the other in the order of the object. The program does not depend
//! on that order for plain data. Sections aligned to more than a cache line stay together. The others are ordered
//! greedily: of the sections that fit without padding, the one whose end is the best place for another comes next.
//! There are two rules for the best place; the order that wastes less is used.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use goblin::elf::section_header::{SHF_MERGE, SHT_NOBITS};
use indexmap::IndexMap;

use super::relax::{Placed, widest};
use crate::graph::{Graph, Section};
use crate::index::{NodeId, SectionId};
use crate::special::Rule;

/// The largest alignment in bytes that is certain for the start address of a sequence of sections.
const CACHE_LINE: u32 = 64;

/// Number of bytes of narrowly aligned sections before the widely aligned ones. The linker's padding there is half a
/// page on average, which these fill. Zero-initialised data begins on a page, so it has no such padding.
const FRONT: u32 = 2048;

/// The largest alignment in bytes of sections whose nodes are placed individually.
const FILLER: u32 = 8;

/// Reorders plain data; everything else keeps its place.
pub(super) fn order(graph: &Graph, placed: &mut Vec<Placed>) {
    let section = |placed: &Placed| &graph.sections[placed.section];
    let (plain, others): (Vec<_>, Vec<_>) =
        std::mem::take(placed).into_iter().partition(|placed| is_plain(graph, section(placed)));
    *placed = others;
    let mut runs: IndexMap<&str, Vec<Placed>> = IndexMap::new();
    for piece in plain {
        runs.entry(graph.world.class(&section(&piece).name)).or_default().push(piece);
    }
    for run in runs.into_values() {
        let zero = run.iter().all(|piece| section(piece).kind == SHT_NOBITS);
        let (wide, narrow): (Vec<_>, Vec<_>) = run.into_iter().partition(|piece| piece.align > CACHE_LINE);
        let mut packed = Vec::new();
        pack(narrow, &mut packed);
        let mut room = if zero || wide.is_empty() { 0 } else { FRONT };
        let (front, behind): (Vec<_>, Vec<_>) = packed.into_iter().partition(|piece| {
            let fits = piece.size <= room;
            room -= if fits { piece.size } else { 0 };
            fits
        });
        pack(front, placed);
        pack(wide, placed);
        pack(behind, placed);
    }
}

/// Adds the sections to `out` in the better of two orders.
fn pack(mut rest: Vec<Placed>, out: &mut Vec<Placed>) {
    rest.sort_by_key(|piece| (piece.align, piece.size));
    let (even, lost) = (greedy(&rest, Best::Even), greedy(&rest, Best::Lost));
    let best = if even.end <= lost.end { even } else { lost };
    // Sections of equal alignment and size keep their order, so that packing again changes nothing.
    let shape = |piece: &Placed| (piece.align, piece.size);
    let shapes: Vec<(u32, u32)> = best.order.into_iter().map(|i| shape(&rest[i])).collect();
    let mut alike: BTreeMap<(u32, u32), VecDeque<Placed>> = BTreeMap::new();
    for piece in rest {
        alike.entry(shape(&piece)).or_default().push_back(piece);
    }
    out.extend(shapes.iter().filter_map(|shape| alike.get_mut(shape)?.pop_front()));
}

/// The rule for the best offset for the next section.
#[derive(Clone, Copy)]
enum Best {
    /// The offset with the largest alignment.
    Even,
    /// The offset with the least padding up to the next multiple of the largest alignment of any section.
    Lost,
}

/// An order, and the offset in bytes at which it ends.
struct Order {
    order: Vec<usize>,
    end: u64,
}

/// Orders the sections. Each next section is the one without padding that ends in the best place, then the one with the
/// largest alignment, then the first. `pieces` are in the order of their alignment.
fn greedy(pieces: &[Placed], rule: Best) -> Order {
    let widest = pieces.last().map_or(1, |piece| piece.align);
    let modulus = u64::from(match rule {
        Best::Even => CACHE_LINE,
        Best::Lost => widest,
    });
    let mut classes: Vec<Class> = Vec::new();
    let mut class_of = Vec::with_capacity(pieces.len());
    for (i, piece) in pieces.iter().enumerate() {
        let align = u64::from(piece.align);
        if classes.last().is_none_or(|class| class.align != align) {
            classes.push(Class { align, modulus, by_size: BTreeMap::new() });
        }
        class_of.push(classes.len() - 1);
        classes[class_of[i]].queue(piece.size).push_back(i);
    }
    let mut taken = vec![false; pieces.len()];
    let (mut order, mut end) = (Vec::with_capacity(pieces.len()), 0u64);
    let mut last = pieces.len();
    while order.len() < pieces.len() {
        let fitting = classes.iter().filter(|class| end % class.align == 0);
        let best = fitting.filter_map(|class| {
            let (price, i) = class.best(rule, end)?;
            Some((price, Reverse(class.align), i))
        });
        let next = match best.min() {
            Some((_, _, i)) => i,
            None => {
                // Nothing fits: take the widest.
                last = taken[..last].iter().rposition(|taken| !taken).expect("not all are taken");
                last
            }
        };
        classes[class_of[next]].remove(next, pieces[next].size);
        taken[next] = true;
        end = end.next_multiple_of(u64::from(pieces[next].align)) + u64::from(pieces[next].size);
        order.push(next);
    }
    Order { order, end }
}

/// The remaining sections of one alignment, by size modulo the modulus of the rule, each in order.
struct Class {
    align: u64,
    modulus: u64,
    by_size: BTreeMap<u64, VecDeque<usize>>,
}

impl Class {
    fn queue(&mut self, size: u32) -> &mut VecDeque<usize> {
        self.by_size.entry(u64::from(size) % self.modulus).or_default()
    }

    /// Returns the best section after `end`, with its cost.
    fn best(&self, rule: Best, end: u64) -> Option<(u64, usize)> {
        match rule {
            Best::Even => {
                let line = self.modulus.trailing_zeros();
                let price = |size: u64| u64::from(line - (end + size).trailing_zeros().min(line));
                self.by_size.iter().map(|(&size, queue)| (price(size), queue[0])).min()
            }
            Best::Lost => {
                let room = end.next_multiple_of(self.modulus) - end;
                let within = self.by_size.range(..=room).next_back();
                let (&size, queue) = within.or_else(|| self.by_size.last_key_value())?;
                Some(((end + size).next_multiple_of(self.modulus) - (end + size), queue[0]))
            }
        }
    }

    /// Removes a section, the first or the last of its size.
    fn remove(&mut self, i: usize, size: u32) {
        let queue = self.queue(size);
        if queue[0] == i {
            queue.pop_front();
        } else {
            queue.pop_back();
        }
        if queue.is_empty() {
            self.by_size.remove(&(u64::from(size) % self.modulus));
        }
    }
}

/// Whether the nodes of a section are placed individually, between those of others. With a larger alignment, that would
/// waste more than placing them together.
pub(super) fn fills_gaps(graph: &Graph, section: SectionId, live: &[NodeId]) -> bool {
    is_plain(graph, &graph.sections[section]) && widest(graph, live) <= FILLER
}

fn is_plain(graph: &Graph, section: &Section) -> bool {
    graph.world.rule(&section.name, section.kind, section.flags) == Rule::Data
        && section.flags & u64::from(SHF_MERGE) == 0
}

#[cfg(test)]
mod tests {
    use kshrink_tests::Random;

    use super::*;

    /// Does the same as [`greedy`], without its indices.
    fn plainly(pieces: &[Placed], rule: Best) -> Vec<usize> {
        let widest = pieces.last().map_or(1, |piece| piece.align);
        let price = |end: u32| match rule {
            Best::Even => CACHE_LINE.trailing_zeros() - end.trailing_zeros().min(CACHE_LINE.trailing_zeros()),
            Best::Lost => end.next_multiple_of(widest) - end,
        };
        let mut rest: Vec<usize> = (0..pieces.len()).collect();
        let (mut order, mut end) = (Vec::new(), 0u32);
        while !rest.is_empty() {
            let fitting = rest.iter().enumerate().filter(|&(_, &i)| end % pieces[i].align == 0);
            let best = fitting.min_by_key(|&(_, &i)| (price(end + pieces[i].size), Reverse(pieces[i].align)));
            let piece = rest.remove(best.map_or(rest.len() - 1, |(position, _)| position));
            end = end.next_multiple_of(pieces[piece].align) + pieces[piece].size;
            order.push(piece);
        }
        order
    }

    #[test]
    fn the_order_is_that_of_the_rule() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let (aligns, sizes) = (random.range(0, 12), random.range(1, 300));
            let mut pieces: Vec<Placed> = (0..random.range(0, 120))
                .map(|_| Placed {
                    section: SectionId(0),
                    nodes: Vec::new(),
                    size: random.range(0, sizes),
                    align: 1 << random.range(0, aligns),
                    about: Vec::new(),
                })
                .collect();
            pieces.sort_by_key(|piece| piece.align);
            for rule in [Best::Even, Best::Lost] {
                assert_eq!(greedy(&pieces, rule).order, plainly(&pieces, rule), "seed {seed}");
            }
        }
    }
}

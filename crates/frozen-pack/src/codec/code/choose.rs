//! Choosing templates: the most frequent pair of neighbours is merged into one, again and again (byte pair encoding,
//! Gage 1994).
//!
//! Fewer symbols need fewer decoding steps. A longer template also predicts the next symbol better.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::Hash;

use rustc_hash::{FxHashMap, FxHashSet};

/// Maximum number of templates: 254 take one symbol, and 256 more take two.
pub const TEMPLATES: usize = 254 + 256;

/// The template of an opcode symbol.
pub trait Template: Copy + Eq + Hash {
    /// The bytes of code.
    fn bytes(&self) -> &[u8];

    /// Appends a symbol of the last instruction, if one follows and there is room for it.
    fn then_symbol(&self, symbol: u8) -> Option<Self>;

    /// Appends another instruction, if this one is complete and there is room for it.
    fn then(&self, other: &Self) -> Option<Self>;
}

/// A part of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Atom<T> {
    /// The start of an instruction.
    Start(T),
    /// A further symbol of an instruction.
    Symbol(u8),
    /// Something that no template includes.
    Other,
}

/// Atoms and the templates that replaced them, by number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Part {
    Template(u16),
    Symbol(u8),
    Other,
}

/// Returns the best templates for runs of code, most frequent first, with this number of merged ones.
pub fn choose<T: Template>(runs: &[Vec<Atom<T>>], merges: usize) -> Vec<T> {
    let mut templates: Vec<T> = Vec::new();
    let mut numbers: FxHashMap<T, u16> = FxHashMap::default();
    let mut number = |template: T, templates: &mut Vec<T>| {
        *numbers.entry(template).or_insert_with(|| {
            templates.push(template);
            (templates.len() - 1) as u16
        })
    };
    let mut list = vec![Part::Other];
    for run in runs {
        list.extend(run.iter().map(|atom| match *atom {
            Atom::Start(template) => Part::Template(number(template, &mut templates)),
            Atom::Symbol(symbol) => Part::Symbol(symbol),
            Atom::Other => Part::Other,
        }));
        list.push(Part::Other);
    }
    let mut parts = Parts::new(list);
    for _ in 0..merges {
        let Some((pair, merged)) = parts.most_frequent(|pair| merged(pair, &templates)) else { break };
        parts.merge(pair, Part::Template(number(merged, &mut templates)));
    }
    let mut counts = vec![0u32; templates.len()];
    for part in &parts.list {
        if let Part::Template(number) = part {
            counts[usize::from(*number)] += 1;
        }
    }
    let mut kept: Vec<_> = templates.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect();
    kept.sort_by_cached_key(|(template, count)| {
        (Reverse(*count), template.bytes().len(), template.bytes().to_vec())
    });
    kept.truncate(TEMPLATES);
    kept.into_iter().map(|(template, _)| template).collect()
}

/// Returns the template of a pair of neighbours, if there is one.
fn merged<T: Template>((first, second): Pair, templates: &[T]) -> Option<T> {
    let Part::Template(number) = first else { return None };
    let template = &templates[usize::from(number)];
    match second {
        Part::Template(number) => template.then(&templates[usize::from(number)]),
        Part::Symbol(symbol) => template.then_symbol(symbol),
        Part::Other => None,
    }
}

type Pair = (Part, Part);

/// The places of a pair.
#[derive(Default)]
struct Places {
    /// Number of places.
    count: u32,
    /// The first parts of all occurrences, and of some former ones.
    firsts: Vec<u32>,
}

/// The parts of all runs, with a [`Part::Other`] around each run, and their pairs of neighbours.
struct Parts {
    /// A second part becomes [`Part::Other`] when it is merged.
    list: Vec<Part>,
    /// The places of the neighbours of each part that was not merged.
    previous: Vec<u32>,
    next: Vec<u32>,
    pairs: FxHashMap<Pair, Places>,
    /// Pairs with their counts, and outdated entries.
    queue: BinaryHeap<(u32, Reverse<Pair>)>,
}

impl Parts {
    fn new(list: Vec<Part>) -> Parts {
        let places = 0..list.len() as u32;
        let previous = places.clone().map(|at| at.saturating_sub(1)).collect();
        let next = places.map(|at| at + 1).collect();
        let mut pairs: FxHashMap<Pair, Places> = FxHashMap::default();
        for (at, pair) in (0u32..).zip(list.windows(2)) {
            add(&mut pairs, (pair[0], pair[1]), at);
        }
        let queue = pairs.iter().map(|(pair, places)| (places.count, Reverse(*pair))).collect();
        Parts { list, previous, next, pairs, queue }
    }

    /// Finds the most frequent pair of neighbours that can be merged, and the merged template.
    fn most_frequent<T>(&mut self, merged: impl Fn(Pair) -> Option<T>) -> Option<(Pair, T)> {
        while let Some((count, Reverse(pair))) = self.queue.pop() {
            let is_current = count > 0 && self.pairs.get(&pair).is_some_and(|places| places.count == count);
            if let Some(merged) = is_current.then(|| merged(pair)).flatten() {
                return Some((pair, merged));
            }
        }
        None
    }

    /// Merges all occurrences of a pair, from the first one on.
    fn merge(&mut self, pair: Pair, merged: Part) {
        let mut firsts = self.pairs.remove(&pair).unwrap_or_default().firsts;
        firsts.sort_unstable();
        let mut changed = FxHashSet::default();
        for first in firsts {
            let at = first as usize;
            let second = self.next[at] as usize;
            if (self.list[at], self.list[second]) != pair {
                continue;
            }
            let (before, after) = (self.previous[at] as usize, self.next[second] as usize);
            for old in [(self.list[before], pair.0), (pair.1, self.list[after])] {
                // Occurrences of the pair itself may overlap.
                if let Some(places) = self.pairs.get_mut(&old) {
                    places.count -= 1;
                    changed.insert(old);
                }
            }
            (self.list[at], self.list[second]) = (merged, Part::Other);
            (self.next[at], self.previous[after]) = (after as u32, first);
            for (new, at) in [((self.list[before], merged), before), ((merged, self.list[after]), at)] {
                add(&mut self.pairs, new, at as u32);
                changed.insert(new);
            }
        }
        let count = |pair: Pair| Some((self.pairs.get(&pair)?.count, Reverse(pair)));
        self.queue.extend(changed.into_iter().filter_map(count));
    }
}

/// Adds a place of a pair, if it can be merged at all.
fn add(pairs: &mut FxHashMap<Pair, Places>, pair: Pair, first: u32) {
    if !matches!(pair, (Part::Template(_), Part::Template(_) | Part::Symbol(_))) {
        return;
    }
    let places = pairs.entry(pair).or_default();
    places.count += 1;
    places.firsts.push(first);
}

/// Finds the longest template at a place in the code.
#[derive(Debug, Default)]
pub struct Matcher<T> {
    symbols: FxHashMap<T, u16>,
}

impl<T: Template> Matcher<T> {
    /// Creates a matcher for templates, which are numbered from 1.
    pub fn new(templates: &[T]) -> Matcher<T> {
        Matcher { symbols: templates.iter().copied().zip(1..).collect() }
    }

    /// Returns the number of the longest template at the start of atoms, and the number of atoms that it covers.
    pub fn longest(&self, atoms: &[Atom<T>]) -> Option<(u16, usize)> {
        let Some(Atom::Start(first)) = atoms.first() else { return None };
        let mut found = None;
        let mut template = *first;
        for count in 1.. {
            if let Some(symbol) = self.symbols.get(&template) {
                found = Some((*symbol, count));
            }
            let longer = match atoms.get(count) {
                Some(Atom::Start(next)) => template.then(next),
                Some(Atom::Symbol(symbol)) => template.then_symbol(*symbol),
                _ => None,
            };
            let Some(longer) = longer else { break };
            template = longer;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use kshrink_tests::Random;

    use super::*;

    /// Up to six bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct Text([u8; 6], usize);

    impl Text {
        fn new(bytes: &[u8]) -> Option<Text> {
            let mut text = Text([0; 6], bytes.len());
            text.0.get_mut(..bytes.len())?.copy_from_slice(bytes);
            Some(text)
        }
    }

    impl Template for Text {
        fn bytes(&self) -> &[u8] {
            &self.0[..self.1]
        }

        fn then_symbol(&self, symbol: u8) -> Option<Text> {
            Text::new(&[self.bytes(), &[symbol]].concat())
        }

        fn then(&self, other: &Text) -> Option<Text> {
            Text::new(&[self.bytes(), other.bytes()].concat())
        }
    }

    /// Merges as [`choose`] does, but counts all pairs again before each merge.
    fn chosen_by_counting(runs: &[Vec<Atom<Text>>], merges: usize) -> Vec<Text> {
        let mut texts: Vec<Text> = Vec::new();
        let number = |text: Text, texts: &mut Vec<Text>| match texts.iter().position(|&known| known == text) {
            Some(number) => number as u16,
            None => {
                texts.push(text);
                (texts.len() - 1) as u16
            }
        };
        let mut runs: Vec<Vec<Part>> = Vec::from_iter(runs.iter().map(|run| {
            Vec::from_iter(run.iter().map(|atom| match *atom {
                Atom::Start(text) => Part::Template(number(text, &mut texts)),
                Atom::Symbol(symbol) => Part::Symbol(symbol),
                Atom::Other => Part::Other,
            }))
        }));
        for _ in 0..merges {
            let mut counts: FxHashMap<Pair, u32> = FxHashMap::default();
            for pair in runs.iter().flat_map(|run| run.windows(2)) {
                *counts.entry((pair[0], pair[1])).or_default() += 1;
            }
            let possible = counts.into_iter().filter(|(pair, _)| merged(*pair, &texts).is_some());
            let Some((pair, _)) = possible.max_by_key(|&(pair, count)| (count, Reverse(pair))) else { break };
            let text = merged(pair, &texts).unwrap();
            let part = Part::Template(number(text, &mut texts));
            for run in &mut runs {
                for at in 0.. {
                    if run.get(at + 1).is_none() {
                        break;
                    }
                    if (run[at], run[at + 1]) == pair {
                        run.splice(at..at + 2, [part]);
                    }
                }
            }
        }
        let count = |number: usize| {
            runs.iter().flatten().filter(|part| **part == Part::Template(number as u16)).count()
        };
        let mut kept: Vec<(Text, usize)> =
            texts.iter().enumerate().map(|(number, text)| (*text, count(number))).collect();
        kept.retain(|(_, count)| *count > 0);
        kept.sort_by_key(|(text, count)| (Reverse(*count), text.1, text.bytes().to_vec()));
        kept.into_iter().map(|(text, _)| text).collect()
    }

    #[test]
    fn templates_are_those_of_counting_again() {
        // Few letters, so that occurrences overlap and counts are equal, and templates that get too long.
        let mut numbers = Random::new(1);
        let mut random = |below: u32| numbers.range(0, below - 1);
        for _ in 0..2000 {
            let mut run = || {
                let size = random(20);
                let atom = |_| match random(8) {
                    0 => Atom::Other,
                    1 | 2 => Atom::Symbol(random(2) as u8),
                    _ => Atom::Start(Text::new(&[b'a' + random(3) as u8]).unwrap()),
                };
                (0..size).map(atom).collect::<Vec<_>>()
            };
            let runs = [run(), run(), run()];
            let merges = random(9) as usize;
            assert_eq!(
                choose(&runs, merges),
                chosen_by_counting(&runs, merges),
                "{merges} merges of {runs:?}"
            );
        }
    }
}

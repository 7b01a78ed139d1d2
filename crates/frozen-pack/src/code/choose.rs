//! Choosing templates: the most frequent pair of neighbours is merged into one, again and again (byte pair encoding,
//! Gage 1994).
//!
//! Fewer symbols need fewer decoding steps. A longer template also predicts the next symbol better.

use std::hash::Hash;

use rustc_hash::FxHashMap;

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
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
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
    let mut runs: Vec<Vec<Part>> = runs
        .iter()
        .map(|run| {
            let part = |atom: &Atom<T>| match *atom {
                Atom::Start(template) => Part::Template(number(template, &mut templates)),
                Atom::Symbol(symbol) => Part::Symbol(symbol),
                Atom::Other => Part::Other,
            };
            run.iter().map(part).collect()
        })
        .collect();
    for _ in 0..merges {
        let Some((first, second, merged)) = most_frequent(&runs, &templates) else { break };
        let merged = Part::Template(number(merged, &mut templates));
        runs.iter_mut().for_each(|run| merge(run, first, second, merged));
    }
    let mut counts = vec![0u32; templates.len()];
    for part in runs.iter().flatten() {
        if let Part::Template(number) = part {
            counts[usize::from(*number)] += 1;
        }
    }
    let mut kept: Vec<_> = templates.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect();
    kept.sort_by_cached_key(|(template, count)| {
        (std::cmp::Reverse(*count), template.bytes().len(), template.bytes().to_vec())
    });
    kept.truncate(TEMPLATES);
    kept.into_iter().map(|(template, _)| template).collect()
}

/// Finds the most frequent pair of neighbours that can be merged, and the merged template.
fn most_frequent<T: Template>(runs: &[Vec<Part>], templates: &[T]) -> Option<(Part, Part, T)> {
    let mut counts: FxHashMap<(Part, Part), u32> = FxHashMap::default();
    for pair in runs.iter().flat_map(|run| run.windows(2)) {
        if matches!((pair[0], pair[1]), (Part::Template(_), Part::Template(_) | Part::Symbol(_))) {
            *counts.entry((pair[0], pair[1])).or_default() += 1;
        }
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    let order = |part: Part| match part {
        Part::Template(number) => u32::from(number),
        Part::Symbol(symbol) => 1 << 16 | u32::from(symbol),
        Part::Other => u32::MAX,
    };
    counts.sort_by_key(|((first, second), count)| (std::cmp::Reverse(*count), order(*first), order(*second)));
    counts.into_iter().find_map(|((first, second), _)| {
        let Part::Template(number) = first else { return None };
        let template = &templates[usize::from(number)];
        let merged = match second {
            Part::Template(number) => template.then(&templates[usize::from(number)]),
            Part::Symbol(symbol) => template.then_symbol(symbol),
            Part::Other => None,
        };
        Some((first, second, merged?))
    })
}

fn merge(run: &mut Vec<Part>, first: Part, second: Part, merged: Part) {
    let mut to = 0;
    let mut from = 0;
    while from < run.len() {
        if run[from] == first && run.get(from + 1) == Some(&second) {
            run[to] = merged;
            from += 2;
        } else {
            run[to] = run[from];
            from += 1;
        }
        to += 1;
    }
    run.truncate(to);
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

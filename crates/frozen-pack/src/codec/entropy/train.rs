//! Fits [`Tables`] to the symbols of all pages.
//!
//! A distribution takes room: an entry of the hash table, two bytes for each class, and a byte for each symbol. It is
//! created if it reduces the cost of the symbols, compared with the distributions of the shorter contexts, by more than
//! its room. It lists a symbol if that is worth the symbol's byte. The cost of shorter contexts depends on the symbols
//! that longer contexts leave to them, so the solution takes several rounds.

use rustc_hash::FxHashMap;

use crate::codec::entropy::classes::{CLASS_BITS, CODES, Class, TOTAL, classes, frequency};
use crate::codec::entropy::tables::{self, Tables, entry, place};
use crate::codec::symbols::{Context, DEPTH, Field, Fields, Step};

/// Number of times that the distributions are fitted again to one another.
const ROUNDS: usize = 4;

/// Size of a distribution besides its classes and symbols, in bits: the record of the escape, its target, and padding.
const NODE_BITS: f64 = 32.0 + 32.0 + 12.0;

/// The cost in bits of an entry of a hash table that is half full.
const ENTRY_BITS: f64 = 64.0;

/// The price of decoding time, in bits of room per occurrence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// For one more distribution to search because of an escape.
    pub escape: f64,
    /// For a search of a distribution of two values.
    pub probe: f64,
    /// For one more examined class of a distribution.
    pub class: f64,
}

/// Size of a listed symbol, in bits.
const SYMBOL_BITS: f64 = 8.0;

/// The symbols that occur in a context with their counts, and the same for all longer contexts.
struct Node {
    /// The last value of the context.
    value: u8,
    /// Number of values of the context.
    level: usize,
    counts: Vec<(u8, u32)>,
    children: Vec<Node>,
    /// Its distribution, if it has one.
    list: Option<List>,
    /// The symbols that longer contexts leave.
    left: Vec<(u8, u32)>,
}

/// A distribution.
#[derive(Clone)]
struct List {
    symbols: Vec<u8>,
    classes: Vec<Class>,
    gain: f64,
}

impl List {
    /// Puts the most frequent classes first.
    fn sort(&mut self) {
        let mut rest = &self.symbols[..];
        let mut parts = Vec::new();
        for class in &self.classes {
            let (own, behind) = rest.split_at(usize::from(class.count));
            parts.push((*class, own));
            rest = behind;
        }
        parts.sort_by_key(|(class, _)| std::cmp::Reverse(class.weight()));
        let (classes, symbols): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        (self.classes, self.symbols) = (classes, symbols.concat());
    }

    /// Returns the cost of each symbol, in bits, including escapes.
    fn costs(&self, shorter: &[f64; 256]) -> [f64; 256] {
        let weight: u32 = self.classes.iter().map(Class::weight).sum();
        let escape = cost(TOTAL - weight);
        let mut costs = shorter.map(|cost| cost + escape);
        let mut symbols = self.symbols.iter();
        for class in &self.classes {
            for &symbol in symbols.by_ref().take(usize::from(class.count)) {
                costs[usize::from(symbol)] = cost(frequency(class.code));
            }
        }
        costs
    }
}

/// Cost of a symbol that cannot be coded, in bits: high, but finite.
const IMPOSSIBLE: f64 = 40.0;

/// Returns the cost of an event with this frequency, in bits; high if it cannot occur.
fn cost(frequency: u32) -> f64 {
    if frequency == 0 { IMPOSSIBLE } else { (f64::from(TOTAL) / f64::from(frequency)).log2() }
}

/// Fits tables to these steps with these fields.
pub fn train<'s>(steps: impl Iterator<Item = &'s Step>, fields: Fields, price: Price) -> Tables {
    let mut occurrences: FxHashMap<(Context, u8), u32> = FxHashMap::default();
    for step in steps {
        if let Step::Symbol(context, symbol) = *step {
            *occurrences.entry((context, symbol)).or_default() += 1;
        }
    }
    let mut sorted: Vec<_> = occurrences.into_iter().collect();
    sorted.sort_unstable_by_key(|((context, symbol), _)| (context.field, context.values, *symbol));
    let roots: Vec<(Field, Node)> = sorted
        .chunk_by(|a, b| a.0.0.field == b.0.0.field)
        .map(|chunk| (chunk[0].0.0.field, root(chunk, fields.depth, price)))
        .collect();
    write(roots, fields)
}

fn root(sorted: &[((Context, u8), u32)], depth: usize, price: Price) -> Node {
    let mut root = Node::new(sorted, 0, depth);
    for _ in 0..ROUNDS {
        // A root lists everything, so no symbol costs more than with equal frequencies.
        root.choose(&[IMPOSSIBLE; 256], price);
        root.leave();
    }
    root.choose(&[IMPOSSIBLE; 256], price);
    root
}

impl Node {
    fn new(sorted: &[((Context, u8), u32)], level: usize, depth: usize) -> Node {
        let mut counts = [0u32; 256];
        sorted.iter().for_each(|((_, symbol), count)| counts[usize::from(*symbol)] += count);
        let children = match level == depth {
            true => Vec::new(),
            false => sorted
                .chunk_by(|a, b| a.0.0.values[level] == b.0.0.values[level])
                .map(|chunk| Node::new(chunk, level + 1, depth))
                .collect(),
        };
        let counts: Vec<_> = (0..=255).zip(counts).filter(|(_, count)| *count > 0).collect();
        let value = level.checked_sub(1).map_or(0, |last| sorted[0].0.0.values[last]);
        Node { value, level, left: counts.clone(), counts, children, list: None }
    }

    /// Creates distributions for the symbols that longer contexts left in the last round, given the costs without them.
    fn choose(&mut self, shorter: &[f64; 256], price: Price) {
        self.list = list(&self.left, &self.counts, shorter, self.level, price);
        let costs = match &self.list {
            Some(list) => list.costs(shorter),
            None => *shorter,
        };
        self.children.iter_mut().for_each(|child| child.choose(&costs, price));
    }

    /// Computes the symbols that each distribution leaves to the shorter context, and returns what this one leaves.
    fn leave(&mut self) -> Vec<(u8, u32)> {
        if !self.children.is_empty() {
            let mut left = [0u32; 256];
            for child in &mut self.children {
                child.leave().into_iter().for_each(|(symbol, count)| left[usize::from(symbol)] += count);
            }
            self.left = (0..=255).zip(left).filter(|(_, count)| *count > 0).collect();
        }
        match &self.list {
            None => self.left.clone(),
            Some(list) => {
                self.left.iter().filter(|(symbol, _)| !list.symbols.contains(symbol)).copied().collect()
            }
        }
    }
}

/// Returns the best distribution for the symbols that longer contexts leave, if it is better than none. It can code
/// every symbol: a root lists all that occur, any other has an escape.
fn list(
    left: &[(u8, u32)],
    all: &[(u8, u32)],
    shorter: &[f64; 256],
    level: usize,
    price: Price,
) -> Option<List> {
    let is_root = level == 0;
    let mut left = left.to_vec();
    if is_root {
        let missing = all.iter().filter(|(symbol, _)| left.iter().all(|(listed, _)| listed != symbol));
        let missing: Vec<_> = missing.map(|&(symbol, _)| (symbol, 1)).collect();
        left.extend(missing);
    }
    let total: u32 = left.iter().map(|(_, count)| count).sum();
    let without: f64 =
        left.iter().map(|&(symbol, count)| f64::from(count) * shorter[usize::from(symbol)]).sum();
    if !is_root && without < NODE_BITS + SYMBOL_BITS + CLASS_BITS {
        return None;
    }
    let mut sorted = left.clone();
    sorted.sort_by_key(|&(symbol, count)| (std::cmp::Reverse(count), symbol));
    let pays = |&(symbol, count): &(u8, u32)| {
        let own = (f64::from(total) / f64::from(count)).log2();
        is_root || f64::from(count) * (shorter[usize::from(symbol)] - own) > SYMBOL_BITS + 2.0
    };
    let listed: Vec<(u8, u32)> = sorted.iter().filter(|symbol| pays(symbol)).copied().collect();
    if listed.is_empty() {
        return None;
    }
    let escapes = total - listed.iter().map(|(_, count)| count).sum::<u32>();
    // An escape is needed even if all are listed: the hash table may drop a longer context, whose symbols then end up
    // here.
    let escapes = escapes.max(u32::from(!is_root));
    let counts: Vec<u32> = listed.iter().map(|(_, count)| *count).collect();
    let classes = classes(&counts, escapes, price.class);
    let symbols: Vec<u8> = listed.iter().map(|(symbol, _)| *symbol).collect();
    let room = NODE_BITS + SYMBOL_BITS * symbols.len() as f64 + CLASS_BITS * classes.len() as f64;
    let room = room + if level == DEPTH { ENTRY_BITS + price.probe * f64::from(total) } else { 0.0 };
    let mut list = List { symbols, classes, gain: 0.0 };
    list.sort();
    let costs = list.costs(shorter);
    let with: f64 = left.iter().map(|&(symbol, count)| f64::from(count) * costs[usize::from(symbol)]).sum();
    let gain = without - with - room - price.escape * f64::from(escapes);
    (is_root || gain > 0.0).then_some(List { gain, ..list })
}

/// Returns the total gain of a distribution and its longer contexts, in bits; 0 if they are not worth their room.
fn gain(node: &Node) -> f64 {
    // Without a list of its own, it exists only for its children.
    let own = node.list.as_ref().map_or(-NODE_BITS, |list| list.gain);
    (own + node.children.iter().map(gain).sum::<f64>()).max(0.0)
}

/// Returns for each entry of a hash table its child, and the logarithm of the number of entries. If two children have
/// the same place, the one with the smaller gain is dropped. `None` if the table is not worth its room.
fn places(children: &[&Node]) -> Option<(u32, Vec<Option<usize>>)> {
    let gains: Vec<f64> = children.iter().map(|child| gain(child)).collect();
    let table = |log: u32| {
        let mut places: Vec<Option<usize>> = vec![None; 1 << log];
        let mut cost = 32.0 * places.len() as f64;
        for (index, child) in children.iter().enumerate() {
            let place = &mut places[place(child.value, log)];
            match *place {
                Some(other) if gains[other] >= gains[index] => cost += gains[index],
                other => {
                    cost += other.map_or(0.0, |other| gains[other]);
                    *place = Some(index);
                }
            }
        }
        (cost, log, places)
    };
    let (cost, log, places) = (1..=8).map(table).min_by(|a, b| a.0.total_cmp(&b.0))?;
    (cost < gains.iter().sum()).then_some((log, places))
}

/// Appends the records of a node, and returns the place of the first one.
fn write_list(node: &Node, shorter: usize, out: &mut Vec<u8>) -> usize {
    match &node.list {
        Some(list) => tables::write(out, &list.classes, &list.symbols, shorter),
        None => tables::write(out, &[], &[], shorter),
    }
}

/// Appends a node for a context of one value and its children, and returns the place of its records.
fn write_node(node: &Node, depth: usize, root: usize, out: &mut Vec<u8>) -> usize {
    if depth == node.level {
        return write_list(node, root, out);
    }
    let children: Vec<&Node> = node.children.iter().filter(|child| gain(child) > 0.0).collect();
    let places = places(&children);
    // The children come first; their length does not depend on the place of this node.
    let start = out.len();
    let mut at = 0;
    for _ in 0..2 {
        out.truncate(start);
        let mut entries = Vec::new();
        if let Some((log, places)) = &places {
            for (index, child) in places.iter().enumerate() {
                entries.push(match child {
                    Some(child) => entry(children[*child].value, write_list(children[*child], at, out)),
                    // A value that does not occur here.
                    None => {
                        let other = (0..=255u8).find(|&value| place(value, *log) != index).unwrap_or(0);
                        entry(other, NOTHING)
                    }
                });
            }
        }
        out.extend(entries.into_iter().rev().flat_map(u32::to_le_bytes));
        out.extend(tables::shift(places.as_ref().map(|(log, _)| *log)).to_le_bytes());
        at = write_list(node, root, out);
    }
    at
}

/// The place of the distribution for contexts that do not occur: after the marker for no hash table.
const NOTHING: usize = tables::WORD;

fn write(roots: Vec<(Field, Node)>, fields: Fields) -> Tables {
    let units = |records: usize| u16::try_from(records / tables::WORD);
    let mut tables = Tables { fields, ..Tables::default() };
    let out = &mut tables.nodes;
    out.extend(tables::shift(None).to_le_bytes());
    tables::write(out, &[Class { code: CODES as u8 - 1, count: 1 }], &[0], 0);
    tables.contexts = vec![(NOTHING / tables::WORD) as u16; fields.contexts()];
    for (field, root) in &roots {
        out.extend(tables::shift(None).to_le_bytes());
        let at = write_list(root, 0, out);
        let Ok(offset) = units(at) else { break };
        let contexts = &mut tables.contexts[fields.first(*field)..][..fields.values[usize::from(*field)]];
        contexts.fill(offset);
        for child in root.children.iter().filter(|child| gain(child) > 0.0) {
            let Ok(offset) = units(write_node(child, fields.depth, at, out)) else { break };
            contexts[usize::from(child.value)] = offset;
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: Fields = Fields { values: &[1, 256, 256, 256], depth: 2 };

    /// Ten thousand symbols, each determined by its context, and one that occurs once.
    fn steps() -> Vec<Step> {
        let context =
            |field: u8, index: u32| Context { field, values: [(index % 5) as u8, (index % 7) as u8] };
        let given = (0..10_000).map(|index| Step::Symbol(context(1, index), ((index % 5) * 50) as u8));
        given.chain([Step::Symbol(context(2, 3), 99), Step::Symbol(context(1, 4), 3)]).collect()
    }

    #[test]
    fn contexts_that_tell_are_used() {
        let steps = steps();
        let tables = train(steps.iter(), FIELDS, Price { escape: 0.0, probe: 0.0, class: 0.0 });
        Tables::new(FIELDS, tables.contexts.clone(), tables.nodes.clone()).unwrap();
        let cost = |values: [u8; 2], symbol: usize| tables.costs(Context { field: 1, values })[symbol];
        assert!(cost([2, 0], 100) < 0.1 && cost([2, 0], 50) > 5.0);
        // Without a known context, all are alike.
        assert!((cost([200, 0], 50) - cost([200, 0], 150)).abs() < 1.5);
        for context in steps.iter().filter_map(|step| match step {
            Step::Symbol(context, _) => Some(*context),
            Step::Bits(..) => None,
        }) {
            let costs = tables.costs(context);
            assert!((0..=255).all(|symbol| tables.cost(context, symbol) == costs[usize::from(symbol)]));
        }
        // Field 3 does not occur.
        assert!(tables.costs(Context { field: 3, values: [0, 0] })[1..].iter().all(|cost| *cost >= 12.0));
    }

    #[test]
    fn what_occurs_can_be_coded_and_nothing_else() {
        let steps = steps();
        let tables = train(steps.iter(), FIELDS, Price { escape: 1.0, probe: 1.0, class: 1.0 });
        let stream = tables.encode(&steps).unwrap();
        assert!(stream.len() < 200, "{} bytes", stream.len());
        let never = Step::Symbol(Context { field: 2, values: [3, 3] }, 98);
        assert!(tables.encode(&[never]).is_err());
    }
}

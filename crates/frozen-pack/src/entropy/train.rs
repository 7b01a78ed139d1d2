//! Makes [`Tables`] of what all pages consist of.
//!
//! A distribution takes room: an entry of the hash table, two bytes for each class, and a byte for each symbol. It is
//! made where the symbols cost less with it, by more than its room, than with the distributions of the shorter
//! contexts; and it lists a symbol where that pays for its byte. What shorter contexts cost depends on which symbols
//! are left to them, which depends on the longer ones: so that is found in rounds.

use rustc_hash::FxHashMap;

use crate::entropy::classes::{CLASS_BITS, Class, TOTAL, classes, frequency};
use crate::entropy::tables::{BUCKET, MAX_NODES, Tables, entry, place};
use crate::symbols::{Context, DEPTH, Field, Step};

/// How often the distributions are made anew with what is known of the others.
const ROUNDS: usize = 4;

/// How many of the entries of the hash table are used, at most.
const LOAD: f64 = 0.85;

/// What an entry of the hash table and the head of a distribution take, in bits.
const NODE_BITS: f64 = 32.0 / LOAD + 8.0;

/// What a symbol that is listed takes, in bits.
const SYMBOL_BITS: f64 = 8.0;

/// The symbols that occur in a context, with how often they do, and the same for all longer contexts.
struct Node {
    key: u32,
    counts: Vec<(u8, u32)>,
    children: Vec<Node>,
    /// Its distribution: symbols with classes, and what the room and the symbols that it takes cost less than without.
    list: Option<List>,
    /// What was left by longer contexts.
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
    /// What each symbol costs, in bits; first the escape.
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

    /// Its bytes.
    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.classes.len() as u8);
        out.extend(self.classes.iter().flat_map(|class| [class.code, class.count]));
        out.extend(&self.symbols);
    }
}

/// What a symbol costs that cannot be coded, in bits: much, and finite.
const IMPOSSIBLE: f64 = 40.0;

/// What something of this frequency costs, in bits; much if it cannot occur.
fn cost(frequency: u32) -> f64 {
    if frequency == 0 { IMPOSSIBLE } else { (f64::from(TOTAL) / f64::from(frequency)).log2() }
}

/// Tables for these steps.
pub fn train<'s>(steps: impl Iterator<Item = &'s Step>) -> Tables {
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
        .map(|chunk| (chunk[0].0.0.field, root(chunk)))
        .collect();
    write(roots)
}

fn root(sorted: &[((Context, u8), u32)]) -> Node {
    let mut root = Node::new(sorted, 0);
    for _ in 0..ROUNDS {
        // A root lists everything, so that nothing costs more than with equal frequencies.
        root.choose(&[IMPOSSIBLE; 256]);
        root.leave();
    }
    root.choose(&[IMPOSSIBLE; 256]);
    root
}

impl Node {
    fn new(sorted: &[((Context, u8), u32)], level: usize) -> Node {
        let mut counts = [0u32; 256];
        sorted.iter().for_each(|((_, symbol), count)| counts[usize::from(*symbol)] += count);
        let children = match level {
            DEPTH => Vec::new(),
            _ => sorted
                .chunk_by(|a, b| a.0.0.values[level] == b.0.0.values[level])
                .map(|chunk| Node::new(chunk, level + 1))
                .collect(),
        };
        let counts: Vec<_> = (0..=255).zip(counts).filter(|(_, count)| *count > 0).collect();
        Node { key: sorted[0].0.0.key(level), left: counts.clone(), counts, children, list: None }
    }

    /// Makes distributions, of what longer contexts left in the last round, given what the symbols cost without.
    fn choose(&mut self, shorter: &[f64; 256]) {
        self.list = list(&self.left, &self.counts, shorter);
        let costs = match &self.list {
            Some(list) => list.costs(shorter),
            None => *shorter,
        };
        self.children.iter_mut().for_each(|child| child.choose(&costs));
    }

    /// Finds out what each distribution leaves to that of the shorter context, and gives what this one leaves.
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

    fn collect<'n>(&'n self, level: usize, out: &mut Vec<(usize, &'n Node)>) {
        if self.list.is_some() && level > 0 {
            out.push((level, self));
        }
        self.children.iter().for_each(|child| child.collect(level + 1, out));
    }
}

/// The distribution that is best for the symbols that longer contexts leave, if one is better than none. Every
/// symbol can be coded with it: in a root all that occur are listed, elsewhere there is an escape.
fn list(left: &[(u8, u32)], all: &[(u8, u32)], shorter: &[f64; 256]) -> Option<List> {
    let is_root = *shorter == [IMPOSSIBLE; 256];
    let mut left = left.to_vec();
    if is_root {
        let missing = all.iter().filter(|(symbol, _)| left.iter().all(|(listed, _)| listed != symbol));
        let missing: Vec<_> = missing.map(|&(symbol, _)| (symbol, 1)).collect();
        left.extend(missing);
    }
    let total: u32 = left.iter().map(|(_, count)| count).sum();
    let without: f64 =
        left.iter().map(|&(symbol, count)| f64::from(count) * shorter[usize::from(symbol)]).sum();
    if without < NODE_BITS + SYMBOL_BITS + CLASS_BITS {
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
    // Even where all is listed: a bucket may take one context for another.
    let escapes = escapes.max(u32::from(!is_root));
    let counts: Vec<u32> = listed.iter().map(|(_, count)| *count).collect();
    let classes = classes(&counts, escapes);
    let symbols: Vec<u8> = listed.iter().map(|(symbol, _)| *symbol).collect();
    let room = NODE_BITS + SYMBOL_BITS * symbols.len() as f64 + CLASS_BITS * classes.len() as f64;
    let list = List { symbols, classes, gain: 0.0 };
    let costs = list.costs(shorter);
    let with: f64 = left.iter().map(|&(symbol, count)| f64::from(count) * costs[usize::from(symbol)]).sum();
    let gain = without - with - room;
    (is_root || gain > 0.0).then_some(List { gain, ..list })
}

fn write(roots: Vec<(Field, Node)>) -> Tables {
    // The distribution of nothing comes first, for entries that are not used.
    let mut tables = Tables { nodes: vec![0], ..Tables::default() };
    let mut lists = Vec::new();
    for (field, root) in &roots {
        let mut own = Vec::new();
        root.collect(0, &mut own);
        let depth = own.iter().map(|(level, _)| *level).max().unwrap_or(0);
        tables.roots.resize(usize::from(*field) + 1, 0);
        tables.roots[usize::from(*field)] = tables.nodes.len() as u32 | (depth as u32) << 24;
        root.list.iter().for_each(|list| list.write(&mut tables.nodes));
        lists.extend(own.into_iter().filter_map(|(_, node)| Some((node.key, node.list.as_ref()?))));
    }
    let buckets = (lists.len() as f64 / LOAD / BUCKET as f64).ceil() as usize;
    tables.buckets = vec![0; BUCKET * buckets];
    // Where a bucket is full, what is worth least stays out.
    lists.sort_by(|a, b| b.1.gain.total_cmp(&a.1.gain).then(a.0.cmp(&b.0)));
    let mut used = vec![0; buckets];
    for (key, list) in lists {
        let (bucket, rest) = place(key, buckets);
        if used[bucket] == BUCKET || tables.nodes.len() >= MAX_NODES {
            continue;
        }
        tables.buckets[BUCKET * bucket + used[bucket]] = entry(rest, tables.nodes.len());
        used[bucket] += 1;
        list.write(&mut tables.nodes);
    }
    tables
}

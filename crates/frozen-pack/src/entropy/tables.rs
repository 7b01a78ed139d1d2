//! Distributions by context, in the bytes that a decoder uses as they are.
//!
//! Every field has a distribution of its own, the *root*, in which all its symbols are listed. Contexts of one, two
//! or three values have one where that pays for its room. A symbol is looked for in the distribution of the longest
//! context that has one; if that says escape, in that of the next shorter one.

use crate::entropy::classes::{CODES, Class, TOTAL, frequency};
use crate::entropy::rans::{Decoder, Encoder};
use crate::error::Damaged;
use crate::symbols::{Context, DEPTH, Source, Step};

/// How many distributions a bucket of the hash table has room for.
pub const BUCKET: usize = 4;

/// Bits of an entry of a bucket that say where the distribution is.
const OFFSET_BITS: u32 = 18;

/// Of what size the distributions can be in all, in bytes.
pub const MAX_NODES: usize = 1 << OFFSET_BITS;

/// Knuth's multiplicative hash; odd, so that no two keys have the same hash.
const HASH: u32 = 0x9E37_79B1;

/// The distributions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// By field: where its root is in [`Tables::nodes`], with the length of its longest context in the upper byte.
    pub roots: Vec<u32>,
    /// The hash table of the others: buckets of [`BUCKET`] entries, each the rest of the hash and an offset.
    pub buckets: Vec<u32>,
    /// The distributions. The first one is empty and stands for none.
    pub nodes: Vec<u8>,
}

/// Where the hash of a key leads to: a bucket, and what entries for the key begin with.
pub fn place(key: u32, buckets: usize) -> (usize, u32) {
    let product = u64::from(key.wrapping_mul(HASH)) * buckets as u64;
    ((product >> 32) as usize, (product as u32) >> OFFSET_BITS)
}

/// An entry of a bucket.
pub fn entry(rest: u32, offset: usize) -> u32 {
    rest << OFFSET_BITS | offset as u32
}

/// One distribution.
#[derive(Clone, Copy, Debug)]
struct Node<'a> {
    classes: &'a [u8],
    symbols: &'a [u8],
}

impl Node<'_> {
    fn classes(&self) -> impl Iterator<Item = Class> {
        self.classes.chunks_exact(2).map(|pair| Class { code: pair[0], count: pair[1] })
    }

    /// Where a symbol's numbers begin and how many there are; those of the escape if it is not listed.
    fn find(&self, symbol: u8) -> (bool, u32, u32) {
        let place = self.symbols.iter().position(|&listed| listed == symbol);
        let (mut start, mut first) = (0, 0);
        for class in self.classes() {
            let count = usize::from(class.count);
            if let Some(place) = place.filter(|place| *place < first + count) {
                let frequency = frequency(class.code);
                return (true, start + (place - first) as u32 * frequency, frequency);
            }
            start += class.weight();
            first += count;
        }
        (false, start, TOTAL - start)
    }

    /// The symbol that a number stands for, `None` for the escape; where its numbers begin and how many there are.
    fn at(&self, slot: u32) -> (Option<u8>, u32, u32) {
        let (mut start, mut first) = (0, 0);
        for class in self.classes() {
            if slot - start < class.weight() {
                let frequency = frequency(class.code);
                let index = (slot - start) / frequency;
                return (Some(self.symbols[first + index as usize]), start + index * frequency, frequency);
            }
            start += class.weight();
            first += usize::from(class.count);
        }
        (None, start, TOTAL - start)
    }
}

impl Tables {
    /// What they take in memory, in bytes.
    pub fn size(&self) -> usize {
        4 * self.roots.len() + 4 * self.buckets.len() + self.nodes.len()
    }

    /// Checks every distribution.
    ///
    /// # Errors
    /// If one lies outside of the tables or does not make sense.
    pub fn check(&self) -> Result<(), Damaged> {
        if self.buckets.len() % BUCKET != 0 || self.roots.iter().any(|root| *root >> 24 > DEPTH as u32) {
            return Err(Damaged("the tables have no such shape"));
        }
        let offsets = self.roots.iter().map(|root| root & 0xFF_FFFF);
        let entries = self.buckets.iter().map(|entry| entry & ((1 << OFFSET_BITS) - 1));
        for offset in offsets.chain(entries) {
            let node =
                self.node(offset as usize).ok_or(Damaged("a distribution lies outside of the tables"))?;
            let sound = |class: &Class| (1..CODES).contains(&usize::from(class.code)) && class.count > 0;
            if !node.classes().all(|class| sound(&class))
                || node.classes().map(|class| class.weight()).sum::<u32>() > TOTAL
            {
                return Err(Damaged("the frequencies of a distribution are out of range"));
            }
        }
        Ok(())
    }

    fn node(&self, offset: usize) -> Option<Node<'_>> {
        let (&count, rest) = self.nodes.get(offset..)?.split_first()?;
        let (classes, rest) = rest.split_at_checked(2 * usize::from(count))?;
        let symbols = classes.chunks_exact(2).map(|pair| usize::from(pair[1])).sum();
        Some(Node { classes, symbols: rest.get(..symbols)? })
    }

    /// The distributions to look into for a context, the one of the longest context first.
    fn nodes(&self, context: Context) -> impl Iterator<Item = Option<Node<'_>>> {
        let root = self.roots.get(usize::from(context.field)).copied();
        let depth = root.map_or(0, |root| root >> 24);
        let longer = (1..=depth as usize).rev().filter_map(move |level| {
            let (bucket, rest) = place(context.key(level), self.buckets.len() / BUCKET);
            let bucket = self.buckets.get(BUCKET * bucket..BUCKET * (bucket + 1))?;
            let entry = bucket.iter().find(|entry| *entry >> OFFSET_BITS == rest)?;
            Some((entry & ((1 << OFFSET_BITS) - 1)) as usize)
        });
        longer.chain(root.map(|root| (root & 0xFF_FFFF) as usize)).map(|offset| self.node(offset))
    }

    /// What each symbol costs in a context, in bits; infinitely much if it has no code.
    pub fn costs(&self, context: Context) -> [f32; 256] {
        let mut costs = [f32::INFINITY; 256];
        let mut escape = 0.0;
        for node in self.nodes(context).flatten() {
            let (mut symbols, mut weight) = (node.symbols.iter(), 0);
            for class in node.classes() {
                let own = escape + bits(frequency(class.code));
                for &symbol in symbols.by_ref().take(usize::from(class.count)) {
                    let cost = &mut costs[usize::from(symbol)];
                    *cost = cost.min(own);
                }
                weight += class.weight();
            }
            escape += bits(TOTAL - weight);
        }
        costs
    }

    /// Encodes the steps of a page.
    ///
    /// # Errors
    /// If a symbol is in no distribution of its field.
    pub fn encode(&self, steps: &[Step]) -> Result<Vec<u8>, Damaged> {
        let mut encoder = Encoder::default();
        let mut parts = Vec::with_capacity(DEPTH + 1);
        for step in steps.iter().rev() {
            match *step {
                Step::Bits(count, value) => encoder.put_bits(count, value),
                Step::Symbol(context, symbol) => {
                    parts.clear();
                    let listed = self.nodes(context).flatten().any(|node| {
                        let (listed, start, frequency) = node.find(symbol);
                        parts.push((start, frequency));
                        listed
                    });
                    if !listed || parts.iter().any(|part| part.1 == 0) {
                        return Err(Damaged("a symbol has no code"));
                    }
                    parts.iter().rev().for_each(|&(start, frequency)| encoder.put(start, frequency));
                }
            }
        }
        Ok(encoder.finish())
    }
}

/// What something of this frequency costs, in bits.
fn bits(frequency: u32) -> f32 {
    (TOTAL as f32 / frequency as f32).log2()
}

/// The symbols of a page that was encoded with [`Tables::encode`].
#[derive(Debug)]
pub struct Symbols<'a> {
    tables: &'a Tables,
    stream: Decoder<'a>,
}

impl<'a> Symbols<'a> {
    /// Begins to read `stream`.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn new(tables: &'a Tables, stream: &'a [u8]) -> Result<Symbols<'a>, Damaged> {
        Ok(Symbols { tables, stream: Decoder::new(stream)? })
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// If something is.
    pub fn finish(&self) -> Result<(), Damaged> {
        self.stream.finish()
    }
}

impl Source for Symbols<'_> {
    fn symbol(&mut self, context: Context) -> Result<u8, Damaged> {
        for node in self.tables.nodes(context) {
            let node = node.ok_or(Damaged("a distribution lies outside of the tables"))?;
            let (symbol, start, frequency) = node.at(self.stream.slot());
            if frequency != 0 {
                self.stream.take(start, frequency)?;
            }
            if let Some(symbol) = symbol {
                return Ok(symbol);
            }
        }
        Err(Damaged("a symbol is in no distribution"))
    }

    fn bits(&mut self, count: u32) -> Result<u32, Damaged> {
        self.stream.take_bits(count)
    }
}

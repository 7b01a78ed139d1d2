//! Distributions by context, in the bytes that a decoder uses as they are.
//!
//! The distributions of a field are a tree: the *root* lists all symbols of the field; its children are for contexts of
//! one value, and theirs for contexts of two. A child is there where it pays for its room and for the time that it
//! takes. A symbol is looked for in the distribution of the longest context that has one; if that says escape, in that
//! of the next shorter one.
//!
//! In memory, a distribution is a header, records of its classes, and its symbols; what says where its children are
//! stands in front of it: an offset for each value with a root, a hash table with others. `docs/frozen-format.md` has
//! the bytes.

use crate::entropy::classes::{CODES, Class, TOTAL, frequency};
use crate::entropy::rans::{Decoder, Encoder};
use crate::error::Damaged;
use crate::symbols::{Context, DEPTH, Source, Step};

/// The unit of offsets, and the size of a header, of a record and of an entry, in bytes.
pub const WORD: usize = 4;

/// The size of what stands in front of a root that has children: 2 bytes for each value.
const ROW: usize = 512;

/// In a header, in place of 8 less the logarithm of the number of entries: there are no children.
pub const NO_CHILDREN: u8 = 8;

/// Spreads values over the entries.
const SPREAD: u8 = 0x9D;

/// An entry: a value, and where the distribution for it is.
pub fn entry(value: u8, offset: usize) -> u32 {
    u32::from(value) << 24 | (offset / WORD) as u32
}

/// The place of the entry for a value, among `256 >> shift` of them; the first one stands last.
pub fn place(value: u8, shift: u8) -> usize {
    usize::from(value.wrapping_mul(SPREAD)) >> shift
}

/// What a symbol without a code costs, in bits: more than any with one.
const NO_CODE: f32 = 60.0;

/// The distributions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Where the roots are, by field.
    pub roots: Vec<u32>,
    /// The distributions.
    pub nodes: Vec<u8>,
}

/// One distribution.
#[derive(Clone, Copy, Debug)]
struct Node<'a> {
    tables: &'a Tables,
    /// Where its header is.
    at: usize,
}

/// A class with what it takes: numbers from `start` on, symbols from `first` on.
#[derive(Clone, Copy, Debug)]
struct Record {
    start: u32,
    end: u32,
    code: u8,
    first: usize,
}

impl<'a> Node<'a> {
    fn word(&self, at: usize) -> Option<[u8; 4]> {
        self.tables.nodes.get(at..)?.first_chunk().copied()
    }

    fn record_count(self) -> usize {
        self.word(self.at).map_or(0, |head| usize::from(head[3]))
    }

    /// The records; the last one is that of the escape.
    fn records(self) -> impl Iterator<Item = Record> {
        let mut start = 0;
        (1..=self.record_count()).map_while(move |index| self.word(self.at + WORD * index)).map(move |word| {
            let [low, high, code, first] = word;
            let end = u32::from(u16::from_le_bytes([low, high]));
            let record = Record { start, end, code, first: usize::from(first) };
            start = end;
            record
        })
    }

    fn symbols(self) -> &'a [u8] {
        self.tables.nodes.get(self.at + WORD * (1 + self.record_count())..).unwrap_or_default()
    }

    /// 8 less the logarithm of how many entries there are.
    fn shift(self) -> u8 {
        self.word(self.at).map_or(NO_CHILDREN, |head| head[2])
    }

    /// The child of a root.
    fn of_row(self, value: u8) -> Option<Node<'a>> {
        if self.shift() == NO_CHILDREN {
            return None;
        }
        let offset = self.word(self.at.checked_sub(ROW)? + 2 * usize::from(value))?;
        let offset = usize::from(u16::from_le_bytes([offset[0], offset[1]]));
        (offset != 0).then_some(Node { at: WORD * offset, ..self })
    }

    /// The child of another distribution.
    fn of_entries(self, value: u8) -> Option<Node<'a>> {
        let shift = self.shift();
        if shift == NO_CHILDREN {
            return None;
        }
        let at = self.at.checked_sub(WORD * (1 + place(value, shift)))?;
        let entry = u32::from_le_bytes(self.word(at)?);
        (entry >> 24 == u32::from(value)).then_some(Node { at: WORD * (entry & 0xFF_FFFF) as usize, ..self })
    }

    /// Where a symbol's numbers begin and how many there are; those of the escape if it is not listed.
    fn find(self, symbol: u8) -> (bool, u32, u32) {
        let symbols = self.symbols();
        for record in self.records() {
            if record.code == 0 {
                return (false, record.start, record.end - record.start);
            }
            let frequency = frequency(record.code);
            let count = ((record.end - record.start) / frequency) as usize;
            let place = symbols[record.first..][..count].iter().position(|&listed| listed == symbol);
            if let Some(place) = place {
                return (true, record.start + place as u32 * frequency, frequency);
            }
        }
        (false, 0, 0)
    }

    /// The symbol that a number stands for, `None` for the escape; where its numbers begin and how many there are.
    fn at(self, slot: u32) -> Option<(Option<u8>, u32, u32)> {
        let Record { start, end, code, first } = self.records().find(|record| slot < record.end)?;
        if code == 0 {
            return Some((None, start, end - start));
        }
        let frequency = frequency(code);
        let index = (slot - start) / frequency;
        Some((Some(*self.symbols().get(first + index as usize)?), start + index * frequency, frequency))
    }

    /// Checks it; children below are checked by [`Node::check_root`].
    fn check(self) -> Result<(), Damaged> {
        let head = self.word(self.at).ok_or(Damaged("a distribution lies outside of the tables"))?;
        if head[..2] != [0, 0] || head[2] > NO_CHILDREN {
            return Err(Damaged("a distribution has a damaged header"));
        }
        let (mut next, mut end, mut last) = (0, 0, 1);
        for record in self.records() {
            let width =
                record.end.checked_sub(record.start).filter(|_| last != 0 && record.first == next & 0xFF);
            let width = width.ok_or(Damaged("the classes of a distribution are not in order"))?;
            (end, last) = (record.end, record.code);
            if record.code != 0 {
                let frequency = if usize::from(record.code) < CODES { frequency(record.code) } else { 0 };
                let count = (1..=255).find(|count| count * frequency == width);
                next += count.ok_or(Damaged("the frequencies of a distribution are out of range"))? as usize;
            }
        }
        if end != TOTAL || last != 0 {
            return Err(Damaged("the frequencies of a distribution do not add up"));
        }
        let symbols = self.tables.nodes.get(self.at + WORD * (1 + self.record_count())..);
        if next > 256 || symbols.is_none_or(|symbols| symbols.len() < next) {
            return Err(Damaged("a distribution ends outside of the tables"));
        }
        Ok(())
    }

    /// Checks a root and all below it.
    fn check_root(self) -> Result<(), Damaged> {
        self.check()?;
        let outside = Damaged("a distribution lies outside of the tables");
        if self.shift() == NO_CHILDREN {
            return Ok(());
        }
        self.at.checked_sub(ROW).ok_or(outside)?;
        for child in (0..=255).filter_map(|value| self.of_row(value)) {
            child.check()?;
            let shift = child.shift();
            if shift == NO_CHILDREN {
                continue;
            }
            for index in 1..=256usize >> shift {
                let at = child.at.checked_sub(WORD * index).ok_or(outside)?;
                let entry = u32::from_le_bytes(child.word(at).ok_or(outside)?);
                let longest = Node { at: WORD * (entry & 0xFF_FFFF) as usize, ..child };
                longest.check()?;
            }
        }
        Ok(())
    }
}

impl Tables {
    /// What they take in memory, in bytes.
    pub fn size(&self) -> usize {
        WORD * self.roots.len() + self.nodes.len()
    }

    /// Checks every distribution.
    ///
    /// # Errors
    /// If one lies outside of the tables or does not make sense.
    pub fn check(&self) -> Result<(), Damaged> {
        self.roots.iter().try_for_each(|root| Node { tables: self, at: *root as usize }.check_root())
    }

    /// The distributions to look into for a context, the one of the longest context first.
    fn nodes(&self, context: Context) -> impl Iterator<Item = Node<'_>> {
        let root =
            self.roots.get(usize::from(context.field)).map(|root| Node { tables: self, at: *root as usize });
        let short = root.and_then(|root| root.of_row(context.values[0]));
        let long = short.and_then(|short| short.of_entries(context.values[1]));
        [long, short, root].into_iter().flatten()
    }

    /// What each symbol costs in a context, in bits; much if it has no code.
    pub fn costs(&self, context: Context) -> [f32; 256] {
        let mut costs = [NO_CODE; 256];
        let mut escape = 0.0;
        for node in self.nodes(context) {
            let symbols = node.symbols();
            for record in node.records() {
                let width = record.end - record.start;
                if record.code == 0 {
                    escape += bits(width);
                    break;
                }
                let own = escape + bits(frequency(record.code));
                for &symbol in &symbols[record.first..][..(width / frequency(record.code)) as usize] {
                    let cost = &mut costs[usize::from(symbol)];
                    *cost = cost.min(own);
                }
            }
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
                    let listed = self.nodes(context).any(|node| {
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

/// Appends a distribution to `out`, in front of which its entries stand, and gives its offset.
pub fn write(out: &mut Vec<u8>, shift: u8, classes: &[Class], symbols: &[u8]) -> usize {
    let at = out.len();
    out.extend([0, 0, shift, classes.len() as u8 + 1]);
    let (mut end, mut first) = (0, 0u8);
    for class in classes {
        end += class.weight();
        out.extend((end as u16).to_le_bytes());
        out.extend([class.code, first]);
        first = first.wrapping_add(class.count);
    }
    out.extend((TOTAL as u16).to_le_bytes());
    out.extend([0, first]);
    out.extend(symbols);
    out.resize(out.len().next_multiple_of(WORD), 0);
    at
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
            let found = node.at(self.stream.slot());
            let (symbol, start, frequency) =
                found.ok_or(Damaged("a distribution lies outside of the tables"))?;
            self.stream.take(start, frequency)?;
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

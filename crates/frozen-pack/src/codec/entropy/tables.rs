//! Distributions by context, as bytes that a decoder uses unchanged.
//!
//! The distributions of a field form a tree. The *root* lists all symbols of the field, its children are for contexts
//! of one value, and their children for contexts of two. A child exists if it is worth its room and its decoding time.
//! A symbol is searched in the distribution of its longest context; after an escape, in the distribution of the next
//! shorter context.
//!
//! For each field and each first value, a table gives the distribution for that value, or the root. In memory, a
//! distribution is records of its classes, the next distribution after the escape, and its symbols. In layouts with
//! contexts of two values, it follows a hash table of the distributions for the second value. `docs/frozen-format.md`
//! describes the bytes.

use std::sync::LazyLock;

use crate::codec::entropy::classes::{CODES, Class, TOTAL, TOTAL_BITS, frequency};
use crate::codec::entropy::rans::{Decoder, Encoder};
use crate::codec::error::Damaged;
use crate::codec::symbols::{Context, DEPTH, Fields, Source, Step};

/// The unit of offsets, and the size of a header, of a record and of an entry, in bytes.
pub const WORD: usize = 4;

/// The position of the first number of a class in its record.
const FIRST_SHIFT: u32 = 32 - TOTAL_BITS;

/// The position in a record of the offset of its symbols, or of the escape's data.
const SYMBOLS_SHIFT: u32 = 8;

/// Spreads values over the hash table.
const SPREAD: u8 = 0x9D;

/// Returns an entry: a value, and the place of the first record of its distribution.
pub fn entry(value: u8, records: usize) -> u32 {
    u32::from(value) << 24 | (records / WORD) as u32
}

/// Returns the place of the entry for a value among `1 << log` entries, which are stored in reverse.
pub fn place(value: u8, log: u32) -> usize {
    usize::from(value.wrapping_mul(SPREAD)) >> (8 - log)
}

/// Cost of a symbol without a code, in bits: more than any with one.
const NO_CODE: f32 = 60.0;

/// The distributions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// The fields of the distributions.
    pub fields: Fields,
    /// For each field and first value, the place of the distribution, in units of [`WORD`].
    pub contexts: Vec<u16>,
    /// The distributions.
    pub nodes: Vec<u8>,
}

/// One distribution.
#[derive(Clone, Copy, Debug)]
struct Node<'a> {
    tables: &'a Tables,
    /// The place of its first record.
    records: usize,
}

/// A decoded record of a class.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// Its first number.
    start: u32,
    /// The number after its last one.
    end: u32,
    /// The code of its frequency, 0 for the escape.
    code: u8,
    /// The offset of its symbols.
    symbols: usize,
    /// The word.
    word: u32,
}

impl<'a> Node<'a> {
    /// Iterates over the records; the numbers of the last one begin at 0.
    fn records(self) -> impl Iterator<Item = Record> {
        let (mut at, mut end) = (self.records, TOTAL);
        std::iter::from_fn(move || {
            let word = self.tables.word(at).filter(|_| end > 0)?;
            let symbols = at + (word >> SYMBOLS_SHIFT & 0xFFF) as usize;
            let record = Record { start: word >> FIRST_SHIFT, end, code: word as u8, symbols, word };
            (at, end) = (at + WORD, record.start);
            Some(record)
        })
    }

    fn symbols(self, record: &Record) -> &'a [u8] {
        let count = (record.end - record.start) / frequency(record.code);
        self.tables
            .nodes
            .get(record.symbols..)
            .and_then(|rest| rest.get(..count as usize))
            .unwrap_or_default()
    }

    /// Returns the distribution to search after the escape; `None` if there is no escape, or no other distribution.
    fn shorter(self) -> Option<Node<'a>> {
        let records = self.records().count();
        let escape = self.records().last().filter(|last| last.code == 0);
        let next = escape.and_then(|_| self.tables.word(self.records + WORD * records))?;
        (next != 0).then_some(Node { records: next as usize, ..self })
    }

    /// Returns the logarithm of the number of hash-table entries, stored before the records for a first value, if there
    /// are entries.
    ///
    /// # Errors
    /// If the stored value is invalid.
    fn log(self) -> Result<Option<u32>, Damaged> {
        let shift = self.records.checked_sub(WORD).and_then(|at| self.tables.word(at));
        match shift {
            Some(0) => Ok(None),
            Some(shift @ 24..32) => Ok(Some(32 - shift)),
            _ => Err(Damaged("a table of distributions has a size out of range")),
        }
    }

    /// The entry at a place.
    fn entry(self, place: usize) -> Result<u32, Damaged> {
        let at = self.records.checked_sub(WORD * (2 + place));
        at.and_then(|at| self.tables.word(at)).ok_or(Damaged("a distribution lies outside of the tables"))
    }

    /// The distribution for a second value.
    fn of_entries(self, value: u8) -> Option<Node<'a>> {
        let entry = self.entry(place(value, self.log().ok()??)).ok()?;
        let records = WORD * (entry & 0xFF_FFFF) as usize;
        (entry >> 24 == u32::from(value)).then_some(Node { records, ..self })
    }

    /// Returns the first number and the count of numbers of a symbol; those of the escape if the symbol is not listed.
    fn find(self, symbol: u8) -> (bool, u32, u32) {
        for record in self.records() {
            if record.code == 0 {
                return (false, record.start, record.end - record.start);
            }
            let place = self.symbols(&record).iter().position(|&listed| listed == symbol);
            if let Some(place) = place {
                let frequency = frequency(record.code);
                return (true, record.start + place as u32 * frequency, frequency);
            }
        }
        (false, 0, 0)
    }

    /// Returns the symbol of a number, `None` for the escape, with its first number and its count of numbers.
    fn at(self, slot: u32) -> Option<(Option<u8>, u32, u32)> {
        let record = self.records().find(|record| slot >= record.start)?;
        let Record { start, end, code, .. } = record;
        if record.code == 0 {
            return Some((None, start, end - start));
        }
        let frequency = frequency(code);
        let index = (slot - start) / frequency;
        let symbol = *self.symbols(&record).get(index as usize)?;
        Some((Some(symbol), start + index * frequency, frequency))
    }

    /// Checks the records, and returns the target of the escape, 0 if it has none.
    fn check_records(self) -> Result<u32, Damaged> {
        let outside = Damaged("a distribution lies outside of the tables");
        let (mut at, mut left) = (self.records, TOTAL);
        for record in self.records() {
            if record.start >= record.end || usize::from(record.code) >= CODES {
                return Err(Damaged("the classes of a distribution are not in order"));
            }
            at += WORD;
            left = record.start;
            if record.code == 0 {
                let next = self.tables.word(at).ok_or(outside)?;
                let valid = record.word >> SYMBOLS_SHIFT == record.end - 1
                    && next as usize % WORD == 0
                    && next as usize <= self.tables.nodes.len();
                return if valid { Ok(next) } else { Err(Damaged("a distribution has a damaged escape")) };
            }
            let (width, frequency) = (record.end - record.start, frequency(record.code));
            if width % frequency != 0 {
                return Err(Damaged("the frequencies of a distribution are out of range"));
            }
            if self.symbols(&record).len() != (width / frequency) as usize {
                return Err(Damaged("a distribution ends outside of the tables"));
            }
        }
        if left == 0 { Ok(0) } else { Err(outside) }
    }

    /// Checks this distribution and the targets of its escapes, in at most `depth` shorter contexts.
    fn check_chain(self, depth: usize) -> Result<(), Damaged> {
        let mut next = self.check_records()?;
        for _ in 0..depth {
            if next != 0 {
                next = Node { records: next as usize, ..self }.check_records()?;
            }
        }
        if next == 0 { Ok(()) } else { Err(Damaged("the distributions for contexts form a cycle")) }
    }

    /// Checks everything that is found by a first value, for contexts of at most `depth` values.
    fn check(self, depth: usize) -> Result<(), Damaged> {
        self.check_chain(1)?;
        if depth == 1 {
            return Ok(());
        }
        let Some(log) = self.log()? else { return Ok(()) };
        for place in 0..1 << log {
            let records = WORD * (self.entry(place)? & 0xFF_FFFF) as usize;
            Node { records, ..self }.check_chain(2)?;
        }
        Ok(())
    }
}

impl Tables {
    /// Creates tables from these parts.
    ///
    /// # Errors
    /// If a distribution is outside of the tables or invalid.
    pub fn new(fields: Fields, contexts: Vec<u16>, nodes: Vec<u8>) -> Result<Tables, Damaged> {
        let tables = Tables { fields, contexts, nodes };
        if tables.nodes.len() >= 1 << 30 {
            return Err(Damaged("its distributions are too large"));
        }
        for context in 0..tables.contexts.len() {
            tables.node(context).check(fields.depth)?;
        }
        Ok(tables)
    }

    /// Returns their size in memory, in bytes.
    pub fn size(&self) -> usize {
        2 * self.contexts.len() + self.nodes.len()
    }

    fn word(&self, at: usize) -> Option<u32> {
        self.nodes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
    }

    /// Returns the distribution for the context number of a field and a first value.
    fn node(&self, context: usize) -> Node<'_> {
        Node { tables: self, records: WORD * usize::from(self.contexts[context]) }
    }

    /// Iterates over the distributions to search for a context, longest context first.
    fn nodes(&self, context: Context) -> impl Iterator<Item = Node<'_>> {
        let first = self.fields.index(context).map(|index| self.node(index));
        let deeper = self.fields.depth == DEPTH;
        let longest = first.map(|first| match deeper {
            true => first.of_entries(context.values[1]).unwrap_or(first),
            false => first,
        });
        std::iter::successors(longest, |node| node.shorter())
    }

    /// Returns the cost of each symbol in a context, in bits, by the first distribution that lists it, as
    /// [`encode`](Tables::encode) codes it; high if it has no code.
    pub fn costs(&self, context: Context) -> [f32; 256] {
        let mut costs = [NO_CODE; 256];
        let mut escape = 0.0;
        for node in self.nodes(context) {
            for record in node.records() {
                if record.code == 0 {
                    escape += bits(record.end - record.start);
                    break;
                }
                let own = escape + bits(frequency(record.code));
                for &symbol in node.symbols(&record) {
                    let cost = &mut costs[usize::from(symbol)];
                    if *cost >= NO_CODE {
                        *cost = own;
                    }
                }
            }
        }
        costs
    }

    /// Returns the cost of one symbol in a context, as [`costs`](Tables::costs) does.
    pub fn cost(&self, context: Context, symbol: u8) -> f32 {
        let mut escape = 0.0;
        for node in self.nodes(context) {
            let (listed, _, frequency) = node.find(symbol);
            if listed {
                return escape + bits(frequency);
            }
            escape += bits(frequency);
        }
        NO_CODE
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

/// Returns the cost of an event with this frequency, in bits.
fn bits(frequency: u32) -> f32 {
    static BITS: LazyLock<Vec<f32>> =
        LazyLock::new(|| (0..=TOTAL).map(|frequency| (TOTAL as f32 / frequency as f32).log2()).collect());
    BITS[frequency as usize]
}

/// Returns the marker before the records for a first value, given the logarithm of its number of entries.
pub fn shift(log: Option<u32>) -> u32 {
    log.map_or(0, |log| 32 - log)
}

/// Appends records and symbols of a distribution, and returns the place of the first record. The numbers outside of the
/// classes belong to the escape. `shorter` is the next context to search after it, 0 if there is none.
pub fn write(out: &mut Vec<u8>, classes: &[Class], symbols: &[u8], shorter: usize) -> usize {
    let at = out.len();
    let mut left = TOTAL;
    let weight: u32 = classes.iter().map(Class::weight).sum();
    let records = classes.len() + if weight < TOTAL { 2 } else { 0 };
    let mut first = 0;
    for (index, class) in classes.iter().enumerate() {
        left -= class.weight();
        let behind = (WORD * (records - index) + first) as u32;
        let record = left << FIRST_SHIFT | behind << SYMBOLS_SHIFT | u32::from(class.code);
        out.extend(record.to_le_bytes());
        first += usize::from(class.count);
    }
    if left > 0 {
        out.extend(((left - 1) << SYMBOLS_SHIFT).to_le_bytes());
        out.extend((shorter as u32).to_le_bytes());
    }
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
    /// Starts to read `stream`.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn new(tables: &'a Tables, stream: &'a [u8]) -> Result<Symbols<'a>, Damaged> {
        Ok(Symbols { tables, stream: Decoder::new(stream)? })
    }

    /// Checks that nothing remains.
    ///
    /// # Errors
    /// If something remains.
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

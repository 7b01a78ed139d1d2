//! Packed tables for unwinding: the unwind state of every instruction, which the decoder finds without unpacking all.
//!
//! A table lists entries: from this distance on, code has this state. Regions of code have tables of their own. The
//! entries of a region are one stream of code words. A code word has the state that follows, as its rank among all that
//! ever follow the last state, and the distance to it. Codes depend on the last state. An index has every 128th entry,
//! with the position of its successor in the stream.
//!
//! `kdecomp-rt/unwind.c` is the decoder in C; `docs/unwind-format.md` defines the format.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::entropy::huffman::{Code, LONGEST};
use super::error::Damaged;

/// Number of regions.
pub const REGIONS: usize = 3;

/// Number of entries from one entry of the index to the next.
const STRIDE: usize = 128;

/// Maximum number of codes. The last one is for all states from its number on.
const MOST_CODES: usize = 64;

/// Bits of a symbol for the class of the distance; the others are the rank.
const CLASS_BITS: u32 = 6;

/// From here on, a class has many distances: `m` more bits, for class 28 + `m`.
const WIDE: u32 = 32;

/// Size of the header in bytes.
const HEADER: usize = 4 * (REGIONS + 1 + 1 + 7);

/// From a distance on, code has a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The distance in bytes from the start of the region.
    pub distance: u32,
    /// The number of the state.
    pub state: u16,
}

/// The entries of a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Region {
    /// In ascending order of distance, from 0 on. Neighbors differ in both.
    entries: Vec<Entry>,
    /// Its size in bytes.
    size: u32,
}

impl Region {
    /// Makes a region of `size` bytes. The first entry must have distance 0, and distances must not descend. Of several
    /// entries for one distance, the last one counts.
    ///
    /// # Errors
    /// If the entries are others.
    pub fn new(entries: &[Entry], size: u32) -> Result<Region, Damaged> {
        let ascends = entries.is_sorted_by_key(|entry| entry.distance);
        if !ascends || size > 0 && entries.first().is_none_or(|first| first.distance != 0) {
            return Err(Damaged("the entries of a region do not begin at 0, or descend"));
        }
        let mut kept: Vec<Entry> = Vec::new();
        for (i, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.distance < size) {
            let is_last = entries.get(i + 1).is_none_or(|next| next.distance > entry.distance);
            if is_last && kept.last().is_none_or(|last| last.state != entry.state) {
                kept.push(*entry);
            }
        }
        Ok(Region { entries: kept, size })
    }

    /// The steps from each entry to the next, and from the last one to the end: the state, the next state, and the
    /// distance. The end has the most frequent state, which nothing reads.
    fn steps(&self) -> impl Iterator<Item = (u16, u16, u32)> {
        let end = Entry { distance: self.size, state: 0 };
        let next = self.entries.iter().skip(1).chain([&end]).copied().collect::<Vec<_>>();
        let both = self.entries.iter().zip(next);
        both.map(|(entry, next)| (entry.state, next.state, next.distance - entry.distance))
    }
}

/// The class of a distance, the number of more bits, and these.
fn class(distance: u32) -> (u32, u32, u32) {
    match distance.checked_sub(1 + WIDE) {
        None => (distance - 1, 0, 0),
        Some(more) => {
            let more = more + 16;
            let bits = more.ilog2();
            (WIDE - 4 + bits, bits, more - (1 << bits))
        }
    }
}

/// For each state, the states that follow it, most frequent first.
fn successors(states: usize, regions: &[Region]) -> Vec<Vec<u16>> {
    let mut counts: Vec<BTreeMap<u16, usize>> = vec![BTreeMap::new(); states];
    for (state, next, _) in regions.iter().flat_map(Region::steps) {
        *counts[usize::from(state)].entry(next).or_default() += 1;
    }
    let sorted = counts.into_iter().map(|counts| {
        let mut of: Vec<(Reverse<usize>, u16)> =
            counts.into_iter().map(|(state, count)| (Reverse(count), state)).collect();
        of.sort_unstable();
        of.into_iter().map(|(_, state)| state).collect()
    });
    sorted.collect()
}

/// The symbols of a region: the last state, the symbol, the number of bits that follow the code word, and these.
type Symbols = Vec<(u16, u16, u32, u32)>;

fn symbols(region: &Region, successors: &[Vec<u16>]) -> Result<Symbols, Damaged> {
    let symbol = |(state, next, distance): (u16, u16, u32)| {
        let rank = successors[usize::from(state)].iter().position(|&other| other == next);
        let (class, bits, more) = class(distance);
        let symbol = (rank.unwrap_or_default() << CLASS_BITS) as u32 | class;
        let symbol = u16::try_from(symbol).map_err(|_| Damaged("a state has too many successors"))?;
        Ok((state, symbol, bits, more))
    };
    region.steps().map(symbol).collect()
}

/// Returns the codes, if there are this many at most, and the size in bits of codes and stream.
fn codes(symbols: &[Symbols], most: usize) -> (Vec<Code<u16>>, u64) {
    let mut counts: Vec<BTreeMap<u16, u64>> = vec![BTreeMap::new(); most];
    let mut size = 0;
    for &(state, symbol, bits, _) in symbols.iter().flatten() {
        *counts[usize::from(state).min(most - 1)].entry(symbol).or_default() += 1;
        size += u64::from(bits);
    }
    let codes: Vec<Code<u16>> = counts.iter().map(Code::new).collect();
    for (code, counts) in codes.iter().zip(&counts) {
        size += 16 * (LONGEST + 1 + code.symbols.len()) as u64;
        size += counts.iter().map(|(symbol, count)| count * u64::from(code.words[symbol].1)).sum::<u64>();
    }
    (codes, size)
}

/// Packs the tables of all regions, in which `states` states occur. Frequent states should have small numbers.
///
/// # Errors
/// If there are too many states or entries for the format.
pub fn pack(states: usize, regions: &[Region; REGIONS]) -> Result<Vec<u8>, Damaged> {
    let successors = successors(states, regions);
    let all: Vec<Symbols> =
        regions.iter().map(|region| symbols(region, &successors)).collect::<Result<_, _>>()?;
    let tried = (0..=MOST_CODES.ilog2()).map(|bits| codes(&all, 1 << bits));
    let (codes, _) = tried.min_by_key(|(_, size)| *size).unwrap_or_default();
    let mut places: Vec<(Entry, u32)> = Vec::new();
    let mut firsts = Vec::new();
    let mut stream = Bits::default();
    for (region, symbols) in regions.iter().zip(&all) {
        firsts.push(places.len());
        for (i, &(state, symbol, bits, more)) in symbols.iter().enumerate() {
            if i % STRIDE == 0 {
                places.push((region.entries[i], stream.len));
            }
            let (word, length) = codes[usize::from(state).min(codes.len() - 1)].words[&symbol];
            stream.put(word, length);
            stream.put(more, bits);
        }
    }
    firsts.push(places.len());
    let half =
        |number: usize| u16::try_from(number).map_err(|_| Damaged("there are too many states or codes"));
    let mut lists = Vec::new();
    let mut listed = Vec::new();
    for list in &successors {
        lists.push(half(listed.len())?);
        listed.extend(list);
    }
    let mut code_places = Vec::new();
    let mut words: Vec<u16> = Vec::new();
    for code in &codes {
        code_places.push(half(words.len())?);
        words.extend(&code.counts[1..]);
        words.extend(&code.symbols);
    }
    let long = |words: Vec<u32>| words.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>();
    let short = |words: &[u16]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let parts = [
        long(places.iter().map(|(entry, _)| entry.distance).collect()),
        long(places.iter().map(|(_, bit)| *bit).collect()),
        short(&places.iter().map(|(entry, _)| entry.state).collect::<Vec<u16>>()),
        short(&lists),
        short(&listed),
        short(&[code_places, words].concat()),
        stream.bytes,
    ];
    let mut header: Vec<u32> = firsts.into_iter().map(|first| first as u32).collect();
    header.push(codes.len() as u32);
    let mut at = HEADER;
    for part in &parts {
        header.push(at as u32);
        at += part.len();
    }
    Ok([long(header), parts.concat()].concat())
}

/// A stream of bits, highest bit of each byte first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    len: u32,
}

impl Bits {
    fn put(&mut self, word: u32, length: u32) {
        for bit in (0..length).rev() {
            if self.len % 8 == 0 {
                self.bytes.push(0);
            }
            let last = self.bytes.last_mut().expect("a byte was added");
            *last |= (word >> bit & 1) as u8 * (0x80 >> (self.len % 8));
            self.len += 1;
        }
    }
}

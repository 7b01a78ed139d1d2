//! One canonical Huffman code for each stream, as in the paper (section 4.5), for comparison with the coder.
//!
//! A stream has all symbols of a field. The bytes of 32-bit and 16-bit fields have streams of their own, by their place
//! in the field. There is no other context. A code takes a byte for each symbol and one for each length of code words.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use crate::codec::error::Damaged;
use crate::codec::symbols::{Context, Field, Source, Step};

/// The longest code word, in bits.
pub const LONGEST: usize = 16;

/// A canonical code: code words of one length are successive numbers, after the shorter ones.
#[derive(Clone, Debug)]
pub struct Code<S> {
    /// Number of code words of each length, from 1.
    pub counts: [u16; LONGEST + 1],
    /// Their symbols, shortest code word first.
    pub symbols: Vec<S>,
    /// For each symbol, the code word and its length in bits.
    pub words: BTreeMap<S, (u32, u32)>,
}

impl<S: Ord + Copy> Code<S> {
    /// Returns the code for symbols that occur this often.
    pub fn new(counts: &BTreeMap<S, u64>) -> Code<S> {
        let lengths = lengths(counts);
        let mut code = Code { counts: [0; LONGEST + 1], symbols: Vec::new(), words: BTreeMap::new() };
        let mut word = 0;
        for length in 1..=LONGEST {
            for symbol in lengths.iter().filter(|(_, own)| **own == length).map(|(symbol, _)| *symbol) {
                code.counts[length] += 1;
                code.symbols.push(symbol);
                code.words.insert(symbol, (word, length as u32));
                word += 1;
            }
            word <<= 1;
        }
        code
    }

    fn size(&self) -> usize {
        self.symbols.len() + self.counts.iter().rposition(|count| *count > 0).unwrap_or(0)
    }
}

/// Returns the lengths of the code words for symbols with these counts, none longer than [`LONGEST`].
fn lengths<S: Ord + Copy>(counts: &BTreeMap<S, u64>) -> BTreeMap<S, usize> {
    let mut counts = counts.clone();
    loop {
        let mut heap: BinaryHeap<Reverse<(u64, Vec<S>)>> =
            counts.iter().map(|(symbol, count)| Reverse((*count, vec![*symbol]))).collect();
        let mut lengths: BTreeMap<S, usize> = counts.keys().map(|symbol| (*symbol, 0)).collect();
        if let [symbol] = lengths.keys().copied().collect::<Vec<S>>()[..] {
            lengths.insert(symbol, 1);
        }
        while let (Some(Reverse(one)), Some(Reverse(other))) = (heap.pop(), heap.pop()) {
            let both = [one.1, other.1].concat();
            both.iter().for_each(|symbol| *lengths.entry(*symbol).or_default() += 1);
            heap.push(Reverse((one.0 + other.0, both)));
            if heap.len() == 1 {
                break;
            }
        }
        if lengths.values().all(|length| *length <= LONGEST) {
            return lengths;
        }
        counts.values_mut().for_each(|count| *count = count.div_ceil(2));
    }
}

/// The codes of all streams.
#[derive(Debug)]
pub struct Codes {
    codes: BTreeMap<u32, Code<u8>>,
    /// The fields that have a stream for each first value of their context.
    by_place: &'static [Field],
}

impl Codes {
    /// Codes for these steps. The fields `by_place` have a stream for each first value of their context.
    pub fn new<'s>(steps: impl Iterator<Item = &'s Step>, by_place: &'static [Field]) -> Codes {
        let mut codes = Codes { codes: BTreeMap::new(), by_place };
        let mut counts: BTreeMap<u32, BTreeMap<u8, u64>> = BTreeMap::new();
        for step in steps {
            if let Step::Symbol(context, symbol) = *step {
                *counts.entry(codes.stream(context)).or_default().entry(symbol).or_default() += 1;
            }
        }
        codes.codes = counts.iter().map(|(stream, counts)| (*stream, Code::new(counts))).collect();
        codes
    }

    fn stream(&self, context: Context) -> u32 {
        let by_place = self.by_place.contains(&context.field);
        u32::from(context.field) << 8 | if by_place { u32::from(context.values[0]) } else { 0 }
    }

    /// Returns the size of the codes in memory, in bytes.
    pub fn size(&self) -> usize {
        self.codes.values().map(Code::size).sum()
    }

    /// Encodes the steps of a page.
    ///
    /// # Errors
    /// If a symbol has no code.
    pub fn encode(&self, steps: &[Step]) -> Result<Vec<u8>, Damaged> {
        let mut bits = Vec::new();
        let mut put = |word: u32, length: u32| bits.extend((0..length).rev().map(|bit| word >> bit & 1 == 1));
        for step in steps {
            let (word, length) = match *step {
                Step::Bits(count, value) => (value, count),
                Step::Symbol(context, symbol) => {
                    let code = self.codes.get(&self.stream(context));
                    let word = code.and_then(|code| code.words.get(&symbol));
                    *word.ok_or(Damaged("a symbol has no code word"))?
                }
            };
            put(word, length);
        }
        let byte =
            |bits: &[bool]| bits.iter().zip((0..8).rev()).map(|(&bit, place)| u8::from(bit) << place).sum();
        Ok(bits.chunks(8).map(byte).collect())
    }
}

/// The symbols of a page that was encoded with [`Codes::encode`].
#[derive(Debug)]
pub struct Symbols<'a> {
    codes: &'a Codes,
    bytes: &'a [u8],
    bit: usize,
}

impl<'a> Symbols<'a> {
    /// Starts to read `bytes`.
    pub fn new(codes: &'a Codes, bytes: &'a [u8]) -> Symbols<'a> {
        Symbols { codes, bytes, bit: 0 }
    }

    fn next(&mut self) -> Result<u32, Damaged> {
        let byte = self.bytes.get(self.bit / 8).ok_or(Damaged("a page ends too early"))?;
        let bit = byte >> (7 - self.bit % 8) & 1;
        self.bit += 1;
        Ok(u32::from(bit))
    }
}

impl Source for Symbols<'_> {
    fn symbol(&mut self, context: Context) -> Result<u8, Damaged> {
        let code =
            self.codes.codes.get(&self.codes.stream(context)).ok_or(Damaged("a stream has no code"))?;
        let (mut word, mut first, mut index) = (0, 0, 0);
        for count in code.counts.iter().skip(1).map(|count| u32::from(*count)) {
            word |= self.next()?;
            if word < first + count {
                return Ok(code.symbols[(index + word - first) as usize]);
            }
            index += count;
            first = (first + count) << 1;
            word <<= 1;
        }
        Err(Damaged("a code word has no symbol"))
    }

    fn bits(&mut self, count: u32) -> Result<u32, Damaged> {
        (0..count).try_fold(0, |value, _| Ok(value << 1 | self.next()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(symbols: &[u8]) -> Vec<Step> {
        let context = |place: u8| Context { field: place % 3, values: [place % 2, 0] };
        symbols
            .iter()
            .zip((0..=255).cycle())
            .map(|(&symbol, place)| Step::Symbol(context(place), symbol))
            .collect()
    }

    #[test]
    fn symbols_come_back() {
        // Fibonacci numbers as counts cause the longest code words.
        let mut counts = vec![1usize, 1];
        while counts.len() < 24 {
            counts.push(counts[counts.len() - 1] + counts[counts.len() - 2]);
        }
        let deep: Vec<u8> = counts.iter().zip(0..).flat_map(|(&count, symbol)| vec![symbol; count]).collect();
        for symbols in [&[7u8][..], &[1, 2, 3, 3, 3], &deep] {
            let mut steps = steps(symbols);
            steps.push(Step::Bits(5, 19));
            let codes = Codes::new(steps.iter(), &[1]);
            let bytes = codes.encode(&steps).unwrap();
            let mut source = Symbols::new(&codes, &bytes);
            for step in &steps {
                match *step {
                    Step::Symbol(context, symbol) => assert_eq!(source.symbol(context), Ok(symbol)),
                    Step::Bits(count, value) => assert_eq!(source.bits(count), Ok(value)),
                }
            }
            assert!(Symbols::new(&codes, &[]).bits(1).is_err());
        }
    }
}

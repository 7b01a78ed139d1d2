//! Range asymmetric numeral systems (Duda 2013, arXiv:1311.2540), with a state of 32 bits that is filled by 16.
//!
//! The encoder takes its input in reverse order; the decoder returns it in order. A stream is the final state of the
//! encoder, 4 bytes, and then words of 2 bytes, all little endian. The decoder ends with the encoder's initial state,
//! [`LOW`], and with no word left: anything else is damage.

use crate::codec::entropy::classes::TOTAL_BITS;
use crate::codec::error::Damaged;

/// The state is never below this between two steps.
pub const LOW: u32 = 1 << 16;

/// Makes a stream. The last input is decoded first.
#[derive(Debug)]
pub struct Encoder {
    state: u32,
    /// The words, the last one first.
    words: Vec<u16>,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder { state: LOW, words: Vec::new() }
    }
}

impl Encoder {
    /// Encodes an event with `frequency` of the numbers below 4096, starting at `start`.
    pub fn put(&mut self, start: u32, frequency: u32) {
        let limit = u64::from(frequency) << (32 - TOTAL_BITS);
        if u64::from(self.state) >= limit {
            self.words.push(self.state as u16);
            self.state >>= 16;
        }
        self.state = ((self.state / frequency) << TOTAL_BITS) + self.state % frequency + start;
    }

    /// Encodes the `count` lowest bits of `value`, at most 16.
    pub fn put_bits(&mut self, count: u32, value: u32) {
        if u64::from(self.state) >= 1 << (32 - count) {
            self.words.push(self.state as u16);
            self.state >>= 16;
        }
        self.state = self.state << count | value;
    }

    /// Returns the stream.
    pub fn finish(self) -> Vec<u8> {
        let mut bytes = self.state.to_le_bytes().to_vec();
        bytes.extend(self.words.iter().rev().flat_map(|word| word.to_le_bytes()));
        bytes
    }
}

/// Reads a stream.
#[derive(Debug)]
pub struct Decoder<'a> {
    state: u32,
    words: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Starts to read `stream`.
    ///
    /// # Errors
    /// If it is shorter than a state, or the state is out of range.
    pub fn new(stream: &'a [u8]) -> Result<Decoder<'a>, Damaged> {
        let (state, words) =
            stream.split_first_chunk().ok_or(Damaged("a page ends within its first word"))?;
        let state = u32::from_le_bytes(*state);
        if state < LOW {
            return Err(Damaged("a page begins with a state out of range"));
        }
        Ok(Decoder { state, words })
    }

    /// Returns the number below 4096 that identifies the next event.
    pub fn slot(&self) -> u32 {
        self.state & ((1 << TOTAL_BITS) - 1)
    }

    /// Removes an event with `frequency` of the numbers below 4096, starting at `start`, which contain the slot.
    ///
    /// # Errors
    /// If the stream ends here.
    pub fn take(&mut self, start: u32, frequency: u32) -> Result<(), Damaged> {
        let state = frequency * (self.state >> TOTAL_BITS) + self.slot() - start;
        self.fill(state)
    }

    /// Reads `count` bits, at most 16.
    ///
    /// # Errors
    /// If the stream ends here.
    pub fn take_bits(&mut self, count: u32) -> Result<u32, Damaged> {
        let value = self.state & ((1 << count) - 1);
        self.fill(self.state >> count)?;
        Ok(value)
    }

    fn fill(&mut self, state: u32) -> Result<(), Damaged> {
        self.state = state;
        if state < LOW {
            let (word, rest) = self.words.split_first_chunk().ok_or(Damaged("a page ends too early"))?;
            self.state = state << 16 | u32::from(u16::from_le_bytes(*word));
            self.words = rest;
        }
        Ok(())
    }

    /// Checks that the stream ends here.
    ///
    /// # Errors
    /// If it does not.
    pub fn finish(&self) -> Result<(), Damaged> {
        if self.state == LOW && self.words.is_empty() {
            return Ok(());
        }
        Err(Damaged("a page does not end where it should"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_last_is_taken_first() {
        let parts = [(0, 1), (4095, 1), (0, 4096), (100, 3000), (7, 9), (0, 4095)];
        let mut encoder = Encoder::default();
        for round in (0..500u32).rev() {
            encoder.put_bits(1 + round % 16, round & ((1 << (1 + round % 16)) - 1));
            parts.iter().rev().for_each(|&(start, frequency)| encoder.put(start, frequency));
        }
        let stream = encoder.finish();
        let mut decoder = Decoder::new(&stream).unwrap();
        for round in 0..500u32 {
            for (start, frequency) in parts {
                assert!((start..start + frequency).contains(&decoder.slot()));
                decoder.take(start, frequency).unwrap();
            }
            assert_eq!(decoder.take_bits(1 + round % 16).unwrap(), round & ((1 << (1 + round % 16)) - 1));
        }
        decoder.finish().unwrap();
        assert!(Decoder::new(&stream[..3]).is_err());
        assert!(Decoder::new(&[0, 0, 0, 0]).is_err());
        assert!(Decoder::new(&stream).unwrap().finish().is_err());
    }
}

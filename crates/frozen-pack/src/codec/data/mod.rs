//! The layout of pages of data: bytes, and repetitions of earlier bytes of the page or of bytes in a dictionary.
//!
//! A *token* is 0 for one byte, or the length of a repetition less 1. A byte depends on the bytes before it. A
//! repetition has a *form*:
//!
//! | form | | source of the repetition |
//! | --- | --- | --- |
//! | 0 to 3 | | the same distance as the repetition 1 to 4 before |
//! | 4 to 127 | bits | a distance back in the page, less 1 and by groups, see
//! [`values::group`](crate::codec::code::values::group) |
//! | 128 to 255 | bits | an offset in the dictionary, by groups |

pub mod distances;
pub mod parse;

use crate::codec::code::values::first_of_group;
use crate::codec::error::Damaged;
use crate::codec::symbols::{Context, Field, Fields, Source};

/// The fields, with their numbers in the format.
pub mod field {
    use super::{Field, Fields};

    /// The token.
    pub const TOKEN: Field = 0;
    /// A byte.
    pub const BYTE: Field = 1;
    /// The source of a repetition.
    pub const FORM: Field = 2;
    /// A step from one address to the next.
    pub const STEP: Field = 3;
    /// A byte of a step.
    pub const STEP_BYTE: Field = 4;
    /// All fields of data that are not for x86-64.
    pub const ALL: Fields = Fields { values: &[256; 3], depth: 2 };
    /// All fields of data for x86-64.
    pub const ALL_OF_X86_64: Fields = Fields { values: &[256, 256, 256, 256, 6], depth: 2 };
}

/// Number of distances that are remembered.
const REMEMBERED: usize = 4;

/// The first form for a distance within the page.
const DISTANCE: u8 = REMEMBERED as u8;

/// The first form for a place in the dictionary.
const DICTIONARY: u8 = 128;

/// The shortest repetition.
pub const MIN_LENGTH: usize = 2;

/// The longest repetition.
pub const MAX_LENGTH: usize = 256;

/// The data besides the distributions that all pages of data share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataModel {
    /// Whether it is for x86-64.
    pub is_64: bool,
    /// Bytes that pages may repeat.
    pub dictionary: Vec<u8>,
}

/// The context from the page before a token.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// Whether each of the last two tokens was a byte.
    pub bytes: u8,
    /// The most recent distances, last one first.
    pub distances: [u32; REMEMBERED],
}

/// The byte `back` bytes before `at`, 0 before the beginning.
fn earlier(page: &[u8], at: usize, back: usize) -> u8 {
    at.checked_sub(back).map_or(0, |at| page[at])
}

/// Returns the class of a byte: 0, other control characters, ASCII, the rest.
fn class(byte: u8) -> u8 {
    u8::from(byte > 0) + u8::from(byte > 31) + u8::from(byte > 127)
}

impl State {
    /// The context of the token at a place.
    pub fn token(&self, page: &[u8], at: usize) -> Context {
        let [one, two] = [1, 2].map(|back| earlier(page, at, back));
        let values = [self.bytes << 6 | class(two) << 4 | class(one) << 2 | (at & 3) as u8, one];
        Context { field: field::TOKEN, values }
    }

    /// The context of the byte at a place.
    pub fn byte(&self, page: &[u8], at: usize) -> Context {
        Context { field: field::BYTE, values: [1, 2].map(|back| earlier(page, at, back)) }
    }

    /// The context of the form of a repetition.
    pub fn form(&self, at: usize, token: u8) -> Context {
        Context { field: field::FORM, values: [token, (at & 3) as u8] }
    }

    /// The state after a byte.
    pub fn behind_byte(&self) -> State {
        State { bytes: (self.bytes << 1 | 1) & 3, ..*self }
    }

    /// The state after a repetition from this distance, `None` for the dictionary.
    pub fn behind_repetition(&self, distance: Option<u32>) -> State {
        let mut distances = self.distances;
        if let Some(distance) = distance {
            let place = distances.iter().position(|&known| known == distance).unwrap_or(REMEMBERED - 1);
            distances[..=place].rotate_right(1);
            distances[0] = distance;
        }
        State { bytes: self.bytes << 1 & 3, distances }
    }
}

impl DataModel {
    /// Returns the fields of its symbols.
    pub fn fields(&self) -> Fields {
        if self.is_64 { field::ALL_OF_X86_64 } else { field::ALL }
    }

    /// Returns whether a page is better coded as [`distances`].
    pub fn has_distances(&self, page: &[u8]) -> bool {
        self.is_64 && distances::fits(page)
    }

    /// Decodes a page that is not of distances.
    ///
    /// # Errors
    /// If the page is damaged.
    pub fn decode<S: Source>(&self, source: &mut S, out: &mut [u8]) -> Result<(), Damaged> {
        let mut state = State::default();
        let mut at = 0;
        while at < out.len() {
            let token = source.symbol(state.token(out, at))?;
            if token == 0 {
                out[at] = source.symbol(state.byte(out, at))?;
                at += 1;
                state = state.behind_byte();
                continue;
            }
            let length = usize::from(token) + 1;
            let form = source.symbol(state.form(at, token))?;
            let grouped = |first: u8, source: &mut S| -> Result<usize, Damaged> {
                let (first, bits) = first_of_group(form - first);
                Ok((first + if bits > 0 { source.bits(bits)? } else { 0 }) as usize)
            };
            if length > out.len() - at {
                return Err(Damaged("a repetition extends beyond the page"));
            }
            if form >= DICTIONARY {
                let offset = grouped(DICTIONARY, source)?;
                let bytes = self.dictionary.get(offset..offset + length);
                let bytes = bytes.ok_or(Damaged("a repetition is from outside of the dictionary"))?;
                out[at..at + length].copy_from_slice(bytes);
                state = state.behind_repetition(None);
            } else {
                let distance = match form {
                    0..DISTANCE => state.distances[usize::from(form)] as usize,
                    _ => grouped(DISTANCE, source)? + 1,
                };
                if distance == 0 || distance > at {
                    return Err(Damaged("a repetition is from outside of the page"));
                }
                for place in at..at + length {
                    out[place] = out[place - distance];
                }
                state = state.behind_repetition(Some(distance as u32));
            }
            at += length;
        }
        Ok(())
    }
}

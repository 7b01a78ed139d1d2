//! Values of 32 bits: targets of branches, addresses, immediates.
//!
//! A value is a *form*, which is a symbol, and the bits or bytes that the form requires:
//!
//! | form | | the value |
//! | --- | --- | --- |
//! | 0 to 127 | bits | an index into the dictionary, whose values are ordered by falling frequency; see [`group`] |
//! | 128 to 143 | | one of the last 16 values with other forms, 128 for the last |
//! | 144 | 1 byte | a number from -128 |
//! | 145 | 2 bytes | a number from -32768; for branches relative to their end |
//! | 146 | 3 bytes | a nearby address: the upper byte is given |
//! | 147 | 4 bytes | anything |
//! | 148 | 1 byte | a number from -128, added to the last value |
//!
//! Bytes are ordered from highest to lowest.

use rustc_hash::FxHashMap;

use crate::codec::error::Damaged;
use crate::codec::symbols::{Context, Field, Source};

/// The first form for one of the last values.
pub const RECENT: u8 = 128;
const BYTE: u8 = 144;
const HALF: u8 = 145;
const NEAR: u8 = 146;
const FULL: u8 = 147;
const STEP: u8 = 148;

/// The part of an address that the dictionary of branches leaves out.
pub const HIGH: u32 = 0xFF00_0000;

/// Number of values that are remembered.
const REMEMBERED: usize = 16;

/// Values that share a dictionary and a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Targets of branches.
    Branch = 0,
    /// Addresses and numbers.
    Word = 1,
}

/// Returns the form and the number of extra bits for an index into a dictionary. Each power of two has eight groups, so
/// that the indices of a group are about equally frequent.
pub fn group(index: u32) -> (u8, u32) {
    if index < 16 {
        return (index as u8, 0);
    }
    let bits = index.ilog2() - 3;
    (((bits + 1) * 8 + (index >> bits) - 8) as u8, bits)
}

/// Returns the first index of a group, and the number of bits that select an index in it.
pub fn first_of_group(form: u8) -> (u32, u32) {
    if form < 16 {
        return (u32::from(form), 0);
    }
    let bits = u32::from(form >> 3) - 1;
    ((8 + u32::from(form & 7)) << bits, bits)
}

/// Number of occurrences that make a value worth its 4 bytes in a dictionary.
const WORTHWHILE: u32 = 4;

/// Returns a dictionary of the frequent values.
pub fn frequent(counts: FxHashMap<u32, u32>) -> Vec<u32> {
    let mut values: Vec<_> = counts.into_iter().filter(|(_, count)| *count >= WORTHWHILE).collect();
    values.sort_by_key(|&(value, count)| (std::cmp::Reverse(count), value));
    values.truncate(1 << 17);
    values.into_iter().map(|(value, _)| value).collect()
}

/// Returns the index of each value of a dictionary.
pub fn indices(dictionary: &[u32]) -> FxHashMap<u32, u32> {
    dictionary.iter().zip(0..).map(|(&value, index)| (value, index)).collect()
}

/// The most recent values.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    values: [u32; REMEMBERED],
    /// The place for the next value.
    next: usize,
}

impl Kind {
    /// Returns the dictionary entry for a value, given the upper byte of nearby addresses; `None` if it cannot have
    /// one.
    pub fn entry(self, value: u32, high: u32) -> Option<u32> {
        match self {
            Kind::Branch => (value & HIGH == high).then_some(value & !HIGH),
            Kind::Word => Some(value),
        }
    }
}

impl Recent {
    fn push(&mut self, value: u32) {
        self.values[self.next] = value;
        self.next = (self.next + 1) % REMEMBERED;
    }

    /// Returns the value before the last `age` ones.
    fn get(&self, age: usize) -> u32 {
        self.values[(self.next + 2 * REMEMBERED - 1 - age) % REMEMBERED]
    }
}

/// Reads values; needs this besides the source.
pub struct Reader<'a> {
    /// The dictionary.
    pub dictionary: &'a [u32],
    /// The most recent values.
    pub recent: &'a mut Recent,
    /// The field and the context of the form.
    pub form: Context,
    /// The field of the bytes.
    pub bytes: Field,
    /// The kind.
    pub kind: Kind,
    /// The address after the instruction.
    pub end: u32,
    /// The upper byte of nearby addresses.
    pub high: u32,
}

impl Reader<'_> {
    /// Decodes a value.
    ///
    /// # Errors
    /// If the page is damaged.
    pub fn read<S: Source>(&mut self, source: &mut S) -> Result<u32, Damaged> {
        let form = source.symbol(self.form)?;
        let value = match form {
            0..RECENT => {
                let (first, bits) = first_of_group(form);
                let index = first + if bits > 0 { source.bits(bits)? } else { 0 };
                let entry = self.dictionary.get(index as usize);
                let entry = *entry.ok_or(Damaged("a value is not in the dictionary"))?;
                match self.kind {
                    Kind::Branch => self.high | entry,
                    Kind::Word => entry,
                }
            }
            RECENT..BYTE => return Ok(self.recent.get(usize::from(form - RECENT))),
            BYTE => return Ok(self.number(source, 0, 1)? as i8 as u32),
            HALF => {
                let number = self.number(source, 1, 2)? as i16 as u32;
                match self.kind {
                    Kind::Branch => return Ok(self.end.wrapping_add(number)),
                    Kind::Word => return Ok(number),
                }
            }
            NEAR => self.high | self.number(source, 2, 3)?,
            FULL => self.number(source, 3, 4)?,
            STEP => self.recent.get(0).wrapping_add(self.number(source, 4, 1)? as i8 as u32),
            _ => return Err(Damaged("a value has an unknown form")),
        };
        self.recent.push(value);
        Ok(value)
    }

    fn number<S: Source>(&self, source: &mut S, shape: u8, count: u8) -> Result<u32, Damaged> {
        let mut value = 0;
        for index in 0..count {
            let place = (self.kind as u8) << 6 | shape << 2 | index;
            value = value << 8 | u32::from(source.symbol(Context::one(self.bytes, place))?);
        }
        Ok(value)
    }
}

/// Chooses forms for values while a page is encoded.
pub struct Writer<'a> {
    /// The dictionary index of each value.
    pub index: &'a FxHashMap<u32, u32>,
    /// The most recent values.
    pub recent: &'a mut Recent,
    /// The kind.
    pub kind: Kind,
    /// The address after the instruction.
    pub end: u32,
    /// The upper byte of nearby addresses.
    pub high: u32,
}

impl Writer<'_> {
    /// Appends the symbols and bits for a value.
    pub fn write(&mut self, value: u32, out: &mut Vec<u32>) {
        let mut put = |form: u8, value: u32, count: u32| {
            out.push(u32::from(form));
            out.extend((0..count).rev().map(|byte| value >> (8 * byte) & 0xFF));
        };
        let fits = |value: u32, bits: u32| {
            (-(1i64 << (bits - 1))..1i64 << (bits - 1)).contains(&i64::from(value as i32))
        };
        let distance = value.wrapping_sub(self.end);
        let step = value.wrapping_sub(self.recent.get(0));
        if self.kind == Kind::Word && fits(value, 8) {
            return put(BYTE, value, 1);
        }
        let index = self.kind.entry(value, self.high).and_then(|entry| self.index.get(&entry).copied());
        if let Some(age) = (0..REMEMBERED).find(|&age| self.recent.get(age) == value) {
            return put(RECENT + age as u8, 0, 0);
        }
        if let Some(index) = index {
            let (form, bits) = group(index);
            put(form, 0, 0);
            if bits > 0 {
                out.push(index & ((1 << bits) - 1));
            }
        } else {
            match self.kind {
                Kind::Branch if fits(distance, 16) => return put(HALF, distance, 2),
                Kind::Word if fits(value, 16) => return put(HALF, value, 2),
                _ if fits(step, 8) => put(STEP, step, 1),
                _ if value & HIGH == self.high => put(NEAR, value, 3),
                _ => put(FULL, value, 4),
            }
        }
        self.recent.push(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::symbols::Recorder;

    #[test]
    fn groups_cover_all_indices_in_order() {
        for index in 0..1 << 17 {
            let (form, bits) = group(index);
            let (first, same_bits) = first_of_group(form);
            assert_eq!(bits, same_bits);
            assert!((first..first + (1 << bits)).contains(&index), "{index}");
            assert!(form < RECENT);
        }
    }

    #[test]
    fn values_of_every_form_come_back() {
        let dictionary: Vec<u32> = (0..40).map(|index| index * 0x11_1111).collect();
        let index = dictionary.iter().zip(0..).map(|(&value, index)| (value, index)).collect();
        let (end, high) = (0xC112_3456u32, 0xC100_0000);
        for kind in [Kind::Branch, Kind::Word] {
            let mut written = Recent::default();
            let mut read = Recent::default();
            for value in
                [5, -5i32 as u32, end + 99, end - 30000, 0x1234, 0xC1FF_FFFF, 0xC1FF_FFF0, 0x8765_4321]
                    .into_iter()
                    .chain(
                        dictionary
                            .iter()
                            .map(|entry| if kind == Kind::Branch { end & HIGH | entry } else { *entry }),
                    )
                    .chain([0xC1FF_FFF0, 0x8765_4321])
            {
                let mut symbols = Vec::new();
                Writer { index: &index, recent: &mut written, kind, end, high }.write(value, &mut symbols);
                let form = Context::one(0, 0);
                let mut reader =
                    Reader { dictionary: &dictionary, recent: &mut read, form, bytes: 1, kind, end, high };
                assert_eq!(reader.read(&mut Recorder::new(symbols)), Ok(value));
            }
        }
    }
}

//! The values of one member.

use ktypes::{Kind, Member};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::document::{MemberProfile, Own, Value, ValueCount};
use crate::symbols::Symbols;

/// Maximum number of distinct values that are counted, as in the paper (section 3.2).
pub const MAX_DISTINCT: usize = 4096;

/// Maximum number of distinct values that are listed: the paper's tables have at most 256 (section 3.2.3).
const MAX_LISTED: usize = 256;

/// Maximum distance in bytes of a pointer from its object for one to a place near it.
const MAX_DISTANCE: i64 = 4096;

/// The bits of an address within a page.
const PAGE_BITS: u32 = 12;

/// The values of a member in live objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// Number of objects by value, up to [`MAX_DISTINCT`] values.
    counts: FxHashMap<i128, u64>,
    pages: FxHashSet<u64>,
    range: Option<(i128, i128)>,
    /// The least value except 0.
    low: Option<i128>,
    /// The bits that are set in some value, and in all values except 0.
    some: u64,
    all: u64,
    zero: u64,
    /// Number of pointers by distance from their object.
    distances: FxHashMap<i64, u64>,
}

/// Returns the value of a member in the bytes of an object; `None` if it is no number or pointer.
pub fn value_of(member: &Member, object: &[u8]) -> Option<u64> {
    if !is_scalar(member) {
        return None;
    }
    let bytes = object.get(member.offset as usize..(member.offset + member.bytes) as usize)?;
    let mut value = [0; 8];
    value[..bytes.len()].copy_from_slice(bytes);
    let value = u64::from_le_bytes(value);
    Some(match member.bits {
        Some((low, width)) => value >> low.min(63) & (u64::MAX >> (64 - width.clamp(1, 64))),
        None => value,
    })
}

/// Whether a member is a number or a pointer.
fn is_scalar(member: &Member) -> bool {
    !matches!(member.kind, Kind::Structure | Kind::Array) && matches!(member.bytes, 1 | 2 | 4 | 8)
}

impl Values {
    /// Adds the value of a member in one more object, which is at `address`. `slide` is the difference between the addresses
    /// at which the kernel runs and the linked ones.
    pub fn add(&mut self, member: &Member, raw: u64, address: u64, slide: u64, symbols: &Symbols) {
        let is_pointer = matches!(member.kind, Kind::Pointer | Kind::Function);
        if is_pointer && raw != 0 {
            let distance = raw.wrapping_sub(address) as i64;
            if distance.abs() < MAX_DISTANCE {
                *self.distances.entry(distance).or_default() += 1;
            }
        }
        let linked = raw.wrapping_sub(slide) & mask(member.bytes);
        let raw = if is_pointer && slide != 0 && symbols.at(linked).is_some() { linked } else { raw };
        let unused = 64 - member.bytes.min(8) * 8;
        let value = match member.kind {
            Kind::Signed => i128::from((raw << unused) as i64 >> unused),
            _ => i128::from(raw),
        };
        if let Some(count) = self.counts.get_mut(&value) {
            *count += 1;
        } else if self.counts.len() < MAX_DISTINCT {
            self.counts.insert(value, 1);
        }
        if is_pointer && raw != 0 && self.pages.len() < MAX_DISTINCT {
            self.pages.insert(raw >> PAGE_BITS);
        }
        let (least, greatest) = self.range.unwrap_or((value, value));
        self.range = Some((least.min(value), greatest.max(value)));
        if raw == 0 {
            self.zero += 1;
            return;
        }
        self.all = if self.low.is_none() { raw } else { self.all & raw };
        self.some |= raw;
        self.low = Some(self.low.unwrap_or(value).min(value));
    }

    /// Returns the profile of the member.
    pub fn profile(&self, member: &Member, accesses: [u64; 2], symbols: &Symbols) -> MemberProfile {
        let shown = |value: i128| match member.kind {
            Kind::Pointer | Kind::Function => {
                let symbol = u64::try_from(value).ok().and_then(|value| symbols.at(value));
                symbol.map_or(Value::Number(value), Value::Symbol)
            }
            _ => Value::Number(value),
        };
        let width = (member.bytes.min(8) * 8) as u32;
        let mut values: Vec<ValueCount> = Vec::new();
        if self.counts.len() <= MAX_LISTED {
            values = self
                .counts
                .iter()
                .map(|(&value, &objects)| ValueCount { value: shown(value), objects })
                .collect();
            values
                .sort_unstable_by(|one, other| (other.objects, &one.value).cmp(&(one.objects, &other.value)));
        }
        let differing = u64::BITS - (self.some & !self.all).leading_zeros();
        MemberProfile {
            name: member.name.clone(),
            offset: member.offset,
            bytes: member.bytes,
            align: member.align,
            bits: member.bits.map(|(low, width)| [low, width]),
            wrapped: member.wrapped.clone(),
            kind: member.kind,
            of: member.of.clone(),
            structure: member.structure.clone(),
            group: member.group.clone(),
            group_align: if member.group.is_some() { member.group_align } else { 0 },
            union: member.union,
            min: self.range.map(|(least, _)| shown(least)),
            max: self.range.map(|(_, greatest)| shown(greatest)),
            low: self.low.map(Value::Number),
            high: self.range.map(|(_, greatest)| Value::Number(greatest)),
            own: self
                .distances
                .iter()
                .map(|(&distance, &objects)| Own { distance, objects })
                .max_by_key(|own| (own.objects, own.distance)),
            distinct: self.counts.len() as u64,
            values,
            prefix: if self.range.is_some() { width.saturating_sub(differing) } else { 0 },
            pages: self.pages.len() as u64,
            zeros: if self.some == 0 { 0 } else { self.some.trailing_zeros() },
            zero: self.zero,
            loads: accesses[0],
            stores: accesses[1],
        }
    }
}

fn mask(bytes: u64) -> u64 {
    u64::MAX >> (64 - bytes.clamp(1, 8) * 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(kind: Kind, bytes: u64) -> Member {
        Member {
            name: "m".into(),
            offset: 4,
            bytes,
            align: bytes,
            kind,
            of: "int".into(),
            group: None,
            group_align: 1,
            union: false,
            structure: None,
            bits: None,
            wrapped: None,
        }
    }

    fn profile(member: &Member, raw: &[u64]) -> MemberProfile {
        let mut values = Values::default();
        raw.iter().for_each(|&raw| values.add(member, raw, 0xc010_1000, 0, &Symbols::default()));
        values.profile(member, [3, 2], &Symbols::default())
    }

    #[test]
    fn pointers_have_prefix_and_pages() {
        let found = profile(&member(Kind::Pointer, 4), &[0, 0xc010_1018, 0xc010_1030, 0xc010_2018]);
        assert_eq!((found.prefix, found.pages, found.zeros, found.zero), (18, 2, 3, 1));
        assert_eq!((found.min, found.low), (Some(Value::Number(0)), Some(Value::Number(0xc010_1018))));
        assert_eq!(found.own, Some(Own { distance: 0x30, objects: 1 }));
        assert_eq!((found.distinct, found.loads, found.stores), (4, 3, 2));
    }

    #[test]
    fn negative_numbers_are_less_than_zero() {
        let found = profile(&member(Kind::Signed, 2), &[0xffff, 5, 5]);
        assert_eq!((found.min, found.max), (Some(Value::Number(-1)), Some(Value::Number(5))));
        assert_eq!(found.values[0], ValueCount { value: Value::Number(5), objects: 2 });
    }

    #[test]
    fn many_values_are_counted_to_4096_and_not_listed() {
        let all: Vec<u64> = (0..5000).collect();
        let found = profile(&member(Kind::Unsigned, 4), &all);
        assert_eq!((found.distinct, found.values.len()), (4096, 0));
        assert_eq!((found.max, found.prefix), (Some(Value::Number(4999)), 19));
        assert_eq!(profile(&member(Kind::Unsigned, 4), &all[..256]).values.len(), 256);
        assert_eq!(profile(&member(Kind::Unsigned, 4), &all[..257]).values.len(), 0);
    }

    #[test]
    fn values_are_read_from_the_bytes_of_objects() {
        let object = [0, 0, 0, 0, 0x34, 0x12, 0xff, 0xff];
        assert_eq!(value_of(&member(Kind::Unsigned, 2), &object), Some(0x1234));
        assert_eq!(value_of(&member(Kind::Unsigned, 8), &object), None);
        assert_eq!(value_of(&member(Kind::Array, 2), &object), None);
        let bits = Member { bits: Some((4, 5)), kind: Kind::Bits, ..member(Kind::Unsigned, 2) };
        assert_eq!(value_of(&bits, &object), Some(0x3));
    }
}

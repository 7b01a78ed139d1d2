//! Each scheme against a plain model: its codes decode to the profiled values.

use std::collections::BTreeSet;

use super::*;
use crate::document::{Own, ValueCount};

const ALL: Allowed = Allowed {
    order: true,
    absent: true,
    narrow: true,
    own: true,
    prefix: true,
    table: true,
    page_table: true,
};

fn structure(objects: u64) -> TypeProfile {
    TypeProfile {
        name: "object".into(),
        size: 64,
        align: 4,
        file: "a.c".into(),
        objects,
        members: Vec::new(),
    }
}

/// A member with these values in one object each, as a profile has it.
fn member(kind: Kind, bytes: u64, raw: &[i128]) -> MemberProfile {
    let values: BTreeSet<i128> = raw.iter().copied().collect();
    let nonzero = || values.iter().copied().filter(|&value| value != 0);
    let some = nonzero().fold(0, |bits, value| bits | value);
    let all = nonzero().fold(-1, |bits, value| bits & value);
    let width = (bytes * 8) as u32;
    let differing = 128 - (some & !all).leading_zeros();
    let count = |value: i128| raw.iter().filter(|&&other| other == value).count() as u64;
    MemberProfile {
        name: "m".into(),
        offset: 0,
        bytes,
        align: bytes,
        bits: None,
        wrapped: None,
        kind,
        of: "struct other *".into(),
        structure: None,
        group: None,
        group_align: 0,
        union: false,
        min: values.first().map(|&value| Value::Number(value)),
        max: values.last().map(|&value| Value::Number(value)),
        low: nonzero().min().map(Value::Number),
        high: values.last().map(|&value| Value::Number(value)),
        own: None,
        distinct: values.len() as u64,
        values: match values.len() {
            ..=256 => values
                .iter()
                .map(|&value| ValueCount { value: Value::Number(value), objects: count(value) })
                .collect(),
            _ => Vec::new(),
        },
        prefix: width - differing.min(width),
        pages: nonzero().map(|value| value >> 12).collect::<BTreeSet<_>>().len() as u64,
        zeros: if some == 0 { 0 } else { some.trailing_zeros() },
        zero: count(0),
        loads: 0,
        stores: 0,
    }
}

fn chosen(member: &MemberProfile, allowed: Allowed) -> Result<(Scheme, Option<Scheme>), String> {
    let objects: u64 = member.values.iter().map(|one| one.objects).sum();
    let (of, shifts) = (structure(objects), FxHashMap::default());
    choose(
        member,
        &Context { allowed, of: &of, types: &[], shifts: &shifts, excluded: &[], is_proven: false },
    )
}

/// A kernel that stores a value: its code, with the entries of tables that it fills.
#[derive(Default)]
struct Store {
    entries: Vec<i128>,
}

impl Store {
    /// Returns the code of a value; `None` if it goes into the side table.
    fn encode(&mut self, scheme: &Scheme, limit: Option<u64>, value: i128) -> Option<u64> {
        let ones = (1u64 << (scheme.width() * 8)) - 1;
        let code = match scheme {
            _ if value == 0 => 0,
            Scheme::Narrow { signed: true, width } => {
                let half = 1i128 << (width * 8 - 1);
                let fits = (-half..half).contains(&value);
                (value & i128::from(ones)).try_into().ok().filter(|_| fits)?
            }
            Scheme::Narrow { .. } => u64::try_from(value).ok()?,
            Scheme::Prefix { base, shift, .. } => {
                let distance = value - i128::from(*base);
                u64::try_from(distance >> shift).ok().filter(|code| i128::from(*code) << shift == distance)?
            }
            Scheme::Table { values, slots, .. } => {
                let known = values.iter().position(|known| *known == Value::Number(value));
                known
                    .map(|number| number as u64 + 1)
                    .or_else(|| self.entry(values.len() as u64, *slots, value))?
            }
            Scheme::PageTable { bits, shift, slots, .. } => {
                let number = self.entry(0, *slots, value >> 12)?;
                let within = (value & 4095) >> shift;
                number << bits | u64::try_from(within).ok().filter(|_| within << shift == value & 4095)?
            }
            Scheme::Absent { .. } | Scheme::Own { .. } => return None,
        };
        let used = match scheme {
            Scheme::PageTable { bits, .. } => code >> bits,
            Scheme::Narrow { signed: true, .. } => value.unsigned_abs() as u64,
            _ => code,
        };
        (code < ones && limit.is_none_or(|limit| value == 0 || used < limit)).then_some(code)
    }

    fn entry(&mut self, first: u64, slots: u64, value: i128) -> Option<u64> {
        if !self.entries.contains(&value) && (self.entries.len() as u64) < slots {
            self.entries.push(value);
        }
        Some(first + self.entries.iter().position(|entry| *entry == value)? as u64 + 1)
    }

    fn decode(&self, scheme: &Scheme, code: u64) -> i128 {
        match scheme {
            _ if code == 0 => 0,
            Scheme::Narrow { signed: true, width } => {
                i128::from((code << (64 - width * 8)) as i64 >> (64 - width * 8))
            }
            Scheme::Narrow { .. } => code.into(),
            Scheme::Prefix { base, shift, .. } => i128::from(*base) + (i128::from(code) << shift),
            Scheme::Table { values, .. } => match values.get(code as usize - 1) {
                Some(Value::Number(number)) => *number,
                _ => self.entries[code as usize - 1 - values.len()],
            },
            Scheme::PageTable { bits, shift, .. } => {
                let page = self.entries[(code >> bits) as usize - 1];
                page << 12 | i128::from(code & ((1 << bits) - 1)) << shift
            }
            Scheme::Absent { .. } | Scheme::Own { .. } => unreachable!("not stored as a code"),
        }
    }
}

/// Checks that a scheme has a code for each value and gives it back, and that a starved one lacks some.
fn holds(member: &MemberProfile, scheme: &Scheme, raw: &[i128]) {
    let mut store = Store::default();
    let codes: Vec<Option<u64>> = raw.iter().map(|&value| store.encode(scheme, None, value)).collect();
    for (&value, code) in raw.iter().zip(codes) {
        let code = code.unwrap_or_else(|| panic!("{scheme:?} has no code for {value:#x}"));
        assert_eq!(store.decode(scheme, code), value, "{scheme:?}");
    }
    let (mut narrow, mut store) = (scheme.clone(), Store::default());
    let limit = starve(member, &mut narrow);
    let without = raw.iter().filter(|&&value| store.encode(&narrow, limit, value).is_none()).count();
    let is_tried = raw.iter().any(|&value| value != 0);
    assert!(!is_tried || without > 0, "{narrow:?} below {limit:?} has a code for all of {raw:x?}");
}

#[test]
fn random_values_come_back_in_every_scheme() {
    let mut seed = 1u64;
    let mut next = |end: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % end
    };
    let mut seen = BTreeSet::new();
    for _ in 0..3000 {
        let bytes = [2, 4, 8][next(3) as usize];
        let count = 1 + next(40) as usize;
        let (kind, raw): (Kind, Vec<i128>) = match next(6) {
            0 => {
                let end = 1u64 << (1 + next(bytes * 8 - 1)).min(30);
                (Kind::Unsigned, (0..count).map(|_| next(end).into()).collect())
            }
            1 => {
                let end = 1u64 << (1 + next(bytes * 8 - 2)).min(30);
                (Kind::Signed, (0..count).map(|_| i128::from(next(end)) - i128::from(end / 2)).collect())
            }
            // A few objects that many share.
            2 => (
                Kind::Pointer,
                (0..count * 16).map(|number| 0xc010_0000 + 64 * (number as i128 / 16)).collect(),
            ),
            // Objects of caches: pages, and places in them.
            3 => (
                Kind::Pointer,
                (0..300)
                    .map(|_| 0xc010_0000 + 4096 * i128::from(next(100)) + 32 * i128::from(next(128)))
                    .collect(),
            ),
            4 => (Kind::Pointer, (0..300).map(|_| 0xc000_0000 + 1024 * i128::from(next(60000))).collect()),
            _ => (
                Kind::Unsigned,
                (0..count).map(|_| [0x8124, 0x41ed, 0][next(3) as usize] << (8 * (bytes - 2))).collect(),
            ),
        };
        let bytes = if kind == Kind::Pointer { 4 } else { bytes };
        let member = member(kind, bytes, &raw);
        for name in Allowed::NAMES {
            let Ok((scheme, _)) = chosen(&member, Allowed::named(&[name.to_owned()]).unwrap()) else {
                continue;
            };
            if matches!(scheme, Scheme::Absent { .. }) {
                assert_eq!(member.distinct, 1);
                continue;
            }
            seen.insert(scheme.name());
            assert!(scheme.width() < bytes);
            holds(&member, &scheme, &raw);
        }
        if let Ok((scheme, otherwise)) = chosen(&member, ALL) {
            let stored = otherwise.unwrap_or(scheme);
            if stored.width() > 0 {
                holds(&member, &stored, &raw);
            }
        }
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["narrow", "page-table", "prefix", "table"]);
}

#[test]
fn cheapest_scheme_is_chosen() {
    let name = |kind, bytes, raw: &[i128]| chosen(&member(kind, bytes, raw), ALL).map(|(scheme, _)| scheme);
    assert_eq!(name(Kind::Unsigned, 4, &[0, 254]), Ok(Scheme::Narrow { width: 1, signed: false }));
    assert_eq!(name(Kind::Unsigned, 8, &[0, 255]), Ok(Scheme::Narrow { width: 2, signed: false }));
    assert_eq!(name(Kind::Unsigned, 4, &[0, 255]).unwrap().name(), "table");
    assert_eq!(name(Kind::Signed, 4, &[-2, 127]), Ok(Scheme::Narrow { width: 1, signed: true }));
    assert_eq!(name(Kind::Unsigned, 4, &[7]), Ok(Scheme::Absent { value: Value::Number(7) }));
    assert!(name(Kind::Unsigned, 1, &[3, 4]).unwrap_err().contains("one byte already"));
    let far: Vec<i128> = (0..200).map(|number| number * 0x0100_3001).collect();
    assert!(name(Kind::Unsigned, 4, &far).unwrap_err().contains("200 values need 4 bytes"));
}

#[test]
fn minus_one_is_no_code() {
    // -1 is the code of all ones; a table has it.
    assert_eq!(chosen(&member(Kind::Signed, 4, &[-1, 5]), ALL).unwrap().0.name(), "table");
    let narrow = Allowed::named(&["narrow".to_owned()]).unwrap();
    assert!(chosen(&member(Kind::Signed, 4, &[-1, 5]), narrow).is_err());
}

#[test]
fn the_only_pointer_is_absent_if_it_is_null_or_a_symbol() {
    let heap = member(Kind::Pointer, 4, &[0xc100_0000]);
    assert_ne!(chosen(&heap, ALL).map(|(scheme, _)| scheme.name()), Ok("absent"));
    let (scheme, otherwise) = chosen(&member(Kind::Pointer, 4, &[0]), ALL).unwrap();
    assert_eq!((scheme.name(), otherwise), ("absent", Some(Scheme::Narrow { width: 1, signed: false })));
    let mut symbol = member(Kind::Pointer, 4, &[0xc100_0000]);
    for value in [&mut symbol.min, &mut symbol.max] {
        *value = Some(Value::Symbol("operations".into()));
    }
    symbol.values[0].value = Value::Symbol("operations".into());
    let (scheme, otherwise) = chosen(&symbol, ALL).unwrap();
    assert_eq!(scheme, Scheme::Absent { value: Value::Symbol("operations".into()) });
    let values = vec![Value::Symbol("operations".into())];
    assert_eq!(otherwise, Some(Scheme::Table { width: 1, values, slots: 253 }));
}

#[test]
fn pointers_near_their_object_have_a_place() {
    let mut pointer =
        member(Kind::Pointer, 4, &(0..300).map(|number| 0xc010_0008 + 64 * number).collect::<Vec<_>>());
    pointer.zeros = 3;
    let mut of = structure(300);
    of.members = vec![MemberProfile { name: "data".into(), offset: 8, ..member(Kind::Unsigned, 4, &[1]) }];
    let container = TypeProfile {
        name: "container".into(),
        members: vec![MemberProfile {
            structure: Some("object".into()),
            kind: Kind::Structure,
            name: "part".into(),
            offset: 24,
            ..member(Kind::Unsigned, 64, &[])
        }],
        ..structure(300)
    };
    let types = [container];
    let choose_at = |distance, objects| {
        let pointer = MemberProfile { own: Some(Own { distance, objects }), ..pointer.clone() };
        let shifts = FxHashMap::default();
        let context = Context {
            allowed: ALL,
            of: &of,
            types: &types,
            shifts: &shifts,
            excluded: &[],
            is_proven: false,
        };
        choose(&pointer, &context).map(|(scheme, _)| scheme)
    };
    let own = |place| Ok(Scheme::Own { width: 1, place });
    assert_eq!(choose_at(8, 300), own(Place::Member("data".into())));
    let place = Place::Container { container: "container".into(), member: "part".into() };
    assert_eq!(choose_at(-24, 300), own(place));
    assert_ne!(choose_at(8, 299).map(|scheme| scheme.name()), Ok("own"));
    assert_ne!(choose_at(12, 300).map(|scheme| scheme.name()), Ok("own"));
}

#[test]
fn alignment_follows_the_new_size_of_objects() {
    // Objects of 128 bytes; the plan makes them 120.
    let pointer =
        member(Kind::Pointer, 4, &(0..300).map(|number| 0xc010_0080 + 128 * number).collect::<Vec<_>>());
    let of = structure(300);
    let choose_with = |shift: Option<u32>| {
        let shifts = shift.into_iter().map(|shift| ("other".to_owned(), shift)).collect();
        let only = Allowed::named(&["page-table".to_owned()]).unwrap();
        choose(
            &pointer,
            &Context { allowed: only, of: &of, types: &[], shifts: &shifts, excluded: &[], is_proven: false },
        )
    };
    let table = |bits, shift, slots| Ok((Scheme::PageTable { width: 2, bits, shift, slots }, None));
    assert_eq!(choose_with(None), table(5, 7, 2046));
    assert_eq!(choose_with(Some(3)), table(9, 3, 126));
}

#[test]
fn code_excludes_schemes_by_name() {
    let zero = member(Kind::Unsigned, 4, &[0]);
    let (of, shifts) = (structure(1), FxHashMap::default());
    let excluded = ["absent".to_owned()];
    let context =
        Context { allowed: ALL, of: &of, types: &[], shifts: &shifts, excluded: &excluded, is_proven: false };
    assert_eq!(choose(&zero, &context).unwrap(), (Scheme::Narrow { width: 1, signed: false }, None));
}

#[test]
fn unions_of_equal_numbers_have_one_code() {
    let part = |name: &str, bytes| MemberProfile {
        name: name.into(),
        group: Some("one".into()),
        union: true,
        ..member(Kind::Unsigned, bytes, &[1, 2])
    };
    let mut of = structure(2);
    of.members = vec![part("one", 4), part("two", 4)];
    assert_eq!(aliases(&of, &of.members[0]), Some(vec!["two"]));
    assert_eq!(obstacle(&of, &of.members[0]), None);
    assert_eq!(obstacle(&of, &of.members[1]).unwrap(), "it shares its bytes with one");
    of.members[1].bytes = 8;
    assert!(of.members.iter().all(|member| obstacle(&of, member).unwrap().contains("in a union")));
}

#[test]
fn numbers_of_few_objects_have_no_table() {
    // 20 times, each in one object.
    let times: Vec<i128> = (0..20).map(|number| 0x7000_0000 + 100 * number).collect();
    assert!(chosen(&member(Kind::Unsigned, 4, &times), ALL).is_err());
    assert_eq!(chosen(&member(Kind::Unsigned, 4, &times[..8]), ALL).unwrap().0.name(), "table");
    let many: Vec<i128> = (0..16).flat_map(|_| times.clone()).collect();
    assert_eq!(chosen(&member(Kind::Unsigned, 4, &many), ALL).unwrap().0.name(), "table");
}

#[test]
fn one_byte_is_absent_only_if_the_source_is_known() {
    let zero = member(Kind::Unsigned, 1, &[0]);
    assert!(chosen(&zero, ALL).is_err());
    let only = Allowed::named(&["order".to_owned(), "absent".to_owned()]).unwrap();
    assert_eq!(chosen(&zero, only).unwrap().0.name(), "absent");
    let (of, shifts) = (structure(1), FxHashMap::default());
    let context =
        Context { allowed: ALL, of: &of, types: &[], shifts: &shifts, excluded: &[], is_proven: true };
    assert_eq!(choose(&zero, &context).unwrap().0.name(), "absent");
    assert_eq!(choose(&member(Kind::Unsigned, 4, &[0]), &context).unwrap().1, None);
}

//! The cheapest scheme that has a code for every profiled value of a member (section 3.2 of the paper).
//!
//! The paper packs codes of any number of bits. Here a code has 1 or 2 bytes, or 4 for a member of 8: bit-fields share a
//! word with members under other locks, and 3 bytes cannot be written at once.

use ktypes::Kind;
use rustc_hash::FxHashMap;

use crate::document::{MemberProfile, Place, Scheme, TypeProfile, Value};

/// The bits of an address within a page.
const PAGE_BITS: u32 = 12;

/// The number of entries of a table with codes of one byte: 0 is no entry, and all ones mean the side table.
const ENTRIES: u64 = 254;

/// Maximum number of distinct numbers for a table. More are a sign of values that other runs do not have.
const MAX_NUMBERS: u64 = 64;

/// Maximum number of distinct numbers for a table, however few objects have them.
const MAX_RARE: u64 = 8;

/// Least number of objects for each distinct value in a table. With fewer, most pointers are to objects of their own, and most
/// numbers are times.
const MIN_SHARED: u64 = 16;

/// The changes that a plan may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// The members of a structure may move.
    pub order: bool,
    /// [`Scheme::Absent`].
    pub absent: bool,
    /// [`Scheme::Narrow`].
    pub narrow: bool,
    /// [`Scheme::Own`].
    pub own: bool,
    /// [`Scheme::Prefix`].
    pub prefix: bool,
    /// [`Scheme::Table`].
    pub table: bool,
    /// [`Scheme::PageTable`].
    pub page_table: bool,
}

impl Allowed {
    /// The names of all changes.
    pub const NAMES: [&str; 7] = ["order", "absent", "narrow", "own", "prefix", "table", "page-table"];

    /// Allows the named changes, or all if there are none. Returns the first name that is unknown.
    ///
    /// # Errors
    /// If a name is unknown.
    pub fn named(names: &[String]) -> Result<Allowed, String> {
        if let Some(unknown) = names.iter().find(|name| !Self::NAMES.contains(&&name[..])) {
            return Err(unknown.clone());
        }
        let has = |name: &str| names.is_empty() || names.iter().any(|other| other == name);
        Ok(Allowed {
            order: has("order"),
            absent: has("absent"),
            narrow: has("narrow"),
            own: has("own"),
            prefix: has("prefix"),
            table: has("table"),
            page_table: has("page-table"),
        })
    }
}

/// What the choice of a scheme depends on besides the member.
pub struct Context<'a> {
    /// The changes that the plan may make.
    pub allowed: Allowed,
    /// The structure with the member.
    pub of: &'a TypeProfile,
    /// All structures.
    pub types: &'a [TypeProfile],
    /// Number of low bits that are 0 in addresses of the objects of a cache, by structure.
    pub shifts: &'a FxHashMap<String, u32>,
    /// Schemes of the member that the code excludes, by name.
    pub excluded: &'a [String],
    /// Whether the source proves that no code stores another value than the profiled one.
    pub is_proven: bool,
}

/// Returns the other members of a union whose first member this is, if all are numbers or pointers in the same bytes. They have
/// the same code then. Returns none for a member outside of a union, and `None` if its union has other parts.
pub fn aliases<'a>(of: &'a TypeProfile, member: &MemberProfile) -> Option<Vec<&'a str>> {
    if !member.union {
        return Some(Vec::new());
    }
    let group = of.members.iter().filter(|other| other.group.is_some() && other.group == member.group);
    let is_same = |other: &&MemberProfile| {
        (other.offset, other.bytes) == (member.offset, member.bytes) && plain_obstacle(other).is_none()
    };
    let is_first = member.group.as_ref() == Some(&member.name);
    let others = || group.clone().filter(|other| other.name != member.name);
    (is_first && others().all(|other| is_same(&other)))
        .then(|| others().map(|other| &other.name[..]).collect())
}

/// Returns the reason why a member of a structure cannot be compressed, whatever its values are; `None` if it can.
pub fn obstacle(of: &TypeProfile, member: &MemberProfile) -> Option<String> {
    if aliases(of, member).is_none() {
        let first = of.members.iter().find(|other| Some(&other.name) == member.group.as_ref());
        return Some(match first.filter(|first| first.name != member.name && aliases(of, first).is_some()) {
            Some(first) => format!("it shares its bytes with {}", first.name),
            None => "it shares its bytes with others in a union".into(),
        });
    }
    plain_obstacle(member)
}

fn plain_obstacle(member: &MemberProfile) -> Option<String> {
    match member.kind {
        Kind::Bits => Some("it is a bit-field".into()),
        Kind::Array => Some("it is an array".into()),
        Kind::Structure => Some(format!("it is a structure of its own ({})", member.of)),
        _ if !matches!(member.bytes, 1 | 2 | 4 | 8) => Some(format!("it has {} bytes", member.bytes)),
        _ => None,
    }
}

/// Returns the cheapest scheme of a member, and for an absent member the cheapest other one.
///
/// # Errors
/// The reason why there is none.
pub fn choose(member: &MemberProfile, context: &Context<'_>) -> Result<(Scheme, Option<Scheme>), String> {
    let is_free = |scheme: &Scheme| !context.excluded.iter().any(|name| name == scheme.name());
    let stored = candidates(member, context).into_iter().filter(is_free);
    // Of equal widths, the first one is the fastest.
    let stored = stored.min_by_key(Scheme::width).filter(|scheme| scheme.width() < member.bytes);
    let absent = absent(member).filter(|scheme| context.allowed.absent && is_free(scheme));
    // The plan counts with the other scheme until the source is known, and one byte has none.
    let absent = absent.filter(|_| member.bytes > 1 || context.is_proven || !context.allowed.narrow);
    let stored = stored.filter(|_| absent.is_none() || !context.is_proven);
    match (absent, stored) {
        (Some(absent), stored) => Ok((absent, stored)),
        (None, Some(stored)) => Ok((stored, None)),
        (None, None) if member.distinct == 0 => Err("no live object has it".into()),
        (None, None) if member.bytes == 1 => Err("it has one byte already".into()),
        (None, None) => Err(format!("its {} values need {} bytes", shown_count(member), member.bytes)),
    }
}

fn shown_count(member: &MemberProfile) -> String {
    match member.distinct {
        4096.. => "4096 or more".into(),
        distinct => distinct.to_string(),
    }
}

/// Returns the scheme of a member with only one value.
fn absent(member: &MemberProfile) -> Option<Scheme> {
    let [only] = &member.values[..] else { return None };
    // An address in allocated memory is another one in the next run.
    let is_constant = matches!(only.value, Value::Symbol(_) | Value::Number(0))
        || !matches!(member.kind, Kind::Pointer | Kind::Function);
    is_constant.then(|| Scheme::Absent { value: only.value.clone() })
}

/// Returns all schemes that have a code for each value, the fastest first.
fn candidates(member: &MemberProfile, context: &Context<'_>) -> Vec<Scheme> {
    let allowed = context.allowed;
    let found = [
        narrow(member).filter(|_| allowed.narrow),
        own(member, context).filter(|_| allowed.own),
        prefix(member, context).filter(|_| allowed.prefix),
        table(member).filter(|_| allowed.table),
        page_table(member, context).filter(|_| allowed.page_table),
    ];
    found.into_iter().flatten().collect()
}

/// Returns the widths of codes for a member of this many bytes.
fn widths(bytes: u64) -> impl Iterator<Item = u64> {
    [1, 2, 4].into_iter().filter(move |&width| width < bytes && (width < 4 || bytes == 8))
}

/// Returns the code of all ones.
fn ones(width: u64) -> i128 {
    (1 << (width * 8)) - 1
}

fn number(value: Option<&Value>) -> Option<i128> {
    match value {
        Some(Value::Number(number)) => Some(*number),
        _ => None,
    }
}

/// Whether a value is the address of a symbol.
fn has_symbols(member: &MemberProfile) -> bool {
    let is_symbol = |value: &Value| matches!(value, Value::Symbol(_));
    member.values.iter().any(|count| is_symbol(&count.value))
        || [&member.min, &member.max].into_iter().flatten().any(is_symbol)
}

fn narrow(member: &MemberProfile) -> Option<Scheme> {
    let (least, greatest) = (number(member.min.as_ref())?, number(member.max.as_ref())?);
    widths(member.bytes).find_map(|width| {
        if least >= 0 {
            return (greatest < ones(width)).then_some(Scheme::Narrow { width, signed: false });
        }
        let half = 1i128 << (width * 8 - 1);
        // -1 would be the code of all ones.
        let has_minus_one =
            member.values.is_empty() || member.values.iter().any(|one| one.value == Value::Number(-1));
        (least >= -half && greatest < half && !has_minus_one)
            .then_some(Scheme::Narrow { width, signed: true })
    })
}

/// A pointer to the same place near every object.
fn own(member: &MemberProfile, context: &Context<'_>) -> Option<Scheme> {
    let own = member.own?;
    if own.objects + member.zero < context.of.objects || member.bytes < 2 {
        return None;
    }
    let place = if own.distance >= 0 {
        let distance = own.distance as u64;
        let is_there = |target: &&MemberProfile| {
            target.offset == distance && !target.union && target.kind != Kind::Bits && target.bytes > 0
        };
        Place::Member(context.of.members.iter().find(is_there)?.name.clone())
    } else {
        // The object is embedded at this offset.
        let offset = own.distance.unsigned_abs();
        let containers = context.types.iter().filter_map(|container| {
            let is_it = |part: &&MemberProfile| {
                part.offset == offset && part.structure.as_ref() == Some(&context.of.name) && !part.union
            };
            let member = container.members.iter().find(is_it)?;
            Some(Place::Container { container: container.name.clone(), member: member.name.clone() })
        });
        let mut containers = containers.collect::<Vec<_>>();
        if containers.len() != 1 {
            return None;
        }
        containers.remove(0)
    };
    Some(Scheme::Own { width: 1, place })
}

/// Returns the number of low bits that are 0 in all values, also after the plan changed the size of the objects to which a
/// pointer refers.
fn zeros(member: &MemberProfile, context: &Context<'_>) -> u32 {
    let target =
        member.of.trim_start_matches("const ").strip_prefix("struct ").and_then(|of| of.strip_suffix(" *"));
    match target.and_then(|target| context.shifts.get(target)) {
        Some(&shift) => member.zeros.min(shift),
        None => member.zeros,
    }
}

fn prefix(member: &MemberProfile, context: &Context<'_>) -> Option<Scheme> {
    // Numbers of 4 bytes with a prefix are times and random numbers, which other runs do not have. Of few numbers, the
    // prefix is chance.
    let is_number = member.kind == Kind::Unsigned && member.bytes == 8 && member.distinct > MIN_SHARED;
    if !(member.kind == Kind::Pointer || is_number) || has_symbols(member) {
        return None;
    }
    let (low, high) = (number(member.low.as_ref())?, number(member.high.as_ref())?);
    let bits = (member.bytes * 8) as u32;
    let shift = zeros(member, context).min(bits - 1);
    let common = low >> (bits - member.prefix.min(bits)) << (bits - member.prefix.min(bits));
    // The code 0 is NULL, so no value may be the base.
    let base = if common < low { common } else { low - (1 << shift) };
    let base = u64::try_from(base).ok()?;
    let greatest = (high - i128::from(base)) >> shift;
    widths(member.bytes).find(|&width| greatest < ones(width)).map(|width| Scheme::Prefix {
        width,
        base,
        shift,
    })
}

fn table(member: &MemberProfile) -> Option<Scheme> {
    let nonzero = || member.values.iter().filter(|one| one.value != Value::Number(0));
    let count = nonzero().count() as u64;
    if count == 0 || count > ENTRIES || member.bytes < 2 {
        return None;
    }
    let is_pointer = matches!(member.kind, Kind::Pointer | Kind::Function);
    if !is_pointer {
        let objects: u64 = nonzero().map(|one| one.objects).sum();
        let is_shared = count <= MAX_RARE || objects >= count * MIN_SHARED;
        if count > MAX_NUMBERS || member.bytes > 4 || !is_shared {
            return None;
        }
        let values = nonzero().map(|one| one.value.clone()).collect();
        return Some(Scheme::Table { width: 1, values, slots: 0 });
    }
    let known: Vec<Value> =
        nonzero().map(|one| &one.value).filter(|one| matches!(one, Value::Symbol(_))).cloned().collect();
    let objects: u64 = nonzero().map(|one| one.objects).sum();
    let others = count - known.len() as u64;
    if others > 0 && objects < count * MIN_SHARED {
        return None;
    }
    let slots = ENTRIES - known.len() as u64;
    Some(Scheme::Table { width: 1, values: known, slots })
}

fn page_table(member: &MemberProfile, context: &Context<'_>) -> Option<Scheme> {
    if member.kind != Kind::Pointer || has_symbols(member) || member.pages == 0 || member.pages >= 4096 {
        return None;
    }
    let shift = zeros(member, context).min(PAGE_BITS);
    let bits = PAGE_BITS - shift;
    widths(member.bytes).filter(|&width| width >= 2).find_map(|width| {
        // The page 0 is NULL, and the last one has the code of all ones.
        let slots = (1u64 << (width as u32 * 8 - bits)).saturating_sub(2);
        (member.pages <= slots).then_some(Scheme::PageTable { width, bits, shift, slots })
    })
}

/// Makes a scheme too narrow for some of the profiled values. Returns the first code that is not used.
pub fn starve(member: &MemberProfile, scheme: &mut Scheme) -> Option<u64> {
    let half = |greatest: i128| -> u64 {
        let bits = 128 - greatest.max(0).leading_zeros();
        1 << bits.saturating_sub(1).min(62)
    };
    match scheme {
        Scheme::Absent { .. } => None,
        Scheme::Narrow { .. } => {
            let [least, greatest] =
                [&member.min, &member.max].map(|value| number(value.as_ref()).unwrap_or(0));
            Some(half(greatest.max(-least)))
        }
        Scheme::Own { .. } => Some(1),
        Scheme::Prefix { base, shift, .. } => {
            let high = number(member.high.as_ref()).unwrap_or(0);
            Some(half((high - i128::from(*base)) >> *shift))
        }
        Scheme::Table { values, slots, .. } => {
            values.truncate(values.len() / 2);
            let others =
                member.values.iter().filter(|one| matches!(one.value, Value::Number(1..))).count() as u64;
            *slots = if *slots == 0 { 0 } else { others / 2 };
            Some(values.len() as u64 + *slots + 1)
        }
        Scheme::PageTable { slots, .. } => {
            *slots = member.pages / 2;
            Some(*slots + 1)
        }
    }
}

#[cfg(test)]
mod tests;

//! The layout of a structure whose members have new sizes or a new order.

use ktypes::Kind;
use rustc_hash::FxHashMap;

use crate::document::{MemberProfile, TypeProfile};

/// A part of a structure that moves as a whole: a member, an unnamed structure or union, or a run of bit-fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The name of its first member.
    pub name: String,
    /// The offset in bytes as it was.
    offset: u64,
    /// The size in bytes as it was.
    bytes: u64,
    /// The alignment in bytes as it was.
    align: u64,
    /// The structure that it is.
    structure: Option<String>,
    is_bits: bool,
}

/// The new size of some members in bytes, by structure and name; 0 for one that is not stored.
pub type Widths<'a> = FxHashMap<(&'a str, &'a str), u64>;

/// The changes of all structures.
#[derive(Clone, Debug, Default)]
pub struct Changes<'a> {
    /// The members with a new size.
    pub widths: Widths<'a>,
    /// The structures whose members move.
    pub ordered: rustc_hash::FxHashSet<&'a str>,
}

/// The new layout of a structure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Its size in bytes.
    pub size: u64,
    /// Its alignment in bytes.
    pub align: u64,
    /// The names of its parts in their new order, if they moved.
    pub order: Vec<String>,
}

/// The structures whose layouts are computed.
pub struct Layouts<'a> {
    types: FxHashMap<&'a str, (&'a TypeProfile, Vec<Part>)>,
}

impl<'a> Layouts<'a> {
    /// Finds the parts of structures. Omits those whose layout is not the natural one of C, which `packed` has.
    pub fn new(types: &'a [TypeProfile]) -> Layouts<'a> {
        let natural = types.iter().filter_map(|of| Some((&of.name[..], (of, natural_parts(of)?))));
        Layouts { types: natural.collect() }
    }

    /// Whether the layout of a structure is the natural one of C, so that it can change.
    pub fn is_natural(&self, name: &str) -> bool {
        self.types.contains_key(name)
    }

    /// Returns the parts of a structure.
    pub fn parts(&self, name: &str) -> &[Part] {
        self.types.get(name).map_or(&[], |(_, parts)| parts)
    }

    /// Computes the layouts that changes lead to, by name. Structures that neither change nor have a part that does are
    /// missing.
    pub fn with(&self, changes: &Changes<'a>) -> FxHashMap<&'a str, Layout> {
        let mut changed = FxHashMap::default();
        for name in self.types.keys() {
            self.layout(name, changes, &mut changed, 0);
        }
        changed
            .into_iter()
            .filter_map(|(name, layout): (&str, Option<Layout>)| Some((name, layout?)))
            .collect()
    }

    /// Computes the layout of a structure after those of its parts; `None` if nothing changes.
    fn layout(
        &self,
        name: &str,
        changes: &Changes<'a>,
        known: &mut FxHashMap<&'a str, Option<Layout>>,
        depth: usize,
    ) -> Option<Layout> {
        let (&name, (of, parts)) = self.types.get_key_value(name)?;
        if let Some(layout) = known.get(name) {
            return layout.clone();
        }
        let mut is_changed = changes.ordered.contains(name);
        let mut placed = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            let inner = part.structure.as_deref().filter(|_| depth < 16);
            let inner = inner.and_then(|inner| self.layout(inner, changes, known, depth + 1));
            let width = changes.widths.get(&(name, &part.name[..])).copied();
            is_changed |= inner.is_some() || width.is_some();
            let (bytes, align) = match (inner, width) {
                (Some(inner), _) => (inner.size, inner.align),
                (None, Some(width)) => (width, width.clamp(1, part.align)),
                // Bit-fields begin anywhere in their word if the structure stays in order.
                (None, None) if part.is_bits && !changes.ordered.contains(name) => (part.bytes, 1),
                (None, None) => (part.bytes, part.align),
            };
            if width != Some(0) {
                placed.push(Placed { number, bytes, align });
            }
        }
        let layout = is_changed.then(|| {
            let is_ordered = changes.ordered.contains(name);
            let order = if is_ordered { ordered(&placed) } else { placed };
            let align = order.iter().map(|part| part.align).max().unwrap_or(1);
            // The source may ask for more than the members need.
            let natural = parts.iter().map(|part| part.align).max().unwrap_or(1);
            let align = if of.align > natural { of.align } else { align };
            let end = order.iter().fold(0u64, |at, part| at.next_multiple_of(part.align) + part.bytes);
            let names = || {
                let moved = order.iter().map(|part| part.number);
                let absent =
                    (0..parts.len()).filter(|number| order.iter().all(|part| part.number != *number));
                moved.chain(absent).map(|number| parts[number].name.clone()).collect()
            };
            Layout {
                size: end.next_multiple_of(align),
                align,
                order: if is_ordered { names() } else { Vec::new() },
            }
        });
        known.insert(name, layout.clone());
        layout
    }
}

/// A part at its new size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Placed {
    number: usize,
    bytes: u64,
    align: u64,
}

/// Orders parts without holes, where that is possible: each place gets the part with the greatest alignment that fits
/// there. The first part stays, because code may convert a pointer to the structure to one to its first member. So does a
/// last part without a size, such as an array of flexible length.
fn ordered(parts: &[Placed]) -> Vec<Placed> {
    let mut rest = parts.to_vec();
    let last = rest.last().copied().filter(|last| last.bytes == 0 && rest.len() > 1);
    if last.is_some() {
        rest.pop();
    }
    let mut order: Vec<Placed> = rest.drain(..rest.len().min(1)).collect();
    let mut end = order.first().map_or(0, |first| first.bytes);
    while !rest.is_empty() {
        let fitting = rest.iter().filter(|part| end % part.align == 0).map(|part| part.align).max();
        let wanted = fitting.or_else(|| rest.iter().map(|part| part.align).min());
        let index = rest.iter().position(|part| Some(part.align) == wanted).unwrap_or(0);
        let part = rest.remove(index);
        end = end.next_multiple_of(part.align) + part.bytes;
        order.push(part);
    }
    order.extend(last);
    order
}

/// Returns the parts of a structure, if C places them where they are.
fn natural_parts(of: &TypeProfile) -> Option<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::new();
    for member in &of.members {
        let (start, end) = span(member);
        match (&member.group, parts.last_mut()) {
            (Some(group), Some(last)) if last.name == *group => {
                last.bytes = last.bytes.max(end.checked_sub(last.offset)?);
            }
            _ => parts.push(Part {
                name: member.name.clone(),
                offset: start,
                bytes: end - start,
                align: if member.group.is_some() { member.group_align.max(1) } else { member.align.max(1) },
                structure: member
                    .structure
                    .clone()
                    .filter(|_| member.group.is_none() && member.kind == Kind::Structure),
                is_bits: member.kind == Kind::Bits,
            }),
        }
    }
    let mut at = 0u64;
    for part in &mut parts {
        if !part.is_bits {
            // An unnamed structure has padding at its end.
            part.bytes = if part.structure.is_none() {
                part.bytes.next_multiple_of(group_unit(of, part))
            } else {
                part.bytes
            };
            at = at.next_multiple_of(part.align);
        }
        if at != part.offset {
            return None;
        }
        at += part.bytes;
    }
    let align = parts.iter().map(|part| part.align).max().unwrap_or(1).max(of.align);
    (at.next_multiple_of(align) == of.size && !parts.is_empty()).then_some(parts)
}

/// The unit of which the size of a part is a multiple: the alignment of an unnamed structure or union.
fn group_unit(of: &TypeProfile, part: &Part) -> u64 {
    let first = of.members.iter().find(|member| member.name == part.name);
    if first.is_some_and(|member| member.group.is_some()) { part.align } else { 1 }
}

/// Returns the first byte of a member and the one after its last.
fn span(member: &MemberProfile) -> (u64, u64) {
    match member.bits {
        Some([low, width]) => (member.offset + low / 8, member.offset + (low + width).div_ceil(8)),
        None => (member.offset, member.offset + member.bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, offset: u64, bytes: u64, align: u64) -> MemberProfile {
        let text = format!(
            r#"{{"name": "{name}", "offset": {offset}, "bytes": {bytes}, "align": {align}, "kind": "unsigned", "type": "int",
            "distinct": 0, "prefix": 0, "pages": 0, "zeros": 0, "zero": 0, "loads": 0, "stores": 0}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn structure(name: &str, size: u64, align: u64, members: Vec<MemberProfile>) -> TypeProfile {
        TypeProfile { name: name.into(), size, align, file: "a.c".into(), objects: 1, members }
    }

    fn embedded(name: &str, offset: u64, of: &TypeProfile) -> MemberProfile {
        let kind = Kind::Structure;
        MemberProfile { structure: Some(of.name.clone()), kind, ..member(name, offset, of.size, of.align) }
    }

    #[test]
    fn holes_vanish_and_the_first_member_stays() {
        let of = structure(
            "a",
            24,
            8,
            vec![
                member("mode", 0, 2, 2),
                member("size", 8, 8, 8),
                member("flag", 16, 1, 1),
                member("hash", 20, 4, 4),
            ],
        );
        let types = [of];
        let layouts = Layouts::new(&types);
        let mut changes = Changes::default();
        assert!(layouts.with(&changes).is_empty());
        changes.ordered.insert("a");
        let layout = layouts.with(&changes)["a"].clone();
        assert_eq!(layout.order, ["mode", "flag", "hash", "size"]);
        assert_eq!((layout.size, layout.align), (16, 8));
        changes.widths.insert(("a", "size"), 2);
        assert_eq!((layouts.with(&changes)["a"].size, layouts.with(&changes)["a"].align), (12, 4));
        changes.widths.insert(("a", "hash"), 0);
        let layout = layouts.with(&changes)["a"].clone();
        assert_eq!((layout.size, layout.order.last().map(String::as_str)), (6, Some("hash")));
    }

    #[test]
    fn a_smaller_part_makes_its_structure_smaller() {
        let inner =
            structure("inner", 12, 4, vec![member("a", 0, 4, 4), member("b", 4, 4, 4), member("c", 8, 4, 4)]);
        let outer = structure(
            "outer",
            20,
            4,
            vec![member("x", 0, 4, 4), embedded("in", 4, &inner), member("y", 16, 4, 4)],
        );
        let types = [inner, outer];
        let layouts = Layouts::new(&types);
        let mut changes = Changes::default();
        changes.widths.insert(("inner", "b"), 1);
        // Without a new order, the byte leaves a hole.
        assert!(layouts.with(&changes).values().all(|layout| layout.size == 12 || layout.size == 20));
        changes.widths.insert(("inner", "c"), 1);
        let sizes = layouts.with(&changes);
        assert_eq!((sizes["inner"].size, sizes["outer"].size), (8, 16));
    }

    #[test]
    fn packed_structures_stay() {
        let types = [
            structure("packed", 5, 1, vec![member("a", 0, 1, 1), member("b", 1, 4, 4)]),
            structure("large", 64, 32, vec![member("a", 0, 8, 8)]),
        ];
        let layouts = Layouts::new(&types);
        assert!(!layouts.is_natural("packed") && !layouts.is_natural("large"));
    }

    #[test]
    fn unions_and_bits_move_as_a_whole() {
        let group = |name: &str, member: MemberProfile| MemberProfile {
            group: Some(name.into()),
            group_align: 4,
            ..member
        };
        let bits = |name: &str, low, width| MemberProfile {
            bits: Some([low, width]),
            kind: Kind::Bits,
            ..group("first", member(name, 8, 4, 4))
        };
        let of = structure(
            "a",
            12,
            4,
            vec![
                group("hash", member("hash", 0, 4, 4)),
                group("hash", MemberProfile { union: true, ..member("both", 0, 8, 4) }),
                bits("first", 0, 3),
                bits("second", 3, 6),
                member("last", 10, 2, 2),
            ],
        );
        let types = [of];
        let layouts = Layouts::new(&types);
        let parts: Vec<_> = layouts.parts("a").iter().map(|part| (&part.name[..], part.bytes)).collect();
        assert_eq!(parts, [("hash", 8), ("first", 2), ("last", 2)]);
    }
}

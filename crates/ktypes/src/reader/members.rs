//! The members of a structure.

use gimli::{Reader, UnitOffset, constants};

use super::{MAX_DEPTH, MAX_MEMBERS, TypeReader, WRAPPERS};
use crate::{Kind, Member, Structure};

impl<R: Reader> TypeReader<'_, R> {
    pub(super) fn structure(&self, at: UnitOffset<R::Offset>) -> gimli::Result<Structure> {
        let size = Self::number(&self.unit.entry(at)?, constants::DW_AT_byte_size).unwrap_or(0);
        let is_union = self.unit.entry(at)?.tag() == constants::DW_TAG_union_type;
        let mut structure = Structure { size, align: self.alignment(at, 0)?, members: Vec::new() };
        self.entries.set(0);
        self.members(at, &Place { is_union, ..Place::default() }, &mut structure.members)?;
        if self.entries.get() > MAX_MEMBERS {
            structure.members.clear();
        }
        Ok(structure)
    }

    /// Returns the name and the kind of the only member of a structure; `None` if it has others.
    fn wrapped(&self, offset: UnitOffset<R::Offset>) -> gimli::Result<Option<(String, Kind)>> {
        let Some((_, at)) = self.resolve(offset)? else { return Ok(None) };
        let mut tree = self.unit.entries_tree(Some(at))?;
        let mut children = tree.root()?.children();
        let Some(only) = children.next()? else { return Ok(None) };
        let (name, inner) = (self.name(only.entry())?, Self::type_of(only.entry()));
        match (inner, children.next()?) {
            (Some(inner), None) => Ok(Some((name, self.shape(inner, 0)?.kind))),
            _ => Ok(None),
        }
    }

    /// Adds the members of a structure at a place of the outermost one.
    fn members(
        &self,
        at: UnitOffset<R::Offset>,
        place: &Place,
        members: &mut Vec<Member>,
    ) -> gimli::Result<()> {
        let mut tree = self.unit.entries_tree(Some(at))?;
        let mut children = tree.root()?.children();
        while let Some(child) = children.next()? {
            let entry = child.entry();
            let Some(inner) = Self::type_of_member(entry) else { continue };
            self.entries.set(self.entries.get() + 1);
            if self.entries.get() > MAX_MEMBERS {
                return Ok(());
            }
            let start = Self::number(entry, constants::DW_AT_data_member_location).unwrap_or(0);
            let mut offset = start.saturating_add(place.start);
            let name = self.name(entry)?;
            let shape = self.shape(inner, 0)?;
            let asked = Self::number(entry, constants::DW_AT_alignment).unwrap_or(1);
            let align = shape.align.max(asked);
            if name.is_empty() && shape.is_unnamed {
                if place.depth < MAX_DEPTH {
                    let (_, target) = self.resolve(inner)?.unwrap_or((entry.tag(), inner));
                    let is_union = self.unit.entry(target)?.tag() == constants::DW_TAG_union_type;
                    let inner_place = Place {
                        start: offset,
                        depth: place.depth + 1,
                        is_union: place.is_union || is_union,
                        group: Some(place.group.unwrap_or(members.len())),
                        group_align: if place.group.is_some() { place.group_align } else { align },
                    };
                    self.members(target, &inner_place, members)?;
                }
                continue;
            }
            let mut bits = None;
            if let Some(width) = Self::number(entry, constants::DW_AT_bit_size) {
                let word = shape.bytes.saturating_mul(8);
                if let Some(first) = Self::number(entry, constants::DW_AT_data_bit_offset) {
                    let words = first.checked_div(word).unwrap_or(0);
                    offset = offset.saturating_add(words.saturating_mul(shape.bytes));
                    bits = Some((first.checked_rem(word).unwrap_or(0), width));
                } else {
                    bits = Some((0, width));
                }
            }
            let wrapped = match shape.structure.as_deref() {
                Some(structure) if WRAPPERS.contains(&structure) => self.wrapped(inner)?,
                _ => None,
            };
            let kind = match &wrapped {
                _ if bits.is_some() => Kind::Bits,
                Some((_, kind)) => *kind,
                None => shape.kind,
            };
            let first = |index: usize| members.get(index).map(|first: &Member| first.name.clone());
            let mut group = place.group.map(|index| first(index).unwrap_or_else(|| name.clone()));
            // Bit-fields one after another share words.
            if let (Some(_), None) = (bits, &group) {
                let before = members.last().filter(|last| last.bits.is_some());
                group = Some(before.and_then(|last| last.group.clone()).unwrap_or_else(|| name.clone()));
            }
            members.push(Member {
                name,
                offset,
                bytes: shape.bytes,
                align,
                kind,
                of: shape.text,
                group,
                group_align: if place.group.is_some() { place.group_align } else { align },
                union: place.is_union,
                structure: shape.structure.filter(|_| wrapped.is_none()),
                bits,
                wrapped: wrapped.map(|(name, _)| name),
            });
        }
        Ok(())
    }
}

/// The place of an unnamed structure in the outermost one.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    start: u64,
    depth: usize,
    /// Whether its members may share bytes.
    is_union: bool,
    /// The index of its first member.
    group: Option<usize>,
    group_align: u64,
}

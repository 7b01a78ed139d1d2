//! The encodings and the data in code sections, from mapping symbols (IHI 0044, 5.5.5).

use std::ops::Range;

use kelf::Machine;
use kisa::Encoding;

/// The kind of content at a place of a code section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Instructions.
    Code(Encoding),
    /// Data, or instructions written as data.
    Data,
}

/// Returns the content after a mapping symbol; `None` for every other symbol.
pub(crate) fn content_behind(machine: Machine, name: &str) -> Option<Content> {
    machine.is_mapping_symbol(name).then(|| match &name[..2] {
        "$d" => Content::Data,
        "$t" => Content::Code(Encoding::Thumb),
        _ => Content::Code(Encoding::Main),
    })
}

/// Returns the name of the mapping symbol for a kind of content.
pub(crate) fn symbol_in_front(content: Content) -> &'static str {
    match content {
        Content::Code(Encoding::Main) => "$a",
        Content::Code(Encoding::Thumb) => "$t",
        Content::Data => "$d",
    }
}

/// The kinds of content of a code section.
pub(crate) struct Mapping {
    /// The starts of each kind, in ascending order; the first is 0.
    starts: Vec<(u32, Content)>,
}

impl Mapping {
    /// Creates the mapping from the contents after mapping symbols, in the order of their offsets.
    pub fn new(found: impl IntoIterator<Item = (u32, Content)>) -> Mapping {
        let mut starts = vec![(0, Content::Code(Encoding::Main))];
        for (offset, content) in found {
            // At the start of a function, GNU as (2.40) marks an instruction that is written as data by the symbol's
            // address with the bit for Thumb code.
            let code_ends = matches!(starts.last(), Some((_, Content::Code(Encoding::Thumb))));
            let offset = if code_ends { offset & !1 } else { offset };
            // Of several symbols at one place, the last applies.
            if starts.last().is_some_and(|&(last, _)| last == offset) {
                starts.pop();
            }
            if starts.last().is_none_or(|&(_, last)| last != content) {
                starts.push((offset, content));
            }
        }
        Mapping { starts }
    }

    /// Returns the content of a range of offsets, piece by piece.
    pub fn pieces(&self, range: Range<u32>) -> impl Iterator<Item = (Range<u32>, Content)> {
        let first = self.starts.partition_point(|&(start, _)| start <= range.start).saturating_sub(1);
        let end_of = move |i: usize| self.starts.get(i + 1).map_or(u32::MAX, |&(start, _)| start);
        let pieces = self.starts[first..].iter().enumerate();
        pieces.map_while(move |(i, &(start, content))| {
            let piece = start.max(range.start)..end_of(first + i).min(range.end);
            (piece.start < piece.end).then_some((piece, content))
        })
    }

    /// Returns the encoding of the code at an offset, or before the data there.
    pub fn encoding(&self, offset: u32) -> Encoding {
        let behind = self.starts.partition_point(|&(start, _)| start <= offset);
        let codes = self.starts[..behind].iter().rev().filter_map(|&(_, content)| match content {
            Content::Code(encoding) => Some(encoding),
            Content::Data => None,
        });
        codes.into_iter().next().unwrap_or_default()
    }
}

//! Splits a section of code into functions and the code between them.

use std::cmp::Reverse;
use std::ops::Range;

use goblin::elf::sym::{STT_FUNC, STT_GNU_IFUNC};
use kelf::Symbol;
use kisa::{Encoding, Rewritable};

use crate::carried::{Carried, NO_FUNCTION};
use crate::mapping::{Content, Mapping};
use crate::own::OUTLINED;

/// A range of code that is lifted as one function: that of a function symbol, or the code between functions.
pub(in crate::lift) struct Span {
    pub start: u32,
    pub end: u32,
    /// The start of the function, after data that belongs to it.
    pub entry: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// The encoding of the function.
    pub encoding: Encoding,
    /// Whether it begins with data.
    pub data: bool,
    /// The reason why it is opaque, if it is.
    pub opaque: Option<&'static str>,
    /// The object lists it as opaque. It is then not decoded, and has a relocation for every reference that leaves it.
    pub carried: bool,
    /// An earlier rewrite outlined it, or a part of it ([`crate::graph::Function::is_outlined`]).
    pub outlined: bool,
}

/// Returns the largest alignment in bytes that a function or variable at `offset` of a section may need: the alignment
/// of its offset, up to the one of the section. Objects do not record the actual one, and padding does not reveal it if
/// the offset was aligned already.
pub(in crate::lift) fn alignment(section_align: u64, offset: u32) -> u32 {
    let section_align = section_align as u32;
    if offset == 0 { section_align } else { section_align.min(1 << offset.trailing_zeros()) }
}

/// Splits a section at its function symbols and at its opaque parts.
pub(super) fn spans<'o>(
    isa: &dyn Rewritable,
    section: &kelf::Section<'_>,
    mapping: &Mapping,
    symbols: impl Iterator<Item = &'o Symbol<'o>>,
    carried: Option<&[Carried]>,
) -> Vec<Span> {
    let size = section.data.len() as u32;
    let functions = symbols
        .filter(|symbol| matches!(symbol.kind, STT_FUNC | STT_GNU_IFUNC) && symbol.size > 0)
        .map(|symbol| (symbol.value, symbol.value.saturating_add(symbol.size), symbol.name == OUTLINED))
        .filter(|&(start, end, _)| start < u64::from(size) && end <= u64::from(size))
        .map(|(start, end, outlined)| (start as u32, end as u32, None, outlined));
    // An object that lists its opaque code gives the owner of all data before functions.
    let is_compiled = carried.is_none();
    let carried = carried
        .unwrap_or_default()
        .iter()
        .map(|part| (part.range.start, part.range.end, Some(part.reason), false));
    let mut parts: Vec<(u32, u32, Option<&'static str>, bool)> = functions.chain(carried).collect();
    parts.sort_unstable_by_key(|&(start, end, reason, _)| (start, Reverse(end), reason.is_none()));

    let mut spans: Vec<Span> = Vec::with_capacity(parts.len() + 1);
    let mut at = 0;
    for (start, end, reason, outlined) in parts {
        if let Some(last) = spans.last_mut().filter(|_| start < at) {
            // An alias, or a symbol inside the previous function.
            last.outlined |= outlined;
            if reason.is_some() {
                (last.end, last.opaque, last.carried) = (last.end.max(end), reason, true);
                at = last.end;
            }
            continue;
        }
        let before = gap(isa, section, mapping, at..start, is_compiled);
        let align = alignment(section.align, start);
        let encoding = mapping.encoding(start);
        let function = Span {
            start,
            end,
            entry: start,
            align,
            encoding,
            opaque: reason,
            carried: reason.is_some(),
            outlined,
            data: false,
        };
        match before {
            Some(data) if reason.is_none() && is_compiled => {
                let align = align.max(data.align);
                spans.push(Span {
                    start: data.start,
                    align,
                    opaque: Some(PREFIX),
                    data: data.data,
                    ..function
                });
            }
            before => {
                spans.extend(before);
                spans.push(function);
            }
        }
        at = end;
    }
    spans.extend(gap(isa, section, mapping, at..size, false));
    spans
}

/// Reason: data directly before the function, which may be read by its distance from the function. LLVM's prefix data
/// identifies the type of a function to its callers (`-fsanitize=kcfi`); GCC puts the name there
/// (`-mpoke-function-name`).
const PREFIX: &str = "data or code without a name before the function";

/// Minimum size in bytes of data before a function that alignment does not explain.
const PREFIX_SIZE: u32 = 4;

/// Returns the code or data between two functions, or after the last one; `None` for padding.
fn gap(
    isa: &dyn Rewritable,
    section: &kelf::Section<'_>,
    mapping: &Mapping,
    range: Range<u32>,
    before_function: bool,
) -> Option<Span> {
    let Range { start, end } = range;
    let bytes = &section.data[start as usize..end as usize];
    let first = section.relocs.partition_point(|reloc| reloc.offset < u64::from(start));
    let relocated = section.relocs.get(first).is_some_and(|reloc| reloc.offset < u64::from(end));
    let encoding = mapping.encoding(start);
    let is_data = |piece: Option<(Range<u32>, Content)>, least: u32| {
        piece.is_some_and(|(piece, content)| content == Content::Data && piece.len() as u32 >= least)
    };
    let is_prefix = before_function && is_data(mapping.pieces(start..end).last(), PREFIX_SIZE);
    if bytes.is_empty() || !relocated && !is_prefix && is_padding(isa, encoding, bytes) {
        return None;
    }
    // Top-level `asm` of a C file. Only the out-of-line part of `static_cpu_has()` is known to be ordinary code.
    let opaque = (section.name != ".altinstr_aux").then_some(NO_FUNCTION);
    let align = alignment(section.align, start);
    let data = is_data(mapping.pieces(start..end).next(), 0);
    Some(Span { start, end, entry: start, align, encoding, opaque, carried: false, outlined: false, data })
}

fn is_padding(isa: &dyn Rewritable, encoding: Encoding, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match isa.padding_len(bytes, encoding) {
            Some(len) => bytes = &bytes[len..],
            _ => return false,
        }
    }
    true
}

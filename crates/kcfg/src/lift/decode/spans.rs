//! Cuts a section of code into functions and what lies between them.

use std::cmp::Reverse;

use goblin::elf::sym::{STT_FUNC, STT_GNU_IFUNC};
use kelf::Symbol;
use kisa::{Encoding, Rewritable};

use crate::carried::{Carried, NO_FUNCTION};
use crate::lift::alignment;
use crate::lift::mapping::Mapping;
use crate::lower::OUTLINED;

/// A range of code that is lifted as one function: that of a function symbol, or code between functions.
pub(in crate::lift) struct Span {
    pub start: u32,
    pub end: u32,
    /// Alignment in bytes.
    pub align: u32,
    pub encoding: Encoding,
    /// Why it has to stay whole, if it has to.
    pub opaque: Option<&'static str>,
    /// The object lists it as carried whole. It is then not decoded, and has a relocation for every reference that leaves
    /// it.
    pub carried: bool,
    /// An earlier rewriting outlined it, or something in it ([`crate::graph::Function::is_outlined`]).
    pub outlined: bool,
}

/// Cuts a section at its function symbols and at the parts that were carried whole.
pub(super) fn spans<'o>(
    isa: &dyn Rewritable,
    section: &kelf::Section<'_>,
    mapping: &Mapping,
    symbols: impl Iterator<Item = &'o Symbol<'o>>,
    carried: &[Carried],
) -> Vec<Span> {
    let size = section.data.len() as u32;
    let functions = symbols
        .filter(|symbol| matches!(symbol.kind, STT_FUNC | STT_GNU_IFUNC) && symbol.size > 0)
        .map(|symbol| (symbol.value, symbol.value.saturating_add(symbol.size), symbol.name == OUTLINED))
        .filter(|&(start, end, _)| start < u64::from(size) && end <= u64::from(size))
        .map(|(start, end, outlined)| (start as u32, end as u32, None, outlined));
    let carried = carried.iter().map(|part| (part.range.start, part.range.end, Some(part.reason), false));
    let mut parts: Vec<(u32, u32, Option<&'static str>, bool)> = functions.chain(carried).collect();
    parts.sort_unstable_by_key(|&(start, end, reason, _)| (start, Reverse(end), reason.is_none()));

    let mut spans: Vec<Span> = Vec::with_capacity(parts.len() + 1);
    let mut at = 0;
    for (start, end, reason, outlined) in parts {
        if let Some(last) = spans.last_mut().filter(|_| start < at) {
            // An alias, or a symbol inside the function in front.
            last.outlined |= outlined;
            if reason.is_some() {
                (last.end, last.opaque, last.carried) = (last.end.max(end), reason, true);
                at = last.end;
            }
            continue;
        }
        push_gap(isa, section, mapping, at, start, &mut spans);
        let align = alignment(section.align, start);
        let encoding = mapping.encoding(start);
        spans.push(Span { start, end, align, encoding, opaque: reason, carried: reason.is_some(), outlined });
        at = end;
    }
    push_gap(isa, section, mapping, at, size, &mut spans);
    spans
}

/// Adds what lies between two functions, unless it is padding.
fn push_gap(
    isa: &dyn Rewritable,
    section: &kelf::Section<'_>,
    mapping: &Mapping,
    start: u32,
    end: u32,
    spans: &mut Vec<Span>,
) {
    let bytes = &section.data[start as usize..end as usize];
    let first = section.relocs.partition_point(|reloc| reloc.offset < u64::from(start));
    let relocated = section.relocs.get(first).is_some_and(|reloc| reloc.offset < u64::from(end));
    let encoding = mapping.encoding(start);
    if bytes.is_empty() || !relocated && is_padding(isa, encoding, bytes) {
        return;
    }
    // `asm` at the top level of a C file. Only the out-of-line part of `static_cpu_has()` is known to be
    // ordinary code.
    let opaque = (section.name != ".altinstr_aux").then_some(NO_FUNCTION);
    spans.push(Span {
        start,
        end,
        align: alignment(section.align, start),
        encoding,
        opaque,
        carried: false,
        outlined: false,
    });
}

fn is_padding(isa: &dyn Rewritable, encoding: Encoding, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match isa.padding_len(bytes, encoding.address(0)) {
            Some(len) => bytes = &bytes[len..],
            _ => return false,
        }
    }
    true
}

//! Finds opaque code, and the functions that must stay together because of it.

use std::ops::RangeInclusive;

use goblin::elf::sym::STT_NOTYPE;
use kelf::{Machine, Place, Symbol};
use kisa::{BranchKind, Flow};

use super::CodeSection;
use super::spans::Span;
use crate::lift::instructions::{DataKind, UNKNOWN_TABLE};
use crate::lift::placed::PlacedInsn;
use crate::mapping::content_behind;

impl CodeSection {
    /// Adds a reference to the code at `offset`, where a block must then begin.
    pub fn add_reference(&mut self, offset: u32) {
        let Some(span) = self.span_containing(offset) else {
            self.add_reference_to_padding(offset);
            return;
        };
        if self
            .insn_containing(offset)
            .is_some_and(|placed| placed.offset == offset && !placed.is_predicated())
        {
            self.leaders.push(offset);
        } else {
            self.make_opaque(span, "a reference into the middle of an instruction");
        }
    }

    /// Makes code with a label of `asm` opaque. Compilers give functions a type. A label without a type is from inline
    /// `asm`, or, at the start of a function, from top-level `asm`, which may compute distances between labels.
    pub(super) fn add_label(&mut self, machine: Machine, symbol: &Symbol<'_>) {
        if self.trampolines || !is_assembler_label(machine, symbol) {
            return;
        }
        match self.span_containing(symbol.value as u32) {
            Some(span) if self.spans[span].carried => {}
            Some(span) if u64::from(self.spans[span].start) < symbol.value => {
                self.make_opaque(span, "a label of inline asm");
            }
            _ => self.opaque = Some(LABELS),
        }
    }

    /// Adds the numbers next to the address of a function's entry in data made by `asm`. A number that is the offset of
    /// an instruction, or of the end of the function, may be a distance that the assembler computed, as in `struct
    /// rseq_cs` (include/uapi/linux/rseq.h in the kernel).
    pub fn add_numbers(&mut self, entry: u32, numbers: &[u32]) {
        let Some(span) = self.span_containing(entry).filter(|&span| self.spans[span].start == entry) else {
            return;
        };
        let rest = self.spans[span].end - entry;
        let is_distance = |&number: &u32| {
            let behind = entry.saturating_add(number);
            number == rest
                || self.insn_containing(behind).is_some_and(|placed| placed.offset == behind) && number < rest
        };
        if numbers.iter().any(is_distance) {
            self.make_opaque(span, "a distance next to its address");
        }
    }

    /// Adds a call of the code at `offset`; `caller` is the offset of the call, if it is in this section. Compilers
    /// call functions. A call into the middle of one is from `asm` that pops its return address and computes with it,
    /// or overwrites it (the inline form of a retpoline).
    pub fn add_call(&mut self, caller: Option<u32>, offset: u32) {
        self.add_reference(offset);
        // Functions that became opaque together are one span. The object also lists their opaque callers.
        let into_middle = |span: &Span| ![span.start, span.entry].contains(&offset) && !span.carried;
        let Some(callee) = self.span_containing(offset).filter(|&span| into_middle(&self.spans[span])) else {
            return;
        };
        const REASON: &str = "a call into the middle of a function";
        self.make_opaque(callee, REASON);
        if let Some(caller) = caller.and_then(|caller| self.span_containing(caller)) {
            self.make_opaque(caller, REASON);
        }
    }

    /// Adds a reference into the padding between functions. The padding may belong to the next function (`nop`s to be
    /// patched: `-fpatchable-function-entry`), the reference may be to the end of the previous function, or to its
    /// address plus a number, or the padding may be data. The padding and both functions therefore become one opaque
    /// span.
    fn add_reference_to_padding(&mut self, offset: u32) {
        let behind = self.spans.partition_point(|span| span.start <= offset);
        if behind == self.spans.len() {
            self.opaque = Some("a reference to a place outside of all functions");
            return;
        }
        let first = behind.saturating_sub(1);
        self.spans[first].start = self.spans[first].start.min(offset);
        self.merge(first, behind, "a reference into padding");
    }

    /// Makes a span opaque; keeps the first reason.
    pub fn make_opaque(&mut self, span: usize, reason: &'static str) {
        self.spans[span].opaque.get_or_insert(reason);
    }

    /// Sorts the leaders, and merges opaque spans with the spans that must stay with them.
    pub fn settle(&mut self) {
        self.leaders.sort_unstable();
        self.leaders.dedup();
        let mut fields = std::mem::take(&mut self.refers_to_itself);
        // `_THIS_IP_` of the kernel: the function adds no distance to it.
        fields.retain(|field| self.passed_on.binary_search(field).is_err());
        fields.dedup_by_key(|offset| self.span_containing(*offset));
        for offset in fields {
            let Some(span) = self.span_containing(offset) else { continue };
            // It may add distances between labels, which have no relocation, to the address of a label.
            if self.jumps_to_a_computed_place(&self.spans[span]) {
                self.make_opaque(span, "a computed goto");
            }
        }
        for offset in std::mem::take(&mut self.inner_distances) {
            let Some(span) = self.span_containing(offset) else { continue };
            if self.jumps_to_a_computed_place(&self.spans[span]) {
                self.make_opaque(span, UNKNOWN_TABLE);
            }
        }
        let mut index = 0;
        while index < self.spans.len() {
            match self.inseparable_from(index) {
                Some(spans) => {
                    index = *spans.start();
                    self.merge(
                        index,
                        *spans.end(),
                        "a short branch or a fall-through from or to an opaque function",
                    );
                }
                None => index += 1,
            }
        }
    }

    /// Returns the spans that must keep their places relative to an opaque one, including itself: the targets of its
    /// short branches, and the one that it falls through into. `None` if it can move alone.
    fn inseparable_from(&self, index: usize) -> Option<RangeInclusive<usize>> {
        let span = self.spans.get(index).filter(|span| span.opaque.is_some())?;
        let exits = self.short_exits(span.start, span.end).chain(self.far_literals(span.start, span.end));
        let exits = exits.chain(self.distances_in(span.start, span.end));
        let exits = exits.filter_map(|target| self.span_containing(target));
        let (mut first, mut last) =
            exits.fold((index, index), |(first, last), to| (first.min(to), last.max(to)));
        if let Some(behind) = self.spans.get(index + 1)
            && !self.trampolines
            && let Some(end) = self.insns_of(span).last().filter(|placed| placed.end() == span.end)
            && may_fall_through(end.insn.flow, behind.start == span.end)
        {
            (first, last) = (first.min(index), last.max(index + 1));
        }
        (first < last).then_some(first..=last)
    }

    /// Merges the spans from `first` to `last` into an opaque one.
    pub fn merge(&mut self, first: usize, last: usize, reason: &'static str) {
        let end = self.spans[last].end;
        let align = self.spans[first..=last].iter().map(|span| span.align).max();
        let outlined = self.spans[first..=last].iter().any(|span| span.outlined);
        let merged = &mut self.spans[first];
        merged.outlined = outlined;
        (merged.end, merged.align) = (end, align.unwrap_or(1));
        merged.opaque.get_or_insert(reason);
        self.spans.drain(first + 1..=last);
    }

    /// Whether a branch with a field of less than 4 bytes, which does not reach every place of the section, leaves
    /// `start..end`.
    pub fn has_short_exit(&self, start: u32, end: u32) -> bool {
        self.short_exits(start, end).next().is_some()
    }

    /// Returns the targets of the branches with a field of less than 4 bytes that leave `start..end`.
    fn short_exits(&self, start: u32, end: u32) -> impl Iterator<Item = u32> {
        let from = self.insns.partition_point(|placed| placed.offset < start);
        let inside = self.insns[from..].iter().take_while(move |placed| placed.offset < end);
        inside.filter_map(move |placed| match placed.insn.flow {
            Flow::Direct { field_width, .. } if field_width < 4 => {
                placed.target().filter(|target| !(start..end).contains(target))
            }
            _ => None,
        })
    }

    /// Returns the places outside of `start..end` of its literals.
    fn far_literals(&self, start: u32, end: u32) -> impl Iterator<Item = u32> {
        let targets = self.literals_in(start..end).map(|&(_, target)| target);
        targets.filter(move |target| !(start..end).contains(target))
    }

    /// Whether code of a span may jump to any label. The leaders must be in order.
    pub(in crate::lift) fn jumps_to_a_computed_place(&self, span: &Span) -> bool {
        let by_table = |placed: &PlacedInsn| {
            self.data_behind(placed.end())
                .is_some_and(|part| matches!(self.data[part].kind, DataKind::Distances { .. }))
        };
        let is_one_of = |offsets: &[u32], placed: &PlacedInsn| offsets.binary_search(&placed.offset).is_ok();
        let by_addresses = |placed: &PlacedInsn| {
            // Nothing else leads to it with another table address.
            let alone = is_one_of(&self.fixed_tables, placed) || !is_one_of(&self.leaders, placed);
            alone && is_one_of(&self.table_jumps, placed)
        };
        let jumps = |placed: &PlacedInsn| {
            placed.insn.flow == Flow::IndirectJump && !by_table(placed) && !by_addresses(placed)
        };
        let from = self.computed_jumps.partition_point(|&offset| offset < span.start);
        let computed = self.computed_jumps.get(from).is_some_and(|&offset| offset < span.end);
        computed || self.insns_of(span).iter().any(jumps)
    }
}

/// Reason for opaque code of a file that may compute distances between labels.
pub(in crate::lift) const LABELS: &str = "labels of top-level asm";

/// Whether a symbol is a label of `asm`: it has no type. The only untyped labels that compilers put into the symbol
/// table are `.L` labels with a relocation.
pub(in crate::lift) fn is_assembler_label(machine: Machine, symbol: &Symbol<'_>) -> bool {
    symbol.kind == STT_NOTYPE
        && content_behind(machine, symbol.name).is_none()
        && !symbol.name.is_empty()
        && !symbol.name.starts_with(".L")
        && matches!(symbol.place, Place::Section(_))
}

/// Whether an instruction at the end of a function may fall through into the code after the function. A compiled
/// function ends with a call or a trap only if control does not return. A hand-written function may continue in the
/// next one, if that is `adjacent`.
pub(in crate::lift) fn may_fall_through(flow: Flow, adjacent: bool) -> bool {
    match flow {
        Flow::Next => true,
        Flow::Direct { branch, .. } if branch.kind == BranchKind::Conditional => true,
        Flow::Direct { branch, .. } if branch.kind == BranchKind::Call => adjacent,
        Flow::IndirectCall | Flow::Trap => adjacent,
        Flow::Direct { .. } | Flow::IndirectJump | Flow::Return => false,
    }
}

//! Addresses of functions that code of 32-bit ARM computes by a distance from itself.
//!
//! Position-independent code adds the program counter to a literal, or to a number made by `movw` and `movt`. For a
//! function of the same section, the assembler fills in that number, and no relocation names the function. The
//! functions in between must then keep their places, together. The values are not followed: each number of the function
//! without a relocation is a candidate.
//!
//! Clang's position-independent ARM code jumps through a table of such numbers among its instructions (`adr r2, table`,
//! `ldr r0, [r2, r0, lsl #2]`, `add pc, r2, r0`). A function with a computed jump is opaque if a number in it may be
//! the distance of one of its own instructions.

use kisa::{Reg, Rewritable};
use rustc_hash::FxHashMap;

use super::CodeSection;
use super::spans::Span;
use crate::lift::placed::reloc_at;
use crate::mapping::{Content, Mapping};

/// Size in bytes of a literal that holds a distance.
const WORD: u32 = 4;

impl CodeSection {
    /// Collects the places outside of a function that its instructions may compute by a distance, and the functions
    /// that may compute a place in themselves.
    pub(super) fn collect_distances(
        &mut self,
        isa: &dyn Rewritable,
        section: &kelf::Section<'_>,
        mapping: &Mapping,
    ) {
        if !isa.machine().target().has_literals {
            return;
        }
        let mut distances = Vec::new();
        let mut inner = Vec::new();
        for span in self.spans.iter().filter(|span| !span.carried) {
            let insns = self.insns_of(span).iter().map(|placed| placed.inst(isa, &section.data));
            let counters = insns.clone().filter_map(|inst| isa.computes_from_pc(&inst));
            let counters: Vec<u32> = counters.map(|counter| counter as u32).collect();
            let tables = insns.filter_map(|inst| isa.literal(&inst));
            let tables = tables.filter(|literal| literal.read.is_none()).map(|literal| literal.target as u32);
            let bases: Vec<u32> = counters.iter().copied().chain(tables).collect();
            if bases.is_empty() {
                continue;
            }
            for number in self.numbers(isa, section, mapping, span) {
                let leads_to = |base: &u32| base.wrapping_add(number) & !1;
                let is_inside = |target: &u32| (span.start..span.end).contains(target);
                distances.extend(
                    counters.iter().map(leads_to).filter(|to| !is_inside(to)).map(|to| (span.start, to)),
                );
                let is_instruction =
                    |to: u32| self.insn_containing(to).is_some_and(|placed| placed.offset == to);
                if bases.iter().map(leads_to).any(|to| is_inside(&to) && is_instruction(to)) {
                    inner.push(span.start);
                }
            }
        }
        inner.dedup();
        self.inner_distances = inner;
        distances.retain(|&(_, target)| target as usize <= section.data.len());
        if distances.iter().any(|&(_, target)| self.span_containing(target).is_none()) {
            self.opaque = Some("a distance to a place outside of all functions");
        }
        self.distances = distances;
    }

    /// Returns the numbers without a relocation among the data of a span and in its instructions.
    fn numbers(
        &self,
        isa: &dyn Rewritable,
        section: &kelf::Section<'_>,
        mapping: &Mapping,
        span: &Span,
    ) -> Vec<u32> {
        let mut numbers = Vec::new();
        for (piece, content) in mapping.pieces(span.start..span.end) {
            let words = (piece.start.next_multiple_of(WORD)..piece.end).step_by(WORD as usize);
            for at in words.filter(|_| content == Content::Data) {
                let word = section.data[at as usize..].first_chunk();
                numbers.extend(
                    word.filter(|_| reloc_at(&section.relocs, at).is_none()).map(|w| u32::from_le_bytes(*w)),
                );
            }
        }
        let mut lower: FxHashMap<Reg, u16> = FxHashMap::default();
        for placed in self.insns_of(span) {
            let half = isa.half_of_number(&placed.inst(isa, &section.data));
            match half.filter(|_| reloc_at(&section.relocs, placed.offset).is_none()) {
                Some((reg, half, false)) => {
                    lower.insert(reg, half);
                }
                Some((reg, half, true)) => {
                    let low = lower.get(&reg).copied().unwrap_or_default();
                    numbers.push(u32::from(half) << 16 | u32::from(low));
                }
                None => {}
            }
        }
        numbers
    }

    /// Returns the outside places that instructions of the functions in a range of offsets may compute by a distance.
    pub(super) fn distances_in(&self, start: u32, end: u32) -> impl Iterator<Item = u32> {
        let from = self.distances.partition_point(|&(at, _)| at < start);
        let inside = self.distances[from..].iter().take_while(move |&&(at, _)| at < end);
        inside.map(|&(_, target)| target).filter(move |target| !(start..end).contains(target))
    }
}

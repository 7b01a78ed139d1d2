//! Decoding the code sections of one object: where instructions begin, which functions there are, and
//! where blocks have to begin.

use std::cmp::Reverse;
use std::ops::RangeInclusive;

use goblin::elf::sym::{STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};
use kelf::{Object, Place, Reloc, RelocClass, SectionIndex, Symbol};

use super::alignment;
use super::names::SectionNames;
use crate::carried::Carried;
use crate::special::is_retpoline;
use kisa::{BranchKind, Effect, Flow, Insn, Rewritable};

/// A code section, cut into functions and instructions.
pub(super) struct CodeSection {
    /// Instructions of all functions, in order.
    pub insns: Vec<PlacedInsn>,
    /// Functions and other runs of code, in order, without the padding between them.
    pub spans: Vec<Span>,
    /// Offsets at which a block has to begin.
    pub leaders: Vec<u32>,
    /// Offsets that a branch goes to, in order; nothing may patch across them.
    pub branch_targets: Vec<u32>,
    /// Instructions by which a function names a place in itself other than as the target of a branch, by their
    /// offsets.
    pub names_itself: Vec<u32>,
    /// Places that data or code names by their distance from the beginning of the section.
    pub named_by_distance: Vec<u32>,
    /// Whether the object says itself what of it was carried whole.
    pub says_carried: bool,
    /// Offsets of branches that go where a register or the stack says, without being indirect jumps: to a thunk, or by a
    /// return to an address that was put on the stack.
    computed_jumps: Vec<u32>,
    /// These are trampolines of static calls, each by itself: a `jmp` or `ret`, and a mark that never runs.
    trampolines: bool,
    /// Why the section has to stay whole, if it has to.
    pub opaque: Option<&'static str>,
}

/// An instruction and its offset in the section.
#[derive(Clone, Copy)]
pub(super) struct PlacedInsn {
    pub offset: u32,
    pub insn: Insn,
}

impl PlacedInsn {
    pub fn end(&self) -> u32 {
        self.offset + u32::from(self.insn.len)
    }
}

/// A function, or code between functions.
pub(super) struct Span {
    pub start: u32,
    pub end: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// Why it has to stay whole, if it has to.
    pub opaque: Option<&'static str>,
    /// The object says that it was carried whole; then it is not decoded, and has a relocation for every place outside
    /// that it names.
    pub carried: bool,
}

impl CodeSection {
    /// Decodes a section of compiler-made code, but for those parts that were carried whole, if the object says so.
    pub fn decode(
        isa: &dyn Rewritable,
        object: &Object<'_>,
        names: &SectionNames<'_>,
        index: SectionIndex,
        carried: Option<&[Carried]>,
    ) -> CodeSection {
        let section = object.section(index);
        let mut code = CodeSection {
            insns: Vec::with_capacity(section.data.len() / 3),
            spans: spans(isa, section, names.symbols(index), carried.unwrap_or_default()),
            leaders: Vec::new(),
            branch_targets: Vec::new(),
            names_itself: Vec::new(),
            named_by_distance: Vec::new(),
            says_carried: carried.is_some(),
            computed_jumps: Vec::new(),
            // The kernel writes a jump over each of these at run time.
            trampolines: section.name == ".static_call.text",
            opaque: None,
        };
        for span in code.spans.iter_mut().filter(|span| !span.carried) {
            if code.trampolines {
                span.opaque = Some("a trampoline that is patched at run time");
            }
            match decode_span(isa, &section.data, span, &mut code.insns) {
                Decoded::Plain => {}
                Decoded::Odd => span.opaque = span.opaque.or(Some("a branch that compilers do not make")),
                // Whatever comes behind them may name its neighbours without a relocation.
                Decoded::Not => code.opaque = Some("bytes that are no instructions"),
            }
        }
        code.check_fields(isa, section);
        code.collect_branches(&section.relocs);
        code.collect_computed_jumps(isa, object, section);
        for symbol in names.symbols(index).filter(|symbol| !symbol.name.is_empty()) {
            code.add_reference(symbol.value as u32);
            code.add_label(symbol);
        }
        code
    }

    /// Compilers give functions their type. A label without one is from inline `asm`, or, where a function
    /// begins, from `asm` at the top level of the file, which may compute with the distances between labels.
    fn add_label(&mut self, symbol: &Symbol<'_>) {
        if self.trampolines || !is_assembler_label(symbol) {
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

    /// The instruction that contains the byte at `offset`.
    pub fn insn_containing(&self, offset: u32) -> Option<&PlacedInsn> {
        let after = self.insns.partition_point(|placed| placed.offset <= offset);
        self.insns[..after].last().filter(|placed| offset < placed.end())
    }

    /// The direct branch whose displacement is the field at `offset`: where it begins, and of what kind it is.
    pub fn branch_at(&self, offset: u32) -> Option<(u32, BranchKind)> {
        let placed = self.insn_containing(offset)?;
        match placed.insn.flow {
            Flow::Direct { branch, field_offset, .. }
                if placed.offset + u32::from(field_offset) == offset =>
            {
                Some((placed.offset, branch.kind))
            }
            _ => None,
        }
    }

    /// The span that contains the byte at `offset`.
    pub fn span_containing(&self, offset: u32) -> Option<usize> {
        let after = self.spans.partition_point(|span| span.start <= offset);
        after.checked_sub(1).filter(|&i| offset < self.spans[i].end)
    }

    /// Bytes from the field at `offset` to the end of its instruction, from which x86 counts
    /// displacements.
    pub fn bias(&self, offset: u32, width: u8) -> u8 {
        match self.insn_containing(offset) {
            Some(placed) => (placed.end() - offset) as u8,
            None => width,
        }
    }

    /// Whether an instruction contains the byte at `offset` and begins before it.
    pub fn is_inside_instruction(&self, offset: u32) -> bool {
        self.insn_containing(offset).is_some_and(|placed| placed.offset != offset)
    }

    /// Something names the code at `offset`: a block begins there.
    pub fn add_reference(&mut self, offset: u32) {
        let Some(span) = self.span_containing(offset) else {
            self.name_padding(offset);
            return;
        };
        if self.insn_containing(offset).is_some_and(|placed| placed.offset == offset) {
            self.leaders.push(offset);
        } else {
            self.make_opaque(span, "something names the middle of an instruction");
        }
    }

    /// Data that `asm` made names the entry of a function and holds these numbers beside it. One that tells how far
    /// it is to another instruction there may be a distance that the assembler computed, as in `struct rseq_cs` (of the
    /// kernel's `include/uapi/linux/rseq.h`).
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
            self.make_opaque(span, "a distance beside its address");
        }
    }

    /// Something calls the code at `offset`. Compilers call functions; what calls into the middle of one is `asm`
    /// that takes its return address off the stack and computes with it, or writes over it (the inline form of
    /// a retpoline).
    /// `caller` is the call, if it is in this section.
    pub fn add_call(&mut self, caller: Option<u32>, offset: u32) {
        self.add_reference(offset);
        // Functions may have been carried together; of what calls into one of those, the object says itself what was
        // carried.
        let into_middle = |span: &Span| span.start != offset && !span.carried;
        let Some(callee) = self.span_containing(offset).filter(|&span| into_middle(&self.spans[span])) else {
            return;
        };
        const REASON: &str = "a call into the middle of a function";
        self.make_opaque(callee, REASON);
        if let Some(caller) = caller.and_then(|caller| self.span_containing(caller)) {
            self.make_opaque(caller, REASON);
        }
    }

    /// Something names a place in the padding between functions. That belongs to the function behind it
    /// (`nop`s that a table wants patched: `-fpatchable-function-entry`), to the one in front (its end, or its address
    /// with a number added), or to itself (data that looks like padding). So the three stay together.
    fn name_padding(&mut self, offset: u32) {
        let behind = self.spans.partition_point(|span| span.start <= offset);
        if behind == self.spans.len() {
            self.opaque = Some("something names a place outside of all functions");
            return;
        }
        let first = behind.saturating_sub(1);
        self.spans[first].start = self.spans[first].start.min(offset);
        self.merge(first, behind, "padding that something names");
    }

    /// Makes one opaque span of those from `first` to `last`.
    pub(super) fn merge(&mut self, first: usize, last: usize, reason: &'static str) {
        let end = self.spans[last].end;
        let align = self.spans[first..=last].iter().map(|span| span.align).max();
        let merged = &mut self.spans[first];
        (merged.end, merged.align) = (end, align.unwrap_or(1));
        merged.opaque.get_or_insert(reason);
        self.spans.drain(first + 1..=last);
    }

    /// Whether a branch that is too short to follow its target leads out of `start..end`.
    pub fn has_short_exit(&self, start: u32, end: u32) -> bool {
        self.short_exits(start, end).next().is_some()
    }

    /// Where the branches lead that leave `start..end` and are too short to follow their targets.
    fn short_exits(&self, start: u32, end: u32) -> impl Iterator<Item = u32> {
        let from = self.insns.partition_point(|placed| placed.offset < start);
        let inside = self.insns[from..].iter().take_while(move |placed| placed.offset < end);
        inside.filter_map(move |placed| match placed.insn.flow {
            Flow::Direct { target, field_width, .. } if field_width < 4 => {
                Some(target as u32).filter(|target| !(start..end).contains(target))
            }
            _ => None,
        })
    }

    /// The span has to stay whole.
    pub fn make_opaque(&mut self, span: usize, reason: &'static str) {
        self.spans[span].opaque.get_or_insert(reason);
    }

    /// Sorts the leaders and spreads opacity to the whole section where a function cannot stay whole by
    /// itself.
    pub fn settle(&mut self) {
        let mut named = std::mem::take(&mut self.names_itself);
        named.dedup_by_key(|offset| self.span_containing(*offset));
        for offset in named {
            let Some(span) = self.span_containing(offset) else { continue };
            // It may compute with the distances between its labels, of which nothing tells.
            if self.jumps_to_a_computed_place(&self.spans[span]) {
                self.make_opaque(span, "a computed goto");
            }
        }
        self.leaders.sort_unstable();
        self.leaders.dedup();
        let mut index = 0;
        while index < self.spans.len() {
            match self.tied_to(index) {
                Some(tied) => {
                    index = *tied.start();
                    self.merge(index, *tied.end(), "an opaque function that is tied to its neighbours");
                }
                None => index += 1,
            }
        }
    }

    /// The spans that an opaque one is tied to, with itself: those that its short branches go to, and the one that
    /// control runs into at its end. `None` if it can be moved by itself.
    fn tied_to(&self, index: usize) -> Option<RangeInclusive<usize>> {
        let span = self.spans.get(index).filter(|span| span.opaque.is_some())?;
        let exits = self.short_exits(span.start, span.end).filter_map(|target| self.span_containing(target));
        let (mut first, mut last) =
            exits.fold((index, index), |(first, last), to| (first.min(to), last.max(to)));
        if let Some(behind) = self.spans.get(index + 1)
            && !self.trampolines
            && let Some(end) = self.insns_of(span).last().filter(|placed| placed.end() == span.end)
            && may_run_on(end.insn.flow, behind.start == span.end)
        {
            (first, last) = (first.min(index), last.max(index + 1));
        }
        (first < last).then_some(first..=last)
    }

    fn insns_of(&self, span: &Span) -> &[PlacedInsn] {
        let from = self.insns.partition_point(|placed| placed.offset < span.start);
        let to = self.insns.partition_point(|placed| placed.offset < span.end);
        &self.insns[from..to]
    }

    fn jumps_to_a_computed_place(&self, span: &Span) -> bool {
        let jumps = |placed: &PlacedInsn| placed.insn.flow == Flow::IndirectJump;
        let from = self.computed_jumps.partition_point(|&offset| offset < span.start);
        let computed = self.computed_jumps.get(from).is_some_and(|&offset| offset < span.end);
        computed || self.insns_of(span).iter().any(jumps)
    }

    fn collect_branches(&mut self, relocs: &[Reloc]) {
        let mut branches = Vec::new();
        for placed in &self.insns {
            if let Flow::Direct { target, field_offset, branch, .. } = placed.insn.flow
                && reloc_at(relocs, placed.offset + u32::from(field_offset)).is_none()
            {
                branches.push((placed.offset, branch.kind, target as u32));
            }
        }
        for (offset, kind, target) in branches {
            if self.span_containing(target).is_none() {
                self.opaque = Some("a branch out of the section without a relocation");
                continue;
            }
            self.branch_targets.push(target);
            match kind {
                BranchKind::Call => self.add_call(Some(offset), target),
                _ => self.add_reference(target),
            }
        }
        self.branch_targets.sort_unstable();
    }

    /// A function stays whole if a relocation changes something else of it than a constant of one instruction: once
    /// linked, it holds other instructions than those that are seen here.
    fn check_fields(&mut self, isa: &dyn Rewritable, section: &kelf::Section<'_>) {
        for reloc in section.relocs.iter().filter(|reloc| reloc.width > 0) {
            let offset = reloc.offset as u32;
            let Some(span) = self.span_containing(offset) else { continue };
            let constant = self.insn_containing(offset).is_some_and(|placed| {
                let bytes = &section.data[placed.offset as usize..placed.end() as usize];
                isa.is_constant(bytes, (offset - placed.offset) as u8, reloc.width)
            });
            if !constant {
                self.make_opaque(span, "a relocation that is no operand of an instruction");
            }
        }
    }

    /// Finds the jumps to retpolines, which compilers write for computed jumps, and the returns that `asm` makes of an
    /// address that it has put on the stack.
    fn collect_computed_jumps(
        &mut self,
        isa: &dyn Rewritable,
        object: &Object<'_>,
        section: &kelf::Section<'_>,
    ) {
        for (i, placed) in self.insns.iter().enumerate() {
            let computed = match placed.insn.flow {
                Flow::Direct { branch, .. } if branch.kind == BranchKind::Call => false,
                Flow::Direct { field_offset, .. } => {
                    let reloc = reloc_at(&section.relocs, placed.offset + u32::from(field_offset));
                    reloc.is_some_and(|reloc| is_retpoline(object.symbols[reloc.symbol.get()].name))
                }
                Flow::Return => puts_return_address(isa, &section.data, &self.insns[..=i]),
                _ => false,
            };
            if computed {
                self.computed_jumps.push(placed.offset);
            }
        }
    }
}

/// Whether the instructions in front of the last, a return, put on the stack where it goes. A compiler has no use for
/// that: what it pushes it takes off again.
fn puts_return_address(isa: &dyn Rewritable, data: &[u8], insns: &[PlacedInsn]) -> bool {
    let stack = isa.stack_pointer();
    let mut effects = Vec::new();
    for pair in insns.windows(2).rev() {
        if pair[0].insn.flow != Flow::Next || pair[0].end() != pair[1].offset {
            return false;
        }
        effects.clear();
        isa.effects(&data[pair[0].offset as usize..pair[0].end() as usize], 0, &mut effects);
        let moves = effects.iter().any(|effect| effect.registers_written() >> stack.0 & 1 != 0);
        let top = if moves { -i64::from(isa.machine().word_size()) } else { 0 };
        let puts = |effect: &Effect| match effect {
            Effect::Store { to, .. } => (to.base, to.index, to.displacement) == (Some(stack), None, top),
            _ => false,
        };
        if effects.iter().any(puts) {
            return true;
        }
        if moves {
            return false;
        }
    }
    false
}

/// Why the code of a file stays whole that may compute with the distances between labels.
pub(super) const LABELS: &str = "labels of top-level asm";

/// Whether a symbol is a label that `asm` made: one without a type. Compilers make none but their own `.L` labels,
/// which they keep where a relocation has to name them.
pub(super) fn is_assembler_label(symbol: &Symbol<'_>) -> bool {
    symbol.kind == STT_NOTYPE
        && !symbol.name.is_empty()
        && !symbol.name.starts_with(".L")
        && matches!(symbol.place, Place::Section(_))
}

/// Whether control may run into what lies behind an instruction at the end of a function. A call or a trap does not
/// come back at the end of a compiled function; hand-written ones go on in the next, if that is `adjacent`.
pub(super) fn may_run_on(flow: Flow, adjacent: bool) -> bool {
    match flow {
        Flow::Next => true,
        Flow::Direct { branch, .. } if branch.kind == BranchKind::Conditional => true,
        Flow::Direct { branch, .. } if branch.kind == BranchKind::Call => adjacent,
        Flow::IndirectCall | Flow::Trap => adjacent,
        Flow::Direct { .. } | Flow::IndirectJump | Flow::Return => false,
    }
}

/// The relocation of the field at `offset`.
pub(super) fn reloc_at(relocs: &[Reloc], offset: u32) -> Option<&Reloc> {
    let i = relocs.partition_point(|reloc| reloc.offset < u64::from(offset));
    relocs[i..]
        .iter()
        .take_while(|reloc| reloc.offset == u64::from(offset))
        .find(|reloc| reloc.class != RelocClass::None)
}

/// What became of decoding a span.
enum Decoded {
    /// All of it is instructions.
    Plain,
    /// And some of them do not bear to be moved.
    Odd,
    /// Not all of it is instructions.
    Not,
}

fn decode_span(isa: &dyn Rewritable, data: &[u8], span: &Span, insns: &mut Vec<PlacedInsn>) -> Decoded {
    let end = span.end as usize;
    let mut offset = span.start as usize;
    let mut decoded = Decoded::Plain;
    while offset < end {
        let bytes = &data[offset..end];
        let Some(insn) = isa.decode(bytes, offset as u64) else { return Decoded::Not };
        if !isa.can_move(bytes) {
            decoded = Decoded::Odd;
        }
        insns.push(PlacedInsn { offset: offset as u32, insn });
        offset += usize::from(insn.len);
    }
    decoded
}

/// Cuts a section along its function symbols and what was carried whole of it.
fn spans<'o>(
    isa: &dyn Rewritable,
    section: &kelf::Section<'_>,
    symbols: impl Iterator<Item = &'o Symbol<'o>>,
    carried: &[Carried],
) -> Vec<Span> {
    let size = section.data.len() as u32;
    let functions = symbols
        .filter(|symbol| matches!(symbol.kind, STT_FUNC | STT_GNU_IFUNC) && symbol.size > 0)
        .map(|symbol| (symbol.value, symbol.value.saturating_add(symbol.size)))
        .filter(|&(start, end)| start < u64::from(size) && end <= u64::from(size))
        .map(|(start, end)| (start as u32, end as u32, None));
    let carried = carried.iter().map(|part| (part.range.start, part.range.end, Some(part.reason)));
    let mut parts: Vec<(u32, u32, Option<&'static str>)> = functions.chain(carried).collect();
    parts.sort_unstable_by_key(|&(start, end, reason)| (start, Reverse(end), reason.is_none()));

    let mut spans: Vec<Span> = Vec::with_capacity(parts.len() + 1);
    let mut at = 0;
    for (start, end, reason) in parts {
        if let Some(last) = spans.last_mut().filter(|_| start < at) {
            // An alias, or a label inside of the function before it.
            if reason.is_some() {
                (last.end, last.opaque, last.carried) = (last.end.max(end), reason, true);
                at = last.end;
            }
            continue;
        }
        push_gap(isa, section, at, start, &mut spans);
        let align = alignment(section.align, start);
        spans.push(Span { start, end, align, opaque: reason, carried: reason.is_some() });
        at = end;
    }
    push_gap(isa, section, at, size, &mut spans);
    spans
}

/// Adds what lies between two functions, unless it is padding.
fn push_gap(isa: &dyn Rewritable, section: &kelf::Section<'_>, start: u32, end: u32, spans: &mut Vec<Span>) {
    let bytes = &section.data[start as usize..end as usize];
    let first = section.relocs.partition_point(|reloc| reloc.offset < u64::from(start));
    let named = section.relocs.get(first).is_some_and(|reloc| reloc.offset < u64::from(end));
    if bytes.is_empty() || !named && is_padding(isa, bytes) {
        return;
    }
    // `asm` at the top level of a C file. Only the out-of-line part of `static_cpu_has()` is known to be
    // ordinary code.
    let opaque = (section.name != ".altinstr_aux").then_some("code outside of any function");
    spans.push(Span { start, end, align: alignment(section.align, start), opaque, carried: false });
}

fn is_padding(isa: &dyn Rewritable, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match isa.padding_len(bytes) {
            Some(len) => bytes = &bytes[len..],
            _ => return false,
        }
    }
    true
}

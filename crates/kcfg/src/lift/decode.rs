//! Decoding the code sections of one object: where instructions begin, which functions there are, and
//! where blocks have to begin.

use std::cmp::Reverse;
use std::ops::{Range, RangeInclusive};

use goblin::elf::sym::{STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};
use kelf::{Machine, Object, Place, Reloc, RelocClass, SectionIndex, Symbol};

use super::alignment;
use super::instructions::{DataKind, DataPart, Decoded, Reader, slot_value};
use super::mapping::{Mapping, content_behind};
use super::names::SectionNames;
use crate::carried::{Carried, NO_FUNCTION};
use crate::special::is_retpoline;
use kisa::{BranchKind, Effect, Encoding, Flow, Insn, Rewritable};

/// A code section, cut into functions and instructions.
pub(super) struct CodeSection {
    /// Instructions of all functions, in order.
    pub insns: Vec<PlacedInsn>,
    /// Data within functions, in order.
    pub data: Vec<DataPart>,
    /// Functions and other runs of code, in order, without the padding between them.
    pub spans: Vec<Span>,
    /// Offsets at which a block has to begin.
    pub leaders: Vec<u32>,
    /// Offsets that a branch goes to, in order: a patch site must not extend across one.
    pub branch_targets: Vec<u32>,
    /// Offsets of fields by which a function refers to a place in itself other than as the target of a branch.
    pub refers_to_itself: Vec<u32>,
    /// Places to which data or code refers by the symbol of the section and an offset.
    pub referred_by_offset: Vec<u32>,
    /// Whether the object lists the code that was carried whole.
    pub lists_carried: bool,
    /// Instructions that refer to a place near by, and these places, by offset.
    literals: Vec<(u32, u32)>,
    /// Those of these places whose content is only passed on to other functions, in order.
    passed_on: Vec<u32>,
    /// Offsets of computed jumps that are not indirect jump instructions: jumps to retpolines, and returns to an
    /// address that was put on the stack.
    computed_jumps: Vec<u32>,
    /// This is the section of the trampolines of static calls, each of which is a `jmp` or `ret`, and a marker behind it
    /// that never runs.
    trampolines: bool,
    /// Why the section has to stay whole, if it has to.
    pub opaque: Option<&'static str>,
}

/// An instruction and its offset in the section.
#[derive(Clone, Copy)]
pub(super) struct PlacedInsn {
    pub offset: u32,
    pub insn: Insn,
    pub encoding: Encoding,
    /// The offset as an address that says how it is encoded, and on which condition it happens.
    pub address: u64,
}

impl PlacedInsn {
    pub fn end(&self) -> u32 {
        self.offset + u32::from(self.insn.len)
    }

    /// Whether another instruction puts a condition on it.
    pub fn is_predicated(&self) -> bool {
        self.address >> 32 != 0
    }

    /// Whether control may go on behind it although it goes elsewhere, too, other than by coming back.
    pub fn is_conditional(&self) -> bool {
        let branch =
            matches!(self.insn.flow, Flow::Direct { branch, .. } if branch.kind == BranchKind::Conditional);
        branch || self.insn.conditional
    }

    /// Where a direct branch goes, as an offset in the section.
    pub fn target(&self) -> Option<u32> {
        match self.insn.flow {
            // In Thumb code, the bit says how the code there is encoded.
            Flow::Direct { target, .. } => Some(target as u32 & !u32::from(self.encoding == Encoding::Thumb)),
            _ => None,
        }
    }
}

/// A range of code that is lifted as one function: that of a function symbol, or code between functions.
pub(super) struct Span {
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
}

impl CodeSection {
    /// Decodes a section of compiler-made code, except for the parts that the object lists as carried whole.
    pub fn decode(
        isa: &dyn Rewritable,
        object: &Object<'_>,
        names: &SectionNames<'_>,
        index: SectionIndex,
        carried: Option<&[Carried]>,
        sites: &[u32],
    ) -> CodeSection {
        let section = object.section(index);
        let mapping = Mapping::of(object, names, index);
        let mut code = CodeSection {
            insns: Vec::with_capacity(section.data.len() / 3),
            data: Vec::new(),
            spans: spans(isa, section, &mapping, names.symbols(index), carried.unwrap_or_default()),
            leaders: Vec::new(),
            branch_targets: Vec::new(),
            refers_to_itself: Vec::new(),
            referred_by_offset: Vec::new(),
            lists_carried: carried.is_some(),
            literals: Vec::new(),
            passed_on: Vec::new(),
            computed_jumps: Vec::new(),
            // The kernel patches a jump into each of these at run time.
            trampolines: section.name == ".static_call.text",
            opaque: None,
        };
        let reader = Reader { isa, data: &section.data, mapping: &mapping, sites };
        for span in code.spans.iter_mut().filter(|span| !span.carried) {
            if code.trampolines {
                span.opaque = Some("a trampoline that is patched at run time");
            }
            match reader.read(span, &mut code.insns, &mut code.data) {
                Decoded::Plain => {}
                Decoded::Odd(reason) => span.opaque = span.opaque.or(Some(reason)),
                // Code behind these bytes is not decoded, and may branch to other functions without a relocation.
                Decoded::Not => code.opaque = Some("bytes that are no instructions"),
            }
        }
        code.check_fields(isa, section);
        code.collect_literals(isa, section);
        code.collect_branches(&section.relocs);
        code.collect_computed_jumps(isa, object, section);
        for symbol in names.symbols(index).filter(|symbol| !symbol.name.is_empty()) {
            code.add_reference(symbol.value as u32);
            code.add_label(object.machine, symbol);
        }
        code
    }

    /// Makes code opaque that has a label of `asm`. Compilers give functions a type; a label without one is from inline
    /// `asm`, or, where a function begins, from `asm` at the top level of the file, which may compute distances between
    /// labels.
    fn add_label(&mut self, machine: Machine, symbol: &Symbol<'_>) {
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

    /// The data in a function that contains the byte at `offset`.
    pub fn data_containing(&self, offset: u32) -> Option<&DataPart> {
        let after = self.data.partition_point(|part| part.start <= offset);
        self.data[..after].last().filter(|part| offset < part.end)
    }

    /// The data in a function in front of which the code, or its padding, ends at `offset`.
    pub fn data_behind(&self, offset: u32) -> Option<usize> {
        self.data.binary_search_by_key(&offset, |part| part.padding).ok()
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

    /// Adds a reference to the code at `offset`, where a block then has to begin.
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

    /// Adds the numbers that data made by `asm` holds beside the address of a function's entry. A number that, as an
    /// offset from the entry, leads to an instruction or to the end of the function may be a distance that the assembler
    /// computed, as in `struct rseq_cs` (include/uapi/linux/rseq.h in the kernel).
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

    /// Adds a call of the code at `offset`; `caller` is the offset of the call, if it is in this section. Compilers call
    /// functions; a call into the middle of one is from `asm` that pops its return address and computes with it, or
    /// overwrites it (the inline form of a retpoline).
    pub fn add_call(&mut self, caller: Option<u32>, offset: u32) {
        self.add_reference(offset);
        // Functions that were carried together are one span. The object lists which of their callers were carried, too.
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

    /// Adds a reference into the padding between functions. The padding may belong to the function behind it (`nop`s to be
    /// patched: `-fpatchable-function-entry`), the reference may be to the end of the function in front, or to its address
    /// with a number added, or the padding may be data. So the padding and both functions become one opaque span.
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

    /// Makes one opaque span of those from `first` to `last`.
    pub(super) fn merge(&mut self, first: usize, last: usize, reason: &'static str) {
        let end = self.spans[last].end;
        let align = self.spans[first..=last].iter().map(|span| span.align).max();
        let merged = &mut self.spans[first];
        (merged.end, merged.align) = (end, align.unwrap_or(1));
        merged.opaque.get_or_insert(reason);
        self.spans.drain(first + 1..=last);
    }

    /// Whether a branch with a field of less than 4 bytes, which does not reach every place of the section, leaves
    /// `start..end`.
    pub fn has_short_exit(&self, start: u32, end: u32) -> bool {
        self.short_exits(start, end).next().is_some()
    }

    /// The targets of the branches with a field of less than 4 bytes that leave `start..end`.
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

    /// The instructions in a range of offsets that refer to a place near by, and these places.
    pub fn literals_in(&self, range: Range<u32>) -> impl Iterator<Item = &(u32, u32)> {
        let from = self.literals.partition_point(|&(at, _)| at < range.start);
        self.literals[from..].iter().take_while(move |&&(at, _)| at < range.end)
    }

    /// The places outside of `start..end` that its literals are at.
    fn far_literals(&self, start: u32, end: u32) -> impl Iterator<Item = u32> {
        let targets = self.literals_in(start..end).map(|&(_, target)| target);
        targets.filter(move |target| !(start..end).contains(target))
    }

    /// Makes a span opaque, for the first reason that is given.
    pub fn make_opaque(&mut self, span: usize, reason: &'static str) {
        self.spans[span].opaque.get_or_insert(reason);
    }

    /// Sorts the leaders, and merges opaque spans with those that they are inseparable from.
    pub fn settle(&mut self) {
        let mut fields = std::mem::take(&mut self.refers_to_itself);
        // `_THIS_IP_` of the kernel: no distance is added to it here.
        fields.retain(|field| self.passed_on.binary_search(field).is_err());
        fields.dedup_by_key(|offset| self.span_containing(*offset));
        for offset in fields {
            let Some(span) = self.span_containing(offset) else { continue };
            // It may add distances between labels, which have no relocation, to the address of a label.
            if self.jumps_to_a_computed_place(&self.spans[span]) {
                self.make_opaque(span, "a computed goto");
            }
        }
        self.leaders.sort_unstable();
        self.leaders.dedup();
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

    /// The spans that have to stay in place relative to an opaque one, itself included: those that its short branches
    /// lead to, and the one that it falls through into. `None` if it can be moved by itself.
    fn inseparable_from(&self, index: usize) -> Option<RangeInclusive<usize>> {
        let span = self.spans.get(index).filter(|span| span.opaque.is_some())?;
        let exits = self.short_exits(span.start, span.end).chain(self.far_literals(span.start, span.end));
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

    fn insns_of(&self, span: &Span) -> &[PlacedInsn] {
        let from = self.insns.partition_point(|placed| placed.offset < span.start);
        let to = self.insns.partition_point(|placed| placed.offset < span.end);
        &self.insns[from..to]
    }

    fn jumps_to_a_computed_place(&self, span: &Span) -> bool {
        let by_table = |placed: &PlacedInsn| {
            self.data_behind(placed.end())
                .is_some_and(|part| matches!(self.data[part].kind, DataKind::Distances { .. }))
        };
        let jumps = |placed: &PlacedInsn| placed.insn.flow == Flow::IndirectJump && !by_table(placed);
        let from = self.computed_jumps.partition_point(|&offset| offset < span.start);
        let computed = self.computed_jumps.get(from).is_some_and(|&offset| offset < span.end);
        computed || self.insns_of(span).iter().any(jumps)
    }

    fn collect_branches(&mut self, relocs: &[Reloc]) {
        let mut branches = Vec::new();
        for placed in &self.insns {
            if let Flow::Direct { field_offset, branch, .. } = placed.insn.flow
                && let Some(target) = placed.target()
                && reloc_at(relocs, placed.offset + u32::from(field_offset)).is_none()
            {
                branches.push((placed.offset, branch.kind, target));
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

    /// Collects what the instructions refer to near by. A literal outside of its function keeps both in place, and so does
    /// a table of distances if a slot of it leads out of its function.
    fn collect_literals(&mut self, isa: &dyn Rewritable, section: &kelf::Section<'_>) {
        for placed in &self.insns {
            let bytes = &section.data[placed.offset as usize..placed.end() as usize];
            if let Some(literal) = isa.literal(bytes, placed.address) {
                self.literals.push((placed.offset, literal.target as u32));
            }
        }
        self.passed_on = self.addresses_passed_on(isa, section);
        for (at, target) in self.literals.clone() {
            let Some(span) = self.span_containing(at) else { continue };
            if self.span_containing(target) != Some(span) {
                self.make_opaque(span, "a literal outside of the function");
            }
        }
        let mut targets = Vec::new();
        for part in &self.data {
            let DataKind::Distances { slots, width } = part.kind else { continue };
            let end = part.start + slots * u32::from(width);
            let slots = section.data[part.start as usize..end as usize].chunks(width.into());
            targets.extend(slots.map(|slot| part.start + 2 * slot_value(slot)));
        }
        for target in targets {
            self.branch_targets.push(target);
            self.add_reference(target);
        }
    }

    /// The literals whose value is only passed on to other functions, in order.
    fn addresses_passed_on(&self, isa: &dyn Rewritable, section: &kelf::Section<'_>) -> Vec<u32> {
        let mut passed: Vec<(u32, bool)> = Vec::with_capacity(self.literals.len());
        for &(at, target) in &self.literals {
            let load = self.insns.partition_point(|placed| placed.offset < at);
            passed.push((target, is_only_passed_on(isa, section, &self.insns[load..])));
        }
        passed.sort_unstable();
        let literals = passed.chunk_by(|one, other| one.0 == other.0);
        literals.filter(|loads| loads.iter().all(|load| load.1)).map(|loads| loads[0].0).collect()
    }

    /// Makes a function opaque if the field of a relocation is not an immediate or a displacement of one instruction:
    /// the linker then changes the instructions that are decoded here.
    fn check_fields(&mut self, isa: &dyn Rewritable, section: &kelf::Section<'_>) {
        for reloc in section.relocs.iter().filter(|reloc| reloc.width > 0) {
            let offset = reloc.offset as u32;
            let Some(span) = self.span_containing(offset) else { continue };
            let constant = self.insn_containing(offset).is_some_and(|placed| {
                let bytes = &section.data[placed.offset as usize..placed.end() as usize];
                let at = (offset - placed.offset) as u8;
                isa.is_constant(bytes, placed.address, at, reloc.width, reloc.class)
            });
            let literal = self.data_containing(offset).is_some_and(|part| {
                matches!(part.kind, DataKind::Literals(_)) && reloc.class != RelocClass::Branch
            });
            if !constant && !literal {
                self.make_opaque(span, "a relocation that is no operand of an instruction");
            }
        }
    }

    /// Finds the jumps to retpolines, which compilers emit for computed jumps, and the returns by which `asm` jumps to an
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

/// Whether the value that the first instruction loads goes nowhere but into a call, as an argument.
fn is_only_passed_on(isa: &dyn Rewritable, section: &kelf::Section<'_>, insns: &[PlacedInsn]) -> bool {
    let bytes = |placed: &PlacedInsn| &section.data[placed.offset as usize..placed.end() as usize];
    let mut effects = Vec::new();
    let mut written = |placed: &PlacedInsn| {
        effects.clear();
        isa.effects(bytes(placed), placed.address, &mut effects);
        effects.iter().fold(0, |set, effect| set | effect.registers_written())
    };
    let Some(load) = insns.first().filter(|load| !load.is_predicated() && !load.insn.conditional) else {
        return false;
    };
    let value = written(load);
    if !(0..4).filter_map(|number| isa.argument(number)).any(|reg| value == 1 << reg.0) {
        return false;
    }
    for pair in insns.windows(2) {
        let next = &pair[1];
        if pair[0].end() != next.offset || next.is_conditional() {
            return false;
        }
        if isa.registers_read(bytes(next), next.address) & value != 0 {
            return false;
        }
        match next.insn.flow {
            Flow::Next if next.is_predicated() => {}
            Flow::Next if written(next) & value != 0 => return true,
            Flow::Next => {}
            Flow::Direct { field_offset, branch, .. } => {
                let away = reloc_at(&section.relocs, next.offset + u32::from(field_offset)).is_some();
                return branch.kind == BranchKind::Call || away;
            }
            Flow::IndirectCall | Flow::IndirectJump => return true,
            Flow::Return | Flow::Trap => return false,
        }
    }
    false
}

/// Whether the instructions in front of the last, a return, store its target on the stack. Compilers never do that: they
/// pop what they have pushed before they return.
fn puts_return_address(isa: &dyn Rewritable, data: &[u8], insns: &[PlacedInsn]) -> bool {
    let stack = isa.stack_pointer();
    let mut effects = Vec::new();
    for pair in insns.windows(2).rev() {
        if pair[0].insn.flow != Flow::Next || pair[0].end() != pair[1].offset {
            return false;
        }
        effects.clear();
        isa.effects(&data[pair[0].offset as usize..pair[0].end() as usize], pair[0].address, &mut effects);
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

/// Why the code of a file is opaque that may compute distances between labels.
pub(super) const LABELS: &str = "labels of top-level asm";

/// Whether a symbol is a label of `asm`: it has no type. The only labels without a type that compilers put into the symbol
/// table are `.L` labels that a relocation refers to.
pub(super) fn is_assembler_label(machine: Machine, symbol: &Symbol<'_>) -> bool {
    symbol.kind == STT_NOTYPE
        && content_behind(machine, symbol.name).is_none()
        && !symbol.name.is_empty()
        && !symbol.name.starts_with(".L")
        && matches!(symbol.place, Place::Section(_))
}

/// Whether an instruction at the end of a function may fall through into what lies behind the function. Compilers end a
/// function with a call or a trap only if that does not come back; hand-written functions may go on in the next one, if
/// that is `adjacent`.
pub(super) fn may_fall_through(flow: Flow, adjacent: bool) -> bool {
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

/// Cuts a section at its function symbols and at the parts that were carried whole.
fn spans<'o>(
    isa: &dyn Rewritable,
    section: &kelf::Section<'_>,
    mapping: &Mapping,
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
            // An alias, or a symbol inside the function in front.
            if reason.is_some() {
                (last.end, last.opaque, last.carried) = (last.end.max(end), reason, true);
                at = last.end;
            }
            continue;
        }
        push_gap(isa, section, mapping, at, start, &mut spans);
        let align = alignment(section.align, start);
        let encoding = mapping.encoding(start);
        spans.push(Span { start, end, align, encoding, opaque: reason, carried: reason.is_some() });
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
    spans.push(Span { start, end, align: alignment(section.align, start), encoding, opaque, carried: false });
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

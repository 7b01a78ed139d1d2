//! Decoding the code sections of one object: where instructions begin, which functions there are, and
//! where blocks have to begin.

use goblin::elf::sym::{STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE};
use kelf::{Object, Reloc, RelocClass, SectionIndex, Symbol};

use super::names::SectionNames;
use crate::isa::{Flow, Insn, Rewritable};

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
    /// Functions whose own code names a place in them other than as the target of a branch.
    pub names_itself: Vec<usize>,
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
}

impl CodeSection {
    /// Decodes a section of compiler-made code.
    pub fn decode(
        isa: &dyn Rewritable,
        object: &Object<'_>,
        names: &SectionNames<'_>,
        index: SectionIndex,
    ) -> CodeSection {
        let section = object.section(index);
        let mut code = CodeSection {
            insns: Vec::with_capacity(section.data.len() / 3),
            spans: spans(isa, section, names.symbols(index)),
            leaders: Vec::new(),
            branch_targets: Vec::new(),
            names_itself: Vec::new(),
            opaque: None,
        };
        // The kernel writes a jump over each of these at run time.
        let trampolines = section.name == ".static_call.text";
        for span in &mut code.spans {
            if trampolines {
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
        for symbol in names.symbols(index).filter(|symbol| !symbol.name.is_empty()) {
            code.add_reference(symbol.value as u32);
            code.add_label(symbol, trampolines);
        }
        code
    }

    /// Compilers give functions their type. A label without one is from inline `asm`, or, where a function
    /// begins, from `asm` at the top level of the file, which may compute with the distances between labels.
    fn add_label(&mut self, symbol: &Symbol<'_>, trampolines: bool) {
        // Compilers keep their own `.L` labels where a relocation has to name them.
        if symbol.kind != STT_NOTYPE || trampolines || symbol.name.starts_with(".L") {
            return;
        }
        match self.span_containing(symbol.value as u32) {
            Some(span) if u64::from(self.spans[span].start) < symbol.value => {
                self.make_opaque(span, "a label of inline asm");
            }
            _ => self.opaque = Some("labels of top-level asm"),
        }
    }

    /// The instruction that contains the byte at `offset`.
    pub fn insn_containing(&self, offset: u32) -> Option<&PlacedInsn> {
        let after = self.insns.partition_point(|placed| placed.offset <= offset);
        self.insns[..after].last().filter(|placed| offset < placed.end())
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

    /// Something names the code at `offset`: a block begins there.
    pub fn add_reference(&mut self, offset: u32) {
        let Some(span) = self.span_containing(offset) else { return };
        if self.insn_containing(offset).is_some_and(|placed| placed.offset == offset) {
            self.leaders.push(offset);
        } else {
            self.make_opaque(span, "something names the middle of an instruction");
        }
    }

    /// Whether a branch that is too short to follow its target leads out of `start..end`.
    pub fn has_short_exit(&self, start: u32, end: u32) -> bool {
        let from = self.insns.partition_point(|placed| placed.offset < start);
        let inside = self.insns[from..].iter().take_while(|placed| placed.offset < end);
        inside.into_iter().any(|placed| match placed.insn.flow {
            Flow::Direct { target, field_width, .. } => {
                field_width < 4 && !(start..end).contains(&(target as u32))
            }
            _ => false,
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
        named.dedup();
        for span in named {
            let Span { start, end, .. } = self.spans[span];
            let first = self.insns.partition_point(|placed| placed.offset < start);
            let mut insns = self.insns[first..].iter().take_while(|placed| placed.offset < end);
            // It may compute with the distances between its labels, of which nothing tells.
            if insns.any(|placed| placed.insn.flow == Flow::IndirectJump) {
                self.make_opaque(span, "a computed goto");
            }
        }
        self.leaders.sort_unstable();
        self.leaders.dedup();
        for (i, span) in self.spans.iter().enumerate() {
            if span.opaque.is_none() {
                continue;
            }
            let from = self.insns.partition_point(|placed| placed.offset < span.start);
            let to = self.insns.partition_point(|placed| placed.offset < span.end);
            let insns = &self.insns[from..to];
            let short = self.has_short_exit(span.start, span.end);
            let runs_on = insns.last().is_some_and(|placed| {
                placed.end() == span.end
                    && matches!(
                        placed.insn.flow,
                        Flow::Next
                            | Flow::Direct {
                                branch: crate::isa::Branch { kind: crate::isa::BranchKind::Conditional, .. },
                                ..
                            }
                    )
            });
            if short || (runs_on && i + 1 < self.spans.len()) {
                self.opaque = Some("an opaque function that is tied to its neighbours");
                return;
            }
        }
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

    fn collect_branches(&mut self, relocs: &[Reloc]) {
        let mut targets = Vec::new();
        for placed in &self.insns {
            if let Flow::Direct { target, field_offset, .. } = placed.insn.flow
                && reloc_at(relocs, placed.offset + u32::from(field_offset)).is_none()
            {
                targets.push(target as u32);
            }
        }
        for target in targets {
            if self.span_containing(target).is_some() {
                self.branch_targets.push(target);
                self.add_reference(target);
            } else {
                self.opaque = Some("a branch out of the section without a relocation");
            }
        }
        self.branch_targets.sort_unstable();
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

/// Cuts a section along its function symbols.
fn spans<'o>(
    isa: &dyn Rewritable,
    section: &kelf::Section<'_>,
    symbols: impl Iterator<Item = &'o Symbol<'o>>,
) -> Vec<Span> {
    let size = section.data.len() as u32;
    let mut functions: Vec<(u32, u32)> = symbols
        .filter(|symbol| matches!(symbol.kind, STT_FUNC | STT_GNU_IFUNC) && symbol.size > 0)
        .map(|symbol| (symbol.value, symbol.value.saturating_add(symbol.size)))
        .filter(|&(start, end)| start < u64::from(size) && end <= u64::from(size))
        .map(|(start, end)| (start as u32, end as u32))
        .collect();
    functions.sort_unstable_by_key(|&(start, end)| (start, std::cmp::Reverse(end)));

    let mut spans: Vec<Span> = Vec::with_capacity(functions.len() + 1);
    let mut at = 0;
    for (start, end) in functions {
        if start < at {
            // An alias, or a label inside of the function before it.
            continue;
        }
        push_gap(isa, section, at, start, &mut spans);
        spans.push(Span { start, end, align: 1, opaque: None });
        at = end;
    }
    push_gap(isa, section, at, size, &mut spans);
    infer_alignment(&mut spans, section.align as u32);
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
    spans.push(Span { start, end, align: 1, opaque });
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

/// Objects do not say how a function is aligned; it shows in where functions begin. If all of them are
/// aligned alike, that is their alignment; a function behind padding is aligned at least so that the
/// padding comes out again.
fn infer_alignment(spans: &mut [Span], section_align: u32) {
    let common = spans
        .iter()
        .map(|span| if span.start == 0 { section_align } else { 1 << span.start.trailing_zeros() })
        .min()
        .unwrap_or(1)
        .min(section_align);
    let mut previous_end = 0;
    for span in spans {
        let mut align = common;
        while span.start.next_multiple_of(align) != span.start
            || (previous_end as u32).next_multiple_of(align) < span.start && align < section_align
        {
            align *= 2;
            if align > section_align {
                break;
            }
        }
        span.align = if span.start % align == 0 { align } else { common };
        previous_end = span.end as usize;
    }
}

/*!
Decodes the instructions of a function, and separates them from data among them.

On ARM, functions contain data: literals, which instructions read by their distance, and tables of distances after a
jump. Mapping symbols mark code and data ([`super::mapping`]), but instructions written as data in inline `asm` look
like data (`BUG()` of the kernel is a `.short`). Such a place is code if control reaches it, from the previous
instruction or by a branch, or if a table about code refers to it.
*/

use std::collections::VecDeque;
use std::ops::Range;

use kelf::Reloc;

use super::decode::spans::Span;
use super::placed::PlacedInsn;
use crate::mapping::{Content, Mapping};
use kisa::{BranchKind, Encoding, Flow, Literal, Rewritable};

/// Reason for an opaque function that may jump through a table of distances that is not decoded.
pub(super) const UNKNOWN_TABLE: &str = "an unsupported table of distances";

/// Data within a function.
pub(super) struct DataPart {
    /// The start of the padding before it.
    pub padding: u32,
    /// Its start and end.
    pub start: u32,
    pub end: u32,
    pub kind: DataKind,
}

/// The kind of data within a function.
pub(super) enum DataKind {
    /// Literals that begin at these offsets, each up to the next one.
    Literals(Vec<u32>),
    /// A table of distances after its jump, with the number and width in bytes of its slots. Each slot is the distance
    /// in halfwords from the start of the table.
    Distances { slots: u32, width: u8 },
}

/// The result of decoding a function.
pub(super) enum Decoded {
    /// All of it is movable instructions.
    Plain,
    /// Some instructions cannot be moved, or are unknown, for this reason.
    Odd(&'static str),
    /// Some of it is not instructions.
    Not,
}

/// Decodes instructions.
pub(super) struct Reader<'r> {
    pub isa: &'r dyn Rewritable,
    /// The content of the section.
    pub data: &'r [u8],
    pub mapping: &'r Mapping,
    pub relocs: &'r [Reloc],
    /// Offsets of code that tables refer to, in order.
    pub sites: &'r [u32],
}

impl Reader<'_> {
    /// Appends the instructions of a span, and the data in it.
    pub fn read(&self, span: &Span, insns: &mut Vec<PlacedInsn>, data: &mut Vec<DataPart>) -> Decoded {
        let first = insns.len();
        let mut decoded = Decoded::Plain;
        let mut pieces_of_data = Vec::new();
        let encoding = self.mapping.encoding(span.start);
        for (piece, content) in self.mapping.pieces(span.start..span.end) {
            match content {
                Content::Code(other) => {
                    if other != encoding {
                        decoded = Decoded::Odd("code in two encodings");
                    }
                    match self.read_piece(piece.start, piece.end, other, insns) {
                        Decoded::Plain => {}
                        Decoded::Not => return Decoded::Not,
                        odd => decoded = odd,
                    }
                }
                // Before the function.
                Content::Data if piece.end <= span.entry => {}
                Content::Data => pieces_of_data.push(piece),
            }
        }
        let mut inside = Inside::of(self, &insns[first..]);
        if pieces_of_data.is_empty() && inside.literals.is_empty() {
            return decoded;
        }
        let mut rests: Vec<Range<u32>> = Vec::new();
        for piece in pieces_of_data {
            let mut at = piece.start;
            while at < piece.end {
                if let Some(width) = self.table_at(at, &insns[first..]) {
                    let slots = self.slots(at..piece.end, width, &inside);
                    let table_end = at + (slots.len() * usize::from(width)) as u32;
                    let padding = table_end % 2;
                    inside.targets.extend(slots.iter().map(|slot| at + 2 * slot));
                    let kind = DataKind::Distances { slots: slots.len() as u32, width };
                    let end = (table_end + padding).min(piece.end);
                    data.push(DataPart { padding: at, start: at, end, kind });
                    let leaves = |&slot: &u32| !(span.start..span.end).contains(&(at + 2 * slot));
                    if slots.is_empty() || slots.iter().any(leaves) {
                        decoded = Decoded::Odd(UNKNOWN_TABLE);
                        break;
                    }
                    at = end;
                    continue;
                }
                if !self.is_code(at, &inside, &insns[first..]) {
                    break;
                }
                let before = insns.len();
                let end = self.isa.length(&self.data[at as usize..piece.end as usize], encoding);
                let end = end.map_or(piece.end, |len| at + len as u32);
                match self.read_piece(at, end, encoding, insns) {
                    Decoded::Plain => {}
                    Decoded::Not => return Decoded::Not,
                    odd => decoded = odd,
                }
                inside.add(self, &insns[before..]);
                insns[first..].sort_unstable_by_key(|placed| placed.offset);
                at = end;
            }
            if at < piece.end {
                rests.push(at..piece.end);
            }
        }
        for rest in rests {
            if let Err(reason) = self.classify(rest, &inside, first, insns, data) {
                decoded = Decoded::Odd(reason);
            }
        }
        let placed = &insns[first..];
        let leads = |&target: &u32| placed.binary_search_by_key(&target, |placed| placed.offset).is_ok();
        // Compilers leave branches after traps that do not return, even if their target was removed.
        let is_left = |&target: &u32| {
            let to_there = placed.iter().filter(|placed| placed.encoded_target(self.relocs) == Some(target));
            let mut branches = to_there.peekable();
            branches.peek().is_some() && branches.all(|branch| is_behind_trap(placed, branch))
        };
        let inner = inside.targets.iter().filter(|&&target| span.start <= target && target < span.end);
        if !inner.clone().all(|target| leads(target) || is_literal(data, *target) && is_left(target)) {
            decoded = Decoded::Odd("a branch to something other than an instruction");
        }
        data.sort_by_key(|part| part.start);
        for part in data.iter().filter(|part| (span.start..span.end).contains(&part.start)) {
            if ending_at(placed, part.padding).is_none() && !is_data_end(data, part.padding) {
                decoded = Decoded::Odd("data before code");
            } else if runs_into(placed, part.padding) {
                decoded = Decoded::Odd("control runs into data");
            }
        }
        if inside.literals.iter().any(|&(_, literal)| !is_in_data(data, literal)) {
            decoded = Decoded::Odd("a nearby address that is not a literal");
        }
        decoded
    }

    /// Appends the instructions in a range of offsets that is all code in one encoding.
    fn read_piece(&self, start: u32, end: u32, encoding: Encoding, insns: &mut Vec<PlacedInsn>) -> Decoded {
        let mut decoded = Decoded::Plain;
        let mut conditions: VecDeque<u8> = VecDeque::new();
        let mut reader = self.isa.reader(&self.data[..end as usize]);
        let mut at = start;
        while at < end {
            let bytes = &self.data[at as usize..end as usize];
            let predicate = conditions.pop_front();
            let place = encoding.at(at.into()).on(predicate);
            let Some(inst) = reader.decode(at as usize, place) else {
                let Some(len) = self.isa.length(bytes, encoding) else { return Decoded::Not };
                decoded = Decoded::Odd("an unsupported instruction");
                at += len as u32;
                continue;
            };
            let insn = inst.insn;
            let puts = insn.predicates.conditions();
            if !puts.is_empty() {
                conditions.extend(puts);
            }
            let jumps = matches!(insn.flow, Flow::Direct { branch, .. } if branch.kind != BranchKind::Call);
            if !self.isa.can_move(&inst) {
                decoded = Decoded::Odd("a branch or an address that compilers do not emit");
            } else if predicate.is_some() && (jumps || insn.flow != Flow::Next && !conditions.is_empty()) {
                decoded = Decoded::Odd("a jump on the condition of another instruction");
            }
            let target_encoding = match insn.flow {
                Flow::Direct { target, .. } => self.isa.encoding_at(target),
                _ => encoding,
            };
            insns.push(PlacedInsn { offset: at, insn, encoding, predicate, target_encoding });
            at += u32::from(insn.len);
        }
        if !conditions.is_empty() {
            decoded = Decoded::Odd("a condition on something other than an instruction");
        }
        decoded
    }

    /// Whether control reaches a place that is marked as data.
    fn is_code(&self, at: u32, inside: &Inside, insns: &[PlacedInsn]) -> bool {
        if inside.literals.iter().any(|&(_, literal)| literal.target == u64::from(at)) {
            return false;
        }
        let from_above = ending_at(insns, at)
            .is_some_and(|before| before.insn.flow == Flow::Next || before.is_conditional());
        from_above || inside.targets.contains(&at) || self.sites.binary_search(&at).is_ok()
    }

    /// Determines the kind of data. `nop`s before literals are padding.
    fn classify(
        &self,
        Range { start: at, end }: Range<u32>,
        inside: &Inside,
        first: usize,
        insns: &mut Vec<PlacedInsn>,
        data: &mut Vec<DataPart>,
    ) -> Result<(), &'static str> {
        let mut targets: Vec<(u32, Option<u8>)> = inside
            .literals
            .iter()
            .filter(|(_, literal)| (u64::from(at)..u64::from(end)).contains(&literal.target))
            .map(|(_, literal)| (literal.target as u32, literal.read))
            .collect();
        targets.sort_unstable();
        let start = at;
        let bytes_of = |placed: PlacedInsn| &self.data[placed.offset as usize..placed.end() as usize];
        let Some(&(named, _)) = targets.first() else { return Err("data in code that nothing reads") };
        let mut padding = start;
        if named - start > 3 || self.data[start as usize..named as usize].iter().any(|&byte| byte != 0) {
            return Err("data in code that nothing reads");
        }
        if !is_data_end(data, start) {
            let is_padding = |placed: &PlacedInsn| {
                let nop = self.isa.padding_len(bytes_of(*placed), placed.encoding);
                nop == Some(usize::from(placed.insn.len)) && !inside.targets.contains(&placed.offset)
            };
            let mut first_nop = start;
            while let Some(nop) = ending_at(&insns[first..], first_nop).filter(|placed| is_padding(placed)) {
                first_nop = nop.offset;
            }
            if !runs_into(&insns[first..], first_nop) {
                padding = first_nop;
                let inside = padding..start;
                let kept =
                    insns.split_off(first).into_iter().filter(|placed| !inside.contains(&placed.offset));
                insns.extend(kept);
            }
        }
        // After an address that is computed, the extent of reads is unknown.
        let known = targets.iter().position(|(_, read)| read.is_none()).map_or(targets.len(), |i| i + 1);
        let mut starts: Vec<u32> = targets[..known].iter().map(|&(target, _)| target).collect();
        starts.dedup();
        let overlap = targets.windows(2).any(|pair| {
            let read = u32::from(pair[0].1.unwrap_or(0));
            pair[0].0 != pair[1].0 && pair[0].0 + read > pair[1].0
        });
        if overlap {
            starts.truncate(1);
        }
        data.push(DataPart { padding, start: named, end, kind: DataKind::Literals(starts) });
        Ok(())
    }

    /// Returns the width in bytes of the slots of the table of distances at an offset, if the previous instruction
    /// jumps through one.
    fn table_at(&self, at: u32, insns: &[PlacedInsn]) -> Option<u8> {
        let jump = ending_at(insns, at)?;
        self.isa.distance_table(&jump.inst(self.isa, self.data))
    }

    /// Returns the slots of a table of distances at the start of `range`. It ends at the target of a slot or a branch,
    /// at a literal, or at code that a table refers to. Zeros after it may be padding.
    fn slots(&self, range: Range<u32>, width: u8, inside: &Inside) -> Vec<u32> {
        let literals = inside.literals.iter().map(|(_, literal)| literal.target as u32);
        let others = literals.chain(inside.targets.iter().copied()).chain(self.sites.iter().copied());
        let first = others.filter(|&target| target > range.start && target < range.end).min();
        let mut end = first.unwrap_or(range.end);
        let mut slots = Vec::new();
        let mut at = range.start;
        while at + u32::from(width) <= end {
            let distance = slot_value(&self.data[at as usize..(at + u32::from(width)) as usize]);
            at += u32::from(width);
            slots.push(distance);
            if distance > 0 {
                end = end.min((range.start + 2 * distance).max(at));
            }
        }
        while slots.last() == Some(&0) {
            slots.pop();
        }
        slots
    }
}

/// Returns the number in a slot.
pub(super) fn slot_value(slot: &[u8]) -> u32 {
    slot.iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

/// Places that the instructions of a span refer to.
struct Inside {
    /// Targets of direct branches.
    targets: Vec<u32>,
    literals: Vec<(u32, Literal)>,
}

impl Inside {
    fn of(reader: &Reader<'_>, insns: &[PlacedInsn]) -> Inside {
        let mut inside = Inside { targets: Vec::new(), literals: Vec::new() };
        inside.add(reader, insns);
        inside
    }

    fn add(&mut self, reader: &Reader<'_>, insns: &[PlacedInsn]) {
        let has_literals = reader.isa.machine().target().has_literals;
        for placed in insns {
            if let Some(target) = placed.encoded_target(reader.relocs) {
                self.targets.push(target);
            }
            if has_literals && let Some(literal) = reader.isa.literal(&placed.inst(reader.isa, reader.data)) {
                self.literals.push((placed.offset, literal));
            }
        }
    }
}

/// Returns the instruction that ends at an offset.
fn ending_at(insns: &[PlacedInsn], end: u32) -> Option<&PlacedInsn> {
    let after = insns.partition_point(|placed| placed.offset < end);
    insns[..after].last().filter(|placed| placed.end() == end)
}

/// Whether an instruction is an unconditional branch after a trap.
fn is_behind_trap(insns: &[PlacedInsn], branch: &PlacedInsn) -> bool {
    let jumps = matches!(branch.insn.flow, Flow::Direct { branch, .. } if branch.kind == BranchKind::Jump);
    jumps && ending_at(insns, branch.offset).is_some_and(|before| before.insn.flow == Flow::Trap)
}

/// Whether a literal is at an offset.
pub(super) fn is_literal(data: &[DataPart], offset: u32) -> bool {
    data.iter()
        .any(|part| (part.start..part.end).contains(&offset) && matches!(part.kind, DataKind::Literals(_)))
}

/// Whether execution may continue after an instruction at an offset. A call there does not return, because compilers
/// put no data after a call that does.
fn runs_into(insns: &[PlacedInsn], offset: u32) -> bool {
    ending_at(insns, offset).is_some_and(|before| before.insn.flow == Flow::Next || before.is_conditional())
}

/// Whether other data ends at an offset.
fn is_data_end(data: &[DataPart], offset: u32) -> bool {
    data.iter().rev().any(|part| part.end == offset)
}

fn is_in_data(data: &[DataPart], literal: Literal) -> bool {
    let target = literal.target as u32;
    let after = data.partition_point(|part| part.start <= target);
    data[..after].last().is_some_and(|part| {
        target < part.end
            && match &part.kind {
                DataKind::Literals(starts) => target >= starts[0],
                DataKind::Distances { .. } => target == part.start,
            }
    })
}

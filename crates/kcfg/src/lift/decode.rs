//! Decodes the code sections of one object: finds the instructions, the functions, and the starts of blocks.

mod addresses;
mod distances;
pub(super) mod spans;
mod whole;

use std::ops::Range;

use kelf::{Machine, Object, Reloc, RelocClass, SectionIndex};
use kisa::{BranchKind, Encoding, Flow, Rewritable};

use self::spans::{Span, spans};
pub(super) use self::whole::{LABELS, is_assembler_label, may_fall_through};
use super::instructions::{DataKind, DataPart, Decoded, Reader, is_literal};
use super::names::SectionNames;
use super::placed::PlacedInsn;
use crate::carried::Carried;

/// A code section, split into functions and instructions.
pub(super) struct CodeSection {
    /// Instructions of all functions, in order.
    pub insns: Vec<PlacedInsn>,
    /// Data within functions, in order.
    pub data: Vec<DataPart>,
    /// Functions and other ranges of code, in order, without the padding between them.
    pub spans: Vec<Span>,
    /// Offsets at which a block must begin.
    pub leaders: Vec<u32>,
    /// Offsets of branch targets, in order: a patch site must not extend across one.
    pub branch_targets: Vec<u32>,
    /// Offsets of fields by which a function refers to a place in itself, other than as a branch target.
    pub refers_to_itself: Vec<u32>,
    /// Places that data or code refers to by the symbol of the section and an offset.
    pub referred_by_offset: Vec<u32>,
    /// Whether the object lists its opaque code.
    pub lists_carried: bool,
    /// Instructions that refer to a nearby place, and these places, by offset.
    literals: Vec<(u32, u32)>,
    /// The fields of instructions with the distance of a place in another function of the section, without a
    /// relocation, and these places.
    addresses: Vec<(u32, u32)>,
    /// Functions, by offset, with the places outside of each that it may compute by a distance from itself.
    distances: Vec<(u32, u32)>,
    /// Functions, by offset, that may compute a place in themselves by a distance.
    inner_distances: Vec<u32>,
    /// The nearby places whose content is only passed to other functions, in order.
    passed_on: Vec<u32>,
    /// Offsets of jumps through a table of addresses among the instructions.
    table_jumps: Vec<u32>,
    /// The jumps among these that need the next instruction and the table directly after them.
    pub fixed_tables: Vec<u32>,
    /// Offsets of computed jumps other than indirect jump instructions: jumps to retpolines, and returns to an address
    /// that was put on the stack.
    computed_jumps: Vec<u32>,
    /// Whether this is the section of static-call trampolines, each of which is a `jmp` or `ret` and a marker after it
    /// that never runs.
    trampolines: bool,
    /// The reason why the whole section is opaque, if it is.
    pub opaque: Option<&'static str>,
}

impl CodeSection {
    /// Decodes a section of compiler-made code, except for the parts that the object lists as opaque.
    pub fn decode(
        isa: &dyn Rewritable,
        object: &Object<'_>,
        names: &SectionNames<'_>,
        index: SectionIndex,
        carried: Option<&[Carried]>,
        sites: &[u32],
    ) -> CodeSection {
        let section = object.section(index);
        let mapping = names.mapping(index);
        let mut code = CodeSection {
            insns: Vec::with_capacity(section.data.len() / 3),
            data: Vec::new(),
            spans: spans(isa, section, &mapping, names.symbols(index), carried),
            leaders: Vec::new(),
            branch_targets: Vec::new(),
            refers_to_itself: Vec::new(),
            referred_by_offset: Vec::new(),
            lists_carried: carried.is_some(),
            literals: Vec::new(),
            addresses: Vec::new(),
            distances: Vec::new(),
            inner_distances: Vec::new(),
            passed_on: Vec::new(),
            table_jumps: Vec::new(),
            fixed_tables: Vec::new(),
            computed_jumps: Vec::new(),
            // The kernel patches a jump into each of these at run time.
            trampolines: section.name == ".static_call.text",
            opaque: None,
        };
        let reader = Reader { isa, data: &section.data, mapping: &mapping, relocs: &section.relocs, sites };
        for span in code.spans.iter_mut().filter(|span| !span.carried) {
            if code.trampolines {
                span.opaque = Some("a trampoline that is patched at run time");
            }
            match reader.read(span, &mut code.insns, &mut code.data) {
                Decoded::Plain => {}
                Decoded::Odd(reason) => span.opaque = span.opaque.or(Some(reason)),
                // Code after these bytes is not decoded, and may branch to other functions without a relocation.
                Decoded::Not => code.opaque = Some("bytes that are not instructions"),
            }
        }
        code.check_fields(isa, object.machine, section);
        code.collect_literals(isa, section);
        code.collect_addresses(isa, section);
        code.collect_distances(isa, section, &mapping);
        code.collect_branches(&section.relocs);
        code.collect_computed_jumps(isa, object, section);
        for symbol in names.symbols(index).filter(|symbol| !symbol.name.is_empty()) {
            code.add_reference(symbol.value as u32);
            code.add_label(object.machine, symbol);
        }
        code
    }

    /// Returns the instruction that contains the byte at `offset`.
    pub fn insn_containing(&self, offset: u32) -> Option<&PlacedInsn> {
        let after = self.insns.partition_point(|placed| placed.offset <= offset);
        self.insns[..after].last().filter(|placed| offset < placed.end())
    }

    /// Returns the start and the kind of the direct branch whose displacement is the field at `offset`.
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

    /// Returns the data in a function that contains the byte at `offset`.
    pub fn data_containing(&self, offset: u32) -> Option<&DataPart> {
        let after = self.data.partition_point(|part| part.start <= offset);
        self.data[..after].last().filter(|part| offset < part.end)
    }

    /// Returns the data in a function that follows the code, or the padding, up to `offset`.
    pub fn data_behind(&self, offset: u32) -> Option<usize> {
        self.data.binary_search_by_key(&offset, |part| part.padding).ok()
    }

    /// Returns the span that contains the byte at `offset`.
    pub fn span_containing(&self, offset: u32) -> Option<usize> {
        let after = self.spans.partition_point(|span| span.start <= offset);
        after.checked_sub(1).filter(|&i| offset < self.spans[i].end)
    }

    /// Returns the bytes from the field at `offset` to the end of its instruction, from which x86 counts displacements.
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

    /// Returns the instructions in a range of offsets that refer to a nearby place, and these places.
    pub fn literals_in(&self, range: Range<u32>) -> impl Iterator<Item = &(u32, u32)> {
        let from = self.literals.partition_point(|&(at, _)| at < range.start);
        self.literals[from..].iter().take_while(move |&&(at, _)| at < range.end)
    }

    /// Returns the fields in a range of offsets that hold the distance of a place without a relocation, and these places.
    pub fn addresses_in(&self, range: Range<u32>) -> impl Iterator<Item = &(u32, u32)> {
        let from = self.addresses.partition_point(|&(field, _)| field < range.start);
        self.addresses[from..].iter().take_while(move |&&(field, _)| field < range.end)
    }

    fn insns_of(&self, span: &Span) -> &[PlacedInsn] {
        let from = self.insns.partition_point(|placed| placed.offset < span.start);
        let to = self.insns.partition_point(|placed| placed.offset < span.end);
        &self.insns[from..to]
    }

    fn collect_branches(&mut self, relocs: &[Reloc]) {
        let mut branches = Vec::new();
        for placed in &self.insns {
            if let Flow::Direct { branch, .. } = placed.insn.flow
                && let Some(target) = placed.encoded_target(relocs)
            {
                branches.push((placed.offset, branch.kind, target, placed.target_encoding));
            }
        }
        for (offset, kind, target, encoding) in branches {
            if self.span_containing(target).is_none() {
                self.opaque = Some("a branch out of the section without a relocation");
                continue;
            }
            self.branch_targets.push(target);
            if self.changes_encoding_within(offset, target, encoding) {
                self.opaque = Some("a branch with the wrong encoding for its target");
            }
            match kind {
                BranchKind::Call => self.add_call(Some(offset), target),
                // A leftover branch after a trap.
                _ if self.insn_containing(target).is_none() && is_literal(&self.data, target) => {}
                _ => self.add_reference(target),
            }
        }
        self.branch_targets.sort_unstable();
    }

    /// Whether a branch expects another encoding at its target, or changes the encoding on the way to a place that is
    /// not the entry of a function. (The linker encodes a branch for the encoding in the symbol of the function.)
    fn changes_encoding_within(&self, from: u32, target: u32, encoding: Encoding) -> bool {
        let Some(to) = self.insn_containing(target) else { return false };
        let own = self.insn_containing(from).map(|placed| placed.encoding);
        let is_entry = self.span_containing(target).is_some_and(|span| self.spans[span].entry == target);
        to.encoding != encoding || own != Some(encoding) && !is_entry
    }

    /// Makes a function opaque if the field of a relocation is not an immediate or a displacement of one instruction:
    /// the linker then changes the instructions that are decoded here. Also makes a function opaque if an instruction's
    /// position is part of an addend.
    fn check_fields(&mut self, isa: &dyn Rewritable, machine: Machine, section: &kelf::Section<'_>) {
        for reloc in section.relocs.iter().filter(|reloc| reloc.width > 0) {
            let offset = reloc.offset as u32;
            let Some(span) = self.span_containing(offset) else { continue };
            let constant = self.insn_containing(offset).is_some_and(|placed| {
                let at = (offset - placed.offset) as u8;
                isa.is_constant(&placed.inst(isa, &section.data), at, reloc.width, reloc.class)
            });
            let literal = self.data_containing(offset).is_some_and(|part| {
                matches!(part.kind, DataKind::Literals(_)) && reloc.class != RelocClass::Branch
            });
            if kelf::reloc::is_in_sequence(machine, reloc.r_type) {
                self.make_opaque(span, "instructions that the linker replaces together");
            } else if !constant && !literal {
                self.make_opaque(span, "a relocation that is not an operand of an instruction");
            } else if kelf::reloc::counts_from_place(machine, reloc.r_type) {
                self.make_opaque(span, "a distance from an instruction to a literal");
            }
        }
    }
}

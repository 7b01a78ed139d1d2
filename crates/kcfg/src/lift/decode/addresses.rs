//! Sources of computed addresses: nearby literals, and return addresses that code puts on the stack.

use kelf::Object;
use kisa::{BranchKind, Effect, Flow, Rewritable};

use super::CodeSection;
use crate::lift::instructions::{DataKind, slot_value};
use crate::lift::placed::{PlacedInsn, reloc_at};
use crate::special::is_retpoline;

impl CodeSection {
    /// Collects the nearby places that instructions refer to. A literal outside of its function keeps both in place,
    /// and so does a table of distances with a slot that leads out of its function.
    pub(super) fn collect_literals(&mut self, isa: &dyn Rewritable, section: &kelf::Section<'_>) {
        if !isa.machine().target().has_literals {
            return;
        }
        for placed in &self.insns {
            if let Some(literal) = isa.literal(&placed.inst(isa, &section.data)) {
                self.literals.push((placed.offset, literal.target as u32));
            }
        }
        self.passed_on = self.addresses_passed_on(isa, section);
        self.collect_table_jumps(isa, section);
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

    /// Finds the operands that are relative to their instruction and have no relocation: GNU as resolves the addresses
    /// of local symbols in the same section. They are the entries of other functions. Anything else is not supported,
    /// except for the address of the next instruction (`_THIS_IP_` of the kernel).
    pub(super) fn collect_addresses(&mut self, isa: &dyn Rewritable, section: &kelf::Section<'_>) {
        if !isa.machine().target().has_relative_addresses {
            return;
        }
        let mut found = Vec::new();
        for placed in &self.insns {
            let Some((field, target)) = isa.operand_beside(&placed.inst(isa, &section.data)) else {
                continue;
            };
            let (field, target) = (placed.offset + u32::from(field), target as u32);
            if target != placed.end() && reloc_at(&section.relocs, field).is_none() {
                found.push((field, target));
            }
        }
        for (field, target) in found {
            match (self.span_containing(field), self.span_containing(target)) {
                (Some(own), Some(other)) if own == other => {
                    self.make_opaque(own, "an address inside of its function");
                }
                (_, Some(other)) if [self.spans[other].start, self.spans[other].entry].contains(&target) => {
                    self.add_reference(target);
                    self.addresses.push((field, target));
                }
                _ => self.opaque = Some("an address in the section without a relocation"),
            }
        }
    }

    /// Finds the jumps through a table of addresses among the instructions. In ARM code, such a jump finds the table by
    /// its own address; in Thumb code, it directly follows the instruction that computes the address of the table, and
    /// nothing else leads to it. Its target is a word of the data at that address, which has a relocation.
    fn collect_table_jumps(&mut self, isa: &dyn Rewritable, section: &kelf::Section<'_>) {
        let mut before: Option<&PlacedInsn> = None;
        for placed in &self.insns {
            let in_front = before.replace(placed).filter(|before| before.end() == placed.offset);
            let jump = placed.inst(isa, &section.data);
            let Some(base) = isa.address_table(&jump) else { continue };
            let own = isa.literal(&jump);
            let table = own.or_else(|| {
                let computes = |before: &&PlacedInsn| {
                    let mut effects = Vec::new();
                    isa.effects(&before.inst(isa, &section.data), &mut effects);
                    let written = effects.iter().fold(0, |set, effect| set | effect.registers_written());
                    written == 1 << base.0 && !before.is_conditional() && !before.is_predicated()
                };
                let before = in_front.filter(computes)?;
                isa.literal(&before.inst(isa, &section.data))
            });
            let Some(table) = table.filter(|table| table.read.is_none()) else { continue };
            if self.data_containing(table.target as u32).is_none() {
                continue;
            }
            self.table_jumps.push(placed.offset);
            if own.is_some() {
                self.fixed_tables.push(placed.offset);
            }
        }
    }

    /// Returns the literals whose value is only passed to other functions, in order.
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

    /// Finds the jumps to retpolines, which compilers emit for computed jumps, and the returns by which `asm` jumps to
    /// an address that it has put on the stack.
    pub(super) fn collect_computed_jumps(
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

/// Whether the value that the first instruction loads is only used as an argument of a call.
fn is_only_passed_on(isa: &dyn Rewritable, section: &kelf::Section<'_>, insns: &[PlacedInsn]) -> bool {
    let mut effects = Vec::new();
    let mut written = |placed: &PlacedInsn| {
        effects.clear();
        isa.effects(&placed.inst(isa, &section.data), &mut effects);
        effects.iter().fold(0, |set, effect| set | effect.registers_written())
    };
    let Some(load) = insns.first().filter(|load| !load.is_predicated() && !load.insn.conditional) else {
        return false;
    };
    let value = written(load);
    if !isa.convention().arguments.iter().take(4).any(|reg| value == 1 << reg.0) {
        return false;
    }
    for pair in insns.windows(2) {
        let next = &pair[1];
        if pair[0].end() != next.offset || next.is_conditional() {
            return false;
        }
        if isa.registers_read(&next.inst(isa, &section.data)) & value != 0 {
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

/// Whether the instructions before the last, a return, store its target on the stack. Compilers never do that: they pop
/// everything they have pushed before they return.
fn puts_return_address(isa: &dyn Rewritable, data: &[u8], insns: &[PlacedInsn]) -> bool {
    let stack = isa.convention().stack_pointer;
    let mut effects = Vec::new();
    for pair in insns.windows(2).rev() {
        if pair[0].insn.flow != Flow::Next || pair[0].end() != pair[1].offset {
            return false;
        }
        effects.clear();
        isa.effects(&pair[0].inst(isa, data), &mut effects);
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

//! Proves which bytes belong to the variable that a reference is to.

use std::ops::Range;

use goblin::elf::section_header::SHF_WRITE;
use kelf::RelocClass;

use super::dominators::dominates;
use super::escape;
use crate::graph::{Graph, Predecessors, Ref, Terminator};
use crate::index::NodeId;
use crate::lift::bounds;
use kisa::{Address, Effect, MemoryOperand, Reg, Value};

/// A proved fact about a reference, in offsets in bytes from the start of its target.
pub(in crate::lift) enum Claim {
    /// It accesses these bytes, which belong to one variable.
    Access(Range<i64>),
    /// It is a pointer in the sense of the source language, with this value.
    Pointer(i64),
    /// Nothing.
    Unknown,
}

impl Claim {
    /// Returns the same claim, relative to the start of the section, in which its target is at `offset`.
    pub fn at(self, offset: u32) -> Claim {
        let by = i64::from(offset);
        match self {
            Claim::Access(range) => {
                Claim::Access(range.start.saturating_add(by)..range.end.saturating_add(by))
            }
            Claim::Pointer(at) => Claim::Pointer(at.saturating_add(by)),
            Claim::Unknown => Claim::Unknown,
        }
    }
}

/// Proves claims over one graph.
pub(super) struct Prover<'g> {
    graph: &'g Graph,
    predecessors: Predecessors,
}

impl<'g> Prover<'g> {
    /// Finds the predecessors of all nodes of a graph.
    pub fn of(graph: &'g Graph) -> Prover<'g> {
        Prover { graph, predecessors: Predecessors::of(graph) }
    }

    /// Returns the proved fact about a reference of this node.
    pub fn claim(&self, node: NodeId, reference: &Ref) -> Claim {
        if self.graph.block(node).is_some() {
            return self.code(node, reference).unwrap_or(Claim::Unknown);
        }
        let data = self.graph.chunk(node).is_some_and(|chunk| !chunk.code);
        match reference.class {
            RelocClass::Absolute | RelocClass::Relative if data => Claim::Pointer(reference.addend),
            _ => Claim::Unknown,
        }
    }

    fn code(&self, node: NodeId, reference: &Ref) -> Option<Claim> {
        // The functions that call it determine what happens to an address there.
        if self.graph.is_outlined(node) {
            return None;
        }
        let word = self.graph.machine.word_size();
        let plain = match reference.class {
            RelocClass::Absolute => reference.width == 4,
            RelocClass::Relative => word == 8,
            _ => false,
        };
        if !plain {
            return None;
        }
        let instructions = self.graph.instructions(node)?;
        let number = instructions.partition_point(|insn| insn.offset <= reference.offset).checked_sub(1)?;
        let instruction = &instructions[number];
        let field = (reference.offset - instruction.offset) as u8;
        match self.graph.isa().memory_operand(&instruction.inst) {
            Some(operand) if operand.displacement_offset == Some(field) => {
                self.memory(node, number, reference, &operand)
            }
            _ => self.immediate(node, number, reference, &instruction.effects),
        }
    }

    fn is_writable(&self, reference: &Ref) -> bool {
        let section = self.graph.resolve_node(reference.target).map(|to| self.graph.section_of(to));
        section.is_none_or(|section| section.flags & u64::from(SHF_WRITE) != 0)
    }

    fn memory(&self, node: NodeId, number: usize, reference: &Ref, operand: &MemoryOperand) -> Option<Claim> {
        let start = reference.addend;
        let width = i64::from(operand.width);
        if width == 0 {
            return None;
        }
        if let Some(Terminator::Switch(table)) = self.graph.block(node).map(|block| &block.end)
            && self.graph.refs_of(node).last() == Some(reference)
        {
            let slots = self.graph.slots(*table);
            return Some(Claim::Access(start..start + slots.len() as i64 * i64::from(slots[0].width)));
        }
        if let Some((least, greatest)) = self.first_indices(node, number, &operand.address) {
            let (least, greatest) = (start.checked_add(least)?, start.checked_add(greatest)?);
            return Some(Claim::Access(start.min(least)..greatest.checked_add(width)?.max(start + 1)));
        }
        let (reg, scale) = match (operand.address.base, operand.address.index) {
            (Some(reg), None) => (reg, 1),
            (None, Some((reg, scale))) => (reg, i64::from(scale)),
            _ => return None,
        };
        let bound = bounds::upper_bound(self.graph, &self.predecessors, node, number, reg)?;
        let last = i64::try_from(bound).ok()?.checked_mul(scale)?.checked_add(start)?;
        Some(Claim::Access(start..last.checked_add(width)?))
    }

    /// Returns the least and the greatest value, in bytes, of base and index of an operand when its block first runs
    /// (the first iteration of a loop). The bytes accessed then belong to the same variable as the bytes accessed
    /// later. Predecessors that the block dominates (the back edges of a loop) run only later; for each of the others,
    /// the value must be known.
    fn first_indices(&self, node: NodeId, number: usize, address: &Address) -> Option<(i64, i64)> {
        let before = self.graph.effects(node)[..number].to_vec();
        if let Some(index) = known_index(&before, address) {
            return Some((index, index));
        }
        let mut found: Option<(i64, i64)> = None;
        for &previous in self.predecessors.all(node)? {
            if dominates(&self.predecessors, node, previous) {
                continue;
            }
            // The registers after a call, and after patched code, are unknown.
            let end = &self.graph.block(previous)?.end;
            if !matches!(end, Terminator::FallThrough(_) | Terminator::Jump(_) | Terminator::Branch { .. }) {
                return None;
            }
            let index = known_index(&[self.graph.effects(previous), before.clone()].concat(), address)?;
            found = Some(
                found.map_or((index, index), |(least, greatest)| (least.min(index), greatest.max(index))),
            );
        }
        found
    }

    /// Returns the claim for a field that is not the displacement of an operand: the instruction moves, stores or
    /// compares the address itself.
    fn immediate(&self, node: NodeId, number: usize, reference: &Ref, effects: &[Effect]) -> Option<Claim> {
        let is_symbol = |value: Value| matches!(value, Value::Symbol { .. });
        let mentions = |effect: &&Effect| effect.operands().any(is_symbol);
        // A comparison with a pointer in memory. (In a register, both may be loop-internal addresses outside of their
        // object.)
        if let [Effect::Compare { left: Value::Load { from, .. }, right, .. }] = effects[..]
            && is_symbol(right)
            && !self.is_writable(reference)
            && escape::leaves_frame(self.graph, node, &from, &[])
        {
            return Some(Claim::Pointer(reference.addend));
        }
        let mut users = effects.iter().filter(mentions);
        let (user, None) = (users.next()?, users.next()) else { return None };
        let word = self.graph.machine.word_size();
        let escapes = match *user {
            Effect::Set { dst, width, .. } | Effect::MaybeSet { dst, width, .. } if width >= 4 => {
                escape::accesses(self.graph, node, number, dst)?
            }
            Effect::Store { to, width, .. } if width == word => {
                escape::leaves_frame(self.graph, node, &to, effects).then(Vec::new)?
            }
            _ => return None,
        };
        // Accesses through the pointer without an index are to the variable.
        let start = reference.addend;
        match escapes.iter().map(|range| (range.start, range.end)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
        {
            Some((first, last)) => {
                // Include the byte at the pointer itself, which identifies the variable.
                Some(Claim::Access(start.checked_add(first.min(0))?..start.checked_add(last.max(1))?))
            }
            None => Some(Claim::Pointer(start)),
        }
    }
}

/// Returns the value in bytes of base and index of an address after these instructions, if both are constants.
fn known_index(effects: &[Vec<Effect>], address: &Address) -> Option<i64> {
    let base = address.base.map_or(Some(0), |reg| last_constant(effects, reg))?;
    let index = address
        .index
        .map_or(Some(0), |(reg, scale)| Some(last_constant(effects, reg)? * i64::from(scale)))?;
    Some(base + index)
}

/// Returns the value of a register after these instructions, if their last write to it is a 32-bit constant.
fn last_constant(effects: &[Vec<Effect>], reg: Reg) -> Option<i64> {
    let writes = |effect: &&Effect| {
        effect.registers_written() >> reg.0 & 1 != 0 || matches!(effect, Effect::SystemCall { .. })
    };
    match effects.iter().flatten().rev().find(writes)? {
        Effect::Set { value: Value::Const(value), width, .. } if *width >= 4 => {
            i32::try_from(*value).ok().map(i64::from)
        }
        _ => None,
    }
}

//! Addresses of code that instructions compute.
//!
//! A constant in the range of code may be a pointer to a function, and is treated as one. In position-independent i386
//! code, such a constant is a distance from the global offset table, whose address is in a register. The distance alone
//! is sufficient evidence, because it matters only if it leads to the first byte of an instruction.

pub(super) mod candidates;

use std::sync::{Arc, PoisonError};

use kisa::{Address, BinaryOp, Branch, BranchKind, Effect, Flow, MemoryOperand, Value};
use rustc_hash::FxHashMap;

use super::entry::Taken;
use super::reachable::Code;
use super::run::ExitKind;
use crate::image::{Addr, Extent, ObjectIndex};

/// Maximum number of instructions between reading the program counter and adding the distance to the global offset
/// table. Compilers put a `push` or two there.
const MAX_GAP: usize = 6;

/// Maximum number of instructions to check at a possible start of a function.
const MAX_BEGINNING: usize = 16;

/// Length of the x86-64 instruction that loads eight immediate bytes into a register. If fewer suffice, assemblers use
/// another instruction, unless the number is known only at link time.
const LONG_MOVE: u64 = 10;

impl Code<'_> {
    /// Returns the global offset table that position-independent i386 code at this place uses as a base.
    pub fn global_offset_table(&self, at: Addr) -> Option<Addr> {
        self.taken.bases[self.image.object_index(at)?.get()]
    }

    /// Returns the known global offset tables of all objects.
    pub fn global_offset_tables(&self) -> impl Iterator<Item = Addr> {
        self.taken.bases.iter().flatten().copied()
    }

    /// Returns instructions that load distances from the global offset table, as in position-independent x86-64 code of
    /// the large code model, one for each object. Sums with such distances are not supported.
    pub fn large_distances(&self) -> impl Iterator<Item = Addr> {
        self.taken.large.values().copied()
    }

    /// Records a distance of the large code model: an eight-byte number that four bytes could hold, and that is not an
    /// address.
    fn note_large_distance(&mut self, at: Addr, next: Addr, effects: &[Effect]) {
        let [Effect::Set { value: Value::Const(number), width: 8, .. }] = *effects else { return };
        let short = i32::try_from(number as i64).is_ok();
        if short && next.0.wrapping_sub(at.0) == LONG_MOVE && !self.image.is_fixed(Addr(number)) {
            if let Some(object) = self.image.object_index(at) {
                self.taken.large.entry(object).or_insert(at);
            }
        }
    }

    /// Adds the code addresses among the constants of one instruction.
    pub(super) fn note_addresses(
        &mut self,
        (at, next): (Addr, Addr),
        effects: &[Effect],
        operand: Option<MemoryOperand>,
    ) {
        self.note_large_distance(at, next, effects);
        for effect in effects {
            // Other effects compute no address, only compare it, or have a known branch target.
            let added = matches!(effect, Effect::Binary { op: BinaryOp::Add, .. });
            if !added
                && !matches!(
                    effect,
                    Effect::Set { .. }
                        | Effect::MaybeSet { .. }
                        | Effect::SetSigned { .. }
                        | Effect::Store { .. }
                )
            {
                continue;
            }
            for value in effect.operands() {
                match value {
                    // In a position-independent object, no constant is an address.
                    Value::Const(number) => {
                        let target = Addr(number);
                        let possible = self.image.is_code(target) && self.image.is_fixed(target);
                        if possible && self.is_instruction(target) {
                            self.take(target, Taken::Code(at));
                        }
                    }
                    // A call pushes its return address.
                    Value::Address(Address { base: None, index: None, displacement, .. }) => {
                        let target = Addr(self.image.wrap(displacement as u64));
                        if self.image.is_code(target) && target != next {
                            self.take(target, Taken::Code(at));
                        }
                    }
                    _ => {}
                }
                if let (true, Some(distance)) = (self.taken.relative, distance(value, added)) {
                    self.taken.distances.push((at, distance));
                }
            }
        }
        self.note_data(at, effects, operand);
        let base = if self.taken.relative { self.global_offset_table(at) } else { None };
        self.references.note(at, effects, base, operand);
    }

    /// Adds the code addresses among the distances from the global offset table, once its address is known.
    pub(super) fn take_relative_addresses(&mut self) {
        if !self.taken.relative || self.taken.distances.is_empty() {
            return;
        }
        let image = self.image;
        let of_unknown = |&(at, _): &(Addr, i64)| {
            image.object_index(at).is_some_and(|index| self.taken.bases[index.get()].is_none())
        };
        if self.taken.distances.iter().any(of_unknown) {
            self.find_global_offset_tables();
            let bases = &self.taken.bases;
            self.references.settle(|at| bases[image.object_index(at)?.get()]);
        }
        for (at, distance) in std::mem::take(&mut self.taken.distances) {
            let Some(base) = self.global_offset_table(at) else {
                self.taken.distances.push((at, distance));
                continue;
            };
            let target = Addr(self.image.wrap(base.0.wrapping_add_signed(distance)));
            // The distance to other objects is unknown.
            let is_own = self.image.object_index(target) == self.image.object_index(at);
            if is_own && self.image.is_code(target) && self.is_instruction(target) {
                self.take(target, Taken::Code(at));
            }
        }
    }

    /// Returns whether an instruction may start at this address: not if it is known to be in the middle of one.
    pub fn is_instruction(&self, target: Addr) -> bool {
        let machine = self.image.machine.target();
        if machine.has_encoding_bit {
            return self.may_be_arm_instruction(target);
        }
        // Aligned instructions do not overlap.
        if machine.code_alignment > 1 {
            return true;
        }
        let Some(Extent { start, end, .. }) = self.image.extent_around(target) else { return true };
        if start == target || self.length(target).is_some() {
            return true;
        }
        // A thread that panicked leaves no partial update.
        let mut swept = self.taken.swept.lock().unwrap_or_else(PoisonError::into_inner);
        let sweep = swept.entry(start).or_insert_with(|| self.sweep(start, end).into());
        let sweep = Arc::clone(sweep);
        drop(swept);
        // Undecodable bytes are data between instructions, and anything may follow them.
        sweep.last().is_none_or(|&last| target > last) || sweep.binary_search(&target).is_ok()
    }

    /// Returns whether an ARM instruction may be at this address. ARM code contains constants between instructions and
    /// cannot be decoded linearly from the beginning of a function, but its instructions do not overlap.
    fn may_be_arm_instruction(&self, target: Addr) -> bool {
        if self.length(target).is_some() {
            return true;
        }
        let before = |bytes: u64, least: u64| {
            let earlier = Addr(target.0.wrapping_sub(bytes));
            self.length(earlier).is_some_and(|length| length >= least)
        };
        let is_thumb = target.0 & 1 != 0;
        let overlaps = match is_thumb {
            true => before(2, 4) || before(1, 4) || before(3, 4),
            false => {
                before(1, 4) || self.length(target.plus(1)).is_some() || self.length(target.plus(3)).is_some()
            }
        };
        !overlaps && self.begins_sensibly(target)
    }

    /// Returns whether the bytes at an address of 32-bit ARM code may be a function's first instructions. A function
    /// does not begin with a test of unset flags or an access to coprocessors that no Linux system has, but numbers
    /// decoded as instructions soon do. Anything may follow a call or an instruction that enters the kernel, since
    /// these may not return.
    pub(super) fn begins_sensibly(&self, mut at: Addr) -> bool {
        let mut effects = Vec::new();
        let mut flags = false;
        for _ in 0..MAX_BEGINNING {
            let Some(insn) = self.decode(at) else { return false };
            effects.clear();
            self.effects(at, &mut effects);
            for effect in &effects {
                match effect {
                    Effect::OnlyIf(_) | Effect::BranchIf(_) if !flags => return false,
                    Effect::ClobberMemory if !insn.system_call => return false,
                    Effect::Compare { .. } | Effect::CompareZero { .. } | Effect::ClobberFlags => {
                        flags = true
                    }
                    _ => {}
                }
            }
            match insn.flow {
                Flow::Direct { target, .. } if !self.image.is_code(Addr(target)) => return false,
                Flow::Direct { branch: Branch { kind: BranchKind::Conditional, .. }, .. } | Flow::Next
                    if !insn.system_call => {}
                _ => return true,
            }
            at = at.plus(insn.len.into());
        }
        true
    }

    /// Returns the consecutive instructions between two addresses, as far as they can be decoded.
    pub(super) fn sweep(&self, start: Addr, end: Addr) -> Vec<Addr> {
        let mut instructions = Vec::new();
        let mut at = start;
        while at < end {
            instructions.push(at);
            match self.decode(at) {
                Some(insn) => at = at.plus(insn.len.into()),
                None => break,
            }
        }
        instructions
    }

    /// Finds the global offset tables of objects that do not specify them: the address that most functions compute from
    /// their program counter.
    fn find_global_offset_tables(&mut self) {
        let mut votes: FxHashMap<(ObjectIndex, Addr), usize> = FxHashMap::default();
        for (_, exit) in self.exits() {
            let ExitKind::Call(callee) = exit.kind else { continue };
            if exit.successors.is_empty() || !self.reads_program_counter(callee) {
                continue;
            }
            let (Some(distance), Some(object)) =
                (self.first_distance(exit.next), self.image.object_index(exit.at))
            else {
                continue;
            };
            let base = self.image.wrap(exit.next.0.wrapping_add_signed(distance));
            *votes.entry((object, Addr(base))).or_default() += 1;
        }
        let mut votes: Vec<(usize, ObjectIndex, Addr)> =
            votes.into_iter().map(|((object, base), count)| (count, object, base)).collect();
        votes.sort_unstable();
        for (_, object, base) in votes.into_iter().rev() {
            self.taken.bases[object.get()].get_or_insert(base);
        }
    }

    /// Returns whether a function is `mov (%esp),%ebx; ret` or similar.
    fn reads_program_counter(&self, function: Addr) -> bool {
        let effects = self.effects_at(function);
        let reads = matches!(
            effects[..],
            [Effect::Set { value: Value::Load { from, .. }, .. }]
                if from.index.is_none() && from.displacement == 0 && from.base.is_some()
        );
        let next = self.length(function).map(|length| function.plus(length));
        let exit = next.and_then(|next| self.exit_at(next));
        reads && exit.is_some_and(|exit| self.exit(exit).kind == ExitKind::Return)
    }

    /// Returns the first constant that is added to a register from here on.
    fn first_distance(&self, from: Addr) -> Option<i64> {
        self.instructions_from(from).take(MAX_GAP).find_map(|at| match self.effects_at(at)[..] {
            [Effect::Binary { op: BinaryOp::Add, right: Value::Const(constant), .. }, ..] => {
                Some(i64::from(constant as u32 as i32))
            }
            _ => None,
        })
    }
}

/// Returns the distance that an operand may add to the global offset table.
fn distance(value: Value, added: bool) -> Option<i64> {
    match value {
        Value::Address(Address { base: Some(_), index: None, displacement, .. }) => Some(displacement),
        Value::Const(number) if added => Some(i64::from(number as u32 as i32)),
        _ => None,
    }
}

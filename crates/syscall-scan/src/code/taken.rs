//! Addresses of code that instructions compute.
//!
//! A constant that lies in code may be a pointer to a function, and is taken for one. In
//! position-independent code for i386, such a constant is a distance from the global offset table, whose
//! address a register holds; the distance alone is evidence enough, since it matters only if it leads to
//! the first byte of an instruction.

use std::sync::{Arc, Mutex, PoisonError};

use kcfg::isa::{Address, BinaryOp, Effect, Value};
use kelf::Machine;
use rustc_hash::FxHashMap;

use super::{Code, ExitKind, Taken};
use crate::image::{Addr, Extent, Image};

/// How many instructions may stand between reading the program counter and adding the distance to the
/// global offset table. Compilers put a `push` or two there.
const MAX_GAP: usize = 6;

/// Constants that may turn out to be addresses of code.
pub(super) struct Candidates {
    /// Whether constants may be addresses at all, which in a program that is loaded anywhere they are not.
    absolute: bool,
    /// Whether addresses may be distances from the global offset table.
    relative: bool,
    /// Distances, with the instructions that add them.
    distances: Vec<(Addr, i64)>,
    /// Where the global offset table is.
    base: Option<Addr>,
    /// The instructions of functions that somebody asked about, by the function's first address.
    swept: Mutex<FxHashMap<Addr, Arc<[Addr]>>>,
}

impl Candidates {
    pub(super) fn new(image: &Image) -> Candidates {
        Candidates {
            absolute: !image.relocatable,
            relative: image.machine == Machine::I386,
            distances: Vec::new(),
            base: None,
            swept: Mutex::default(),
        }
    }
}

impl Code<'_> {
    /// Where the global offset table is that position-independent code of i386 counts from.
    pub fn global_offset_table(&self) -> Option<Addr> {
        self.taken.base
    }

    /// Takes the addresses of code among the constants of one instruction.
    pub(super) fn note_addresses(&mut self, at: Addr, next: Addr, effects: &[Effect]) {
        for effect in effects {
            let (first, second) = match *effect {
                Effect::Set { value, .. }
                | Effect::MaybeSet { value, .. }
                | Effect::SetSigned { value, .. }
                | Effect::Store { value, .. } => (value, Value::Unknown),
                Effect::Binary { op: BinaryOp::Add, left, right, .. } => (left, right),
                _ => continue,
            };
            for value in [first, second] {
                match value {
                    Value::Const(number) if self.taken.absolute => {
                        let target = Addr(number);
                        if self.image.is_code(target) && self.is_instruction(target) {
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
                let added = matches!(effect, Effect::Binary { .. });
                if let (true, Some(distance)) = (self.taken.relative, distance(value, added)) {
                    self.taken.distances.push((at, distance));
                }
            }
        }
        let (image, isa) = (self.image, self.isa);
        let base = self.taken.base;
        self.references.note(at, effects, base, || {
            isa.memory_operand(image.code_bytes(at), at.0).map(|operand| operand.address)
        });
    }

    /// Takes the addresses of code among the distances from the global offset table, once it is known
    /// where that is.
    pub(super) fn take_relative_addresses(&mut self) {
        if !self.taken.relative || self.taken.distances.is_empty() {
            return;
        }
        if self.taken.base.is_none() {
            self.taken.base = self.find_global_offset_table();
        }
        let Some(base) = self.taken.base else { return };
        for (at, distance) in std::mem::take(&mut self.taken.distances) {
            let target = Addr(self.image.wrap(base.0.wrapping_add_signed(distance)));
            if self.image.is_code(target) && self.is_instruction(target) {
                self.take(target, Taken::Code(at));
            }
        }
    }

    /// Whether an instruction may start at this address: not if it is known to be in the middle of one.
    pub fn is_instruction(&self, target: Addr) -> bool {
        let Some(Extent { start, end, .. }) = self.image.extents.around(target) else { return true };
        if start == target || self.length(target).is_some() {
            return true;
        }
        // A thread that panicked has left nothing half done.
        let mut swept = self.taken.swept.lock().unwrap_or_else(PoisonError::into_inner);
        let sweep = swept.entry(start).or_insert_with(|| self.sweep(start, end).into());
        let sweep = Arc::clone(sweep);
        drop(swept);
        // What cannot be decoded is data between instructions, and anything may follow it.
        sweep.last().is_none_or(|&last| target > last) || sweep.binary_search(&target).is_ok()
    }

    /// The instructions between two addresses, one after the other as far as they can be decoded.
    fn sweep(&self, start: Addr, end: Addr) -> Vec<Addr> {
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

    /// The address that most functions compute from their program counter.
    fn find_global_offset_table(&self) -> Option<Addr> {
        let mut votes: FxHashMap<Addr, usize> = FxHashMap::default();
        for (_, exit) in self.exits() {
            let ExitKind::Call(callee) = exit.kind else { continue };
            if exit.successors.is_empty() || !self.reads_program_counter(callee) {
                continue;
            }
            if let Some(distance) = self.first_distance(exit.next) {
                let base = self.image.wrap(exit.next.0.wrapping_add_signed(distance));
                *votes.entry(Addr(base)).or_default() += 1;
            }
        }
        votes.into_iter().max_by_key(|&(base, count)| (count, base)).map(|(base, _)| base)
    }

    /// Whether a function is `mov (%esp),%ebx; ret` or the like.
    fn reads_program_counter(&self, function: Addr) -> bool {
        let mut effects = Vec::new();
        self.effects(function, &mut effects);
        let reads = matches!(
            effects[..],
            [Effect::Set { value: Value::Load { from, .. }, .. }]
                if from.index.is_none() && from.displacement == 0 && from.base.is_some()
        );
        let next = self.length(function).map(|length| function.plus(length));
        let exit = next.and_then(|next| self.exit_at(next));
        reads && exit.is_some_and(|exit| self.exit(exit).kind == ExitKind::Return)
    }

    /// The first constant that is added to a register from here on.
    fn first_distance(&self, from: Addr) -> Option<i64> {
        let mut at = from;
        let mut effects = Vec::new();
        for _ in 0..MAX_GAP {
            let length = self.length(at)?;
            effects.clear();
            self.effects(at, &mut effects);
            if let [Effect::Binary { op: BinaryOp::Add, right: Value::Const(constant), .. }, ..] = effects[..]
            {
                return Some(i64::from(constant as u32 as i32));
            }
            at = at.plus(length);
        }
        None
    }
}

/// The distance that an operand may add to the global offset table.
fn distance(value: Value, added: bool) -> Option<i64> {
    match value {
        Value::Address(Address { base: Some(_), index: None, displacement, .. }) => Some(displacement),
        Value::Const(number) if added => Some(i64::from(number as u32 as i32)),
        _ => None,
    }
}

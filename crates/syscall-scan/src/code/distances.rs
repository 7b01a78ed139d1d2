//! Tables of distances to functions.
//!
//! To avoid relocations of a table of pointers, compilers can store the distance of each function from the table:
//! relative virtual tables of Clang, Swift's tables, hand-written tables. Code reads a distance, adds its base address,
//! and calls the sum. Once an object does that ([`Sums`]), all words after the addresses of constants that it loads are
//! examined. A word that leads to the beginning of a function is treated as a pointer to that function; its base is the
//! beginning of the table, the word itself, or on i386 the global offset table. Entries have 32 bits.

use std::collections::BTreeSet;

use kelf::Machine;
use kisa::{Address, BinaryOp, Effect, Reg, Value};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Code, ExitId, ExitKind, Taken};
use crate::abi::Convention;
use crate::image::{Addr, Loaded, ObjectIndex};

/// Size of an entry in bytes.
const ENTRY: u8 = 4;

/// Maximum size of a table in bytes.
const MAX_TABLE: u64 = 0x1_0000;

/// The registers that hold distances, or sums of a distance and another value, which may be a constant.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sums {
    /// Registers, as bits, that hold a sign-extended 32-bit number.
    extended: u64,
    /// A register that holds a word, and the register that was its address. 32-bit machines do not extend a distance,
    /// and add it to the address that it was read from.
    read: Option<(Reg, Reg)>,
    /// Registers, as bits, that hold sums.
    sums: u64,
    /// The place of the last stored sum, as a register and a displacement.
    stored: Option<(Reg, i64)>,
}

impl Sums {
    pub(super) fn is_empty(self) -> bool {
        self.extended | self.sums == 0 && self.read.is_none() && self.stored.is_none()
    }

    fn has(self, register: Reg) -> bool {
        self.sums >> register.0 & 1 != 0
    }

    fn is_extended(self, register: Reg) -> bool {
        self.extended >> register.0 & 1 != 0
    }

    /// Returns whether two registers are a distance and its base.
    fn is_sum(self, a: Reg, b: Reg) -> bool {
        self.is_extended(a) || self.is_extended(b) || self.read == Some((a, b)) || self.read == Some((b, a))
    }

    /// Forgets registers, as bits.
    fn forget(&mut self, registers: u64) {
        self.extended &= !registers;
        self.sums &= !registers;
        self.read = self.read.filter(|(a, b)| (registers >> a.0 | registers >> b.0) & 1 == 0);
        self.stored = self.stored.filter(|(base, _)| registers >> base.0 & 1 == 0);
    }

    /// Applies an instruction. Words have `word` bytes.
    pub(super) fn follow(&mut self, effects: &[Effect], word: u8) {
        for effect in effects {
            let written = effect.registers_written();
            let before = *self;
            self.forget(written);
            let is_sum = match *effect {
                Effect::Binary { op: BinaryOp::Add, left: Value::Reg { reg, .. }, right, .. } => {
                    match right {
                        Value::Reg { reg: other, .. } => before.is_sum(reg, other),
                        Value::Load { from: Address { base: Some(base), segment: None, .. }, .. } => {
                            word == ENTRY && reg == base
                        }
                        Value::Const(_) => before.has(reg) || before.is_extended(reg),
                        _ => false,
                    }
                }
                Effect::Set { value: Value::Address(Address { base: Some(base), index, .. }), .. } => {
                    match index {
                        Some((index, _)) => before.is_sum(base, index),
                        None => before.has(base) || before.is_extended(base),
                    }
                }
                Effect::Set { value: Value::Reg { reg, .. }, .. } => before.has(reg),
                Effect::Set { value: Value::Load { from, .. }, .. } => {
                    before.stored.is_some() && before.stored == place(&from)
                }
                _ => false,
            };
            match *effect {
                _ if is_sum => self.sums |= written,
                Effect::SetSigned { dst, .. } if word > ENTRY => self.extended |= 1 << dst.0,
                Effect::Set {
                    dst,
                    value: Value::Load { from: Address { base: Some(base), segment: None, .. }, width: ENTRY },
                    ..
                } if word == ENTRY && dst != base => self.read = Some((dst, base)),
                Effect::Store { to, value: Value::Reg { reg, .. }, .. } if before.has(reg) => {
                    self.stored = place(&to);
                }
                _ => {}
            }
        }
    }
}

/// Returns the register and displacement of a place in memory.
fn place(address: &Address) -> Option<(Reg, i64)> {
    match *address {
        Address { base: Some(base), index: None, displacement, segment: None, .. } => {
            Some((base, displacement))
        }
        _ => None,
    }
}

/// The tables of distances found so far.
#[derive(Default)]
pub(super) struct Distances {
    /// The registers that hold sums at each exit, by exit.
    sums: FxHashMap<ExitId, Sums>,
    /// The computed jumps to sums.
    jumps: FxHashSet<ExitId>,
    /// The objects that call sums.
    callers: BTreeSet<ObjectIndex>,
    /// The addresses of constants that code loads.
    bases: BTreeSet<Addr>,
    /// The bases that have been searched for tables.
    looked_at: FxHashSet<Addr>,
    /// Table entries and their functions.
    taken: FxHashSet<(Addr, Addr)>,
}

impl Code<'_> {
    /// Returns the registers that hold sums after an exit.
    pub(super) fn sums_behind(&self, exit: Option<ExitId>) -> Sums {
        exit.and_then(|exit| self.distances.sums.get(&exit)).copied().unwrap_or_default()
    }

    /// Records the sums in registers when control leaves a run through an instruction with these effects.
    pub(super) fn leave_with_sums(&mut self, exit: ExitId, effects: &[Effect], mut sums: Sums) {
        if sums.is_empty() {
            return;
        }
        let through = effects.iter().any(|effect| match *effect {
            Effect::Transfer(Value::Reg { reg, .. }) => sums.has(reg),
            Effect::Transfer(Value::Load { from, .. }) => {
                sums.stored.is_some() && sums.stored == place(&from)
            }
            _ => false,
        });
        match self.exit(exit).kind {
            ExitKind::IndirectCall if through => self.note_call_of_sum(exit),
            ExitKind::IndirectJump if through => drop(self.distances.jumps.insert(exit)),
            _ => {}
        }
        if matches!(self.exit(exit).kind, ExitKind::Call(_) | ExitKind::IndirectCall) {
            let scratch = Convention::of(self.image.machine).scratch;
            sums.forget(scratch.iter().fold(0, |bits, register| bits | 1 << register.0));
        }
        if !sums.is_empty() {
            self.distances.sums.insert(exit, sums);
        }
    }

    fn note_call_of_sum(&mut self, exit: ExitId) {
        self.distances.callers.extend(self.image.object_index(self.exit(exit).at));
    }

    /// Records the address of a constant that code loads.
    pub(super) fn note_base(&mut self, address: Addr) {
        if self.image.constant(address, ENTRY).is_some() && !self.image.is_code(address) {
            self.distances.bases.insert(address);
        }
    }

    /// Adds the functions that tables of distances lead to. A computed jump that leaves its function is a call, except
    /// on 32-bit machines, where hand-written code jumps in this way within functions. Returns whether any function is
    /// new.
    pub(crate) fn take_distances(&mut self, leaving: impl Iterator<Item = ExitId>) -> bool {
        for jump in leaving {
            if self.image.machine.is_64() && self.distances.jumps.contains(&jump) {
                self.note_call_of_sum(jump);
            }
        }
        let before = self.work.len();
        let image = self.image;
        for index in self.distances.callers.clone() {
            let loaded = &image.objects[index.get()];
            let pointed_to = loaded.data_pointers.iter().map(|&(_, target)| target);
            let bases = self.distances.bases.iter().copied().chain(pointed_to);
            let own = |&base: &Addr| image.object_index(base) == Some(index);
            let known = &mut self.distances.looked_at;
            let new: BTreeSet<Addr> = bases.filter(own).filter(|&base| known.insert(base)).collect();
            for base in new {
                self.take_table(loaded, base);
            }
        }
        self.work.len() > before
    }

    /// Adds the functions that the words after an address lead to.
    fn take_table(&mut self, loaded: &Loaded, base: Addr) {
        let image = self.image;
        let end = image.variable(base).end.min(base.0.saturating_add(MAX_TABLE));
        let got = loaded.global_offset_table().filter(|_| image.machine == Machine::I386);
        // Without known beginnings of functions, the first word that leads to no code ends the table.
        let mut is_unbroken = loaded.object.extents.iter().next().is_none();
        let entries = image.bytes_in(&(base.0..end)).chunks_exact(ENTRY.into());
        // The unwind table leads to all functions.
        let is_unwinding = |word: Addr| loaded.object.extents.is_in_table(loaded.own(word));
        for (word, entry) in (base.0..).step_by(ENTRY.into()).map(Addr).zip(entries) {
            let distance = entry.try_into().map_or(0, i32::from_le_bytes) as u64;
            let target = |from: Addr| Addr(image.wrap(from.0.wrapping_add(distance)));
            is_unbroken &= image.is_code(target(base));
            for from in [Some(base), Some(word), got].into_iter().flatten() {
                let target = target(from);
                if distance == 0 || !image.is_code(target) {
                    continue;
                }
                let is_entry = image.constant(word, ENTRY).is_some() && !is_unwinding(word);
                let is_own = image.object_at(target).is_some_and(|own| own.base == loaded.base);
                let begins = image.is_function(target)
                    || loaded.is_linkage(target)
                    || image.extent_around(target).is_some_and(|extent| extent.start == target)
                    || is_unbroken && from == base && self.is_instruction(target);
                if is_entry && is_own && begins && self.distances.taken.insert((word, target)) {
                    self.take(target, Taken::Data(word));
                }
            }
        }
    }
}

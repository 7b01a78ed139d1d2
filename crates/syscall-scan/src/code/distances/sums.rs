//! Registers that hold distances and sums, and the tables that they come from.

use std::collections::BTreeSet;

use kisa::{Address, BinaryOp, Effect, Reg, Value};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::code::run::ExitId;
use crate::image::{Addr, ObjectIndex};

/// Size of an entry in bytes.
pub(super) const ENTRY: u8 = 4;

/// The registers that hold distances, or sums of a distance and another value, which may be a constant.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::code) struct Sums {
    /// Registers, as bits, that hold a sign-extended 32-bit number.
    extended: u64,
    /// A register that holds a word, and the register that was its address. 32-bit machines do not extend a distance,
    /// and add it to the address that it was read from.
    read: Option<(Reg, Reg)>,
    /// Registers, as bits, that hold sums.
    sums: u64,
    /// The place of the last stored sum, as a register and a displacement.
    pub(super) stored: Option<(Reg, i64)>,
}

impl Sums {
    pub(in crate::code) fn is_empty(self) -> bool {
        self.extended | self.sums == 0 && self.read.is_none() && self.stored.is_none()
    }

    pub(super) fn has(self, register: Reg) -> bool {
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
    pub(super) fn forget(&mut self, registers: u64) {
        self.extended &= !registers;
        self.sums &= !registers;
        self.read = self.read.filter(|(a, b)| (registers >> a.0 | registers >> b.0) & 1 == 0);
        self.stored = self.stored.filter(|(base, _)| registers >> base.0 & 1 == 0);
    }

    /// Applies an instruction. Words have `word` bytes.
    pub(in crate::code) fn follow(&mut self, effects: &[Effect], word: u8) {
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
pub(super) fn place(address: &Address) -> Option<(Reg, i64)> {
    match *address {
        Address { base: Some(base), index: None, displacement, segment: None, .. } => {
            Some((base, displacement))
        }
        _ => None,
    }
}

/// The tables of distances found so far.
#[derive(Default)]
pub(in crate::code) struct Distances {
    /// The registers that hold sums at each exit, by exit.
    pub(super) sums: FxHashMap<ExitId, Sums>,
    /// The computed jumps to sums.
    pub(super) jumps: FxHashSet<ExitId>,
    /// The objects that call sums.
    pub(super) callers: BTreeSet<ObjectIndex>,
    /// The addresses of constants that code loads.
    pub(super) bases: BTreeSet<Addr>,
    /// The bases that have been searched for tables.
    pub(super) looked_at: FxHashSet<Addr>,
    /// Table entries and their functions.
    pub(super) taken: FxHashSet<(Addr, Addr)>,
}

//! The uses of a data address that an instruction loads, within its function.
//!
//! The walk tracks the register from the instruction on, with its copies and with constants that are added. If code
//! only reads or writes a few bytes at fixed distances, or compares the address with others, no other part of the
//! variable is reachable through it. If the address is stored, or passed to a callee or to the kernel, the whole
//! variable is reachable.
//!
//! Compilers also load addresses outside of the variable that they are for: the `- 'a'` of `table[letter - 'a']`
//! becomes part of the address. Such an address is only ever used with an index.

use kisa::{Address, BinaryOp, Effect, Memory, Reg, Value};
use rustc_hash::{FxHashMap, FxHashSet};

use super::instructions::Reader;
use super::reachable::Code;
use super::run::{ExitId, ExitKind};
use crate::image::{Addr, landing_pads};

/// Number of tracked registers.
const REGISTERS: usize = 16;

/// Maximum number of instructions to examine; beyond it, every use is assumed.
const MAX_STEPS: usize = 20_000;

/// The uses of an address.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Uses {
    /// Reads and writes at fixed distances: the distance and the size, in bytes.
    pub(super) accesses: FxHashSet<(i64, u8)>,
    /// Whether it is passed to untracked places.
    pub(super) escapes: bool,
    /// Whether an unknown is added to it and the result is used.
    pub(super) indexed: bool,
    /// Whether a value is subtracted from it, so that it may be the end of a variable.
    pub(super) descends: bool,
    /// The branches to it, if it is a code address.
    pub(super) transfers: FxHashSet<Addr>,
}

/// The relation of a register's content to the tracked address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Derivation {
    /// Unrelated.
    Other,
    /// Possibly the address plus this distance.
    At(i64),
    /// Possibly a value that was computed from the address.
    Computed,
}

impl Derivation {
    fn join(self, other: Derivation) -> Derivation {
        match (self, other) {
            (Derivation::Other, content) | (content, Derivation::Other) => content,
            (a, b) if a == b => a,
            _ => Derivation::Computed,
        }
    }

    fn is_other(self) -> bool {
        self == Derivation::Other
    }

    /// Returns the derivation after a computation.
    fn computed(self) -> Derivation {
        if self.is_other() { Derivation::Other } else { Derivation::Computed }
    }
}

type Registers = [Derivation; REGISTERS];

impl Code<'_> {
    /// Returns the uses of the address that the instruction at `at` loads into a register.
    pub(super) fn uses(&self, at: Addr, register: Reg) -> Uses {
        let mut walk = UseWalk {
            code: self,
            reader: self.reader(at),
            pads: self.image.extent_around(at).map(|e| landing_pads(self.image, e)).unwrap_or_default(),
            uses: Uses::default(),
            at,
            branches_through: None,
            spilled: FxHashMap::default(),
            seen: FxHashMap::default(),
            work: Vec::new(),
            effects: Vec::new(),
        };
        let mut registers = [Derivation::Other; REGISTERS];
        if let Some(content) = registers.get_mut(usize::from(register.0)) {
            *content = Derivation::At(0);
        }
        match self.length(at) {
            Some(length) => walk.all(at.plus(length), registers),
            None => walk.give_up(),
        }
        walk.uses
    }
}

/// A walk that tracks an address through a function.
struct UseWalk<'w, 'c> {
    code: &'w Code<'c>,
    reader: Reader<'c>,
    /// The landing pads at which the unwinder may enter the function, from any call.
    pads: Vec<Addr>,
    uses: Uses,
    /// The instruction.
    at: Addr,
    /// The register that it branches through.
    branches_through: Option<Reg>,
    /// Stack slots that the address was stored to, for any value of the stack pointer.
    spilled: FxHashMap<(Reg, i64), Derivation>,
    /// The possible contents of the registers before each block.
    seen: FxHashMap<Addr, Registers>,
    work: Vec<Addr>,
    /// A buffer for the effects of one instruction.
    effects: Vec<Effect>,
}

impl UseWalk<'_, '_> {
    fn all(&mut self, from: Addr, registers: Registers) {
        let mut steps = 0;
        loop {
            let spilled = self.spilled.clone();
            self.go(from, &registers);
            while let Some(start) = self.work.pop() {
                let mut registers = self.seen[&start];
                let mut at = start;
                while let Some(next) = self.instruction(at, &mut registers) {
                    steps += 1;
                    if steps > MAX_STEPS {
                        return self.give_up();
                    }
                    if registers.iter().all(|content| content.is_other()) && self.spilled.is_empty() {
                        break;
                    }
                    at = next;
                }
            }
            if self.spilled == spilled {
                return;
            }
            // A later spill may be read earlier.
            self.seen.clear();
        }
    }

    fn give_up(&mut self) {
        self.uses.escapes = true;
        self.uses.indexed = true;
        self.uses.descends = true;
        self.work.clear();
    }

    /// Continues at `to`.
    fn go(&mut self, to: Addr, registers: &Registers) {
        let mut joined = self.seen.get(&to).copied();
        let new = match &mut joined {
            Some(joined) => {
                let before = *joined;
                joined.iter_mut().zip(registers).for_each(|(mine, theirs)| *mine = mine.join(*theirs));
                before != *joined
            }
            None => {
                joined = Some(*registers);
                true
            }
        };
        if let (true, Some(joined)) = (new, joined) {
            self.seen.insert(to, joined);
            self.work.push(to);
        }
    }

    /// Applies an instruction. Returns the address of the next, if control falls through.
    fn instruction(&mut self, at: Addr, registers: &mut Registers) -> Option<Addr> {
        let code = self.code;
        let length = code.length(at)?;
        let mut effects = std::mem::take(&mut self.effects);
        effects.clear();
        let inst = code.explain(&mut self.reader, at, &mut effects);
        let operand = inst.and_then(|inst| code.isa.memory_operand(&inst));
        self.at = at;
        self.branches_through = None;
        let mut named = false;
        for effect in &effects {
            self.effect(effect, registers);
            let written = matches!(effect.memory_written(), Some(Memory::At(..) | Memory::From(_)));
            named |= written || effect.memory_read().next().is_some();
        }
        if let (false, Some(operand)) = (named, operand) {
            self.access(&operand.address, operand.width, registers);
        }
        self.effects = effects;
        let Some(exit) = code.exit_at(at) else { return Some(at.plus(length)) };
        self.leave(exit, registers);
        None
    }

    fn leave(&mut self, exit: ExitId, registers: &Registers) {
        let code = self.code;
        let exit = code.exit(exit);
        match exit.kind {
            ExitKind::Call(_) | ExitKind::IndirectCall => {
                self.pass_on(registers);
                for pad in self.pads.clone() {
                    self.go(pad, registers);
                }
            }
            ExitKind::Return => self.pass_on(registers),
            ExitKind::IndirectJump if exit.successors.is_empty() => {
                let through = self.branches_through.map(|register| usize::from(register.0));
                let mut others = registers.iter().enumerate().filter(|&(number, _)| Some(number) != through);
                if others.any(|(_, content)| !content.is_other()) {
                    self.give_up();
                }
            }
            ExitKind::IndirectJump | ExitKind::Jump | ExitKind::Stop => {}
        }
        for &next in &exit.successors {
            if code.entry(next).is_some() {
                self.pass_on(registers); // a tail call
            }
            self.go(next, registers);
        }
    }

    /// Passes the possible argument and result registers to another function.
    fn pass_on(&mut self, registers: &Registers) {
        let through = self.branches_through;
        for register in self.code.isa.convention().clobbered().filter(|&register| Some(register) != through) {
            self.escape(self.content(register, registers));
        }
    }

    fn escape(&mut self, content: Derivation) {
        self.uses.escapes |= matches!(content, Derivation::At(_));
        self.uses.indexed |= content == Derivation::Computed;
    }

    fn content(&self, register: Reg, registers: &Registers) -> Derivation {
        registers.get(usize::from(register.0)).copied().unwrap_or(Derivation::Other)
    }

    /// Applies an effect.
    fn effect(&mut self, effect: &Effect, registers: &mut Registers) {
        let set = |registers: &mut Registers, register: Reg, content: Derivation| {
            if let Some(register) = registers.get_mut(usize::from(register.0)) {
                *register = content;
            }
        };
        match *effect {
            Effect::Set { dst, value, width } => {
                let content = self.value(value, registers);
                let content = if self.is_whole(width) { content } else { content.computed() };
                let content = if width < 4 { content.join(self.content(dst, registers)) } else { content };
                set(registers, dst, content);
            }
            Effect::MaybeSet { dst, value, .. } => {
                let content = self.value(value, registers).join(self.content(dst, registers));
                set(registers, dst, content);
            }
            Effect::SetSigned { dst, value, .. } => {
                let content = self.value(value, registers).computed();
                set(registers, dst, content);
            }
            Effect::Binary { op, dst, left, right, .. } => {
                let (a, b) = (self.value(left, registers), self.value(right, registers));
                set(registers, dst, self.binary(op, (left, a), (right, b)));
            }
            Effect::Store { to, value, width } => {
                let content = self.value(value, registers);
                self.access(&to, width, registers);
                self.escape(content);
                if let (Value::Unknown, Address { base: Some(base), index: None, displacement, .. }) =
                    (value, to)
                {
                    // The address may be incremented or decremented in memory.
                    if let Some(slot) = self.spilled.get_mut(&(base, displacement)) {
                        *slot = Derivation::Computed;
                        self.uses.descends = true;
                    }
                }
                if !content.is_other() {
                    if let Address { base: Some(base), index: None, displacement, .. } = to {
                        let slot = self.spilled.entry((base, displacement)).or_insert(content);
                        *slot = slot.join(content);
                    }
                }
            }
            Effect::ClobberRange(to) => {
                self.access(&to, 0, registers);
                if let Some(base) = to.base {
                    self.escape(self.content(base, registers));
                }
            }
            Effect::Clobber(register) => {
                set(registers, register, Derivation::Other);
            }
            // A loaded value belongs to the code that stored it.
            Effect::Escape(value) => {
                let content = self.value(value, registers);
                if let Value::Reg { .. } = value {
                    self.escape(content);
                }
            }
            Effect::Swap(a, b) => {
                let (left, right) = (self.content(a, registers), self.content(b, registers));
                set(registers, a, right);
                set(registers, b, left);
            }
            Effect::Transfer(target) => {
                let content = self.value(target, registers);
                if content == Derivation::At(0) {
                    self.uses.transfers.insert(self.at);
                } else {
                    self.escape(content);
                }
                if let Value::Reg { reg, .. } = target {
                    self.branches_through = Some(reg);
                }
            }
            Effect::SystemCall { .. } => {
                registers.iter().for_each(|&content| self.escape(content));
            }
            Effect::Compare { .. } | Effect::CompareZero { .. } | Effect::BranchIfCompared { .. } => {
                for value in effect.operands() {
                    self.value(value, registers);
                }
            }
            Effect::ClobberFlags | Effect::ClobberMemory | Effect::BranchIf(_) | Effect::OnlyIf(_) => {}
        }
    }

    fn is_whole(&self, width: u8) -> bool {
        width == self.code.image.machine.word_size()
    }

    /// Returns the derivation of an operand. Reads count as accesses.
    fn value(&mut self, value: Value, registers: &Registers) -> Derivation {
        match value {
            Value::Const(_) | Value::Symbol { .. } | Value::Unknown => Derivation::Other,
            Value::Reg { reg, width } => {
                let content = self.content(reg, registers);
                if self.is_whole(width) { content } else { content.computed() }
            }
            Value::Load { from, width } => {
                self.access(&from, width, registers);
                match from {
                    Address { base: Some(base), index: None, displacement, .. } => {
                        self.spilled.get(&(base, displacement)).copied().unwrap_or(Derivation::Other)
                    }
                    _ => Derivation::Other,
                }
            }
            Value::Address(address) => {
                let base = address.base.map_or(Derivation::Other, |base| self.content(base, registers));
                let index =
                    address.index.map_or(Derivation::Other, |(index, _)| self.content(index, registers));
                match (base, address.index) {
                    (Derivation::At(distance), None) => {
                        self.uses.descends |= address.displacement < 0;
                        Derivation::At(distance.wrapping_add(address.displacement))
                    }
                    _ => {
                        self.uses.descends |= address.displacement < 0 && !base.is_other();
                        base.join(index).computed()
                    }
                }
            }
        }
    }

    fn binary(&mut self, op: BinaryOp, left: (Value, Derivation), right: (Value, Derivation)) -> Derivation {
        let number = |value: Value| match value {
            Value::Const(number) if self.code.image.machine.is_64() => Some(number as i64),
            Value::Const(number) => Some(i64::from(number as u32 as i32)),
            _ => None,
        };
        let added = match op {
            BinaryOp::Add => number(right.0),
            BinaryOp::Sub => number(right.0).map(i64::wrapping_neg),
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor | BinaryOp::Shl | BinaryOp::Shr => None,
        };
        self.uses.descends |= !left.1.is_other() && added.is_some_and(|added| added < 0);
        if let (Derivation::At(distance), Derivation::Other, Some(added)) = (left.1, right.1, added) {
            return Derivation::At(distance.wrapping_add(added));
        }
        match (op, left, right) {
            // The distance of another value from the address is a number, and leads there only together with the
            // address.
            (BinaryOp::Sub, (Value::Reg { .. } | Value::Load { .. }, Derivation::Other), _) => {
                Derivation::Other
            }
            (_, (_, a), (_, b)) => a.join(b).computed(),
        }
    }

    /// Records an access of `width` bytes at an address.
    fn access(&mut self, address: &Address, width: u8, registers: &Registers) {
        let base = address.base.map_or(Derivation::Other, |base| self.content(base, registers));
        let index = address.index.map_or(Derivation::Other, |(index, _)| self.content(index, registers));
        match (base, address.index) {
            (Derivation::At(distance), None) => {
                let distance = distance.wrapping_add(address.displacement);
                self.uses.descends |= distance < 0;
                self.uses.accesses.insert((distance, width));
            }
            _ => {
                self.uses.indexed |= !base.join(index).is_other();
                self.uses.descends |= !base.is_other() && address.displacement < 0;
            }
        }
    }
}

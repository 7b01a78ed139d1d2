//! Addresses that instructions assemble in registers, on machines whose instructions cannot hold an address.
//!
//! `adrp x0, page; add x0, x0, #low` makes an address from two halves, and `ldr r0, [pc, #8]` reads it from a literal
//! pool next to the code. The halves may be far apart: compilers load a page address once and use it in several blocks.
//! The exploration therefore tracks the numbers in registers from run to run. If a function stores a page address in
//! its frame, any load from the frame may return it: compilers spill page addresses when they run out of registers.

mod operands;
mod reloads;
mod spills;
pub(super) mod tracker;

use kisa::{Address, Addressing, Effect, Flow, Reg, TEMPORARY, Value};

use self::tracker::{Held, MAX_CONSTANTS, MAX_NUMBERS, keep_across_runs, may_add, numbers};
use super::entry::Taken;
use super::reachable::Code;
use super::run::{ExitId, ExitKind};
use super::work::Work;
use crate::image::{Addr, Loaded};

/// A placeholder for any address in the stack frame.
const FRAME: u64 = u64::MAX;

/// The size of a page in bytes; `adrp` loads the address of a page.
const PAGE: u64 = 0x1000;

/// The kind of an instruction's result.
#[derive(Clone, Copy, PartialEq)]
enum Made {
    /// An address.
    Address,
    /// An address, if the program is not position-independent.
    Number,
    /// Not an address by itself.
    Part,
}

impl Code<'_> {
    /// Adds numbers that registers may hold at the beginning of a decoded run.
    pub(super) fn arrive_holding(&mut self, start: Addr, mut holding: Vec<Held>) {
        let most = self.most_numbers();
        let Some(tracker) = &mut self.tracker else { return };
        let known = tracker.starts.entry(start).or_default();
        let mut excess = Vec::new();
        holding.retain(|&held| {
            let is_new = may_add(known, held, usize::MAX);
            let fits = may_add(known, held, most);
            known.extend(fits.then_some(held));
            excess.extend((is_new && !fits).then_some(held.1));
            fits
        });
        for number in excess {
            self.lose(start, number);
        }
        if holding.is_empty() {
            return;
        }
        let mut effects = Vec::new();
        let mut at = start;
        loop {
            effects.clear();
            let Some(length) = self.length(at) else { return };
            self.effects(at, &mut effects);
            self.follow_held((at, at.plus(length)), &effects, &mut holding, false);
            if holding.is_empty() {
                return;
            }
            if let Some(exit) = self.exit_at(at) {
                return self.leave_holding(exit, &holding);
            }
            at = at.plus(length);
        }
    }

    /// Returns the target of a procedure linkage table entry if several instructions make the address of its slot.
    pub(super) fn linked_by_held(
        &self,
        at: Addr,
        flow: Flow,
        effects: &[Effect],
        holding: &[Held],
    ) -> Option<Addr> {
        if self.tracker.is_none() || flow != Flow::IndirectJump {
            return None;
        }
        self.image.object_at(at).filter(|loaded| loaded.is_linkage(at))?;
        let word = self.image.machine.word_size();
        let targets: Vec<u64> = match Effect::target(effects)? {
            Value::Reg { reg, .. } => numbers(holding, reg).collect(),
            Value::Load { from, .. } => {
                let slots = self.addresses(&from, holding, false).into_iter();
                slots.filter_map(|slot| self.image.constant(Addr(slot), word)).collect()
            }
            _ => return None,
        };
        match targets[..] {
            [target] if self.image.is_code(Addr(target)) => Some(Addr(target)),
            _ => None,
        }
    }

    /// Adds the function whose address is in a slot of the global offset table, which an instruction reads or passes
    /// on.
    fn read_slot(&mut self, at: Addr, slot: u64) {
        let image = self.image;
        let own = |loaded: &&Loaded| loaded.is_slot(Addr(slot)) && !loaded.is_linkage(at);
        let Some(loaded) = image.object_at(Addr(slot)).filter(own) else { return };
        for &(word, target) in loaded.slots_at(Addr(slot)) {
            if self.slots_read.insert(word) {
                self.take_pointer(word, target);
            }
        }
    }

    /// Adds the functions in the slots of a page whose address is no longer tracked.
    fn read_page(&mut self, page: u64) {
        let Some(loaded) = self.image.object_at(Addr(page)) else { return };
        let end = page.saturating_add(PAGE);
        let first = loaded.slots.partition_point(|(word, _)| word.0 < page);
        for &(word, target) in loaded.slots[first..].iter().take_while(|(word, _)| word.0 < end) {
            if self.slots_read.insert(word) {
                self.take_pointer(word, target);
            }
        }
    }

    /// Records the numbers in registers when control leaves a run.
    pub(super) fn leave_holding(&mut self, exit: ExitId, holding: &[Held]) {
        let most = self.most_numbers();
        let Some(tracker) = &mut self.tracker else { return };
        let convention = self.isa.convention();
        let calls = matches!(self.exits[exit.0 as usize].kind, ExitKind::Call(_) | ExitKind::IndirectCall);
        let leaves = matches!(self.exits[exit.0 as usize].kind, ExitKind::IndirectJump | ExitKind::Return);
        let (at, conditional) = (self.exits[exit.0 as usize].at, self.exits[exit.0 as usize].conditional);
        let (mut news, mut given, mut excess) = (Vec::new(), Vec::new(), Vec::new());
        let lasts = |number: u64| number == FRAME || tracker.addresses.contains(&number);
        for &(reg, number) in holding.iter().filter(|held| lasts(held.1)) {
            if (calls || leaves) && convention.is_input(reg) {
                given.push(number);
            }
            if calls && !conditional && convention.clobbers(reg) {
                continue;
            }
            let behind = tracker.exits.entry(exit).or_default();
            if may_add(behind, (reg, number), most) {
                behind.push((reg, number));
                news.push((reg, number));
            } else if may_add(behind, (reg, number), usize::MAX) {
                excess.push(number);
            }
        }
        for number in given {
            self.escape(at, number);
        }
        for number in excess {
            self.lose(at, number);
        }
        if !news.is_empty() {
            let targets = self.exits[exit.0 as usize].successors.iter();
            self.work.extend(targets.map(|&target| Work::Holds(target, news.clone())));
        }
    }

    /// Propagates an exit's numbers to another successor.
    pub(super) fn pass_on_held(&mut self, exit: ExitId, target: Addr) {
        let behind = self.tracker.as_ref().and_then(|tracker| tracker.exits.get(&exit));
        self.work.extend(behind.map(|held| Work::Holds(target, held.clone())));
    }

    /// Applies one instruction: records the code addresses that it makes and the data that it refers to, and updates
    /// the numbers in registers. With `fresh`, the instruction is decoded for the first time and its own constants
    /// count; later, only results computed from numbers in `holding` do.
    pub(super) fn follow_held(
        &mut self,
        (at, next): (Addr, Addr),
        effects: &[Effect],
        holding: &mut Vec<Held>,
        fresh: bool,
    ) {
        let (mut maybe, mut branches) = (false, false);
        let before = holding.len();
        for effect in effects {
            let mut most = self.most_numbers();
            let (dst, made, kind) = match *effect {
                Effect::Set { dst, value, .. } | Effect::MaybeSet { dst, value, .. } => {
                    (dst, self.evaluate(at, value, holding, fresh), self.made_by(value))
                }
                Effect::Binary { op, dst, left, right, .. } => {
                    let mut combined = self.combine(at, (op, left, right), holding, fresh);
                    let kind = self.made_from(at, op, left, right);
                    match kind {
                        Made::Number if self.uses_literals() => {
                            combined.iter_mut().for_each(keep_across_runs)
                        }
                        Made::Address if self.uses_literals() => {}
                        _ => most = MAX_NUMBERS,
                    }
                    // `add pc, pc, r3` is a jump, and its targets are not functions.
                    branches |= dst == TEMPORARY && kind == Made::Address;
                    (dst, combined, kind)
                }
                Effect::SetSigned { dst, value, .. } => {
                    self.evaluate(at, value, holding, fresh);
                    (dst, Vec::new(), Made::Part)
                }
                Effect::Clobber(dst) => (dst, Vec::new(), Made::Part),
                Effect::Store { to, value, .. } => {
                    self.reach(at, &to, holding, fresh);
                    for number in self.evaluate(at, value, holding, fresh) {
                        self.escape(at, number);
                        if self.is_frame(&to, holding) {
                            self.store_page(at, number);
                        }
                    }
                    continue;
                }
                Effect::ClobberRange(to) => {
                    for number in self.addresses(&to, holding, fresh) {
                        self.references.add(at, number, true);
                    }
                    continue;
                }
                Effect::Compare { .. } | Effect::CompareZero { .. } | Effect::BranchIfCompared { .. } => {
                    for value in effect.operands() {
                        self.evaluate(at, value, holding, fresh);
                    }
                    continue;
                }
                Effect::Transfer(_) if branches => continue,
                Effect::Transfer(value) => {
                    for number in self.evaluate(at, value, holding, fresh) {
                        self.escape(at, number);
                    }
                    continue;
                }
                Effect::Swap(a, b) => {
                    for (reg, _) in holding.iter_mut().filter(|(reg, _)| [a, b].contains(reg)) {
                        *reg = if *reg == a { b } else { a };
                    }
                    continue;
                }
                Effect::OnlyIf(_) => {
                    maybe = true;
                    continue;
                }
                Effect::ClobberFlags
                | Effect::ClobberMemory
                | Effect::Escape(_)
                | Effect::SystemCall { .. }
                | Effect::BranchIf(_) => continue,
            };
            let from_frame = match *effect {
                Effect::Set { value: Value::Load { from, .. }, .. } => self.is_frame(&from, holding),
                _ => false,
            };
            if !maybe && !matches!(effect, Effect::MaybeSet { .. }) {
                holding.retain(|&(reg, _)| reg != dst);
            }
            let made = self.but_return_address(next, dst, made);
            if kind == Made::Address {
                self.note_inner(at, &made, matches!(effect, Effect::Set { .. }));
            }
            self.hold(at, dst, &made, (kind, most), holding);
            if from_frame {
                self.load_page((at, next), dst, holding);
            }
        }
        let followed = |effect: &Effect| {
            !matches!(
                effect,
                Effect::Escape(_) | Effect::Clobber(_) | Effect::ClobberFlags | Effect::OnlyIf(_)
            )
        };
        if before > 0 && !effects.iter().any(followed) {
            self.reach_unfollowed(at, &holding.clone());
        }
    }

    /// Handles a vector load, or an unsupported operation on an address.
    fn reach_unfollowed(&mut self, at: Addr, holding: &[Held]) {
        if let Some(operand) = self.memory_operand(at) {
            for number in self.addresses(&operand.address, holding, false) {
                self.references.add(at, number, true);
            }
        }
        let read = self.registers_read(at);
        for &(_, number) in holding.iter().filter(|(reg, _)| read >> reg.0 & 1 != 0) {
            self.escape(at, number);
        }
    }

    /// Returns whether code makes addresses from literals, not from page addresses.
    fn uses_literals(&self) -> bool {
        self.isa.addressing() == Addressing::Literals
    }

    fn is_stack_pointer(&self, reg: Reg) -> bool {
        self.isa.convention().stack_pointer == reg
    }

    /// Returns whether an address is in the frame.
    fn is_frame(&self, address: &Address, holding: &[Held]) -> bool {
        let is_frame =
            |reg| self.is_stack_pointer(reg) || numbers(holding, reg).any(|number| number == FRAME);
        address.base.is_some_and(is_frame)
    }

    /// Handles a number that is no longer tracked: an argument, or a value stored in memory or in a vector.
    fn escape(&mut self, at: Addr, number: u64) {
        self.references.add(at, number, true);
        self.read_slot(at, number);
        let target = Addr(number);
        if self.uses_literals() && self.image.is_fixed(target) && self.is_function(target) {
            self.take(target, Taken::Code(at));
        }
    }

    /// Returns the maximum number of tracked numbers per register.
    fn most_numbers(&self) -> usize {
        if self.uses_literals() { MAX_CONSTANTS } else { MAX_NUMBERS }
    }

    /// Stops tracking a number. A literal may be a function address that is not yet recorded; any other number may be a
    /// part of a slot's address.
    fn lose(&mut self, at: Addr, number: u64) {
        if self.uses_literals() {
            self.escape(at, number);
        }
        self.read_page(number);
    }

    /// Removes the return address that a call leaves in a register: it is not called.
    fn but_return_address(&self, next: Addr, dst: Reg, mut made: Vec<u64>) -> Vec<u64> {
        let link = self.isa.convention().link_register;
        made.retain(|&number| link != Some(dst) || number != next.0);
        made
    }

    fn hold(
        &mut self,
        at: Addr,
        dst: Reg,
        made: &[u64],
        (kind, most): (Made, usize),
        holding: &mut Vec<Held>,
    ) {
        for &number in made {
            if kind == Made::Address {
                self.references.note_string(at, number);
                self.note_base(Addr(number));
            }
            let is_address = match kind {
                _ if self.uses_literals() && dst == TEMPORARY => false,
                Made::Address => true,
                Made::Number => self.image.is_fixed(Addr(number)),
                Made::Part => false,
            };
            // An odd sum with the program counter is the address of Thumb code.
            let has_bit = self.image.machine.target().has_encoding_bit;
            let is_thumb = has_bit && kind == Made::Address && number & 1 != 0;
            if is_address && (self.is_function(Addr(number)) || is_thumb && self.is_beginning(Addr(number))) {
                self.take(Addr(number), Taken::Code(at));
            }
            if may_add(holding, (dst, number), most) {
                holding.push((dst, number));
            } else if may_add(holding, (dst, number), usize::MAX) {
                self.lose(at, number);
            }
        }
    }

    /// Records addresses of code in the middle of functions, made from page addresses. A function without an entry in
    /// the unwind table may begin there: `crt1.o` has one after the code of `_start`. With `is_set`, one instruction
    /// makes the addresses, and a page address is part of another address.
    fn note_inner(&mut self, at: Addr, made: &[u64], is_set: bool) {
        if self.uses_literals() {
            return;
        }
        for target in made.iter().map(|&number| Addr(number)) {
            let is_page = is_set && target.0 & 0xfff == 0;
            if !is_page && self.image.is_code(target) && !self.is_beginning(target) {
                self.made_inner.insert(target, at);
            }
        }
    }

    /// Returns whether an address in code is that of a function: not if it is in the middle of a function or of an
    /// instruction.
    fn is_function(&self, target: Addr) -> bool {
        self.is_beginning(target)
            && if self.uses_literals() { self.begins_sensibly(target) } else { self.is_instruction(target) }
    }

    /// Returns whether an address is not known to be in the middle of a function.
    fn is_beginning(&self, target: Addr) -> bool {
        let middle = self.image.extent_around(target).is_some_and(|extent| extent.start != target);
        self.image.is_code(target) && (!middle || self.image.is_function(target))
    }
}

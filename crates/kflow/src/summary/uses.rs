//! The use that a function makes of its callers' registers and of its stack arguments.

use kisa::{Effect, Reg, Value};

use super::call::Summary;
use crate::machine::Machine;
use crate::program::{EVERYTHING, Instruction, bit};
use crate::values::{FrameRange, Names, Site, State};

/// The uses found in the blocks of a function so far.
///
/// A register that is stored to the frame with its content on entry is saved, which is not a use. It becomes one if the
/// word may be read: by a load that does not restore that register, or by a callee that receives it.
#[derive(Default)]
pub(super) struct Uses {
    /// The registers whose contents on entry are used otherwise.
    used: u64,
    /// The saved registers, and their places.
    saved: Vec<(Reg, FrameRange)>,
    /// The bytes of the frame that are read while their content is unknown.
    read: Vec<FrameRange>,
    /// See [`Summary::reads_stack`].
    pub(super) reads_stack: u32,
    /// The registers that its instructions write.
    written: u64,
    /// Whether the return address may get to code that returns to it again.
    pub(super) gives_away_return: bool,
}

impl Uses {
    /// Records an instruction, given the state before it. Returns the registers that it reads only to save them.
    pub(super) fn see(
        &mut self,
        instruction: &Instruction<'_>,
        state: &mut State,
        names: &mut Names,
        machine: &Machine,
    ) -> u64 {
        let written = instruction.writes();
        // The writes of an unsupported instruction (`smc`) mean nothing.
        if written.count_ones() <= MOST_WRITTEN || !instruction.effects.iter().any(is_clobber) {
            self.written |= written;
        }
        // A register that cannot point to the frame reads nothing in it.
        if instruction.reads_unseen && state.may_reach_frame(instruction.reads, names) {
            self.use_all();
            return 0;
        }
        let mut saved = 0;
        let mut own: Option<State> = None;
        for (place, effect) in instruction.effects.iter().enumerate() {
            let state = own.as_mut().unwrap_or(state);
            saved |= self.stored(instruction, effect, state, names, machine);
            self.loaded(effect, state, names, machine);
            // Later effects may use registers that this effect writes (`leave`).
            let written = effect.registers_written();
            let behind = &instruction.effects[place + 1..];
            if behind.iter().any(|effect| read_through(effect) & written != 0) {
                let mut then = state.clone();
                then.apply(names, BETWEEN, &[*effect]);
                own = Some(then);
            } else if let Some(own) = &mut own {
                own.apply(names, BETWEEN, &[*effect]);
            }
        }
        self.used |= state.entries_in(instruction.reads & !saved, names);
        saved
    }

    /// Records the store of an effect. Returns the register that it saves.
    fn stored(
        &mut self,
        instruction: &Instruction<'_>,
        effect: &Effect,
        state: &mut State,
        names: &mut Names,
        machine: &Machine,
    ) -> u64 {
        let Effect::Store { to, value, width } = *effect else { return 0 };
        if let Value::Reg { reg, width: read } = value
            && (read, width) == (machine.word, machine.word)
            && is_read_once(instruction, effect, reg)
            && state.register(reg).single() == Some(names.entry(reg))
            && let Some(slot) = state.frame_range(&to, width, names)
            && slot.end_after_entry(names).is_none_or(|end| end <= 0)
        {
            self.saved.push((reg, slot));
            return bit(reg);
        }
        self.gives_away_return |= state.may_be_return_address(value, names);
        0
    }

    /// Records the reads of the frame by an effect.
    fn loaded(&mut self, effect: &Effect, state: &mut State, names: &mut Names, machine: &Machine) {
        for (from, width) in effect.memory_read() {
            let Some(range) = state.frame_range(&from, width, names) else { continue };
            self.read_stack(&range, names, machine);
            let Some(entries) = state.entries_at(&from, width, names) else {
                self.read(range);
                continue;
            };
            let restored = match *effect {
                Effect::Set { dst, width, .. } if width == machine.word => bit(dst),
                _ => 0,
            };
            self.used |= entries & !restored;
        }
    }

    /// Records the registers that the choice of the successor reads, given the state after the instructions.
    pub(super) fn used_by_exit(&mut self, registers: u64, state: &State, names: &Names) {
        self.used |= state.entries_in(registers, names);
    }

    /// Records a call, or a jump to another function, given the state after the instructions.
    pub(super) fn call(&mut self, summary: &Summary, state: &State, names: &Names, machine: &Machine) {
        self.used |= state.entries_in(summary.reads, names);
        let link = machine.link.map_or(0, bit);
        self.gives_away_return |= state.hold_return_address(summary.reads & !link, names);
        if summary.reads_stack == 0 {
            return;
        }
        let first = machine.passed_word(0);
        let bounded = (summary.reads_stack != Summary::WHOLE_STACK).then_some(summary.reads_stack);
        let passed = state.stack_range(first, bounded, names);
        if bounded.is_some() {
            self.read_stack(&passed, names, machine);
        } else if passed.start_after_entry(names) == Some(first as i64) {
            // It receives the arguments of this function. Other callees read only the arguments that this function
            // passes.
            self.reads_stack = Summary::WHOLE_STACK;
        }
        let Some(bytes) = bounded else { return self.read(passed) };
        for word in 0..bytes.div_ceil(machine.word.into()) {
            let offset = first + u64::from(word) * u64::from(machine.word);
            match state.entries_at_top(offset, names) {
                Some(entries) => self.used |= entries,
                None => self.read(state.stack_range(offset, Some(machine.word.into()), names)),
            }
        }
    }

    /// Records that others may have the address of the frame. With a convention, they do not read the saved copies of
    /// registers that a function restores; the other registers hold arguments.
    pub(super) fn frame_is_known(&mut self, machine: &Machine) {
        let link = machine.link.map_or(0, bit);
        self.used |= machine.convention.map_or(EVERYTHING, |convention| convention.changed & !link);
        self.reads_stack = Summary::WHOLE_STACK;
    }

    fn use_all(&mut self) {
        self.used = EVERYTHING;
        self.reads_stack = Summary::WHOLE_STACK;
    }

    fn read(&mut self, range: FrameRange) {
        if !self.read.contains(&range) {
            self.read.push(range);
        }
    }

    /// Records a read of bytes that may be among the stack arguments.
    fn read_stack(&mut self, range: &FrameRange, names: &Names, machine: &Machine) {
        let bytes = match range.end_after_entry(names) {
            Some(end) => u32::try_from(end - machine.passed_word(0) as i64).unwrap_or(0),
            None => Summary::WHOLE_STACK,
        };
        self.reads_stack = self.reads_stack.max(bytes);
    }

    /// Returns the registers whose contents on entry are used for more than saving and restoring them.
    pub(super) fn used(&self, names: &Names) -> u64 {
        let is_read = |&&(reg, ref slot): &&(Reg, FrameRange)| {
            let reads = |range: &FrameRange| {
                let is_certain = range.is_beside(slot) && range.is_bounded();
                range.may_overlap(slot) && (is_certain || !names.is_kept(reg))
            };
            self.read.iter().any(reads)
        };
        self.saved.iter().filter(is_read).fold(self.used, |set, &(reg, _)| set | bit(reg))
    }

    /// Returns the registers in `changes` that the function's own instructions change, and that it saves nowhere.
    pub(super) fn changed_for_good(&self, changes: u64) -> u64 {
        let saved = self.saved.iter().fold(0, |set, &(reg, _)| set | bit(reg));
        self.written & changes & !saved
    }
}

/// Maximum number of registers and flags written by an instruction that computes a result from operands.
const MOST_WRITTEN: u32 = 3;

fn is_clobber(effect: &Effect) -> bool {
    matches!(effect, Effect::Clobber(_))
}

/// The site for effects of an instruction that are applied one by one.
const BETWEEN: Site = Site { block: u32::MAX, number: u32::MAX };

/// Returns the registers in the address at which an effect reads or writes memory.
fn read_through(effect: &Effect) -> u64 {
    let to = match effect {
        Effect::Store { to, .. } => to.registers(),
        _ => 0,
    };
    effect.memory_read().fold(to, |set, (from, _)| set | from.registers())
}

/// Whether an instruction reads a register only in the store of this effect.
fn is_read_once(instruction: &Instruction<'_>, effect: &Effect, reg: Reg) -> bool {
    let elsewhere = instruction.effects.iter().filter(|other| *other != effect);
    let others = elsewhere.flat_map(Effect::operands).fold(0, |set, value| set | value.registers());
    let Effect::Store { to, .. } = effect else { return false };
    (others | to.registers()) & bit(reg) == 0
}

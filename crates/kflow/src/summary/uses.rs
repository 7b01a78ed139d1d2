//! The use that a function makes of what its callers left in registers and passed on the stack.

use kisa::{Effect, Reg, Value};

use super::{Machine, Summary};
use crate::program::{EVERYTHING, Instruction, bit};
use crate::values::{FrameRange, Names, Site, State};

/// The use that the blocks of a function have been found to make.
///
/// A register that is stored to the frame as it was on entry is saved, which is no use. It becomes one if something may
/// read the word: a load of the function that does not restore that register, or a callee that is passed it.
#[derive(Default)]
pub(super) struct Uses {
    /// The registers whose contents on entry are used otherwise.
    used: u64,
    /// The registers that are saved, and where.
    saved: Vec<(Reg, FrameRange)>,
    /// The bytes of the frame that are read where it is not known what they hold.
    read: Vec<FrameRange>,
    /// See [`Summary::reads_stack`].
    pub(super) reads_stack: u32,
    /// The registers that its instructions write.
    written: u64,
    /// Whether the return address gets to where somebody may return by it once more.
    pub(super) gives_away_return: bool,
}

impl Uses {
    /// Takes note of an instruction, given the state in front of it. Returns the registers that it reads only to save them.
    pub(super) fn see(
        &mut self,
        instruction: &Instruction<'_>,
        state: &mut State,
        names: &mut Names,
        machine: &Machine,
    ) -> u64 {
        let written = instruction.writes();
        // An instruction that the model does not know (`smc`) tells nothing of what it writes.
        if written.count_ones() <= MOST_WRITTEN || !instruction.effects.iter().any(is_clobber) {
            self.written |= written;
        }
        // Nothing in the frame is read through what has nothing to do with it.
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
            // What follows may count from what this effect writes (`leave`).
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

    /// Takes note of what an effect stores. Returns the register that it saves.
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

    /// Takes note of what an effect reads of the frame.
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

    /// Takes note of the registers that deciding where control goes reads, given the state behind the instructions.
    pub(super) fn used_by_exit(&mut self, registers: u64, state: &State, names: &Names) {
        self.used |= state.entries_in(registers, names);
    }

    /// Takes note of a call, or a jump to another function, given the state behind the instructions.
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
            // It gets what this function was passed. Other callees read what this function passes them, and no more.
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

    /// Takes note that others may know where the frame is. Where a convention rules, they do not read what is saved there of
    /// registers that a function gives back; the others have arguments.
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

    /// Takes note that bytes are read, if they may be among what the function is passed on the stack.
    fn read_stack(&mut self, range: &FrameRange, names: &Names, machine: &Machine) {
        let bytes = match range.end_after_entry(names) {
            Some(end) => u32::try_from(end - machine.passed_word(0) as i64).unwrap_or(0),
            None => Summary::WHOLE_STACK,
        };
        self.reads_stack = self.reads_stack.max(bytes);
    }

    /// The registers whose contents on entry are used for more than to be saved and restored.
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

    /// The registers that the function changes by its own instructions, and saves nowhere, of those that it may change.
    pub(super) fn changed_for_good(&self, changes: u64) -> u64 {
        let saved = self.saved.iter().fold(0, |set, &(reg, _)| set | bit(reg));
        self.written & changes & !saved
    }
}

/// How many registers and flags an instruction writes that computes something from operands.
const MOST_WRITTEN: u32 = 3;

fn is_clobber(effect: &Effect) -> bool {
    matches!(effect, Effect::Clobber(_))
}

/// The site of the effects of an instruction that are applied one by one.
const BETWEEN: Site = Site { block: u32::MAX, number: u32::MAX };

/// The registers that tell where an effect reads or writes memory.
fn read_through(effect: &Effect) -> u64 {
    let to = match effect {
        Effect::Store { to, .. } => to.registers(),
        _ => 0,
    };
    effect.memory_read().fold(to, |set, (from, _)| set | from.registers())
}

/// Whether an instruction reads a register only where this effect stores it.
fn is_read_once(instruction: &Instruction<'_>, effect: &Effect, reg: Reg) -> bool {
    let elsewhere = instruction.effects.iter().filter(|other| *other != effect);
    let others = elsewhere.flat_map(Effect::operands).fold(0, |set, value| set | value.registers());
    let Effect::Store { to, .. } = effect else { return false };
    (others | to.registers()) & bit(reg) == 0
}

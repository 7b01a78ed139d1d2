//! Facts of a state about a function and its caller: contents of registers on entry, and the place of the frame.

use kisa::{Address, Effect, Memory as Written, Reg, TEMPORARY, Value};
use smallvec::smallvec;

use super::memory::Place;
use super::names::{Name, NameId, Names, RETURN_ADDRESS, Site, Term, TermSet};
use super::state::State;
use super::step::Step;
use crate::Transfer;
use crate::constants::Constant;

fn return_name(names: &mut Names) -> NameId {
    names.add(RETURN_ADDRESS).0
}

/// Returns the place of the return address.
fn return_place(names: &mut Names) -> Place {
    let top = names.entry(names.stack_pointer);
    Place { parts: smallvec![(top.name, 1)], displacement: 0, segment: None }
}

fn bits(registers: u64) -> impl Iterator<Item = Reg> {
    (0..64).filter(move |number| registers >> number & 1 != 0).map(Reg)
}

impl State {
    /// Creates the state on entry to a function: the stack pointer points to the return address, if calls push it.
    pub fn enter(names: &mut Names) -> State {
        let mut state = State::begin(names, true);
        if names.link.is_some() {
            return state;
        }
        let (place, word) = (return_place(names), names.word);
        let value = TermSet::One(Term::of(return_name(names)));
        state.memory.note(place, word, value, names);
        state
    }

    /// Returns the word at an offset in bytes from the stack pointer.
    pub fn stack_word(&self, offset: u64, names: &Names) -> TermSet {
        let Some(top) = self.register(names.stack_pointer).single() else { return TermSet::Any };
        let top = names.plus(top, offset);
        let place = Place { parts: smallvec![(top.name, 1)], displacement: top.offset, segment: None };
        self.memory.load(&place, names.word, names).map_or(TermSet::Any, |(value, width)| {
            if width == names.word { value.clone() } else { TermSet::Any }
        })
    }

    /// Sets the word at an offset in bytes from the stack pointer, on entry to a function.
    pub fn set_stack_word(&mut self, offset: u64, value: TermSet, names: &mut Names) {
        let place = Place { displacement: offset, ..return_place(names) };
        let word = names.word;
        self.memory.note(place, word, value, names);
    }

    /// Returns the constant value of an operand before an instruction, if it has the same name in every function.
    pub fn constant_of(&mut self, operand: Value, names: &mut Names) -> Option<Constant> {
        let value = Step::new(self, names, Site::default()).operand(operand);
        names.as_constant(value.single()?)
    }

    /// Whether control leaves the function for the return address, if the target is in a register. With `calls`, it
    /// leaves by a call that does not return to the function. The state is the one after the instructions.
    pub fn goes_back(&self, calls: bool, names: &mut Names) -> bool {
        let Some(link) = names.link else { return true };
        let back = names.entry(link);
        // A computed transfer leaves its target in the temporary.
        self.register(if calls { link } else { TEMPORARY }).single() == Some(back)
    }

    /// Whether a return here leads back to the caller: the stack pointer is at the return address or directly after it,
    /// and the return address is unchanged.
    pub fn is_back_at_caller(&self, names: &mut Names) -> bool {
        if names.link.is_some() {
            return self.register(names.stack_pointer).single() == Some(names.entry(names.stack_pointer));
        }
        let (place, word) = (return_place(names), names.word);
        let value = TermSet::One(Term::of(return_name(names)));
        let entry = names.entry(names.stack_pointer);
        let behind = names.plus(entry, word.into());
        self.register(names.stack_pointer).single() == Some(behind)
            && self.memory.load(&place, word, names) == Some((&value, word))
    }

    /// Whether others may have the address of the frame.
    pub fn is_frame_known_to_others(&self) -> bool {
        self.memory.is_exposed
    }

    /// Whether memory accessed through these registers, in any way, may be in the frame.
    pub fn may_reach_frame(&self, registers: u64, names: &Names) -> bool {
        let framed = |reg| self.register(reg).elements().iter().any(|term| names.is_frame(term.name));
        self.memory.is_exposed
            || bits(registers).filter(|reg| usize::from(reg.0) < names.registers).any(framed)
    }

    /// Applies a call that returns: the callee may read and change these registers, and perhaps the frame of its
    /// caller. It pops the return address if calls push it, unless it changes the stack pointer in another way.
    pub fn call(&mut self, reads: u64, changes: u64, writes_frame: bool, names: &Names) {
        let framed = |value: &TermSet| value.elements().iter().any(|term| names.is_frame(term.name));
        let stack_pointer = names.stack_pointer;
        let given = bits(reads).filter(|&reg| reg != stack_pointer && usize::from(reg.0) < names.registers);
        self.memory.is_exposed |= { given }.any(|reg| framed(self.register(reg)));
        if names.link.is_none() {
            let top = self.register(stack_pointer).map(|term| Some(names.plus(term, names.word.into())));
            self.set_register(stack_pointer, top);
        }
        for reg in bits(changes).filter(|reg| usize::from(reg.0) < names.registers) {
            self.set_register(reg, TermSet::Any);
        }
        self.memory.write_anywhere(names);
        if writes_frame {
            self.memory.write_frame(names);
        }
        self.compared = None;
    }

    /// Returns the registers, except the stack pointer, that no longer hold their contents on entry.
    pub fn changed(&self, names: &mut Names) -> u64 {
        let stack_pointer = names.stack_pointer;
        let others = (0..names.registers as u8).map(Reg).filter(|&reg| reg != stack_pointer);
        let changed = others.filter(|&reg| self.register(reg).single() != Some(names.entry(reg)));
        changed.fold(0, |set, reg| set | 1 << reg.0)
    }

    /// Returns the registers whose contents on entry may now be in these registers. Excludes the stack pointer.
    pub fn entries_in(&self, registers: u64, names: &Names) -> u64 {
        let held = bits(registers).filter(|reg| usize::from(reg.0) < names.registers);
        held.fold(0, |set, reg| set | entries(self.register(reg), names))
    }

    /// Whether an operand may be the return address.
    pub fn may_be_return_address(&mut self, operand: Value, names: &mut Names) -> bool {
        match operand {
            Value::Reg { reg, .. } => holds_return_address(self.register(reg), names),
            Value::Load { from, width } => {
                let place = Step::new(self, names, Site::default()).place(&from);
                let value =
                    place.and_then(|place| self.memory.load(&place, width, names).map(|(value, _)| value));
                value.is_some_and(|value| holds_return_address(value, names))
            }
            Value::Const(_) | Value::Symbol { .. } | Value::Address(_) | Value::Unknown => false,
        }
    }

    /// Whether one of these registers may hold the return address.
    pub fn hold_return_address(&self, registers: u64, names: &Names) -> bool {
        let mut held = bits(registers).filter(|reg| usize::from(reg.0) < names.registers);
        held.any(|reg| holds_return_address(self.register(reg), names))
    }

    /// Returns the registers whose contents on entry may be in these bytes of memory; `None` if the content is unknown.
    pub fn entries_at(&mut self, from: &Address, width: u8, names: &mut Names) -> Option<u64> {
        let place = Step::new(self, names, Site::default()).place(from)?;
        self.memory.load(&place, width, names).map(|(value, _)| entries(value, names))
    }

    /// Returns the same for the word at an offset in bytes from the stack pointer.
    pub fn entries_at_top(&self, offset: u64, names: &Names) -> Option<u64> {
        let value = self.stack_word(offset, names);
        (!value.is_any()).then(|| entries(&value, names))
    }

    /// Whether these bytes are in the frame, or in memory that nobody writes.
    pub fn is_unwritten(&mut self, from: &Address, width: u8, names: &mut Names) -> bool {
        let mut step = Step::new(self, names, Site::default());
        let Some(place) = step.place(from) else { return false };
        place.segment.is_none() && (place.is_framed(names) || names.constant_at(&place, width).is_some())
    }

    /// Whether an effect may write to the frame of the caller, or to the return address.
    pub fn may_write_above(&mut self, effect: &Effect, names: &mut Names) -> bool {
        let (to, width) = match effect.memory_written() {
            Some(Written::At(to, width)) => (to, Some(width)),
            Some(Written::From(to)) => (to, None),
            // Nobody else has the address of the frame.
            Some(Written::Any) | None => return false,
        };
        let Some(place) = Step::new(self, names, Site::default()).place(&to) else { return true };
        let top = names.entry(names.stack_pointer);
        if place.parts[..] != [(top.name, 1)] {
            return place.is_framed(names);
        }
        let start = names.signed(place.displacement);
        width.is_none_or(|width| start + i64::from(width) > 0)
    }
}

fn holds_return_address(value: &TermSet, names: &Names) -> bool {
    let is_it = |term: &Term| match names.get(names.root(term.name)) {
        Name::Entry(reg) => names.link == Some(reg),
        name => name == RETURN_ADDRESS,
    };
    value.elements().iter().any(is_it)
}

fn entries(value: &TermSet, names: &Names) -> u64 {
    let terms = value.elements().iter().map(|term| names.root(term.name));
    terms.fold(0, |set, name| match names.get(name) {
        Name::Entry(reg) if reg != names.stack_pointer => set | 1 << reg.0,
        _ => set,
    })
}

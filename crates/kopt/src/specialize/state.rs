//! The knowledge at one point of a path: registers, flags, words of the stack, and words of other memory.

use std::collections::{BTreeMap, BTreeSet};

use kisa::specializing::Bits;
use kisa::{Branch, BranchKind, Condition, Reg, Rewritable};

use super::value::{Base, NameId, Value};

/// Number of registers.
pub const REGISTERS: usize = 8;

/// The size of a word in bytes.
pub const WORD: i32 = 4;

/// A known word of memory outside of the frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// Its content.
    pub value: Value,
    /// Whether it keeps it while the path runs, by assumption.
    pub stable: bool,
    /// The number of the fact of the document that it is.
    pub fact: Option<usize>,
}

/// What is known at one point.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    /// The registers.
    pub registers: [Value; REGISTERS],
    /// The place for intermediate results of an instruction.
    pub temporary: Value,
    /// The flags.
    pub flags: Bits,
    /// Known words of the stack, by offset in bytes from the stack pointer at the entry of the path. The frames are
    /// below 0.
    pub stack: BTreeMap<i32, Value>,
    /// Words of the stack whose address others may have.
    pub exposed: BTreeSet<i32>,
    /// Words of the stack that were pushed: saved registers, and arguments of calls, but no variables.
    pub pushed: BTreeSet<i32>,
    /// Unknown values that are not 0.
    pub nonzero: BTreeSet<NameId>,
    /// Known words of other memory.
    pub words: BTreeMap<(Base, i32), Word>,
    /// The unknown value, a number added to it, and the number that the flags compare the sum with.
    pub compared: Option<(NameId, i32, u32)>,
}

/// Returns the words that `width` bytes at an offset touch.
pub fn words(offset: i32, width: u8) -> impl Iterator<Item = i32> {
    let first = offset & !(WORD - 1);
    (first..offset.saturating_add(width.into())).step_by(WORD as usize)
}

/// Returns a word with some bytes replaced, which begin at an offset in bytes.
fn merged(word: Value, value: Value, offset: i32, width: u8) -> Value {
    Value::Bits(word.bits().with(value.bits().low(width), width, 8 * offset as u32))
}

/// Returns some bytes of a word, zero-extended.
fn part(word: Value, offset: i32, width: u8) -> Value {
    match word {
        _ if i32::from(width) == WORD => word,
        Value::Bits(bits) => Value::Bits(bits.shifted(8 * offset as u32).low(width)),
        _ => Value::Bits(Bits::UNKNOWN.low(width)),
    }
}

impl State {
    /// Returns what is known after a branch on a condition of the machine.
    pub fn after_branch(&self, isa: &dyn Rewritable, condition: u8, taken: bool) -> State {
        let mut state = self.clone();
        let means = isa.condition(Branch { kind: BranchKind::Conditional, condition });
        let equal = if taken { Condition::Equal } else { Condition::NotEqual };
        let different = if taken { Condition::NotEqual } else { Condition::Equal };
        match state.compared {
            Some((name, offset, number)) if means == equal => {
                state.learn(name, number.wrapping_sub(offset as u32));
            }
            Some((name, 0, 0)) if means == different => drop(state.nonzero.insert(name)),
            _ => {}
        }
        state
    }

    /// Returns the content of a register.
    pub fn register(&self, reg: Reg) -> Value {
        self.registers.get(usize::from(reg.0)).copied().unwrap_or(self.temporary)
    }

    /// Sets the content of a register.
    pub fn set_register(&mut self, reg: Reg, value: Value) {
        match self.registers.get_mut(usize::from(reg.0)) {
            Some(register) => *register = value,
            None => self.temporary = value,
        }
    }

    /// Sets the low bytes of a register.
    pub fn set_part(&mut self, reg: Reg, value: Value, width: u8) {
        let value = match i32::from(width) {
            WORD => value,
            _ => merged(self.register(reg), value, 0, width),
        };
        self.set_register(reg, value);
    }

    /// Returns the content of some bytes, zero-extended, and the number of the fact that says it.
    pub fn load(&self, (base, offset): (Base, i32), width: u8) -> (Value, Option<usize>) {
        let first = offset & !(WORD - 1);
        if offset - first + i32::from(width) > WORD || width == 0 {
            return (Value::Any, None);
        }
        let (word, fact) = match base {
            Base::Stack => (self.stack.get(&first).copied(), None),
            _ => match self.words.get(&(base, first)) {
                Some(word) => (Some(word.value), word.fact),
                None => (None, None),
            },
        };
        match word {
            Some(word) => (part(word, offset - first, width), fact),
            None if i32::from(width) == WORD => (Value::Any, None),
            None => (Value::Bits(Bits::UNKNOWN.low(width)), None),
        }
    }

    /// Records a store of some bytes. `outside` tells the names that are not in the frames of the path.
    pub fn store(
        &mut self,
        (base, offset): (Base, i32),
        width: u8,
        value: Value,
        outside: impl Fn(NameId) -> bool,
    ) {
        let touched: Vec<i32> = words(offset, width).collect();
        let first = touched[0];
        let is_one = touched.len() == 1;
        let whole = i32::from(width) == WORD && is_one;
        if base == Base::Stack {
            if touched.iter().any(|word| self.exposed.contains(word) || *word > 0) {
                self.forget_words(None);
            }
            for word in &touched {
                let new = match (whole, self.stack.get(word)) {
                    (true, _) => value,
                    (false, Some(old)) if is_one => merged(*old, value, offset - first, width),
                    (false, None) if is_one => merged(Value::Any, value, offset - first, width),
                    _ => Value::Any,
                };
                self.set_stack(*word, new);
            }
            return;
        }
        let old = self.words.get(&(base, first)).copied();
        self.forget_words(Some(base));
        for word in &touched {
            self.words.remove(&(base, *word));
        }
        match base {
            Base::Name(name) if outside(name) => self.forget_above(),
            Base::Symbol(_) | Base::Absolute => {}
            _ => self.forget_exposed(),
        }
        // Only facts are followed: other memory is loaded again, because interrupts and other tasks may change it.
        let Some(Word { stable, fact, value: before }) = old else { return };
        let new = match whole {
            true => value,
            false if is_one => merged(before, value, offset - first, width),
            false => Value::Any,
        };
        if new.place().is_some() || new.bits().known != 0 {
            self.words.insert((base, first), Word { value: new, stable, fact });
        }
    }

    /// Sets a word of the stack.
    pub fn set_stack(&mut self, word: i32, value: Value) {
        match value {
            Value::Any => drop(self.stack.remove(&word)),
            Value::Bits(bits) if bits.known == 0 => drop(self.stack.remove(&word)),
            _ => drop(self.stack.insert(word, value)),
        }
    }

    /// Forgets the words below the stack pointer, which interrupts overwrite.
    pub fn raise(&mut self, stack: i32) {
        self.stack = self.stack.split_off(&stack);
        self.exposed = self.exposed.split_off(&stack);
        self.pushed = self.pushed.split_off(&stack);
    }

    /// Forgets the words outside of the frames that are not stable, except the ones after a base.
    pub fn forget_words(&mut self, except: Option<Base>) {
        self.words.retain(|&(base, _), word| word.stable || Some(base) == except);
    }

    /// Forgets the words of the stack whose address others may have.
    pub fn forget_exposed(&mut self) {
        let exposed = &self.exposed;
        self.stack.retain(|word, _| !exposed.contains(word) && *word <= 0);
    }

    /// Forgets the words of the stack above the path's own frames: arguments, and frames of its callers.
    pub fn forget_above(&mut self) {
        self.stack.retain(|word, _| *word <= 0);
    }

    /// Forgets an unknown value everywhere, because its name will mean another one.
    pub fn forget_name(&mut self, name: NameId) {
        let is_it = |value: &Value| matches!(value, Value::Name(other, _) if *other == name);
        for register in self.registers.iter_mut().filter(|register| is_it(register)) {
            *register = Value::Any;
        }
        self.stack.retain(|_, value| !is_it(value));
        self.compared = self.compared.filter(|&(other, ..)| other != name);
        self.nonzero.remove(&name);
        self.words.retain(|&(base, _), word| base != Base::Name(name) && !is_it(&word.value));
    }

    /// Replaces an unknown value by its number.
    pub fn learn(&mut self, name: NameId, number: u32) {
        let learn = |value: &mut Value| {
            if let Value::Name(other, offset) = *value
                && other == name
            {
                *value = Value::number(number.wrapping_add(offset as u32));
            }
        };
        self.registers.iter_mut().for_each(learn);
        self.stack.values_mut().for_each(learn);
        self.words.values_mut().for_each(|word| learn(&mut word.value));
    }

    /// Makes the state hold for another one too. `name` gives a name to what differs, by the place: a register's number,
    /// or the offset of a word of the stack. Returns whether the state changed.
    pub fn join(&mut self, other: &State, mut name: impl FnMut(Joined) -> NameId) -> bool {
        let before = self.clone();
        let mut differing = Vec::new();
        for number in 0..REGISTERS {
            let (mine, theirs) = (self.registers[number], other.registers[number]);
            if mine != theirs {
                differing.push((Joined::Register(number as u8), join(mine, theirs)));
            }
        }
        let words: Vec<i32> = self.stack.keys().copied().collect();
        for word in words {
            let mine = self.stack[&word];
            let theirs = other.stack.get(&word).copied().unwrap_or(Value::Any);
            if mine != theirs {
                differing.push((Joined::Stack(word), join(mine, theirs)));
            }
        }
        let flags = self.flags.known & other.flags.known & !(self.flags.value ^ other.flags.value);
        self.flags = Bits::of(flags, self.flags.value);
        self.exposed.extend(&other.exposed);
        self.pushed.retain(|word| other.pushed.contains(word));
        self.nonzero.retain(|name| other.nonzero.contains(name));
        self.compared = self.compared.filter(|_| self.compared == other.compared);
        // A loop may wait for a change of what is not stable.
        self.words.retain(|_, word| word.stable);
        self.words.retain(|place, word| match other.words.get(place) {
            Some(theirs) => {
                word.stable &= theirs.stable;
                word.fact = word.fact.or(theirs.fact);
                word.value = join(word.value, theirs.value);
                word.value != Value::Any && word.value != Value::Bits(Bits::UNKNOWN)
            }
            None => false,
        });
        for (place, joined) in differing {
            let value = match joined {
                Value::Any => Value::Name(name(place), 0),
                joined => joined,
            };
            let old = match place {
                Joined::Register(number) => before.registers[usize::from(number)],
                Joined::Stack(word) => before.stack[&word],
            };
            // The name means the value here; another place that has it from an earlier turn of a loop does not.
            if let (Value::Name(name, 0), true) = (value, old != value) {
                self.forget_name(name);
            }
            match place {
                Joined::Register(number) => self.registers[usize::from(number)] = value,
                Joined::Stack(word) => self.set_stack(word, value),
            }
        }
        *self != before
    }
}

/// A place whose content differs where ways join.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Joined {
    /// A register.
    Register(u8),
    /// A word of the stack.
    Stack(i32),
}

/// Returns what two values have in common.
fn join(one: Value, other: Value) -> Value {
    match (one, other) {
        _ if one == other => one,
        (Value::Bits(one), Value::Bits(other)) => {
            let both = one.join(other);
            if both.known == 0 { Value::Any } else { Value::Bits(both) }
        }
        _ => Value::Any,
    }
}

//! The dataflow facts at one point of a program during exploration: the constants in registers and in frame words, see
//! [`super::constants`].

use kflow::values::Element;
use kisa::{Condition, Convention, Reg, low_mask};
use smallvec::{SmallVec, smallvec};

use crate::values::{Atom, ValueSet};

/// Maximum number of frame words with facts.
const MAX_WORDS: usize = 12;

/// The possible numbers of a register or word.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct NumberSet {
    /// Numbers only.
    numbers: ValueSet,
    /// Whether any of them was computed from the caller's arguments. Only those are kept at the end of a run: compilers
    /// have folded the branches on a function's own constants.
    pub(super) from_caller: bool,
}

impl NumberSet {
    pub(crate) fn one(number: u64) -> NumberSet {
        NumberSet { numbers: ValueSet::number(number), from_caller: false }
    }

    fn known(numbers: ValueSet, from_caller: bool) -> Option<NumberSet> {
        (!numbers.is_any()).then_some(NumberSet { numbers, from_caller })
    }

    pub(super) fn values(&self) -> ValueSet {
        self.numbers.clone()
    }

    pub(super) fn single(&self) -> Option<u64> {
        self.numbers.as_number()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = u64> {
        self.numbers.elements().iter().map(|atom| atom.offset)
    }

    /// Returns `f` of every number; `None` if it fails for one.
    pub(super) fn each(&self, f: impl Fn(u64) -> Option<u64>) -> Option<NumberSet> {
        NumberSet::known(self.numbers.map(|atom| f(atom.offset).map(Atom::number)), self.from_caller)
    }

    pub(super) fn union(&self, other: &NumberSet) -> Option<NumberSet> {
        NumberSet::known(self.numbers.join(&other.numbers), self.from_caller || other.from_caller)
    }

    /// Returns `f` of every pair; `None` if it fails for one, or there are too many.
    pub(super) fn pairs(&self, other: &NumberSet, f: impl Fn(u64, u64) -> Option<u64>) -> Option<NumberSet> {
        let numbers = self.numbers.zip(&other.numbers, |a, b| f(a.offset, b.offset).map(Atom::number));
        NumberSet::known(numbers, self.from_caller || other.from_caller)
    }

    fn covers(&self, other: &NumberSet) -> bool {
        self.from_caller >= other.from_caller && self.numbers.has_all(&other.numbers)
    }
}

/// The known content of a register.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Constant {
    Numbers(NumberSet),
    /// An address in the frame: the offset in bytes from the stack pointer at the function's entry.
    Frame(i64),
}

/// A word of the frame.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Word {
    offset: i64,
    width: u8,
    numbers: NumberSet,
}

impl Word {
    fn end(&self) -> i64 {
        self.offset + i64::from(self.width)
    }
}

/// Dataflow facts. Unlisted places are unknown.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Facts {
    /// The facts by register.
    registers: SmallVec<[(Reg, Constant); 1]>,
    /// The facts by offset.
    frame: Vec<Word>,
    /// The offset from which on other code may write to the frame.
    exposed: i64,
}

impl Facts {
    /// Creates empty facts.
    pub(crate) fn nothing() -> Facts {
        Facts { registers: SmallVec::new(), frame: Vec::new(), exposed: i64::MIN }
    }

    /// Returns the facts at the start of the callee; `stack_pointer` is its register if frames are tracked.
    pub(super) fn in_callee(&self, convention: &Convention, stack_pointer: Option<Reg>) -> Facts {
        let mut known = Facts { exposed: 0, ..Facts::nothing() };
        for (register, content) in &self.registers {
            if let (Constant::Numbers(numbers), true) = (content, convention.is_input(*register)) {
                known.put(
                    *register,
                    Some(Constant::Numbers(NumberSet { from_caller: true, ..numbers.clone() })),
                );
            }
        }
        if let Some(register) = stack_pointer {
            known.put(register, Some(Constant::Frame(0)));
        }
        known.simplify();
        known
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.registers.is_empty() && self.frame.is_empty() && self.exposed == i64::MIN
    }

    /// Forgets frame addresses if there are no numbers: they are useless without any.
    fn simplify(&mut self) {
        if !self.has_numbers() && !self.has_frame() {
            *self = Facts::nothing();
        }
    }

    /// Returns the caller's facts after a call.
    pub(super) fn behind_call(&self, convention: &Convention) -> Facts {
        let mut known = self.clone();
        known.registers.retain(|(register, _)| !convention.clobbers(*register));
        // The callee owns its stack arguments.
        match known.register(convention.stack_pointer) {
            Some(&Constant::Frame(top)) => known.frame.retain(|word| word.offset > top),
            _ => known.frame.clear(),
        }
        known.keep_from_caller();
        known
    }

    /// Handles a tail call: the argument registers come from the caller from here on.
    pub(super) fn enter_by_jump(&mut self, convention: &Convention) {
        for (register, content) in &mut self.registers {
            if let (Constant::Numbers(numbers), true) = (content, convention.is_input(*register)) {
                numbers.from_caller = true;
            }
        }
        self.keep_from_caller();
    }

    /// Drops the facts that are not kept at the end of a run, see [`NumberSet::from_caller`].
    pub(super) fn keep_from_caller(&mut self) {
        self.registers.retain(|(_, content)| match content {
            Constant::Numbers(numbers) => numbers.from_caller,
            Constant::Frame(_) => true,
        });
        self.simplify();
    }

    /// Narrows the facts by the outcome of a branch.
    pub(super) fn learn(&mut self, learnt: &BranchFact, taken: bool) {
        let &BranchFact { register, right, width, condition } = learnt;
        let condition = if taken { condition } else { condition.inverse() };
        let Some((_, Constant::Numbers(numbers))) =
            self.registers.iter_mut().find(|(own, _)| *own == register)
        else {
            return;
        };
        let possible = numbers.iter().filter(|&number| condition.holds(number, right, width) != Some(false));
        let possible: Vec<Atom> = possible.map(Atom::number).collect();
        if !possible.is_empty() {
            numbers.numbers = ValueSet::of(possible);
        }
    }

    pub(super) fn has_numbers(&self) -> bool {
        self.registers.iter().any(|(_, content)| matches!(content, Constant::Numbers(_)))
    }

    /// Forgets the numbers in registers (as bits), but not frame addresses.
    pub(crate) fn forget(&mut self, registers: u64) {
        self.registers.retain(|(register, content)| {
            matches!(content, Constant::Frame(_)) || registers >> register.0 & 1 == 0
        });
        self.simplify();
    }

    pub(super) fn has_frame(&self) -> bool {
        !self.frame.is_empty()
    }

    pub(super) fn forget_frame(&mut self) {
        self.frame.clear();
    }

    /// Returns the possible numbers of a register, if known.
    pub(super) fn numbers_in(&self, register: Reg) -> Option<&NumberSet> {
        match self.register(register)? {
            Constant::Numbers(numbers) => Some(numbers),
            Constant::Frame(_) => None,
        }
    }

    /// Returns the registers with exactly one known number, and that number.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = (Reg, u64)> {
        self.registers
            .iter()
            .filter_map(|(register, _)| Some((*register, self.numbers_in(*register)?.single()?)))
    }

    pub(super) fn register(&self, register: Reg) -> Option<&Constant> {
        self.registers.iter().find(|(own, _)| *own == register).map(|(_, content)| content)
    }

    pub(crate) fn put(&mut self, register: Reg, content: Option<Constant>) {
        let place = self.registers.partition_point(|(own, _)| *own < register);
        let is_there = self.registers.get(place).is_some_and(|(own, _)| *own == register);
        match (content, is_there) {
            (Some(content), true) => self.registers[place].1 = content,
            (Some(content), false) => self.registers.insert(place, (register, content)),
            (None, true) => drop(self.registers.remove(place)),
            (None, false) => {}
        }
    }

    /// Exposes the frame to other code from here on.
    pub(super) fn expose(&mut self, offset: i64) {
        self.exposed = self.exposed.min(offset);
        let exposed = self.exposed;
        self.frame.retain(|word| word.end() <= exposed);
    }

    pub(super) fn store(&mut self, offset: i64, width: u8, numbers: Option<NumberSet>) {
        let end = offset.saturating_add(width.into());
        self.frame.retain(|word| word.end() <= offset || end <= word.offset);
        let Some(numbers) = numbers.filter(|numbers| numbers.from_caller) else { return };
        if end <= self.exposed && self.frame.len() < MAX_WORDS {
            let place = self.frame.partition_point(|word| word.offset < offset);
            self.frame.insert(place, Word { offset, width, numbers });
        }
    }

    pub(super) fn load(&self, offset: i64, width: u8) -> Option<NumberSet> {
        let word = self.frame.iter().find(|word| word.offset == offset && word.width >= width)?;
        word.numbers.each(|number| Some(number & low_mask(width)))
    }

    /// Returns whether joining `other` into these facts would change nothing.
    pub(crate) fn covers(&self, other: &Facts) -> bool {
        self.exposed <= other.exposed
            && self.registers.iter().all(|(register, mine)| match (mine, other.register(*register)) {
                (Constant::Numbers(mine), Some(Constant::Numbers(theirs))) => mine.covers(theirs),
                (mine, theirs) => Some(mine) == theirs,
            })
            && self.frame.iter().all(|mine| {
                let theirs = other.frame.iter().find(|theirs| theirs.offset == mine.offset);
                theirs
                    .is_some_and(|theirs| theirs.width == mine.width && mine.numbers.covers(&theirs.numbers))
            })
    }

    /// Joins with the facts on another edge. With `widen`, differing facts are forgotten at once.
    pub(crate) fn join(&mut self, other: &Facts, widen: bool) {
        let mut lost: SmallVec<[i64; 2]> = smallvec![other.exposed];
        let kept = |mine: &mut NumberSet, theirs: &NumberSet| {
            let joined = mine.union(theirs).filter(|joined| !widen || joined == mine);
            joined.map(|joined| *mine = joined).is_some()
        };
        self.registers.retain(|(register, mine)| match (mine, other.register(*register)) {
            (Constant::Numbers(mine), Some(Constant::Numbers(theirs))) => kept(mine, theirs),
            (Constant::Frame(mine), Some(Constant::Frame(theirs))) if *mine == *theirs => true,
            // A moving pointer may move down.
            (Constant::Frame(_), Some(Constant::Frame(_))) => {
                lost.push(i64::MIN);
                false
            }
            (Constant::Frame(mine), _) => {
                lost.push(*mine);
                false
            }
            _ => false,
        });
        let frames = other.registers.iter().filter_map(|(register, content)| match content {
            Constant::Frame(theirs) if self.register(*register) != Some(content) => Some(*theirs),
            _ => None,
        });
        lost.extend(frames);
        self.frame.retain_mut(|mine| {
            let theirs = other.frame.iter().find(|theirs| theirs.offset == mine.offset);
            theirs
                .is_some_and(|theirs| theirs.width == mine.width && kept(&mut mine.numbers, &theirs.numbers))
        });
        lost.into_iter().for_each(|offset| self.expose(offset));
        self.simplify();
    }
}

/// The fact that a conditional branch implies about a register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct BranchFact {
    pub(super) register: Reg,
    /// The number that it is compared with.
    pub(super) right: u64,
    pub(super) width: u8,
    /// The condition under which the branch is taken.
    pub(super) condition: Condition,
}

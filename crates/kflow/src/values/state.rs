//! The abstract state at one point of the code.

use kisa::{Condition, Reg};
use smallvec::SmallVec;

use super::memory::Memory;
use super::names::{Name, NameId, Names, Site, Term, TermSet};
use super::ranges::{Comparison, Ranges, Span};
use super::set::ValueSet;

/// The slots of names that joins create, see [`super::step::Step`]. No instruction uses them.
pub(super) const SLOT_JOINED: u8 = 192;

/// Facts about registers, memory and flags at one point.
#[derive(Clone, PartialEq, Debug)]
pub struct State {
    pub(super) registers: SmallVec<[TermSet; 8]>,
    pub(super) memory: Memory,
    pub(super) ranges: Ranges<Term>,
    pub(super) compared: Option<Comparison<Term>>,
    pub(super) partial: Option<Partial<Term>>,
}

/// The known low bytes of a register whose other bytes are unknown.
#[derive(Clone, PartialEq, Debug)]
pub struct Partial<T> {
    /// The register.
    pub reg: Reg,
    /// The number of bytes.
    pub width: u8,
    /// Their content.
    pub value: ValueSet<T>,
}

impl State {
    /// Creates a state in which only the initial content of each register is known. Others may have the address of the
    /// frame, unless a function begins here.
    pub fn begin(names: &mut Names, is_function: bool) -> State {
        let registers =
            (0..names.registers).map(|number| TermSet::One(names.entry(Reg(number as u8)))).collect();
        let memory = Memory::new(!is_function);
        State { registers, memory, ranges: Ranges::default(), compared: None, partial: None }
    }

    /// Returns the content of a register.
    pub fn register(&self, reg: Reg) -> &TermSet {
        &self.registers[usize::from(reg.0)]
    }

    /// Sets the content of a register.
    pub fn set_register(&mut self, reg: Reg, value: TermSet) {
        self.registers[usize::from(reg.0)] = value;
        self.partial = self.partial.take().filter(|partial| partial.reg != reg);
    }

    /// Returns the possible numbers in a register, unsigned.
    pub fn range(&self, reg: Reg, names: &Names) -> Span {
        self.ranges.of(self.register(reg), names)
    }

    /// Records the possible numbers in a register. Returns whether that is possible.
    pub fn limit(&mut self, reg: Reg, span: Span, names: &Names) -> bool {
        self.register(reg).single().is_none_or(|term| self.ranges.limit(term, span, names))
    }

    /// Returns the number in a register, if it is known.
    pub fn number(&self, reg: Reg, names: &Names) -> Option<u64> {
        let Span { low, high, .. } = self.range(reg, names);
        (low == high).then_some(low)
    }

    /// Whether a register may hold this number.
    pub fn may_be(&self, reg: Reg, number: u64, names: &Names) -> bool {
        let value = self.register(reg);
        let may = |&term: &Term| {
            let Span { low, high, .. } = self.ranges.get(term, names);
            (low..=high).contains(&number)
        };
        value.is_any() || value.elements().iter().any(may)
    }

    /// Whether a condition may hold for the last comparison.
    pub fn may_hold(&self, condition: Condition, names: &Names) -> bool {
        let compared = self.compared.as_ref();
        compared.is_none_or(|compared| self.ranges.may_hold(compared, condition, names))
    }

    /// Returns whether a condition holds for the last comparison, if that is known.
    pub fn holds(&self, condition: Condition, names: &Names) -> Option<bool> {
        match (self.may_hold(condition, names), self.may_hold(condition.inverse(), names)) {
            (true, false) => Some(true),
            (false, true) => Some(false),
            _ => None,
        }
    }

    /// Records that a condition holds for the last comparison. Returns whether that is possible.
    pub fn assume(&mut self, condition: Condition, names: &Names) -> bool {
        let Some(compared) = &self.compared else { return true };
        let is_possible = self.ranges.assume(compared, condition, names);
        if let (Condition::Equal, true, Some(left), Some(number)) =
            (condition, is_possible, compared.left.single(), compared.right.as_number())
        {
            // The low half of a word may be all of it.
            let (width, range) = (compared.width, self.ranges.get(left, names));
            if width == names.word || width == 4 && (range.low, range.high) == (number, number) {
                self.settle(left, number, names);
            }
        }
        is_possible
    }

    /// Replaces an unknown by its number in every place that settles.
    fn settle(&mut self, unknown: Term, number: u64, names: &Names) {
        if names.settles(unknown) {
            let holding = self.registers.iter_mut().filter(|value| value.single() == Some(unknown));
            holding.for_each(|value| *value = TermSet::number(number));
        }
        self.memory.settle(unknown, number, names);
    }

    /// Forgets the last comparison.
    pub(crate) fn forget_comparison(&mut self) {
        self.compared = None;
    }

    /// Makes this state hold for `other` too. If `widen` names the head of a loop, every difference becomes unknown:
    /// such a register holds one unknown throughout a round.
    pub fn join(&mut self, other: &State, widen: Option<Site>, names: &mut Names) {
        let mut changed = Vec::new();
        for (number, (mine, theirs)) in self.registers.iter_mut().zip(&other.registers).enumerate() {
            if mine == theirs {
                continue;
            }
            let joined = mine.join(theirs);
            let unknown = joined.is_any() || (widen.is_some() && joined != *mine);
            // A frame address that is lost among unknown values may still be used.
            let framed = |value: &TermSet| value.elements().iter().any(|term| names.is_frame(term.name));
            self.memory.is_exposed |= unknown && (framed(mine) || framed(theirs));
            if unknown {
                changed.push(number);
            }
            *mine = if unknown { TermSet::Any } else { joined };
        }
        self.memory.join(&other.memory, widen.is_some());
        self.ranges.join(&other.ranges, names, widen.is_some());
        self.compared = self.compared.take().filter(|mine| other.compared.as_ref() == Some(mine));
        self.partial = self.partial.take().filter(|mine| other.partial.as_ref() == Some(mine));
        if let Some(at) = widen {
            for number in changed {
                let made = self.make(Name::Made { at, slot: SLOT_JOINED + number as u8 }, true, names);
                self.registers[number] = TermSet::One(made);
            }
        }
    }

    /// Creates a new unknown. If the state may already contain its name (`again`), forgets the old values of that name.
    pub(super) fn make(&mut self, name: Name, again: bool, names: &mut Names) -> Term {
        let (id, new) = names.add(name);
        if again && !new {
            self.forget(names, |old| old == name);
        }
        Term::of(id)
    }

    pub(super) fn forget(&mut self, names: &Names, stale: impl Fn(Name) -> bool) {
        let is_stale = |name: NameId| name != NameId::NUMBER && stale(names.get(names.root(name)));
        for register in &mut self.registers {
            if register.elements().iter().any(|term| is_stale(term.name)) {
                *register = TermSet::Any;
            }
        }
        self.memory.forget(is_stale);
        self.ranges.forget(|term| is_stale(term.name));
        let outdated = |value: &TermSet| value.elements().iter().any(|term| is_stale(term.name));
        self.compared =
            self.compared.take().filter(|compared| !outdated(&compared.left) && !outdated(&compared.right));
        self.partial = self.partial.take().filter(|partial| !outdated(&partial.value));
    }
}

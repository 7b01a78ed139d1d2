/*!
What is known of numbers: one of a few terms, and in which range an unknown lies.

A [`Term`] is a number, or an unknown plus a number: the address of a symbol, what a register held where the analysis
began, what an instruction made. The unknown part has a *name*, so that two copies of one unknown are known to be equal,
and so that what a branch says of one copy holds of the others. An instruction that runs once more makes new unknowns
under its old names; whatever still has the old ones is forgotten before ([`State::apply`]).
*/

mod calls;
mod memory;
mod ranges;
mod state;
mod step;

pub use ranges::Range;
pub use state::State;

use kisa::{Reg, Symbol, low_mask};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};

/// How many terms a value may be one of; a value with more is unknown.
const MAX_TERMS: usize = 16;

/// An instruction: which block it is in, and which one there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Site {
    /// The block.
    pub block: u32,
    /// The number of the instruction in the block, from 0.
    pub number: u32,
}

/// The name of an unknown; that of numbers is 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NameId(u32);

impl NameId {
    const NUMBER: NameId = NameId(0);
}

/// What a name stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Name {
    /// 0: what is added to it is a number.
    Zero,
    /// What the linker computes.
    Symbol(Symbol),
    /// What a register held where the analysis began.
    Entry(Reg),
    /// What an instruction made, or where ways come together in front of it; `slot` tells the results of one
    /// instruction apart.
    Made { at: Site, slot: u8 },
    /// The stack pointer, moved by an instruction by an unknown distance.
    Frame { at: Site },
    /// The low bytes of another value.
    Low { of: Term, width: u8 },
}

/// A number, or an unknown plus a number, modulo the machine's word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Term {
    name: NameId,
    offset: u64,
}

impl Term {
    /// A number.
    pub fn number(number: u64) -> Term {
        Term { name: NameId::NUMBER, offset: number }
    }

    fn of(name: NameId) -> Term {
        Term { name, offset: 0 }
    }

    /// The number, if this is one.
    pub fn as_number(self) -> Option<u64> {
        (self.name == NameId::NUMBER).then_some(self.offset)
    }
}

/// One of a few terms, or anything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Value(SmallVec<[Term; 1]>);

impl Value {
    /// Anything.
    pub fn any() -> Value {
        Value::default()
    }

    /// This term.
    pub fn one(term: Term) -> Value {
        Value(smallvec![term])
    }

    /// This number.
    pub fn number(number: u64) -> Value {
        Value::one(Term::number(number))
    }

    fn of(mut terms: SmallVec<[Term; 1]>) -> Value {
        terms.sort_unstable();
        terms.dedup();
        if terms.len() > MAX_TERMS { Value::any() } else { Value(terms) }
    }

    /// Whether nothing is known of it.
    pub fn is_any(&self) -> bool {
        self.0.is_empty()
    }

    /// The terms, in order; none if it may be anything.
    pub fn terms(&self) -> &[Term] {
        &self.0
    }

    /// The only term.
    pub fn single(&self) -> Option<Term> {
        match self.0[..] {
            [term] => Some(term),
            _ => None,
        }
    }

    /// The only term, if it is a number.
    pub fn as_number(&self) -> Option<u64> {
        self.single()?.as_number()
    }

    fn join(&self, other: &Value) -> Value {
        if self.is_any() || other.is_any() {
            return Value::any();
        }
        Value::of(self.0.iter().chain(&other.0).copied().collect())
    }

    /// Every term made into another one; anything if one of them is.
    fn map(&self, f: impl FnMut(Term) -> Option<Term>) -> Value {
        let terms: Option<SmallVec<[Term; 1]>> = self.0.iter().copied().map(f).collect();
        terms.map_or(Value::any(), Value::of)
    }

    /// Every pair of terms made into another one; anything if one pair is.
    fn zip(&self, other: &Value, mut f: impl FnMut(Term, Term) -> Option<Term>) -> Value {
        let pairs = self.0.iter().flat_map(|&left| other.0.iter().map(move |&right| (left, right)));
        let terms: Option<SmallVec<[Term; 1]>> = pairs.map(|(left, right)| f(left, right)).collect();
        terms.map_or(Value::any(), Value::of)
    }
}

/// The names of one analysis, and the machine's arithmetic.
pub struct Names {
    names: Vec<Name>,
    ids: FxHashMap<Name, NameId>,
    /// The instructions that have been applied before.
    visited: FxHashSet<Site>,
    word: u8,
    mask: u64,
    registers: usize,
    stack_pointer: Reg,
}

impl Names {
    /// For a machine with words of so many bytes, so many registers, and this stack pointer.
    pub fn new(word: u8, registers: usize, stack_pointer: Reg) -> Names {
        let mut names = Names {
            names: Vec::new(),
            ids: FxHashMap::default(),
            visited: FxHashSet::default(),
            word,
            mask: low_mask(word),
            registers,
            stack_pointer,
        };
        names.add(Name::Zero);
        names
    }

    /// The name, and whether it is new.
    fn add(&mut self, name: Name) -> (NameId, bool) {
        let new = NameId(self.names.len() as u32);
        let id = *self.ids.entry(name).or_insert(new);
        if id == new {
            self.names.push(name);
        }
        (id, id == new)
    }

    fn get(&self, id: NameId) -> Name {
        self.names[id.0 as usize]
    }

    /// The name that another one was made of.
    fn root(&self, id: NameId) -> NameId {
        match self.get(id) {
            Name::Low { of, .. } => self.root(of.name),
            Name::Zero | Name::Symbol(_) | Name::Entry(_) | Name::Made { .. } | Name::Frame { .. } => id,
        }
    }

    /// A symbol plus a number.
    pub fn symbol(&mut self, symbol: Symbol, addend: i64) -> Term {
        let (name, _) = self.add(Name::Symbol(symbol));
        self.plus(Term::of(name), addend as u64)
    }

    /// What a register held where the analysis began.
    pub fn entry(&mut self, reg: Reg) -> Term {
        Term::of(self.add(Name::Entry(reg)).0)
    }

    /// The symbol that a term is counted from, and what is added to it.
    pub fn as_symbol(&self, term: Term) -> Option<(Symbol, i64)> {
        match self.get(term.name) {
            Name::Symbol(symbol) => Some((symbol, self.signed(term.offset))),
            _ => None,
        }
    }

    /// The register whose content a term is where the analysis began, plus a number.
    pub fn as_entry(&self, term: Term) -> Option<(Reg, i64)> {
        match self.get(term.name) {
            Name::Entry(reg) => Some((reg, self.signed(term.offset))),
            _ => None,
        }
    }

    fn signed(&self, offset: u64) -> i64 {
        kisa::sign_extend(offset, self.word) as i64
    }

    /// Whether a name stands for a place in the frame.
    fn is_frame(&self, id: NameId) -> bool {
        match self.get(id) {
            Name::Entry(reg) => reg == self.stack_pointer,
            Name::Frame { .. } => true,
            Name::Zero | Name::Symbol(_) | Name::Made { .. } | Name::Low { .. } => false,
        }
    }

    /// Whether a name stands for a number that does not change as the program runs.
    fn is_fixed(&self, id: NameId) -> bool {
        matches!(self.get(id), Name::Zero | Name::Symbol(_))
    }

    fn plus(&self, term: Term, number: u64) -> Term {
        Term { offset: term.offset.wrapping_add(number) & self.mask, ..term }
    }
}

#[cfg(test)]
mod tests;

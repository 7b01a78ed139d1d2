/*!
Knowledge about numbers: one of a few terms, and the range of an unknown.

A [`Term`] is a number, or an unknown plus a number: the address of a symbol, what a register held where the analysis
began, what an instruction made. The unknown part has a *name*. Two copies of one unknown are therefore known to be
equal, and a branch on one copy also constrains the others. An instruction that runs once more makes new unknowns under
its old names; whatever still has the old ones is forgotten before ([`State::apply`]).
*/

mod calls;
mod frame;
mod memory;
mod ranges;
mod set;
mod state;
mod step;

pub use frame::FrameRange;
pub use ranges::{Comparison, Ranges, Span, Unknowns};
pub use set::{Element, ValueSet};
pub use state::State;

use std::sync::Arc;

use kisa::{Reg, Symbol, low_mask};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use crate::constants::{Asked, Constant, ConstantMemory};

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
    /// The result of an instruction, or of a join before it; `slot` distinguishes the results of one instruction.
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
    fn of(name: NameId) -> Term {
        Term { name, offset: 0 }
    }
}

impl Element for Term {
    const MAX_NUMBERS: usize = 24;
    const MAX_OTHERS: usize = 16;
    const MAX_PAIRS: usize = 256;
    const MAX_RANGES: usize = 24;

    fn number(number: u64) -> Term {
        Term { name: NameId::NUMBER, offset: number }
    }

    fn as_number(self) -> Option<u64> {
        (self.name == NameId::NUMBER).then_some(self.offset)
    }

    fn parts(self) -> (Term, u64) {
        (Term::of(self.name), self.offset)
    }
}

/// How many names most analyses of one function have at most.
const NAMES: usize = 56;

/// One of a few terms, or anything.
pub type TermSet = ValueSet<Term>;

/// The names of one analysis, and the machine's arithmetic.
pub struct Names {
    names: Vec<Name>,
    ids: FxHashMap<Name, NameId>,
    /// The instructions that have made unknowns.
    makers: FxHashSet<Site>,
    word: u8,
    mask: u64,
    registers: usize,
    stack_pointer: Reg,
    /// The register that calls leave the return address in; `None` if they push it.
    link: Option<Reg>,
    /// The registers whose content on entry, once saved in the frame, stays there until the function restores it.
    saved: u64,
    /// Memory that other code may write at any time; `None` if there is none.
    shared: Option<Arc<ConstantMemory>>,
    /// What that was asked for.
    asked: Asked,
    /// What points to memory that only the function and those that it calls write.
    private: Option<NameId>,
    /// Whether comparisons settle what the function is passed.
    settles_passed: bool,
}

impl Names {
    /// For a machine with words of so many bytes, so many registers, and this stack pointer.
    pub fn new(word: u8, registers: usize, stack_pointer: Reg) -> Names {
        let mut names = Names {
            names: Vec::with_capacity(NAMES),
            ids: FxHashMap::with_capacity_and_hasher(NAMES, FxBuildHasher),
            makers: FxHashSet::default(),
            word,
            mask: low_mask(word),
            registers,
            stack_pointer,
            link: None,
            saved: 0,
            shared: None,
            asked: Asked::default(),
            private: None,
            settles_passed: false,
        };
        names.add(Name::Zero);
        names
    }

    /// From here on, memory may be written by others at any time, but for this, and for what of the frame they do not
    /// know.
    pub fn share_memory(&mut self, constant: Arc<ConstantMemory>) {
        self.shared = Some(constant);
    }

    /// The requests for memory that nothing writes.
    pub(crate) fn into_asked(self) -> Asked {
        self.asked
    }

    /// From here on, nobody overwrites these registers, given as bits, and the return address where the function has
    /// saved them in its frame, but for the function itself.
    pub fn keep_saved(&mut self, registers: u64) {
        self.saved = registers;
    }

    /// From here on, calls leave the return address in this register, and do not push it.
    pub(crate) fn return_by(&mut self, link: Reg) {
        self.link = Some(link);
    }

    /// The register's target on entry begins memory that only the function and its callees write. It overlaps neither
    /// other memory that the function stores to through pointers, nor its frame.
    pub(crate) fn keep_private(&mut self, reg: Reg) {
        self.private = Some(self.entry(reg).name);
    }

    /// From here on, what the function is passed in registers and on the stack is a number where it is found to be equal to
    /// one. Where ways come together then, it is one of several numbers, where a range would have many between them.
    pub(crate) fn settle_passed(&mut self) {
        self.settles_passed = true;
    }

    /// Whether comparisons settle what a register held where the function began, plus a number.
    fn settles(&self, unknown: Term) -> bool {
        self.settles_passed && matches!(self.get(unknown.name), Name::Entry(_))
    }

    /// How many registers there are.
    pub(crate) fn registers(&self) -> usize {
        self.registers
    }

    /// The constant that a term is, if every function has it under the same name.
    pub fn as_constant(&self, term: Term) -> Option<Constant> {
        match self.get(term.name) {
            Name::Zero => Some(Constant { symbol: None, number: term.offset }),
            Name::Symbol(symbol) => Some(Constant { symbol: Some(symbol), number: term.offset }),
            Name::Entry(_) | Name::Made { .. } | Name::Frame { .. } | Name::Low { .. } => None,
        }
    }

    /// Whether this is what the function has to give back to its caller: it stays where it is saved.
    fn is_saved(&self, value: &TermSet) -> bool {
        let Some(term) = value.single().filter(|term| term.offset == 0 && self.saved != 0) else {
            return false;
        };
        match self.get(term.name) {
            Name::Entry(reg) => self.saved >> reg.0 & 1 != 0,
            name => name == calls::RETURN_ADDRESS,
        }
    }

    /// The name, and whether it is new.
    fn add(&mut self, name: Name) -> (NameId, bool) {
        let new = NameId(self.names.len() as u32);
        let id = *self.ids.entry(name).or_insert(new);
        if id == new {
            self.names.push(name);
            if let Name::Made { at, .. } | Name::Frame { at } = name {
                self.makers.insert(at);
            }
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

    /// Whether a name stands for what the stack pointer holds on entry.
    fn is_top(&self, id: NameId) -> bool {
        matches!(self.get(id), Name::Entry(reg) if reg == self.stack_pointer)
    }

    /// Whether the function gives a register back to its caller from where it has saved it.
    pub(crate) fn is_kept(&self, reg: Reg) -> bool {
        self.saved >> reg.0 & 1 != 0
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

impl Unknowns<Term> for Names {
    fn mask(&self) -> u64 {
        self.mask
    }

    fn fits(&self, unknown: Term) -> Option<(u8, Option<Term>)> {
        match self.get(unknown.name) {
            Name::Low { of, width } => Some((width, Some(of))),
            Name::Zero | Name::Symbol(_) | Name::Entry(_) | Name::Made { .. } | Name::Frame { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;

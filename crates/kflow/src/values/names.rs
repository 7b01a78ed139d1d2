//! Names of unknowns, and numbers relative to them.

use std::sync::Arc;

use kisa::{Reg, Symbol, low_mask};
use rustc_hash::{FxBuildHasher, FxHashMap, FxHashSet};

use super::ranges::Unknowns;
use super::set::{Element, ValueSet};
use crate::constants::{Asked, ConstantMemory};

/// An instruction: its block, and its number in the block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Site {
    /// The block.
    pub block: u32,
    /// The number of the instruction in the block, from 0.
    pub number: u32,
}

/// The number of a name; plain numbers have the name 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NameId(u32);

impl NameId {
    pub(super) const NUMBER: NameId = NameId(0);
}

/// The meaning of a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Name {
    /// 0: the addend is a plain number.
    Zero,
    /// A number that the linker computes.
    Symbol(Symbol),
    /// The content of a register where the analysis began.
    Entry(Reg),
    /// The result of an instruction, or of a join before it; `slot` distinguishes the results of one instruction.
    Made { at: Site, slot: u8 },
    /// The stack pointer, moved by an instruction by an unknown distance.
    Frame { at: Site },
    /// The low bytes of another value.
    Low { of: Term, width: u8 },
}

/// The name of the return address, with a site before all instructions.
pub(super) const RETURN_ADDRESS: Name = Name::Made { at: Site { block: 0, number: 0 }, slot: 255 };

/// A number, or an unknown plus a number, modulo the machine's word.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Term {
    pub(super) name: NameId,
    pub(super) offset: u64,
}

impl Term {
    pub(super) fn of(name: NameId) -> Term {
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

    fn plus(self, number: u64, mask: u64) -> Term {
        Term { offset: self.offset.wrapping_add(number) & mask, ..self }
    }
}

/// Maximum number of names in most analyses of one function.
const NAMES: usize = 56;

/// One of a few terms, or anything.
pub type TermSet = ValueSet<Term>;

/// The names of one analysis, and the machine's arithmetic.
pub struct Names {
    names: Vec<Name>,
    ids: FxHashMap<Name, NameId>,
    /// The instructions that have made unknowns.
    pub(super) makers: FxHashSet<Site>,
    pub(super) word: u8,
    pub(super) mask: u64,
    pub(super) registers: usize,
    pub(super) stack_pointer: Reg,
    /// The register in which calls leave the return address; `None` if they push it.
    pub(super) link: Option<Reg>,
    /// The registers whose saved content on entry remains in the frame until the function restores it.
    saved: u64,
    /// Memory that other code may write at any time; `None` if there is none.
    pub(super) shared: Option<Arc<ConstantMemory>>,
    /// The requests for constant memory.
    pub(super) asked: Asked,
    /// The name that points to memory that only the function and its callees write.
    pub(super) private: Option<NameId>,
    /// Whether comparisons settle arguments.
    pub(super) settles_passed: bool,
}

impl Names {
    /// Creates the names for a machine with this word size in bytes, number of registers and stack pointer.
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

    /// From now on, others may write memory at any time, except for constant memory and for a frame whose address has
    /// not escaped.
    pub fn share_memory(&mut self, constant: Arc<ConstantMemory>) {
        self.shared = Some(constant);
    }

    /// Returns the requests for constant memory.
    pub(crate) fn into_asked(self) -> Asked {
        self.asked
    }

    /// From now on, only the function itself overwrites the saved copies, in its frame, of these registers, given as
    /// bits, and of the return address.
    pub fn keep_saved(&mut self, registers: u64) {
        self.saved = registers;
    }

    /// From now on, calls leave the return address in this register instead of pushing it.
    pub(crate) fn return_by(&mut self, link: Reg) {
        self.link = Some(link);
    }

    /// Declares that the register's target on entry begins memory that only the function and its callees write. It
    /// overlaps neither other memory that the function stores to through pointers, nor its frame.
    pub(crate) fn keep_private(&mut self, reg: Reg) {
        self.private = Some(self.entry(reg).name);
    }

    /// From now on, an argument that is found equal to a number becomes that number. Where edges join, the argument is
    /// then one of several numbers instead of a range with many between them.
    pub(crate) fn settle_passed(&mut self) {
        self.settles_passed = true;
    }

    /// Whether comparisons settle a term: the content of a register on entry, plus a number.
    pub(super) fn settles(&self, unknown: Term) -> bool {
        self.settles_passed && matches!(self.get(unknown.name), Name::Entry(_))
    }

    /// Returns the number of registers.
    pub(crate) fn registers(&self) -> usize {
        self.registers
    }

    /// Whether the function must return this value to its caller, so that its saved copy remains valid.
    pub(super) fn is_saved(&self, value: &TermSet) -> bool {
        let Some(term) = value.single().filter(|term| term.offset == 0 && self.saved != 0) else {
            return false;
        };
        match self.get(term.name) {
            Name::Entry(reg) => self.saved >> reg.0 & 1 != 0,
            name => name == RETURN_ADDRESS,
        }
    }

    /// Returns the number of a name, and whether it is new.
    pub(super) fn add(&mut self, name: Name) -> (NameId, bool) {
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

    pub(super) fn get(&self, id: NameId) -> Name {
        self.names[id.0 as usize]
    }

    /// Returns the name from which another one was derived.
    pub(super) fn root(&self, id: NameId) -> NameId {
        match self.get(id) {
            Name::Low { of, .. } => self.root(of.name),
            Name::Zero | Name::Symbol(_) | Name::Entry(_) | Name::Made { .. } | Name::Frame { .. } => id,
        }
    }

    /// Returns a symbol plus a number.
    pub fn symbol(&mut self, symbol: Symbol, addend: i64) -> Term {
        let (name, _) = self.add(Name::Symbol(symbol));
        self.plus(Term::of(name), addend as u64)
    }

    /// Returns the content of a register where the analysis began.
    pub fn entry(&mut self, reg: Reg) -> Term {
        Term::of(self.add(Name::Entry(reg)).0)
    }

    /// Returns the symbol and the addend of a term.
    pub fn as_symbol(&self, term: Term) -> Option<(Symbol, i64)> {
        match self.get(term.name) {
            Name::Symbol(symbol) => Some((symbol, self.signed(term.offset))),
            _ => None,
        }
    }

    /// Returns the register and the addend of a term that is a register's initial content plus a number.
    pub fn as_entry(&self, term: Term) -> Option<(Reg, i64)> {
        match self.get(term.name) {
            Name::Entry(reg) => Some((reg, self.signed(term.offset))),
            _ => None,
        }
    }

    pub(super) fn signed(&self, offset: u64) -> i64 {
        kisa::sign_extend(offset, self.word) as i64
    }

    /// Whether a name stands for the stack pointer on entry.
    pub(super) fn is_top(&self, id: NameId) -> bool {
        matches!(self.get(id), Name::Entry(reg) if reg == self.stack_pointer)
    }

    /// Whether the function returns a register to its caller from its saved copy.
    pub(crate) fn is_kept(&self, reg: Reg) -> bool {
        self.saved >> reg.0 & 1 != 0
    }

    /// Whether a name stands for a place in the frame.
    pub(super) fn is_frame(&self, id: NameId) -> bool {
        match self.get(id) {
            Name::Entry(reg) => reg == self.stack_pointer,
            Name::Frame { .. } => true,
            Name::Zero | Name::Symbol(_) | Name::Made { .. } | Name::Low { .. } => false,
        }
    }

    /// Whether a name stands for a number that is constant at run time.
    pub(super) fn is_fixed(&self, id: NameId) -> bool {
        matches!(self.get(id), Name::Zero | Name::Symbol(_))
    }

    pub(super) fn plus(&self, term: Term, number: u64) -> Term {
        term.plus(number, self.mask)
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

//! The summaries of all functions of a program, and the facts behind them.

use std::sync::Arc;

use kisa::{Address, Reg};

use super::call::{Results, Summary};
use super::touched::Touched;
use crate::constants::{ConstantMemory, ConstantSet};
use crate::facts::Facts;
use crate::machine::{Convention, Machine};
use crate::program::{Callee, EVERYTHING, FLAGS, FunctionCfg, FunctionIndex, Program, Then, Way, bit};

/// The results about a function.
pub(crate) struct Found {
    pub(super) summary: Summary,
    /// `None` if it does not return.
    pub(super) results: Option<Results>,
    /// The registers that it returns changed to its caller in spite of the convention: global register variables.
    pub(super) takes: u64,
    /// Whether it may return to another place than its caller, like `longjmp()`.
    pub(super) returns_elsewhere: bool,
    /// Facts that hold for every caller; `None` if it could not be analysed.
    pub(super) facts: Option<Facts>,
}

/// The summaries of all functions of a program.
pub struct Summaries {
    pub(super) functions: Vec<Summary>,
    /// `None` for a function that does not return.
    pub(super) results: Vec<Option<Results>>,
    /// The last result about each function.
    pub(super) found: Vec<Option<Arc<Found>>>,
    /// For each function, whether it may return to another place than its caller.
    pub(super) elsewhere: Vec<bool>,
    pub(crate) machine: Machine,
    pub(crate) memory: Arc<ConstantMemory>,
    /// The registers that are live everywhere: interrupts and signals use the stack.
    pub(crate) always_live: u64,
    /// For each block of the program.
    pub(crate) touched: Vec<Touched>,
}

impl Summaries {
    /// Returns the summary of a function that is called by its address, or cannot be analysed. Inline `asm` also makes
    /// such calls, and such functions, with arguments in any registers.
    pub(super) fn conventional(&self) -> Summary {
        let by = |convention| Summary::by(convention, EVERYTHING & !FLAGS);
        self.machine.convention.map_or(Summary::UNKNOWN, by)
    }

    /// Returns the summary of a call.
    pub fn get(&self, callee: Callee) -> Summary {
        match callee {
            Callee::Function(function) => self.functions[function.get()],
            Callee::Conventional => self.conventional(),
            Callee::HandWritten => {
                Summary { changes: EVERYTHING & !bit(self.machine.stack_pointer), ..Summary::UNKNOWN }
            }
            Callee::Unknown => Summary::UNKNOWN,
        }
    }

    /// Whether the behaviour of a function is known from its code.
    pub fn is_known(&self, function: FunctionIndex) -> bool {
        let summary = self.functions[function.get()];
        summary != Summary::UNKNOWN && summary != self.conventional()
    }

    /// Whether nobody writes to these bytes of memory, according to their address alone.
    pub fn is_constant(&self, address: &Address, width: u8) -> bool {
        let symbol = address.symbol.filter(|_| address.registers() == 0 && address.segment.is_none());
        symbol.is_some_and(|symbol| self.memory.read(symbol, address.displacement, width).is_some())
    }

    /// Whether a function may return to its caller.
    pub fn returns(&self, callee: Callee) -> bool {
        match callee {
            Callee::Function(function) => self.results[function.get()].is_some(),
            Callee::Conventional | Callee::HandWritten | Callee::Unknown => true,
        }
    }

    /// Whether a function may return to another place than its caller.
    pub(crate) fn returns_elsewhere(&self, function: FunctionIndex) -> bool {
        self.elsewhere[function.get()]
    }

    /// Returns the facts about a function that hold for every caller.
    pub(crate) fn facts(&self, function: FunctionIndex) -> Option<&Facts> {
        self.found[function.get()].as_ref()?.facts.as_ref()
    }

    /// Returns the registers in which a call leaves known results, with these.
    pub(crate) fn results(&self, callee: Callee) -> impl Iterator<Item = (Reg, &ConstantSet)> {
        let results = match callee {
            Callee::Function(function) => self.results[function.get()].as_ref(),
            Callee::Conventional | Callee::HandWritten | Callee::Unknown => None,
        };
        let registers = self.machine.convention.map(|convention| convention.results);
        let pairs = registers.zip(results).into_iter();
        pairs
            .flat_map(|(registers, results)| registers.into_iter().zip(&results.0))
            .filter(|(_, set)| !set.is_any())
    }

    /// Whether a function can be analysed completely: it is entered only at its start, and every jump and call leaves
    /// the stack pointer known.
    pub fn can_follow(&self, program: &impl Program, function: FunctionIndex, cfg: &FunctionCfg) -> bool {
        let loses = |way: &Way| {
            let is_unknown = |callee| self.get(callee) == Summary::UNKNOWN && way.then != Then::Nowhere;
            way.then == Then::Anywhere || way.callee.is_some_and(is_unknown)
        };
        !program.has_other_entries(function)
            && !cfg.ways.iter().copied().flatten().any(loses)
            && !cfg.blocks.iter().any(|&block| program.may_leave_early(block))
    }

    /// Returns the registers that are live for unknown callers, at the returns of a function that is entered only at
    /// its start.
    pub(crate) fn live_at_return(&self) -> u64 {
        match self.machine.convention {
            Some(Convention { changed, returned, .. }) => !(changed | FLAGS) | returned,
            None => EVERYTHING,
        }
    }

    /// Returns the registers that are live before an edge, given those that are live at its target, in the block or the
    /// caller.
    pub(crate) fn live_before(&self, way: &Way, live: u64) -> u64 {
        match way.callee.map(|callee| self.get(callee)) {
            Some(summary) => live & !summary.overwrites | summary.reads,
            None => live,
        }
    }
}

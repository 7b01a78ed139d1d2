//! What later code of a path needs, and so which operations are left.

use std::collections::BTreeSet;

use kcfg::graph::{Dest, Graph};
use kcfg::index::NodeId;
use kflow::{FLAGS, Liveness, Summaries};
use kisa::Reg;

use super::explore::{Explorer, Key};
use super::op::{Op, bit};
use super::state::{REGISTERS, State, WORD};
use super::value::Value;

/// What is needed at one point.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Demand {
    /// The registers, as a set of bits.
    pub registers: u64,
    /// Whether flags are needed.
    pub flags: bool,
    /// The words of the stack.
    pub words: BTreeSet<i32>,
}

/// The form in which an operation is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// It goes.
    None,
    /// Its short form.
    Short,
    /// As it is.
    Full,
}

impl Demand {
    /// Adds what another point needs.
    pub fn add(&mut self, other: &Demand) {
        self.registers |= other.registers;
        self.flags |= other.flags;
        self.words.extend(&other.words);
    }

    /// Returns the form of an operation, and makes this the demand before it.
    pub fn before(&mut self, op: &Op) -> Form {
        let needed = |words: &[i32]| words.iter().any(|word| self.words.contains(word));
        let flags = op.writes_flags && self.flags;
        let is_needed = !op.removable
            || self.registers & op.writes != 0
            || flags
            || needed(&op.stores)
            || needed(&op.changes);
        match &op.short {
            _ if !is_needed => Form::None,
            Some(short) if !flags => {
                self.registers = self.registers & !short.kills | short.reads;
                Form::Short
            }
            _ => {
                self.registers = self.registers & !op.kills | op.reads;
                self.flags = self.flags && !op.kills_flags || op.reads_flags;
                self.words.retain(|word| !op.stores.contains(word));
                self.words.extend(&op.loads);
                Form::Full
            }
        }
    }
}

/// A way on after a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// To another piece.
    To(usize),
    /// Out of the path, by the exit with this number.
    Exit(usize),
}

/// The end of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PieceEnd {
    /// It continues, after a call if its last operation is one.
    Go(Way),
    /// On a condition, it takes the first way.
    Branch(u8, [Way; 2]),
    /// It returns to the path's caller.
    Leave,
}

/// A block of a path, as operations.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Its block.
    pub key: Key,
    /// Its operations.
    pub ops: Vec<Op>,
    /// Its end.
    pub end: PieceEnd,
}

/// What an exit puts in a word of the stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Content {
    /// The content of a register.
    Register(Reg),
    /// A known value.
    Known(Value),
}

/// A way out of a path.
#[derive(Clone, Debug)]
pub struct Exit {
    /// The original code at which it continues.
    pub dest: Dest,
    /// What is known there.
    pub state: State,
    /// The original's stack pointer there, in bytes from the one at the entry of the path.
    pub stack: i32,
    /// What it has to put in place: words of the stack, and registers.
    pub words: Vec<(i32, Content)>,
    pub registers: Vec<(Reg, Value)>,
    /// What has to be in place before it.
    pub demand: Demand,
}

/// Finds what exits and returns need.
pub struct Needs<'a, 'g> {
    pub graph: &'g Graph,
    pub program: &'a kcfg::flow::GraphProgram<'g>,
    pub summaries: &'a Summaries,
    pub liveness: &'a Liveness,
}

impl Needs<'_, '_> {
    /// Returns the registers, with [`FLAGS`], that are live at a destination.
    fn live(&self, dest: Dest) -> u64 {
        let node = self.graph.resolve(dest.target).filter(|&(_, inside)| inside == 0 && dest.offset == 0);
        let block = node.and_then(|(node, _)| self.program.block(node));
        block.map_or(u64::MAX, |block| self.liveness.before(block))
    }

    /// Returns what is needed at a return of the path's entry function.
    pub fn at_return(&self, node: NodeId) -> Demand {
        let live = match self.program.block(node) {
            Some(block) => {
                let function = self.program.function_of(block);
                self.liveness.behind(self.program, self.summaries, function, block)
            }
            None => u64::MAX,
        };
        // Its arguments on the stack are its own.
        Demand {
            registers: general(live),
            flags: live & FLAGS != 0,
            words: (WORD..0x40).step_by(4).collect(),
        }
    }

    /// Creates an exit.
    pub fn exit(&self, explorer: &Explorer<'_>, dest: Dest, state: State, stack: i32) -> Exit {
        let live = self.live(dest);
        let preserved = !explorer.original.isa.convention().call_clobbered;
        let mut exit = Exit {
            dest,
            stack,
            words: Vec::new(),
            registers: Vec::new(),
            demand: Demand { flags: live & FLAGS != 0, ..Demand::default() },
            state,
        };
        let stack_pointer = explorer.original.isa.convention().stack_pointer;
        for reg in (0..REGISTERS as u8).map(Reg).filter(|&reg| general(live) & bit(reg) != 0) {
            match exit.state.register(reg) {
                _ if reg == stack_pointer => {}
                value if value.is_known() => exit.registers.push((reg, value)),
                _ => exit.demand.registers |= bit(reg),
            }
        }
        for word in (stack..0).step_by(WORD as usize) {
            let value = exit.state.stack.get(&word).copied().unwrap_or(Value::Any);
            let same = |&reg: &Reg| {
                preserved & bit(reg) != 0 && reg != stack_pointer && exit.state.register(reg) == value
            };
            let holder = (0..REGISTERS as u8).map(Reg).find(same);
            match (value, holder) {
                (value, _) if value.is_known() => exit.words.push((word, Content::Known(value))),
                (Value::Name(..), Some(reg)) => {
                    exit.words.push((word, Content::Register(reg)));
                    exit.demand.registers |= bit(reg);
                }
                _ => drop(exit.demand.words.insert(word)),
            }
        }
        exit.demand.words.extend((WORD..0x40).step_by(4));
        exit
    }
}

fn general(live: u64) -> u64 {
    live & ((1 << REGISTERS) - 1)
}

/// Returns what is needed after each piece.
pub fn solve(pieces: &[Piece], exits: &[Exit], at_return: impl Fn(NodeId) -> Demand) -> Vec<Demand> {
    let mut before: Vec<Demand> = vec![Demand::default(); pieces.len()];
    let after = |piece: &Piece, before: &[Demand]| {
        let mut demand = Demand::default();
        let mut add = |way: &Way| match *way {
            Way::To(piece) => demand.add(&before[piece]),
            Way::Exit(exit) => demand.add(&exits[exit].demand),
        };
        match &piece.end {
            PieceEnd::Go(way) => add(way),
            PieceEnd::Branch(_, ways) => {
                ways.iter().for_each(add);
                demand.flags = true;
            }
            PieceEnd::Leave => demand = at_return(piece.key.1),
        }
        demand
    };
    let mut changed = true;
    while changed {
        changed = false;
        for (number, piece) in pieces.iter().enumerate().rev() {
            let mut demand = after(piece, &before);
            for op in piece.ops.iter().rev() {
                demand.before(op);
            }
            changed |= demand != before[number];
            before[number] = demand;
        }
    }
    pieces.iter().map(|piece| after(piece, &before)).collect()
}

//! The blocks of a path, each with what is known before it: functions are followed into their callees, and a function
//! that is called twice occurs twice.

use std::collections::{BTreeMap, BTreeSet};

use kcfg::edges::Edges;
use kcfg::flow::GraphProgram;
use kcfg::graph::{Dest, Graph, Target, Terminator};
use kcfg::index::{FunctionId, NodeId};
use kflow::constants::ConstantMemory;
use kflow::{Summaries, Summary};
use kisa::specializing::Specialize;
use kisa::{BranchKind, Flow, Reg, Rewritable};
use rustc_hash::FxHashMap;
use tracing::debug;

use super::context::Context;
use super::copies::returns;
use super::state::{Joined, State};
use super::value::{NameId, Value};

/// A reason why something is not copied.
pub type Why = &'static str;

/// Maximum number of visits of blocks.
const VISITS: usize = 40_000;

/// Maximum number of blocks that turn out not to be copyable.
pub const RETRIES: usize = 100;

/// An occurrence of a function in a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InstanceId(pub u32);

/// A block of an occurrence of a function.
pub type Key = (InstanceId, NodeId);

/// An occurrence of a function.
#[derive(Clone, Debug)]
pub struct Instance {
    /// The function; `None` if it is opaque, and only its first block, which is all of it, is known.
    pub function: Option<FunctionId>,
    /// Its first block.
    pub entry: NodeId,
    /// The block at which control continues after it; `None` after the path's entry function.
    pub back: Option<Key>,
    /// The place of its return address, in bytes from the stack pointer at the entry of the path.
    pub base: i32,
    /// The words of its frame where it saves registers of its caller.
    pub saved: Vec<i32>,
}

/// A source of an unknown value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Source {
    /// A register at the entry of the path.
    Entry(u8),
    /// An object of the context.
    Object(usize),
    /// The result of an instruction at an offset in a block, in a register.
    Result(Key, u32, u8),
    /// The content of a place where ways join.
    Joined(Key, Joined),
}

/// The way on after a block.
#[derive(Clone, PartialEq, Debug)]
pub enum Edge {
    /// To another block of the path.
    To(Key),
    /// Out of the path, to the original code.
    Exit(Dest),
}

/// The end of a block of a path.
#[derive(Clone, Debug)]
pub enum End {
    /// It continues.
    Go(Edge),
    /// It continues at one of two places.
    Branch {
        /// The machine's condition.
        condition: u8,
        /// The way if it holds, and otherwise.
        ways: [Edge; 2],
    },
    /// It enters a function in its place; the word of the stack with the return address, and that.
    Enter(Edge, i32, NodeId),
    /// It enters a function in its place if that is the target of its computed call, and otherwise leaves the path for the
    /// original call; the function, the ways, the word of the stack with the return address, and that.
    Expect(NodeId, [Edge; 2], i32, NodeId),
    /// It calls original code.
    Call(Call, Edge),
    /// It jumps to original code, which returns to the path's caller.
    Leave,
}

/// A call of original code.
#[derive(Clone, Debug)]
pub struct Call {
    /// The function, if it is known although the call is computed.
    pub target: Option<Target>,
    /// Its effect.
    pub summary: Summary,
    /// Words of the stack that it may read.
    pub reads: BTreeSet<i32>,
    /// The stack pointer before the call, in bytes from the one at the entry of the path.
    pub stack: i32,
}

/// The original code, and what is known of it.
#[derive(Clone, Copy)]
pub struct Original<'g> {
    pub graph: &'g Graph,
    pub isa: &'g dyn Rewritable,
    pub specialize: &'g dyn Specialize,
    pub program: &'g GraphProgram<'g>,
    pub summaries: &'g Summaries,
    pub memory: &'g ConstantMemory,
    pub edges: &'g Edges<'g>,
    /// Whether a block ran.
    pub ran: &'g dyn Fn(NodeId) -> bool,
    /// The functions that stay calls.
    pub calls: &'g BTreeSet<FunctionId>,
    /// The functions that computed calls of functions are expected to call, by caller.
    pub targets: &'g BTreeMap<FunctionId, NodeId>,
}

/// Explores a path.
pub struct Explorer<'g> {
    pub original: Original<'g>,
    pub context: Context,
    /// The numbers of the facts that decided something.
    pub used: BTreeSet<usize>,
    /// The unknown values that decided something because they are addresses.
    pub used_addresses: BTreeSet<NameId>,
    pub instances: Vec<Instance>,
    pub states: BTreeMap<Key, State>,
    /// The lowest stack pointer.
    pub lowest: i32,
    /// Functions that stay calls although they ran, with the reasons.
    pub kept: BTreeMap<String, Why>,
    entry: Key,
    pub instance_of: FxHashMap<(InstanceId, NodeId, NodeId), InstanceId>,
    names: FxHashMap<Source, NameId>,
    can_copy: FxHashMap<NodeId, Result<(), Why>>,
}

impl<'g> Explorer<'g> {
    /// Creates an explorer without a context.
    pub fn new(original: Original<'g>) -> Explorer<'g> {
        Explorer {
            original,
            context: Context::default(),
            used: BTreeSet::new(),
            used_addresses: BTreeSet::new(),
            instances: Vec::new(),
            states: BTreeMap::new(),
            lowest: 0,
            kept: BTreeMap::new(),
            entry: (InstanceId(0), NodeId(0)),
            instance_of: FxHashMap::default(),
            names: FxHashMap::default(),
            can_copy: FxHashMap::default(),
        }
    }

    /// Returns the name of a register's content at the entry.
    pub fn entry_name(&mut self, reg: Reg) -> NameId {
        self.name(Source::Entry(reg.0))
    }

    /// Returns the name of the address of an object of the context.
    pub fn object_name(&mut self, number: usize) -> NameId {
        self.name(Source::Object(number))
    }

    /// Returns the name of the result of an instruction in a register.
    pub fn result_name(&mut self, key: Key, offset: u32, reg: Reg) -> NameId {
        self.name(Source::Result(key, offset, reg.0))
    }

    fn name(&mut self, source: Source) -> NameId {
        let next = NameId(self.names.len() as u32);
        *self.names.entry(source).or_insert(next)
    }

    /// Explores the path from the entry of a function on.
    ///
    /// # Errors
    /// The reason why there is no path.
    pub fn run(&mut self, entry: NodeId, state: State) -> Result<Key, Why> {
        let mut retries = RETRIES;
        loop {
            match self.attempt(entry, state.clone()) {
                Ok(first) => return Ok(first),
                // The block stays where it is, so the path is another one.
                Err((Some((instance, node)), why)) if node != entry && retries > 0 => {
                    let function = self.instances[instance.0 as usize].function;
                    let name = function.map_or("", |function| &self.original.graph.function(function).name);
                    debug!("specialize: kept block {node:?} of {name}: {why}");
                    self.can_copy.insert(node, Err(why));
                    retries -= 1;
                }
                Err((_, why)) => return Err(why),
            }
        }
    }

    /// Keeps a block where it is.
    pub fn refuse(&mut self, node: NodeId, why: Why) {
        self.can_copy.insert(node, Err(why));
    }

    /// Returns the first block of the path.
    pub fn first(&self) -> Key {
        self.entry
    }

    /// Explores the path once.
    ///
    /// # Errors
    /// The block that cannot be followed, if it is one, and the reason.
    fn attempt(&mut self, entry: NodeId, state: State) -> Result<Key, (Option<Key>, Why)> {
        let function = self.original.graph.function_of(entry).ok_or((None, "it is opaque"))?;
        self.may_copy(entry).map_err(|why| (None, why))?;
        (self.lowest, self.kept) = (0, BTreeMap::new());
        self.instances.clear();
        self.states.clear();
        self.instance_of.clear();
        let saved = self.saved(entry, 0);
        self.instances.push(Instance { function: Some(function), entry, back: None, base: 0, saved });
        let first = (InstanceId(0), entry);
        self.entry = first;
        self.states.insert(first, state);
        let mut pending = BTreeSet::from([first]);
        for _ in 0..VISITS {
            let Some(key) = pending.pop_first() else { return Ok(first) };
            let state = self.states[&key].clone();
            let followed = self.follow(key, state, |_, _, _, _| ());
            let (end, state) = followed.map_err(|why| (Some(key), why))?;
            for (to, state) in self.successors(&end, state) {
                if self.arrive(to, state) {
                    pending.insert(to);
                }
            }
        }
        Err((None, "it has too many ways"))
    }

    /// Whether a block may be copied.
    ///
    /// # Errors
    /// The reason why not.
    pub fn may_copy(&mut self, node: NodeId) -> Result<(), Why> {
        if let Some(&known) = self.can_copy.get(&node) {
            return known;
        }
        let answer = self.original.copies(node);
        self.can_copy.insert(node, answer);
        answer
    }

    /// Records a state before a block; returns whether it is news.
    fn arrive(&mut self, to: Key, state: State) -> bool {
        let Some(known) = self.states.remove(&to) else {
            self.states.insert(to, state);
            return true;
        };
        let mut joined = known;
        let changed = joined.join(&state, |place| self.name(Source::Joined(to, place)));
        self.states.insert(to, joined);
        changed
    }

    /// Returns the blocks after a block, each with its state.
    fn successors(&self, end: &End, state: State) -> Vec<(Key, State)> {
        let to = |edge: &Edge, state: State| match edge {
            Edge::To(key) => Some((*key, state)),
            Edge::Exit(_) => None,
        };
        match end {
            End::Go(edge) | End::Enter(edge, ..) | End::Call(_, edge) | End::Expect(_, [edge, _], ..) => {
                to(edge, state).into_iter().collect()
            }
            End::Branch { condition, ways } => {
                let taken = state.after_branch(self.original.isa, *condition, true);
                let other = state.after_branch(self.original.isa, *condition, false);
                to(&ways[0], taken).into_iter().chain(to(&ways[1], other)).collect()
            }
            End::Leave => Vec::new(),
        }
    }

    /// Follows the instructions of a block, and calls `visit` with the state before each, the offset of the instruction,
    /// and the state after it.
    ///
    /// # Errors
    /// The reason why the path cannot be followed.
    pub fn follow(
        &mut self,
        key: Key,
        mut state: State,
        mut visit: impl FnMut(&mut Self, &State, &kcfg::instructions::Instruction<'g>, &State),
    ) -> Result<(End, State), Why> {
        let graph = self.original.graph;
        let (instance, node) = key;
        let leaf = Terminator::Return;
        let end = graph.block(node).map_or(&leaf, |block| &block.end);
        let mut instructions = graph.instructions(node).ok_or("it is not made of instructions")?;
        if graph.block(node).is_none() {
            instructions.truncate(1 + returns(&instructions).ok_or("it is opaque")?);
        }
        let is_transfer = |flow: Flow| match flow {
            Flow::Direct { branch, .. } => branch.kind == BranchKind::Call,
            flow => matches!(flow, Flow::Return | Flow::IndirectCall),
        };
        let last = instructions.last().filter(|last| is_transfer(last.inst.insn.flow));
        let plain = &instructions[..instructions.len() - usize::from(last.is_some())];
        for instruction in plain {
            let before = state.clone();
            self.apply(key, instruction, &mut state)?;
            self.lowest = self.lowest.min(self.stack(&state)?);
            visit(self, &before, instruction, &state);
        }
        let end = match end {
            Terminator::FallThrough(next) => {
                let dest = Dest { target: Target::Node(*next), offset: 0 };
                End::Go(self.edge(instance, dest, &state)?)
            }
            Terminator::Jump(dest) => End::Go(self.edge(instance, *dest, &state)?),
            Terminator::Branch { branch, taken, next } if branch.kind == BranchKind::Conditional => {
                let other = Dest { target: Target::Node(*next), offset: 0 };
                match self.original.specialize.holds(branch.condition, state.flags) {
                    Some(true) => End::Go(self.edge(instance, *taken, &state)?),
                    Some(false) => End::Go(self.edge(instance, other, &state)?),
                    None => End::Branch {
                        condition: branch.condition,
                        ways: [self.edge(instance, *taken, &state)?, self.edge(instance, other, &state)?],
                    },
                }
            }
            Terminator::Call { next: Some(next) } | Terminator::IndirectCall { next: Some(next) } => {
                let last = last.ok_or("a call is not its last instruction")?;
                self.call(key, last, *next, &mut state)?
            }
            Terminator::Return => self.leave(instance, &mut state)?,
            _ => return Err("it ends in a way that is not supported"),
        };
        let stack = self.stack(&state)?;
        self.lowest = self.lowest.min(stack);
        state.raise(stack);
        Ok((end, state))
    }

    /// Returns the stack pointer.
    ///
    /// # Errors
    /// If it is unknown.
    pub fn stack(&self, state: &State) -> Result<i32, Why> {
        match state.register(self.original.isa.convention().stack_pointer) {
            Value::Stack(offset) => Ok(offset),
            _ => Err("the stack pointer is unknown"),
        }
    }

    /// Returns the edge to a block of the same function, or to another function by a jump.
    ///
    /// # Errors
    /// If the stack pointer is unknown.
    pub fn edge(&mut self, instance: InstanceId, dest: Dest, state: &State) -> Result<Edge, Why> {
        let exit = Edge::Exit(dest);
        let graph = self.original.graph;
        let Some((node, 0)) = graph.resolve(dest.target).filter(|_| dest.offset == 0) else {
            return Ok(exit);
        };
        if graph.may_be_replaced(dest.target) || !(self.original.ran)(node) || self.may_copy(node).is_err() {
            return Ok(exit);
        }
        if graph.function_of(node).is_some()
            && graph.function_of(node) == self.instances[instance.0 as usize].function
        {
            return Ok(Edge::To((instance, node)));
        }
        // A jump to a function, which returns in place of this one.
        let Instance { back, base, .. } = self.instances[instance.0 as usize];
        if self.stack(state)? != base || self.may_enter(instance, node).is_err() {
            return Ok(exit);
        }
        Ok(Edge::To((self.enter(instance, node, node, back, base), node)))
    }
}

//! The blocks of a path, each with what is known before it: functions are followed into their callees, and a function
//! that is called twice occurs twice.

use std::collections::{BTreeMap, BTreeSet};

use kcfg::edges::Edges;
use kcfg::flow::GraphProgram;
use kcfg::graph::{Dest, Graph, Role, SymbolPlace, Target, Terminator};
use kcfg::index::{FunctionId, NodeId};
use kflow::constants::ConstantMemory;
use kflow::{Callee, Program, Summaries, Summary};
use kisa::specializing::Specialize;
use kisa::{BranchKind, Condition, Flow, Reg, Rewritable, Value as Operand};
use rustc_hash::FxHashMap;
use tracing::debug;

use super::context::Context;
use super::state::{Joined, REGISTERS, State, WORD};
use super::value::{NameId, Value};
use crate::identical::entries;

/// A reason why something is not copied.
pub type Why = &'static str;

/// Maximum number of functions around a block.
const DEPTH: usize = 16;

/// Maximum number of occurrences of functions.
const INSTANCES: usize = 300;

/// Maximum size in bytes of opaque functions that are copied.
const LEAF: u32 = 32;

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
    saved: Vec<i32>,
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

/// Explores a path.
pub struct Explorer<'g> {
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
    instance_of: FxHashMap<(InstanceId, NodeId, NodeId), InstanceId>,
    names: FxHashMap<Source, NameId>,
    can_copy: FxHashMap<NodeId, Result<(), Why>>,
}

impl<'g> Explorer<'g> {
    /// Creates an explorer without a context.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        graph: &'g Graph,
        specialize: &'g dyn Specialize,
        program: &'g GraphProgram<'g>,
        summaries: &'g Summaries,
        memory: &'g ConstantMemory,
        edges: &'g Edges<'g>,
        ran: &'g dyn Fn(NodeId) -> bool,
        calls: &'g BTreeSet<FunctionId>,
        targets: &'g BTreeMap<FunctionId, NodeId>,
    ) -> Explorer<'g> {
        Explorer {
            graph,
            isa: graph.isa(),
            specialize,
            program,
            summaries,
            memory,
            edges,
            ran,
            calls,
            targets,
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
                    let name = function.map_or("", |function| &self.graph.function(function).name);
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
        let function = self.graph.function_of(entry).ok_or((None, "it is opaque"))?;
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
                let taken = self.refined(&state, *condition, true);
                let other = self.refined(&state, *condition, false);
                to(&ways[0], taken).into_iter().chain(to(&ways[1], other)).collect()
            }
            End::Leave => Vec::new(),
        }
    }

    /// Returns the state after a branch.
    pub fn refined(&self, state: &State, condition: u8, taken: bool) -> State {
        let mut state = state.clone();
        let branch = kisa::Branch { kind: BranchKind::Conditional, condition };
        let means = self.isa.condition(branch);
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
        let graph = self.graph;
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
                match self.specialize.holds(branch.condition, state.flags) {
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
        match state.register(self.isa.convention().stack_pointer) {
            Value::Stack(offset) => Ok(offset),
            _ => Err("the stack pointer is unknown"),
        }
    }

    /// Returns the edge to a block of the same function, or to another function by a jump.
    fn edge(&mut self, instance: InstanceId, dest: Dest, state: &State) -> Result<Edge, Why> {
        let exit = Edge::Exit(dest);
        let graph = self.graph;
        let Some((node, 0)) = graph.resolve(dest.target).filter(|_| dest.offset == 0) else {
            return Ok(exit);
        };
        if graph.may_be_replaced(dest.target) || !(self.ran)(node) || self.may_copy(node).is_err() {
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

    /// Returns the occurrence of a function that a block enters.
    fn enter(
        &mut self,
        from: InstanceId,
        call: NodeId,
        entry: NodeId,
        back: Option<Key>,
        base: i32,
    ) -> InstanceId {
        if let Some(&known) = self.instance_of.get(&(from, call, entry)) {
            return known;
        }
        let id = InstanceId(self.instances.len() as u32);
        let saved = self.saved(entry, base);
        let function = self.graph.function_of(entry);
        self.instances.push(Instance { function, entry, back, base, saved });
        self.instance_of.insert((from, call, entry), id);
        id
    }

    /// Whether the function at a block may occur in place of a call.
    fn may_enter(&mut self, from: InstanceId, entry: NodeId) -> Result<(), Why> {
        let graph = self.graph;
        let function = graph.function_of(entry);
        if function.is_some_and(|function| graph.function(function).entry() != entry)
            || graph.is_outlined(entry)
        {
            return Err("it is not a function");
        }
        if function.is_some_and(|function| self.calls.contains(&function)) {
            return Err("the document says so");
        }
        if !(self.ran)(entry) {
            return Err("it did not run");
        }
        let (mut depth, mut at) = (0, Some(from));
        while let Some(instance) = at {
            let instance = &self.instances[instance.0 as usize];
            if instance.entry == entry {
                return Err("it calls itself");
            }
            depth += 1;
            at = instance.back.map(|(instance, _)| instance);
        }
        if depth > DEPTH || self.instances.len() > INSTANCES {
            return Err("there are too many functions around it");
        }
        let Some(function) = function else { return self.may_copy(entry) };
        for &node in &graph.function(function).blocks {
            if graph.node(node).live && (self.ran)(node) {
                self.may_copy(node)?;
            }
        }
        Ok(())
    }

    /// Whether a block may be copied.
    fn may_copy(&mut self, node: NodeId) -> Result<(), Why> {
        if let Some(&known) = self.can_copy.get(&node) {
            return known;
        }
        let answer = self.copies(node);
        self.can_copy.insert(node, answer);
        answer
    }

    fn copies(&self, node: NodeId) -> Result<(), Why> {
        let graph = self.graph;
        let leaf = Terminator::Return;
        let end = match graph.block(node) {
            Some(block) => &block.end,
            None if self.is_leaf(node) => &leaf,
            None => return Err("it is opaque"),
        };
        let supported = graph.node(node).live
            && match end {
                Terminator::Branch { branch, .. } => {
                    branch.kind == BranchKind::Conditional && branch.condition < 16
                }
                Terminator::FallThrough(_)
                | Terminator::Jump(_)
                | Terminator::Return
                | Terminator::Call { next: Some(_) }
                | Terminator::IndirectCall { next: Some(_) } => true,
                _ => false,
            };
        if !supported {
            return Err("it ends in a way that is not supported");
        }
        if graph.node(node).glued_to.is_some() || graph.knows_own_address(node) {
            return Err("its place matters");
        }
        if !entries(self.edges, node).is_empty() {
            return Err("a table is about one of its instructions");
        }
        if graph.calls_outlined(node) {
            return Err("it calls outlined code");
        }
        let Some(instructions) = graph.instructions(node) else {
            return Err("it is not made of instructions");
        };
        let movable = instructions.iter().all(|instruction| {
            self.isa.can_move(&instruction.inst)
                && !self.isa.holds_interrupts(&instruction.inst)
                && instruction.fields.iter().all(|field| graph.target_of(field.symbol).is_some())
                || matches!(instruction.inst.insn.flow, Flow::Direct { .. })
        });
        let plain = graph.refs_of(node).iter().all(|r| matches!(r.role, Role::Address | Role::Callee));
        if movable && plain { Ok(()) } else { Err("it has instructions that cannot move") }
    }

    /// Whether opaque code is a function without branches and calls. Short functions are opaque, because a pointer to one
    /// with a tag may point past its end.
    fn is_leaf(&self, node: NodeId) -> bool {
        let graph = self.graph;
        if !graph.is_code(node) || graph.node(node).size > LEAF {
            return false;
        }
        let Some(instructions) = graph.instructions(node) else { return false };
        let plain = graph.refs_of(node).iter().all(|r| r.role == Role::Address);
        let inner = graph.symbols().iter().any(|symbol| {
            matches!(symbol.place, SymbolPlace::Node(at, inside) if at == node && inside != 0 && inside < graph.node(node).size)
        });
        let Some(last) = returns(&instructions) else { return false };
        let padding = instructions[last + 1..]
            .iter()
            .all(|instruction| self.isa.padding_len(instruction.inst.bytes, graph.encoding(node)).is_some());
        plain && padding && !inner
    }

    /// The words of a frame where a function first saves registers of its caller.
    fn saved(&self, entry: NodeId, base: i32) -> Vec<i32> {
        let convention = self.isa.convention();
        let (mut at, mut saved, mut written) = (base, vec![base], 0);
        for instruction in self.graph.instructions(entry).unwrap_or_default() {
            let moves = instruction.effects.iter().find_map(|effect| match effect {
                kisa::Effect::Store { value: Operand::Reg { reg, width: 4 }, .. } => Some(*reg),
                _ => None,
            });
            let is_push = self.specialize.uses_stack_pointer(&instruction.inst)
                && self.isa.memory_operand(&instruction.inst).is_none();
            match moves.filter(|_| is_push) {
                Some(reg) => {
                    at -= WORD;
                    let is_preserved = convention.call_clobbered >> reg.0 & 1 == 0;
                    saved.extend((is_preserved && written >> reg.0 & 1 == 0).then_some(at));
                }
                None if is_push => break,
                None => {}
            }
            written |= instruction.effects.iter().fold(0, |set, effect| set | effect.registers_written());
        }
        saved
    }

    /// Applies a return.
    fn leave(&mut self, instance: InstanceId, state: &mut State) -> Result<End, Why> {
        let Instance { back, base, .. } = self.instances[instance.0 as usize];
        if self.stack(state)? != base {
            return Err("it does not return as it was called");
        }
        let stack_pointer = self.isa.convention().stack_pointer;
        match back {
            Some(back) => {
                state.set_register(stack_pointer, Value::Stack(base + WORD));
                Ok(End::Go(Edge::To(back)))
            }
            None => Ok(End::Leave),
        }
    }

    /// Applies a call: enters the function, or assumes the effect of its original.
    fn call(
        &mut self,
        (instance, node): Key,
        last: &kcfg::instructions::Instruction<'g>,
        next: NodeId,
        state: &mut State,
    ) -> Result<End, Why> {
        let graph = self.graph;
        let stack = self.stack(state)?;
        let stack_pointer = self.isa.convention().stack_pointer;
        let direct = graph.callee(node).map(|callee| (callee.target, callee.addend));
        let target = match direct {
            Some((target, 0)) => Some(target),
            Some(_) => None,
            None => kisa::Effect::target(&last.effects).and_then(|operand| {
                let (value, _) = self.operand(state, operand);
                match value {
                    Value::Symbol(symbol, 0) => graph.target_of(symbol),
                    _ => None,
                }
            }),
        };
        let back = Dest { target: Target::Node(next), offset: 0 };
        let entry = target.filter(|&target| !graph.may_be_replaced(target));
        let entry = entry.and_then(|target| graph.resolve(target)).filter(|&(_, inside)| inside == 0);
        if let Some((entry, _)) = entry {
            if let Some((inner, base)) = self.enter_call((instance, node), entry, next, true, state)? {
                return Ok(End::Enter(Edge::To(inner), base, next));
            }
        }
        let own = self.instances[instance.0 as usize].function;
        let expected = own.and_then(|own| self.targets.get(&own).copied());
        if let (None, None, Some(entry)) = (direct, target, expected) {
            // The original call has to be a block of its own, to which the path can leave.
            let is_alone = last.offset == 0;
            if let Some((inner, base)) = self.enter_call((instance, node), entry, next, is_alone, state)? {
                let exit = Edge::Exit(Dest { target: Target::Node(node), offset: 0 });
                return Ok(End::Expect(entry, [Edge::To(inner), exit], base, next));
            }
        }
        let summary = self.summary(node, direct.is_none(), target);
        let reads = self.after_call(instance, summary, stack, state);
        let changed = (0..REGISTERS as u8)
            .map(Reg)
            .filter(|reg| *reg != stack_pointer && summary.changes >> reg.0 & 1 != 0);
        for reg in changed {
            let name = self.result_name((instance, node), u32::MAX, reg);
            state.forget_name(name);
            state.set_register(reg, Value::Name(name, 0));
        }
        let target = target.filter(|_| direct.is_none());
        let edge = self.edge(instance, back, state)?;
        Ok(End::Call(Call { target, summary, reads, stack }, edge))
    }

    /// Enters a function in place of a call, if `allowed` and if the function and the code after the call may be copied.
    /// Returns its first block, and the place of its return address.
    fn enter_call(
        &mut self,
        (instance, node): Key,
        entry: NodeId,
        next: NodeId,
        allowed: bool,
        state: &mut State,
    ) -> Result<Option<(Key, i32)>, Why> {
        let graph = self.graph;
        let continues = (self.ran)(next) && self.may_copy(next).is_ok();
        if let Err(why) = self.may_enter(instance, entry) {
            if let Some(function) = graph.function_of(entry) {
                self.kept.insert(graph.function(function).name.clone(), why);
            }
            return Ok(None);
        }
        if !continues || !allowed {
            return Ok(None);
        }
        let base = self.stack(state)? - WORD;
        let inner = self.enter(instance, node, entry, Some((instance, next)), base);
        if self.instances[inner.0 as usize].base != base {
            return Err("a function is called with different stack pointers");
        }
        state.set_register(self.isa.convention().stack_pointer, Value::Stack(base));
        state.set_stack(base, Value::Symbol(graph.symbol_for(next), 0));
        Ok(Some(((inner, entry), base)))
    }

    /// Returns the effect of the call at the end of a block.
    fn summary(&self, node: NodeId, computed: bool, target: Option<Target>) -> Summary {
        let known = target.filter(|&target| computed && !self.graph.may_be_replaced(target));
        let called = known.and_then(|target| self.graph.resolve_node(target));
        let called = called.and_then(|node| self.program.block(node));
        if let Some(block) = called {
            return self.summaries.get(Callee::Function(self.program.function_of(block)));
        }
        let ways = self.program.block(node).map(|block| self.program.ways(block)).unwrap_or_default();
        let callee = ways.iter().find_map(|way| way.callee);
        self.summaries.get(callee.unwrap_or(Callee::Unknown))
    }

    /// Applies the effect of a call of original code on memory. Returns the words of the stack that it may read.
    fn after_call(
        &mut self,
        instance: InstanceId,
        summary: Summary,
        stack: i32,
        state: &mut State,
    ) -> BTreeSet<i32> {
        let own = &self.instances[instance.0 as usize];
        let end = match summary.reads_stack {
            Summary::WHOLE_STACK => own.base,
            bytes => stack.saturating_add(bytes.min(0x1000) as i32 + WORD),
        };
        let arguments: Vec<i32> = (stack..end.max(stack)).step_by(WORD as usize).collect();
        let given = (0..REGISTERS as u8).map(Reg).filter(|reg| summary.reads >> reg.0 & 1 != 0);
        let stack_pointer = self.isa.convention().stack_pointer;
        let mut escaping: Vec<Value> =
            given.filter(|&reg| reg != stack_pointer).map(|reg| state.register(reg)).collect();
        escaping.extend(arguments.iter().filter_map(|word| state.stack.get(word).copied()));
        for value in escaping {
            self.expose(instance, stack, value, state);
        }
        let mut reads: BTreeSet<i32> = state.exposed.clone();
        reads.extend(&arguments);
        state.forget_words(None);
        state.forget_exposed();
        state.flags = kisa::specializing::Bits::UNKNOWN;
        state.compared = None;
        if summary.writes_frame {
            let saved = &self.instances[instance.0 as usize].saved;
            for word in arguments.iter().filter(|word| !saved.contains(word)) {
                state.set_stack(*word, Value::Any);
            }
        }
        reads
    }

    /// Records that others may have the address of a frame, and the addresses of frames that are stored there. `stack` is
    /// the stack pointer in the innermost frame.
    pub fn expose(&self, instance: InstanceId, stack: i32, value: Value, state: &mut State) {
        let mut pending = vec![value];
        while let Some(value) = pending.pop() {
            let Value::Stack(offset) = value else { continue };
            let (mut low, mut at) = (stack, Some(instance));
            while let Some(id) = at {
                let frame = &self.instances[id.0 as usize];
                if offset < frame.base {
                    let words = (low..frame.base).step_by(WORD as usize);
                    let is_pushed = state.pushed.contains(&offset);
                    for word in words.filter(|word| !frame.saved.contains(word)) {
                        // A pointer to a variable does not lead to what was pushed.
                        if state.pushed.contains(&word) && !is_pushed {
                            continue;
                        }
                        if state.exposed.insert(word) {
                            pending.extend(state.stack.get(&word).copied());
                        }
                    }
                    break;
                }
                low = frame.base + WORD;
                at = frame.back.map(|(outer, _)| outer);
            }
        }
    }
}

/// Returns the number of the return at which instructions without branches and calls end.
fn returns(instructions: &[kcfg::instructions::Instruction<'_>]) -> Option<usize> {
    let end = instructions.iter().position(|instruction| instruction.inst.insn.flow != Flow::Next)?;
    (instructions[end].inst.insn.flow == Flow::Return).then_some(end)
}

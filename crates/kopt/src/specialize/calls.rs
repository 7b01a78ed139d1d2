//! Calls and returns on a path: functions that are entered in place of a call, and the effect of those that stay calls.

use std::collections::BTreeSet;

use kcfg::graph::{Dest, Target};
use kcfg::index::NodeId;
use kcfg::instructions::Instruction;
use kflow::{Callee, Program, Summary};
use kisa::{Reg, Value as Operand};

use super::explore::{Call, Edge, End, Explorer, Instance, InstanceId, Key, Why};
use super::state::{REGISTERS, State, WORD};
use super::value::Value;

/// Maximum number of functions around a block.
const DEPTH: usize = 16;

/// Maximum number of occurrences of functions.
const INSTANCES: usize = 300;

impl<'g> Explorer<'g> {
    /// Applies a call: enters the function, or assumes the effect of its original.
    pub fn call(
        &mut self,
        (instance, node): Key,
        last: &Instruction<'g>,
        next: NodeId,
        state: &mut State,
    ) -> Result<End, Why> {
        let graph = self.original.graph;
        let stack = self.stack(state)?;
        let stack_pointer = self.original.isa.convention().stack_pointer;
        let direct = graph.callee(node).map(|callee| (callee.target, callee.addend));
        let target = match direct {
            Some((target, 0)) => Some(target),
            Some(_) => None,
            None => kisa::Effect::target(&last.effects).and_then(|operand| match self.read(state, operand) {
                Value::Symbol(symbol, 0) => graph.target_of(symbol),
                _ => None,
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
        let expected = own.and_then(|own| self.original.targets.get(&own).copied());
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
        let graph = self.original.graph;
        let continues = (self.original.ran)(next) && self.may_copy(next).is_ok();
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
        state.set_register(self.original.isa.convention().stack_pointer, Value::Stack(base));
        state.set_stack(base, Value::Symbol(graph.symbol_for(next), 0));
        Ok(Some(((inner, entry), base)))
    }

    /// Whether the function at a block may occur in place of a call.
    pub fn may_enter(&mut self, from: InstanceId, entry: NodeId) -> Result<(), Why> {
        let graph = self.original.graph;
        let function = graph.function_of(entry);
        if function.is_some_and(|function| graph.function(function).entry() != entry)
            || graph.is_outlined(entry)
        {
            return Err("it is not a function");
        }
        if function.is_some_and(|function| self.original.calls.contains(&function)) {
            return Err("the document says so");
        }
        if !(self.original.ran)(entry) {
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
            if graph.node(node).live && (self.original.ran)(node) {
                self.may_copy(node)?;
            }
        }
        Ok(())
    }

    /// Returns the occurrence of a function that a block enters.
    pub fn enter(
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
        let function = self.original.graph.function_of(entry);
        self.instances.push(Instance { function, entry, back, base, saved });
        self.instance_of.insert((from, call, entry), id);
        id
    }

    /// The words of a frame where a function first saves registers of its caller.
    pub fn saved(&self, entry: NodeId, base: i32) -> Vec<i32> {
        let convention = self.original.isa.convention();
        let (mut at, mut saved, mut written) = (base, vec![base], 0);
        for instruction in self.original.graph.instructions(entry).unwrap_or_default() {
            let moves = instruction.effects.iter().find_map(|effect| match effect {
                kisa::Effect::Store { value: Operand::Reg { reg, width: 4 }, .. } => Some(*reg),
                _ => None,
            });
            let is_push = self.original.specialize.uses_stack_pointer(&instruction.inst)
                && self.original.isa.memory_operand(&instruction.inst).is_none();
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
    pub fn leave(&mut self, instance: InstanceId, state: &mut State) -> Result<End, Why> {
        let Instance { back, base, .. } = self.instances[instance.0 as usize];
        if self.stack(state)? != base {
            return Err("it does not return as it was called");
        }
        let stack_pointer = self.original.isa.convention().stack_pointer;
        match back {
            Some(back) => {
                state.set_register(stack_pointer, Value::Stack(base + WORD));
                Ok(End::Go(Edge::To(back)))
            }
            None => Ok(End::Leave),
        }
    }

    /// Returns the effect of the call at the end of a block.
    fn summary(&self, node: NodeId, computed: bool, target: Option<Target>) -> Summary {
        let known = target.filter(|&target| computed && !self.original.graph.may_be_replaced(target));
        let called = known.and_then(|target| self.original.graph.resolve_node(target));
        let called = called.and_then(|node| self.original.program.block(node));
        if let Some(block) = called {
            return self.original.summaries.get(Callee::Function(self.original.program.function_of(block)));
        }
        let ways = self
            .original
            .program
            .block(node)
            .map(|block| self.original.program.ways(block))
            .unwrap_or_default();
        let callee = ways.iter().find_map(|way| way.callee);
        self.original.summaries.get(callee.unwrap_or(Callee::Unknown))
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
        let stack_pointer = self.original.isa.convention().stack_pointer;
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

//! The body of a function as it would be in place of its only call.

use kcfg::HAND_WRITTEN;
use kcfg::edges::Edges;
use kcfg::flow::is_cold;
use kcfg::graph::{Contents, Dest, Graph, Opaque, Ref, Role, Terminator, for_each_successor};
use kcfg::index::NodeId;
use kcfg::special::World;
use kisa::{BranchKind, Flow};
use rustc_hash::FxHashMap;

use super::frame::{Frame, Why};
use crate::identical::entries;

/// Width in bytes from which on an operand may have to be aligned more than words are.
const VECTOR: u8 = 16;

/// The reason to keep functions in programs whose stack is aligned to more than a word.
const ALIGNED: Why = "it, or code that it calls, may need the stack aligned as it is";

/// A block in place of the call: its new contents and its new end.
pub struct Change {
    /// The block.
    pub node: NodeId,
    /// The contents.
    pub contents: Contents,
    /// The end.
    pub end: Terminator,
}

/// Whether an instruction of a user program, or code that is not made of instructions, may need a stack that is aligned to
/// more than a word. Kernels are compiled for a stack that is not.
pub fn aligns_stack(graph: &Graph) -> bool {
    let is_opaque = |opaque: &Opaque| graph.node(opaque.node).live && opaque.reason != HAND_WRITTEN;
    let has_vector = |id: NodeId| {
        let mut operands = graph.decode(id).flatten().filter_map(|inst| graph.isa().memory_operand(&inst));
        graph.block(id).is_some() && operands.any(|operand| operand.width >= VECTOR)
    };
    let is_program = matches!(graph.world(), World::Program);
    let live = || graph.node_ids().filter(|&id| graph.node(id).live);
    is_program && (graph.opaque().iter().any(is_opaque) || live().any(has_vector))
}

/// Returns the blocks of a function as they are in place of a call, after which control continues at `next`. With
/// `aligned`, code may need a stack that is aligned to more than a word.
///
/// # Errors
/// The reason why the function has to be called.
pub fn in_place(
    graph: &Graph,
    edges: &Edges<'_>,
    blocks: &[NodeId],
    next: Option<NodeId>,
    aligned: bool,
) -> Result<Vec<Change>, Why> {
    let mut body =
        Body { graph, edges, blocks, next, aligned, before: FxHashMap::default(), arguments: false };
    body.solve()?;
    let changes: Vec<Change> = blocks.iter().map(|&block| body.change(block)).collect::<Result<_, _>>()?;
    let is_patched = |&block: &NodeId| graph.block(block).is_some_and(|block| block.is_fixed());
    if body.arguments && blocks.iter().any(is_patched) {
        return Err("its patched code may name an argument on the stack");
    }
    Ok(changes)
}

struct Body<'g> {
    graph: &'g Graph,
    edges: &'g Edges<'g>,
    blocks: &'g [NodeId],
    next: Option<NodeId>,
    aligned: bool,
    /// The stack before each block that control reaches.
    before: FxHashMap<NodeId, Frame>,
    /// Whether an instruction names an argument on the stack.
    arguments: bool,
}

/// The use of the stack by a block.
struct Followed {
    /// The stack after the block, when control is back from the call that ends it.
    after: Frame,
    /// The instructions whose operands are arguments, by offset in bytes.
    shifted: Vec<u32>,
    /// Offset in bytes of the last instruction.
    last: u32,
}

impl Body<'_> {
    /// Finds the stack before each block.
    fn solve(&mut self) -> Result<(), Why> {
        let convention = self.graph.isa().convention();
        let word = self.graph.machine().word_size();
        self.before.insert(self.blocks[0], Frame::on_entry(word, convention.stack_pointer));
        let (mut pending, mut indexes) = (vec![self.blocks[0]], false);
        while let Some(block) = pending.pop() {
            let Some(before) = self.before.get(&block).cloned() else { continue };
            let followed = self.follow(block, before.clone(), &mut indexes)?;
            let mut states = Vec::new();
            self.successors(block, &followed, |to| states.push((to, followed.after.clone())))?;
            // A fault, or patched code, continues there from any instruction of the block.
            for to in self.hidden_successors(block)? {
                states.extend([(to, before.clone()), (to, followed.after.clone())]);
            }
            for (to, state) in states {
                let changed = match self.before.get_mut(&to) {
                    Some(known) => known.join(&state),
                    None => self.before.insert(to, state).is_none(),
                };
                pending.extend(changed.then_some(to));
            }
            self.arguments |= !followed.shifted.is_empty();
        }
        match indexes && self.arguments {
            true => Err("uses an index in its frame, and has arguments on the stack"),
            false => Ok(()),
        }
    }

    /// Follows the instructions of a block.
    fn follow(&self, node: NodeId, mut frame: Frame, indexes: &mut bool) -> Result<Followed, Why> {
        let graph = self.graph;
        let (isa, word) = (graph.isa(), i64::from(graph.machine().word_size()));
        let end = &graph.block(node).ok_or("is not made of blocks")?.end;
        let instructions = graph.instructions(node).ok_or("is not made of instructions")?;
        let start = frame.height();
        let (mut shifted, mut last) = (Vec::new(), 0);
        for (i, instruction) in instructions.iter().enumerate() {
            let operand = isa.memory_operand(&instruction.inst);
            if self.aligned && operand.is_some_and(|operand| operand.width >= VECTOR) {
                return Err(ALIGNED);
            }
            let before = frame.height();
            let uses = frame.step(instruction, operand.as_ref())?;
            shifted.extend(uses.argument.then_some(instruction.offset));
            *indexes |= uses.indexes;
            last = instruction.offset;
            let returns = i + 1 == instructions.len() && *end == Terminator::Return;
            let height = frame.height();
            if returns && (before, height) != (Some(0), Some(word)) {
                return Err("does not return as it was called");
            }
            if !returns && height > Some(0) {
                return Err("pops its return address");
            }
        }
        let flow = instructions.last().map(|last| last.inst.insn.flow);
        let calls = match flow {
            Some(Flow::Direct { branch, .. }) => branch.kind == BranchKind::Call,
            flow => flow == Some(Flow::IndirectCall),
        };
        if calls {
            if graph.calls_outlined(node) {
                return Err("calls outlined code, which works on its frame");
            }
            if self.aligned {
                return Err(ALIGNED);
            }
            frame.return_from_call(isa.convention().call_clobbered);
        }
        let leads_out = |reference: &Ref| {
            graph.resolve_node(reference.target).is_none_or(|to| !self.blocks.contains(&to))
        };
        let leaves = match flow {
            Some(Flow::Direct { .. }) => !calls && graph.refs_of(node).iter().any(leads_out),
            flow => matches!(flow, Some(Flow::IndirectJump | Flow::Return)),
        };
        if matches!(end, Terminator::Patched { .. }) && leaves {
            return Err("leaves from patched code");
        }
        if matches!(end, Terminator::Patched { .. }) && (frame.height() != start || !shifted.is_empty()) {
            return Err("uses the stack in patched code");
        }
        Ok(Followed { after: frame, shifted, last })
    }

    /// Calls `f` with the successors of a block in the body.
    fn successors(&self, node: NodeId, followed: &Followed, mut f: impl FnMut(NodeId)) -> Result<(), Why> {
        let graph = self.graph;
        let Some(block) = graph.block(node) else { return Ok(()) };
        match &block.end {
            Terminator::IndirectJump | Terminator::Conditional { .. } => {
                return Err("jumps to a computed place");
            }
            Terminator::Patched { next: None } => return Err("leaves from patched code"),
            Terminator::Jump(dest) if !self.is_within(dest) => {
                return match followed.after.height() {
                    Some(0) if self.is_function(dest) => Ok(()),
                    _ => Err("continues in other code"),
                };
            }
            Terminator::Branch { taken, .. } if !self.is_within(taken) => {
                return Err("continues in other code on a condition");
            }
            _ => {}
        }
        let mut leaves = false;
        for_each_successor(graph, &block.end, |to| {
            leaves |= !self.blocks.contains(&to);
            f(to);
        });
        if leaves { Err("continues in other code") } else { Ok(()) }
    }

    /// Returns the blocks of the body at which a block continues after a fault, or once it has been patched.
    fn hidden_successors(&self, node: NodeId) -> Result<Vec<NodeId>, Why> {
        let graph = self.graph;
        let entries = entries(self.edges, node);
        let named = entries.iter().flat_map(|&entry| graph.refs_of(entry)).chain(graph.refs_of(node));
        let named = named.filter(|reference| reference.role == Role::Address);
        let mut all = Vec::new();
        for to in named.filter_map(|reference| graph.resolve_node(reference.target)) {
            if self.blocks.contains(&to) {
                all.push(to);
            } else if graph.block(to).is_some()
                && graph
                    .function_of(to)
                    .is_some_and(|other| graph.function(other).entry() != to || is_cold(graph, other))
            {
                return Err("continues in other code");
            }
        }
        Ok(all)
    }

    /// Whether a branch leads to a block of the body.
    fn is_within(&self, dest: &Dest) -> bool {
        dest.offset == 0 && self.graph.resolve_node(dest.target).is_some_and(|to| self.blocks.contains(&to))
    }

    /// Whether a branch leads to a function that can be called.
    fn is_function(&self, dest: &Dest) -> bool {
        let graph = self.graph;
        let is_entry = |to: NodeId| match graph.function_of(to) {
            Some(id) => {
                graph.function(id).entry() == to && !graph.function(id).is_outlined && !is_cold(graph, id)
            }
            None => true,
        };
        dest.offset == 0 && graph.resolve(dest.target).is_none_or(|(to, inside)| inside == 0 && is_entry(to))
    }

    /// Returns a block as it is in place of the call.
    fn change(&self, node: NodeId) -> Result<Change, Why> {
        let graph = self.graph;
        let before = self.before.get(&node).ok_or("has code that control reaches in an unknown way")?;
        let followed = self.follow(node, before.clone(), &mut false)?;
        let word = i32::from(graph.machine().word_size());
        let mut contents =
            Contents { bytes: graph.bytes_of(node).to_vec(), refs: graph.refs_of(node).to_vec() };
        let encoding = graph.encoding(node);
        for &offset in &followed.shifted {
            let at = encoding.at(offset.into());
            if !graph.isa().shift_operand(&mut contents.bytes[offset as usize..], at, -word) {
                return Err("names an argument in a way that cannot be changed");
            }
        }
        let end = graph.block(node).map_or(Terminator::Unreachable, |block| block.end.clone());
        let end = match (end, self.next) {
            (Terminator::Return, None) => return Err("returns to a caller that does not expect it"),
            (Terminator::Return, Some(next)) => {
                if is_named_from(graph, self.edges, node, followed.last) {
                    return Err("a table is about its return");
                }
                contents.bytes.truncate(followed.last as usize);
                contents.refs.retain(|reference| reference.offset < followed.last);
                Terminator::FallThrough(next)
            }
            (Terminator::Jump(dest), next) if !self.is_within(&dest) => {
                if self.aligned {
                    return Err(ALIGNED);
                }
                let call = Contents::call(graph, encoding, dest.target);
                let size = contents.bytes.len() as u32;
                contents.bytes.extend(call.bytes);
                contents.refs.extend(call.refs.iter().map(|r| Ref { offset: r.offset + size, ..*r }));
                Terminator::Call { next }
            }
            (end, _) => end,
        };
        Ok(Change { node, contents, end })
    }
}

/// Whether an entry of a table is about an instruction of a block at this offset in bytes, or further on.
pub fn is_named_from(graph: &Graph, edges: &Edges<'_>, node: NodeId, offset: u32) -> bool {
    entries(edges, node).iter().filter_map(|&entry| graph.site(entry)).any(|site| {
        let inside = graph.resolve(site.target).map_or(0, |(_, inside)| i64::from(inside));
        inside + site.addend >= offset.into()
    })
}

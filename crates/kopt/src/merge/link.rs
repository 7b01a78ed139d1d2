//! Liveness of the return address that a call would overwrite.
//!
//! If calls leave it in a register (`lr` of ARM), a function with calls has saved it, and does not read the register
//! before it loads or overwrites it. A function without calls may still return with it.

use kcfg::graph::for_each_successor;
use kcfg::graph::{Graph, Terminator};
use kcfg::index::{NodeId, NodeMap, NodeSet};
use kflow::{Instruction, bit};
use kisa::{BranchKind, Flow, Reg};
use rayon::prelude::*;
use typed_index_collections::ti_vec;

/// The blocks at whose start the register is live; none where calls push the return address.
pub(super) struct Link<'g> {
    graph: &'g Graph,
    register: Option<Reg>,
    before: NodeSet,
}

/// The effect of an instruction on the register.
#[derive(Clone, Copy)]
struct Use {
    reads: bool,
    overwrites: bool,
}

impl Use {
    /// Whether the register is live before an instruction, given whether it is after.
    fn matters_before(self, behind: bool) -> bool {
        self.reads || behind && !self.overwrites
    }
}

impl<'g> Link<'g> {
    /// Computes the liveness in a graph.
    pub(super) fn of(graph: &'g Graph) -> Link<'g> {
        let before = NodeSet::with_capacity(graph.nodes().len());
        let mut link = Link { graph, register: graph.isa().convention().link_register, before };
        if let Some(register) = link.register {
            link.solve(register);
        }
        link
    }

    /// For each of the `count` instructions of a block, whether the register is live after it.
    pub(super) fn behind(&self, block: NodeId, count: usize) -> Vec<bool> {
        let Some(register) = self.register else { return vec![false; count] };
        let mut matters = self.at_end(block);
        let uses = uses(self.graph, block, register);
        let behind = uses.iter().rev().map(|used| {
            let behind = matters;
            matters = used.matters_before(matters);
            behind
        });
        let mut behind: Vec<bool> = behind.collect();
        behind.reverse();
        behind
    }

    fn solve(&mut self, register: Reg) {
        let graph = self.graph;
        let is_alive = |&node: &NodeId| graph.node(node).live && graph.block(node).is_some();
        let blocks: Vec<NodeId> = graph.node_ids().filter(is_alive).collect();
        let whole = |&block: &NodeId| {
            uses(graph, block, register).iter().rev().fold(None, |behind: Option<Use>, used| {
                Some(match behind {
                    None => *used,
                    Some(behind) => Use {
                        reads: used.matters_before(behind.reads),
                        overwrites: used.overwrites || behind.overwrites,
                    },
                })
            })
        };
        let whole: Vec<Option<Use>> = blocks.par_iter().map(whole).collect();
        let mut number = ti_vec![usize::MAX; graph.nodes().len()];
        let mut from: NodeMap<Vec<usize>> = ti_vec![Vec::new(); graph.nodes().len()];
        for (i, &block) in blocks.iter().enumerate() {
            number[block] = i;
            if let Some(own) = graph.block(block) {
                for_each_successor(graph, &own.end, |to| from[to].push(i));
            }
        }
        let mut pending: Vec<usize> = (0..blocks.len()).collect();
        while let Some(i) = pending.pop() {
            let block = blocks[i];
            let behind = self.at_end(block);
            let matters = whole[i].map_or(behind, |used| used.matters_before(behind));
            if matters && !self.before.put(block) {
                pending.extend(&from[block]);
            }
        }
    }

    /// Whether the register is live after the last instruction of a block.
    fn at_end(&self, block: NodeId) -> bool {
        let graph = self.graph;
        let Some(own) = graph.block(block) else { return true };
        let ways = match &own.end {
            // The instruction itself reads or overwrites it.
            Terminator::Return | Terminator::Call { .. } | Terminator::IndirectCall { .. } => return false,
            Terminator::Unreachable | Terminator::Trap { next: None } => return false,
            Terminator::Patched { .. } | Terminator::IndirectJump => return true,
            // A conditional computed jump may leave the function.
            Terminator::Conditional { .. } if !returns_or_calls(graph, block) => return true,
            Terminator::FallThrough(_)
            | Terminator::Jump(_)
            | Terminator::Conditional { .. }
            | Terminator::Trap { .. } => 1,
            Terminator::Branch { .. } => 2,
            Terminator::Switch(table) => graph.slots(*table).len(),
        };
        let (mut matters, mut known) = (false, 0);
        for_each_successor(graph, &own.end, |to| {
            matters |= graph.function_of(to) != Some(own.function) || self.before.contains(to);
            known += 1;
        });
        matters || known < ways
    }
}

/// Whether the last instruction of a block is a return or a call.
fn returns_or_calls(graph: &Graph, block: NodeId) -> bool {
    let last = graph.decode(block).last().flatten();
    last.is_some_and(|last| match last.insn.flow {
        Flow::Return | Flow::IndirectCall => true,
        Flow::Direct { branch, .. } => branch.kind == BranchKind::Call,
        _ => false,
    })
}

/// The effect of each instruction of a block on a register. If they are not known, they count as reads.
fn uses(graph: &Graph, block: NodeId, register: Reg) -> Vec<Use> {
    let Some(instructions) = graph.instructions(block) else {
        return vec![Use { reads: true, overwrites: false }; graph.decode(block).count().max(1)];
    };
    let used = instructions.iter().map(|one| {
        let reads = graph.isa().reads(&one.inst).registers;
        let instruction = Instruction { effects: &one.effects, reads, reads_unseen: false };
        Use { reads: reads & bit(register) != 0, overwrites: instruction.overwrites() & bit(register) != 0 }
    });
    used.collect()
}

//! The instructions of all blocks, decoded once.

use kflow::{EVERYTHING, FLAGS, Instruction};
use kisa::Effect;

use crate::graph::Graph;
use crate::index::NodeId;

/// The instructions of some nodes, which are numbered.
#[derive(Default)]
pub(super) struct Decoded {
    effects: Vec<Effect>,
    instructions: Vec<One>,
    /// By number, where a node's instructions begin; and where the last one's end.
    first: Vec<u32>,
}

struct One {
    /// Where its effects begin.
    effects: u32,
    reads: u64,
    reads_unseen: bool,
}

impl Decoded {
    /// Decodes the nodes.
    pub(super) fn of(graph: &Graph, nodes: &[NodeId]) -> Decoded {
        let mut decoded = Decoded { first: Vec::with_capacity(nodes.len() + 1), ..Decoded::default() };
        for &node in nodes {
            decoded.first.push(decoded.instructions.len() as u32);
            decoded.add(graph, node);
        }
        decoded.first.push(decoded.instructions.len() as u32);
        decoded
    }

    fn add(&mut self, graph: &Graph, node: NodeId) {
        let isa = graph.isa();
        let Some(instructions) = graph.instructions(node) else {
            let effects = self.effects.len() as u32;
            return self.instructions.push(One { effects, reads: EVERYTHING, reads_unseen: true });
        };
        for instruction in instructions {
            let (bytes, effects) = (instruction.bytes, instruction.effects);
            let has_memory =
                isa.memory_operand(bytes, instruction.address).is_some_and(|operand| operand.width > 0)
                    || isa.string_registers(bytes) != 0;
            let says_so =
                |effect: &Effect| effect.memory_read().next().is_some() || effect.memory_written().is_some();
            let calls = effects.iter().any(|effect| matches!(effect, Effect::SystemCall { .. }));
            let flags = if isa.reads_flags(bytes, instruction.address) { FLAGS } else { 0 };
            let reads =
                if calls { EVERYTHING } else { isa.registers_read(bytes, instruction.address) | flags };
            let reads_unseen = has_memory && !effects.iter().any(says_so);
            self.instructions.push(One { effects: self.effects.len() as u32, reads, reads_unseen });
            self.effects.extend(effects);
        }
    }

    /// Calls `f` with each instruction of a node, in order.
    pub(super) fn for_each(&self, number: usize, f: &mut dyn FnMut(Instruction<'_>)) {
        let (first, end) = (self.first[number] as usize, self.first[number + 1] as usize);
        for at in first..end {
            let One { effects, reads, reads_unseen } = self.instructions[at];
            let behind = self.instructions.get(at + 1).map_or(self.effects.len(), |one| one.effects as usize);
            f(Instruction { effects: &self.effects[effects as usize..behind], reads, reads_unseen });
        }
    }
}

//! The instructions of all blocks, decoded once.

use kflow::{EVERYTHING, FLAGS, Instruction};
use kisa::{Condition, Effect, Value};
use rayon::prelude::*;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::{Graph, Terminator};
use crate::index::NodeId;

/// Number of nodes in one unit of parallel decoding.
const NODES_OF_PART: usize = 4096;

/// Minimum number of bytes of code per effect, and per instruction, in most parts of kernels.
const BYTES_PER_EFFECT: usize = 2;
const BYTES_PER_INSTRUCTION: usize = 2;

/// The instructions of some numbered nodes.
pub(super) struct Decoded {
    /// Parts of [`NODES_OF_PART`] nodes each; the last part has the remaining nodes.
    parts: Vec<Part>,
}

impl Decoded {
    /// Decodes the nodes.
    pub(super) fn of(graph: &Graph, nodes: &[NodeId]) -> Decoded {
        let parts = nodes.par_chunks(NODES_OF_PART).map(|nodes| Part::of(graph, nodes));
        Decoded { parts: parts.collect() }
    }

    /// Whether a node contains anything but instructions.
    pub(super) fn is_unknown(&self, number: usize) -> bool {
        let (part, number) = self.part(number);
        part.is_unknown(number)
    }

    /// Returns the condition of a transfer by the last instruction of a node, with its effects.
    pub(super) fn on_condition(&self, number: usize) -> Option<(Condition, &[Effect])> {
        let (part, number) = self.part(number);
        part.on_condition(number)
    }

    /// Calls `f` with each instruction of a node, in order, without the conditional effects of the last one.
    pub(super) fn for_each(&self, number: usize, f: &mut dyn FnMut(Instruction<'_>)) {
        let (part, number) = self.part(number);
        part.for_each(number, f);
    }

    /// Returns the part that holds a node, and the node's number in it.
    fn part(&self, number: usize) -> (&Part, usize) {
        (&self.parts[number / NODES_OF_PART], number % NODES_OF_PART)
    }
}

/// The instructions of some of the nodes, numbered from 0.
#[derive(Default)]
struct Part {
    effects: Vec<Effect>,
    instructions: Vec<One>,
    /// For each number, the start of the node's instructions; and the end of the last node's.
    first: Vec<u32>,
    /// For each node, by number, that ends with a conditional transfer: the start of the effects of its last
    /// instruction that depend on the condition.
    on_condition: FxHashMap<usize, u32>,
    /// Nodes that could not be decoded completely.
    unknown: FxHashSet<usize>,
}

struct One {
    /// The start of its effects.
    effects: u32,
    reads: u64,
    reads_unseen: bool,
}

impl Part {
    fn of(graph: &Graph, nodes: &[NodeId]) -> Part {
        // Reserve enough: growth copies everything, and needs the memory twice.
        let bytes: usize = nodes.iter().map(|&node| graph.bytes_of(node).len()).sum();
        let mut decoded = Part {
            effects: Vec::with_capacity(bytes / BYTES_PER_EFFECT),
            instructions: Vec::with_capacity(bytes / BYTES_PER_INSTRUCTION),
            first: Vec::with_capacity(nodes.len() + 1),
            ..Part::default()
        };
        for &node in nodes {
            let number = decoded.first.len();
            decoded.first.push(decoded.instructions.len() as u32);
            decoded.add(graph, node);
            if graph.block(node).is_some_and(|block| matches!(block.end, Terminator::Conditional { .. })) {
                let last = decoded.instructions.last().map_or(0, |last| last.effects as usize);
                let condition =
                    decoded.effects[last..].iter().position(|effect| matches!(effect, Effect::OnlyIf(_)));
                decoded.on_condition.extend(condition.map(|place| (number, (last + place) as u32)));
            }
        }
        decoded.first.push(decoded.instructions.len() as u32);
        decoded
    }

    fn add(&mut self, graph: &Graph, node: NodeId) {
        let isa = graph.isa();
        let (first, mut start) = (self.instructions.len(), self.effects.len());
        let first_effect = start;
        let all = &mut self.instructions;
        let known = graph.for_each_instruction(node, &mut self.effects, |instruction, effects| {
            let own = &effects[start..];
            let read = isa.reads(&instruction.inst);
            let says_so =
                |effect: &Effect| effect.memory_read().next().is_some() || effect.memory_written().is_some();
            let calls = own.iter().any(|effect| matches!(effect, Effect::SystemCall { .. }));
            let reads = match calls {
                true => EVERYTHING,
                false => read.registers | if read.flags { FLAGS } else { 0 },
            };
            let reads_unseen =
                own.contains(&Effect::Escape(Value::Unknown)) || read.memory && !own.iter().any(says_so);
            all.push(One { effects: start as u32, reads, reads_unseen });
            start = effects.len();
        });
        if known.is_none() {
            self.instructions.truncate(first);
            self.effects.truncate(first_effect);
            let one = One { effects: first_effect as u32, reads: EVERYTHING, reads_unseen: true };
            self.unknown.insert(self.instructions.len());
            self.instructions.push(one);
        }
    }

    fn is_unknown(&self, number: usize) -> bool {
        self.unknown.contains(&(self.first[number] as usize))
    }

    fn on_condition(&self, number: usize) -> Option<(Condition, &[Effect])> {
        let &start = self.on_condition.get(&number)?;
        let behind = self.instructions.get(self.first[number + 1] as usize);
        let behind = behind.map_or(self.effects.len(), |one| one.effects as usize);
        match self.effects[start as usize..behind] {
            [Effect::OnlyIf(condition), ref effects @ ..] => Some((condition, effects)),
            _ => None,
        }
    }

    fn for_each(&self, number: usize, f: &mut dyn FnMut(Instruction<'_>)) {
        let (first, end) = (self.first[number] as usize, self.first[number + 1] as usize);
        for at in first..end {
            let One { effects, reads, reads_unseen } = self.instructions[at];
            let behind = match self.on_condition.get(&number).filter(|_| at + 1 == end) {
                Some(&condition) => condition as usize,
                None => self.instructions.get(at + 1).map_or(self.effects.len(), |one| one.effects as usize),
            };
            f(Instruction { effects: &self.effects[effects as usize..behind], reads, reads_unseen });
        }
    }
}

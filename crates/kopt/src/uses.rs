//! The uses of variables.

use goblin::elf::section_header::SHF_WRITE;
use kcfg::graph::{Graph, Ref};
use kcfg::index::NodeId;
use kisa::Memory;
use rustc_hash::FxHashMap;

/// The effect of a reference on a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// An instruction reads it.
    Reads,
    /// An instruction may write to it.
    Writes,
    /// Code computes its address, or is opaque.
    TakesAddress,
    /// Data holds its address.
    HoldsAddress,
}

/// One use of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// The node that refers to it.
    pub from: NodeId,
    /// The byte offset of the reference in that node.
    pub offset: u32,
    /// The byte of the data that it refers to.
    pub at: i64,
    /// The effect.
    pub how: How,
}

/// The references of all live nodes, by their targets.
pub struct Uses<'g> {
    graph: &'g Graph,
    /// For each node, the nodes that refer to it, with the number of the reference.
    by_target: FxHashMap<NodeId, Vec<(NodeId, usize)>>,
}

impl<'g> Uses<'g> {
    /// Collects the references of a graph.
    pub fn of(graph: &'g Graph) -> Uses<'g> {
        let mut by_target: FxHashMap<NodeId, Vec<(NodeId, usize)>> = FxHashMap::default();
        for node in graph.node_ids().filter(|&node| graph.node(node).live) {
            for (number, reference) in graph.refs_of(node).iter().enumerate() {
                if let Some(to) = graph.resolve_node(reference.target) {
                    by_target.entry(to).or_default().push((node, number));
                }
            }
        }
        Uses { graph, by_target }
    }

    /// Returns the uses of data that is one node.
    pub fn of_node(&self, node: NodeId) -> Vec<Use> {
        let users = self.by_target.get(&node).map_or(&[][..], Vec::as_slice);
        let one = |&(from, number): &(NodeId, usize)| {
            let reference = &self.graph.refs_of(from)[number];
            let inside = self.graph.resolve(reference.target).map_or(0, |(_, offset)| i64::from(offset));
            let at = inside + reference.addend;
            Use { from, offset: reference.offset, at, how: how(self.graph, from, reference) }
        };
        users.iter().map(one).collect()
    }

    /// Returns the effect of a reference on its target.
    pub fn of_reference(&self, from: NodeId, reference: &Ref) -> How {
        how(self.graph, from, reference)
    }
}

/// Returns the effect of a reference on its target. Any use except a plain read counts as a write, unless the data is
/// read-only: an instruction outside of the model may write.
fn how(graph: &Graph, from: NodeId, reference: &Ref) -> How {
    let Some(chunk) = graph.chunk(from) else {
        return in_code(graph, from, reference).unwrap_or(How::TakesAddress);
    };
    if chunk.code { How::TakesAddress } else { How::HoldsAddress }
}

/// Returns the effect of an instruction of a block; `None` if it does not access memory.
fn in_code(graph: &Graph, from: NodeId, reference: &Ref) -> Option<How> {
    let isa = graph.isa();
    let instructions = graph.instructions(from)?;
    let number = instructions.partition_point(|insn| insn.offset <= reference.offset).checked_sub(1)?;
    let instruction = &instructions[number];
    let field = (reference.offset - instruction.offset) as u8;
    let operand = isa.memory_operand(&instruction.inst)?;
    if operand.displacement_offset != Some(field) || operand.width == 0 {
        return None;
    }
    let is_pushed = |memory: Memory| match memory {
        Memory::At(to, _) => to.symbol.is_none() && to.base == Some(isa.convention().stack_pointer),
        Memory::From(_) | Memory::Any => false,
    };
    let effects = &instruction.effects;
    let to = graph.resolve_node(reference.target).map(|to| graph.section_of(to));
    let read_only = to.is_some_and(|section| section.flags & u64::from(SHF_WRITE) == 0);
    let writes = effects.iter().filter_map(|effect| effect.memory_written()).any(|to| !is_pushed(to));
    let reads = effects.iter().flat_map(|effect| effect.memory_read()).any(|(at, _)| at.symbol.is_some());
    let is_plain = read_only || !writes && reads && operand.address.segment.is_none();
    Some(if is_plain { How::Reads } else { How::Writes })
}

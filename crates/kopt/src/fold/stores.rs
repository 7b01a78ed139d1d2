//! Stores to variables that are never read.

use kcfg::flow::{DataUses, GraphProgram};
use kcfg::graph::Graph;
use kcfg::index::{NodeId, NodeSet};
use kflow::{BlockIndex, FLAGS, Instruction, Liveness, Program, Summaries};
use kisa::Memory;

/// The variables that instructions store to and that nothing reads: neither a load, nor the flags of an instruction
/// that computes the stored value from the old one.
pub(super) fn unread(
    graph: &Graph,
    uses: &DataUses,
    program: &GraphProgram,
    summaries: &Summaries,
    liveness: &Liveness,
) -> NodeSet {
    let mut unread = uses.unread_memory();
    for block in (0..program.blocks()).map(BlockIndex::from) {
        let mut computed: Vec<(usize, NodeId)> = Vec::new();
        let mut place = 0;
        program.for_each_instruction(block, &mut |instruction| {
            let to = stored_to(graph, &instruction).filter(|to| unread.contains(*to));
            computed.extend(to.filter(|_| instruction.writes() & FLAGS != 0).map(|to| (place, to)));
            place += 1;
        });
        if computed.is_empty() {
            continue;
        }
        let behind = liveness.within(program, summaries, program.function_of(block), block);
        for (place, to) in computed {
            if behind.get(place).is_none_or(|live| live & FLAGS != 0) {
                unread.set(to, false);
            }
        }
    }
    unread
}

/// The node that an instruction stores to at a fixed place, or by an index.
pub(super) fn stored_to(graph: &Graph, instruction: &Instruction) -> Option<NodeId> {
    instruction.effects.iter().find_map(|effect| match effect.memory_written() {
        Some(Memory::At(to, _)) => graph.node_of(to.symbol?),
        _ => None,
    })
}

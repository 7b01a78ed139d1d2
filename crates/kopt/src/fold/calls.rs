//! Inlining of functions that are no longer than the call.

use kcfg::flow::GraphProgram;
use kcfg::graph::{Graph, Terminator};
use kcfg::index::{NodeId, NodeSet};
use kcfg::instructions::Instruction;
use kflow::Program;
use kisa::{BinaryOp, Effect, Value};

/// Maximum number of blocks in an inlined function. Decided branches leave blocks that fall through.
const MAX_BLOCKS: usize = 8;

/// Returns the instructions of the function that a block calls at its end, without the return, and the block after the
/// call. `None` unless they are the whole function, take no more bytes than the call, and have the same effect in place
/// of the call. Blocks that must not change (`fixed`) are not copied.
pub(super) fn inlined(
    graph: &Graph,
    program: &GraphProgram,
    fixed: &NodeSet,
    node: NodeId,
) -> Option<(Vec<u8>, NodeId)> {
    let Terminator::Call { next: Some(next) } = graph.block(node)?.end else { return None };
    let callee = graph.callee(node).filter(|callee| callee.addend == 0)?;
    let (to, 0) = graph.resolve(callee.target)? else { return None };
    if graph.may_be_replaced(callee.target) || graph.encoding(to) != graph.encoding(node) {
        return None;
    }
    // Most functions are far larger.
    let limit = graph.node(node).size - callee.offset + u32::from(callee.width);
    let all = straight(graph, program, fixed, to, limit)?;
    let (last, body) = all.split_last()?;
    let call = graph.instructions(node)?.pop()?;
    let size: usize = body.iter().map(|instruction| instruction.inst.bytes.len()).sum();
    let fits =
        size <= call.inst.bytes.len() && body.iter().all(|instruction| stands_alone(graph, instruction));
    (fits && only_returns(graph, last))
        .then(|| (body.iter().flat_map(|one| one.inst.bytes).copied().collect(), next))
}

/// Returns the instructions of a function of at most `limit` bytes that runs straight to its return and has no
/// references.
fn straight<'g>(
    graph: &'g Graph,
    program: &GraphProgram,
    fixed: &NodeSet,
    entry: NodeId,
    limit: u32,
) -> Option<Vec<Instruction<'g>>> {
    let (mut all, mut size, mut node) = (Vec::new(), 0, entry);
    for _ in 0..MAX_BLOCKS {
        let stays = fixed.contains(node) || program.may_leave_early(program.block(node)?);
        size += graph.node(node).size;
        if stays || size > limit || !graph.refs_of(node).is_empty() {
            return None;
        }
        all.extend(graph.instructions(node)?);
        match graph.block(node)?.end {
            Terminator::Return => return Some(all),
            Terminator::FallThrough(next) => node = next,
            _ => return None,
        }
    }
    None
}

/// Whether an instruction has the same effect in another function: it uses neither the stack nor the return address.
fn stands_alone(graph: &Graph, instruction: &Instruction) -> bool {
    let isa = graph.isa();
    let stack =
        kflow::bit(isa.convention().stack_pointer) | isa.convention().link_register.map_or(0, kflow::bit);
    let written = instruction.effects.iter().fold(0, |set, effect| set | effect.registers_written());
    isa.can_move(&instruction.inst)
        && (isa.registers_read(&instruction.inst) | written) & stack == 0
        && !instruction.effects.iter().any(|effect| matches!(effect, Effect::SystemCall { .. }))
}

/// Whether a return only returns: it pops no arguments.
fn only_returns(graph: &Graph, instruction: &Instruction) -> bool {
    if let Some(link) = graph.isa().convention().link_register {
        return matches!(instruction.effects[..], [Effect::Transfer(Value::Reg { reg, .. })] if reg == link);
    }
    let (stack, word) =
        (graph.isa().convention().stack_pointer, Value::Const(graph.machine().word_size().into()));
    matches!(
        instruction.effects[..],
        [Effect::Binary { op: BinaryOp::Add, dst, right, .. }] if dst == stack && right == word
    )
}

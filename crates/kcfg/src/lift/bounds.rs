//! Bounds of registers: how large an index can be at a given place, from the comparison, mask or narrow load
//! that the code just before it applies.

use crate::edges::Predecessors;
use crate::graph::{Graph, Terminator};
use crate::index::NodeId;
use crate::isa::{BinaryOp, Condition, Effect, Reg, Value};

/// How many blocks to walk back in search of a bound.
const MAX_BLOCKS: usize = 8;

/// The index that is being followed backwards: at this point, the final index is the low `width` bytes of
/// `reg`, zero-extended.
struct Index {
    reg: Reg,
    width: u8,
}

/// The largest value that `reg` can have in front of instruction `before` of a block (`usize::MAX`: at its
/// end), if the code up to there bounds it.
pub(super) fn upper_bound(
    graph: &Graph,
    predecessors: &Predecessors,
    node: NodeId,
    before: usize,
    reg: Reg,
) -> Option<u64> {
    let isa = graph.isa();
    let mut index = Index { reg, width: graph.machine.word_size() };
    let mut node = node;
    let mut before = before;
    // The condition under which control came on from the block that is looked at.
    let mut condition = None;
    for _ in 0..MAX_BLOCKS {
        let effects = graph.effects(node);
        for insn in effects[..before.min(effects.len())].iter().rev() {
            for effect in insn.iter().rev() {
                if let Step::Bound(bound) = step(&mut index, &mut condition, effect)? {
                    return bound;
                }
            }
        }
        before = usize::MAX;
        let previous = predecessors.only(node)?;
        condition = match &graph.block(previous)?.end {
            Terminator::FallThrough(_) => None,
            Terminator::Jump(_) => None,
            Terminator::Branch { branch, taken, next } => {
                let taken = graph.resolve_node(taken.target) == Some(node);
                match (taken, *next == node) {
                    (true, false) => Some(isa.condition(*branch)),
                    (false, true) => Some(isa.condition(*branch).inverse()),
                    _ => return None,
                }
            }
            _ => return None,
        };
        node = previous;
    }
    None
}

enum Step {
    On,
    Bound(Option<u64>),
}

/// Goes back over one effect; `None` if the index is lost.
fn step(index: &mut Index, condition: &mut Option<Condition>, effect: &Effect) -> Option<Step> {
    match *effect {
        Effect::Compare { left, right, width } => {
            let Some(condition) = condition.take() else { return Some(Step::On) };
            let (Value::Reg { reg, width: reg_width }, Value::Const(limit)) = (left, right) else {
                return Some(Step::On);
            };
            // A comparison of the low byte bounds the index only if the index is that byte.
            if reg != index.reg || reg_width != width || index.width > width {
                return Some(Step::On);
            }
            let bound = match condition {
                Condition::BelowOrEqual => Some(limit),
                Condition::Below => limit.checked_sub(1),
                _ => return Some(Step::On),
            };
            Some(Step::Bound(bound))
        }
        Effect::ClobberFlags => {
            *condition = None;
            Some(Step::On)
        }
        Effect::Set { dst, value, width } if dst == index.reg => match value {
            // Every machine here zero-extends what it writes into the low 4 bytes.
            Value::Reg { reg, width: from } if width >= index.width.min(4) => {
                index.reg = reg;
                index.width = index.width.min(from).min(width);
                Some(Step::On)
            }
            Value::Load { width: from @ 1..=2, .. } if width >= index.width.min(4) => {
                Some(Step::Bound(Some((1 << (8 * from)) - 1)))
            }
            _ => None,
        },
        Effect::Binary { op: BinaryOp::And, dst, right: Value::Const(mask), width, .. }
            if dst == index.reg && width >= index.width =>
        {
            Some(Step::Bound(Some(mask)))
        }
        Effect::Set { dst, .. }
        | Effect::MaybeSet { dst, .. }
        | Effect::SetSigned { dst, .. }
        | Effect::Binary { dst, .. }
        | Effect::Clobber(dst) => (dst != index.reg).then_some(Step::On),
        Effect::Swap(a, b) => (a != index.reg && b != index.reg).then_some(Step::On),
        _ => Some(Step::On),
    }
}


/*!
Bounds of registers: how large an index can be at a given place.

From there the code is read backwards, block by block as long as there is only one way in, following the index
through copies, to what bounds it: a comparison that had to come out right for control to get here, a mask,
or a load of a narrow field. Compilers also compare a field of memory and load it only then
(`cmpl $4, 8(%esi); ja …; mov 8(%esi), %eax`), and compare the low byte of an index that a narrow load has
zero-extended before; both are followed.
*/

use crate::edges::Predecessors;
use crate::graph::{Graph, Terminator};
use crate::index::NodeId;
use kisa::{Address, BinaryOp, Condition, Effect, Reg, Value};

/// How many blocks to walk back in search of a bound.
const MAX_BLOCKS: usize = 8;

/// The largest value that `reg` can have in front of instruction `before` of a block (`usize::MAX`: at its
/// end), if the code up to there bounds it.
pub(super) fn upper_bound(
    graph: &Graph,
    predecessors: &Predecessors,
    node: NodeId,
    before: usize,
    reg: Reg,
) -> Option<u64> {
    let mut walk = Walk {
        stack_pointer: graph.isa().stack_pointer(),
        index: Place::Register(reg),
        width: graph.machine.word_size(),
        condition: None,
        low_part: None,
        narrowest: None,
    };
    walk.search(graph, predecessors, node, before).or(walk.narrowest)
}

/// Where the index is at the place that the walk has come to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Register(Reg),
    Memory(Address),
}

struct Walk {
    stack_pointer: Reg,
    index: Place,
    /// The index is the low bytes of its place, so many of them, zero-extended.
    width: u8,
    /// What held of the last comparison before this place.
    condition: Option<Condition>,
    /// A bound of the low bytes of the index, and how many they are.
    low_part: Option<(u64, u8)>,
    /// What the narrowest copy on the way can hold.
    narrowest: Option<u64>,
}

enum Step {
    On,
    Bound(u64),
}

impl Walk {
    /// Reads backwards until something bounds the index.
    fn search(
        &mut self,
        graph: &Graph,
        predecessors: &Predecessors,
        mut node: NodeId,
        mut before: usize,
    ) -> Option<u64> {
        for _ in 0..MAX_BLOCKS {
            let effects = graph.effects(node);
            for effect in effects[..before.min(effects.len())].iter().rev().flat_map(|insn| insn.iter().rev())
            {
                if let Step::Bound(bound) = self.back_over(effect)? {
                    return Some(bound);
                }
            }
            before = usize::MAX;
            let previous = predecessors.only(node)?;
            self.condition = match &graph.block(previous)?.end {
                Terminator::FallThrough(_) | Terminator::Jump(_) => None,
                Terminator::Branch { branch, taken, next } => {
                    let taken = graph.resolve_node(taken.target) == Some(node);
                    match (taken, *next == node) {
                        (true, false) => Some(graph.isa().condition(*branch)),
                        (false, true) => Some(graph.isa().condition(*branch).inverse()),
                        _ => return None,
                    }
                }
                _ => return None,
            };
            node = previous;
        }
        None
    }

    /// Goes back over one effect; `None` if the index is lost.
    fn back_over(&mut self, effect: &Effect) -> Option<Step> {
        match *effect {
            Effect::Compare { left, right, width } => {
                if let Some(bound) = self.condition.take().and_then(|c| self.compared(c, left, right, width))
                {
                    if width >= self.width {
                        return Some(Step::Bound(bound));
                    }
                    self.low_part = Some((bound, width));
                }
                Some(Step::On)
            }
            Effect::ClobberFlags | Effect::CompareZero { .. } | Effect::BranchIfCompared { .. } => {
                self.condition = None;
                Some(Step::On)
            }
            Effect::Set { dst, value, width } if self.index == Place::Register(dst) => {
                self.copied(value, width)
            }
            Effect::Binary { op: BinaryOp::And, dst, right: Value::Const(mask), width, .. }
                if self.index == Place::Register(dst) && width >= self.width =>
            {
                Some(Step::Bound(mask))
            }
            Effect::Set { dst, .. }
            | Effect::MaybeSet { dst, .. }
            | Effect::SetSigned { dst, .. }
            | Effect::Binary { dst, .. }
            | Effect::Clobber(dst) => (!self.depends_on(dst)).then_some(Step::On),
            Effect::Swap(a, b) => (!self.depends_on(a) && !self.depends_on(b)).then_some(Step::On),
            Effect::Store { to, width, .. } => match self.index {
                Place::Memory(from) if !self.apart(from, to, width) => None,
                _ => Some(Step::On),
            },
            Effect::ClobberMemory | Effect::ClobberRange(_) => {
                matches!(self.index, Place::Register(_)).then_some(Step::On)
            }
            Effect::Transfer(_) | Effect::BranchIf(_) => Some(Step::On),
            Effect::SystemCall { .. } | Effect::OnlyIf(_) => None,
        }
    }

    /// The bound that a comparison puts on the index, or on its low `width` bytes.
    fn compared(&self, condition: Condition, left: Value, right: Value, width: u8) -> Option<u64> {
        let Value::Const(limit) = right else { return None };
        let (place, read) = match left {
            Value::Reg { reg, width } => (Place::Register(reg), width),
            Value::Load { from, width } => (Place::Memory(from), width),
            _ => return None,
        };
        if place != self.index || read != width {
            return None;
        }
        match condition {
            Condition::BelowOrEqual => Some(limit),
            Condition::Below => limit.checked_sub(1),
            _ => None,
        }
    }

    /// The index was copied from `value`, `width` bytes of it.
    fn copied(&mut self, value: Value, width: u8) -> Option<Step> {
        // Every machine here zero-extends what it writes into the low 4 bytes.
        if width < self.width.min(4) {
            return None;
        }
        let (place, read) = match value {
            Value::Reg { reg, width } => (Place::Register(reg), width),
            Value::Load { from, width } => (Place::Memory(from), width),
            _ => return None,
        };
        if let Some((bound, part)) = self.low_part
            && read <= part
        {
            return Some(Step::Bound(bound));
        }
        self.index = place;
        self.width = self.width.min(read).min(width);
        if self.width <= 2 {
            self.narrowest = Some((1 << (8 * self.width)) - 1);
        }
        Some(Step::On)
    }

    /// Whether a store of `width` bytes leaves the index in memory alone: it goes to other bytes of the same
    /// object, or one of the two is in the frame and the other at a fixed address.
    fn apart(&self, index: Address, store: Address, width: u8) -> bool {
        let varying = |address: Address| Address { displacement: 0, ..address };
        let same = varying(index) == varying(store);
        let (index_end, store_end) =
            (index.displacement + i64::from(self.width), store.displacement + i64::from(width));
        if same {
            return index_end <= store.displacement || store_end <= index.displacement;
        }
        let fixed = |address: Address| address.base.is_none() && address.index.is_none();
        let framed = |address: Address| address.base == Some(self.stack_pointer);
        fixed(index) && framed(store) || framed(index) && fixed(store)
    }

    fn depends_on(&self, reg: Reg) -> bool {
        match self.index {
            Place::Register(index) => index == reg,
            Place::Memory(address) => {
                address.base == Some(reg) || address.index.is_some_and(|(index, _)| index == reg)
            }
        }
    }
}

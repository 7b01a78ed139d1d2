/*!
Jump tables.

A compiled `switch` bounds its index, then jumps through a table:

```text
    cmp $N, %eax
    ja  default
    jmp *table(,%eax,4)
```

[`resolve`] walks back from every computed jump of that shape to the comparison that bounds its index. Only
with a bound in hand, and only if every slot up to it names a block of the same function, is the table
resolved (Chanet et al. 2007, section 2.3): its slots then belong to the jump, so that they keep code alive
only while the jump itself can run. Otherwise the table stays ordinary data, which keeps what it names
alive for as long as anything refers to it; that is sound, and listed in [`Graph::unresolved_switches`].
*/

use fixedbitset::FixedBitSet;
use kelf::RelocClass;
use rustc_hash::FxHashMap;

use crate::edges::Predecessors;
use crate::graph::{Graph, JumpTable, NodeKind, Target, Terminator};
use crate::index::{NodeId, TableId};
use crate::isa::{BinaryOp, Condition, Effect, Isa, Reg, Value};

/// How many blocks to walk back in search of the bound.
const MAX_BLOCKS: usize = 8;

/// Resolves what jump tables it can.
pub(super) fn resolve(isa: &dyn Isa, graph: &mut Graph) {
    let predecessors = Predecessors::of(graph);
    for node in graph.node_ids() {
        if !matches!(graph.block(node), Some(block) if block.end == Terminator::IndirectJump) {
            continue;
        }
        let Some(index) = graph.table_index(node) else { continue };
        let table = bound(isa, graph, &predecessors, node, index)
            .and_then(|bound| find_table(graph, node, bound));
        match table {
            Some(table) => attach(graph, node, table),
            None => graph.unresolved_switches.push(node),
        }
    }
    own_slots(graph);
}

/// The index that is being followed backwards: at this point, the final index is the low `width` bytes of
/// `reg`, zero-extended.
struct Index {
    reg: Reg,
    width: u8,
}

/// The largest value that `reg` can have at the end of the block, if the code before bounds it.
fn bound(isa: &dyn Isa, graph: &Graph, predecessors: &Predecessors, node: NodeId, reg: Reg) -> Option<u64> {
    let mut index = Index { reg, width: isa.machine().word_size() };
    let mut node = node;
    // The condition under which control came on from the block that is looked at.
    let mut condition = None;
    for _ in 0..MAX_BLOCKS {
        for insn in graph.effects(node).iter().rev() {
            for effect in insn.iter().rev() {
                if let Step::Bound(bound) = step(&mut index, &mut condition, effect)? {
                    return bound;
                }
            }
        }
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
            Value::Reg { reg, width: from } if width >= index.width => {
                index.reg = reg;
                index.width = index.width.min(from);
                Some(Step::On)
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

/// The slots of the table that the block jumps through.
fn find_table(graph: &Graph, node: NodeId, bound: u64) -> Option<JumpTable> {
    let word = i64::from(graph.machine.word_size());
    let NodeKind::Block(block) = &graph.node(node).kind else { return None };
    let base = graph.refs_of(node).last().filter(|base| base.class == RelocClass::Absolute)?;
    let (chunk, at) = graph.resolve(base.target)?;
    let start = i64::from(at) + base.addend;
    let slots = usize::try_from(bound).ok()?.checked_add(1)?;
    graph.chunk(chunk)?;
    let refs = graph.refs_of(chunk);
    let first = refs.partition_point(|slot| i64::from(slot.offset) < start);
    let table = refs.get(first..first.checked_add(slots)?)?;
    let matches = table.iter().enumerate().all(|(i, slot)| {
        let in_function = match slot.target {
            Target::Node(target) => {
                matches!(&graph.node(target).kind, NodeKind::Block(other) if other.function == block.function)
            }
            Target::Symbol(_) => false,
        };
        i64::from(slot.offset) == start + i as i64 * word
            && slot.class == RelocClass::Absolute
            && slot.addend == 0
            && in_function
    });
    let range = &graph.node(chunk).refs;
    let first = range.start + first as u32;
    matches.then(|| JumpTable { chunk, slots: first..first + slots as u32 })
}

/// Makes the table the jump's. Two jumps may share one.
fn attach(graph: &mut Graph, node: NodeId, table: JumpTable) {
    let known = graph.tables.iter().rposition(|other| other.slots == table.slots);
    let id = TableId::from(known.unwrap_or(graph.tables.len()));
    if known.is_none() {
        graph.tables.push(table);
    }
    if let NodeKind::Block(block) = &mut graph.nodes[node.get()].kind {
        block.end = Terminator::Switch(id);
    }
}

/// Gives every table its slots, unless something besides the jumps through it names a place in it, or
/// tables overlap: those stay data as well.
fn own_slots(graph: &mut Graph) {
    let mut spans: FxHashMap<NodeId, Vec<(i64, i64, TableId)>> = FxHashMap::default();
    for (i, table) in graph.tables.iter().enumerate() {
        let slots = graph.slots(TableId::from(i));
        let (first, last) = (slots[0], slots[slots.len() - 1]);
        let span = (i64::from(first.offset), i64::from(last.offset) + i64::from(last.width), TableId::from(i));
        spans.entry(table.chunk).or_default().push(span);
    }
    let mut shared = FixedBitSet::with_capacity(graph.tables.len());
    for spans in spans.values_mut() {
        spans.sort_unstable();
        for pair in spans.windows(2) {
            if pair[1].0 < pair[0].1 {
                shared.extend([pair[0].2.get(), pair[1].2.get()]);
            }
        }
    }
    for node in graph.node_ids() {
        let own = match graph.block(node).map(|block| &block.end) {
            Some(Terminator::Switch(table)) => Some(*table),
            _ => None,
        };
        for reference in graph.refs_of(node) {
            let Some((chunk, at)) = graph.resolve(reference.target) else { continue };
            let Some(spans) = spans.get(&chunk) else { continue };
            let at = i64::from(at) + reference.addend;
            let inside = spans.iter().filter(|span| (span.0..span.1).contains(&at) && own != Some(span.2));
            shared.extend(inside.map(|span| span.2.get()));
        }
    }
    for i in 0..graph.tables.len() {
        if !shared.contains(i) {
            let slots = graph.tables[i].slots.clone();
            for slot in &mut graph.refs[slots.start as usize..slots.end as usize] {
                slot.slot_of = Some(TableId::from(i));
            }
        }
    }
}

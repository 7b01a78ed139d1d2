/*!
Resolving the jump tables of indirect jumps.

A compiled `switch` bounds its index, then jumps through a table:

```text
    cmp $N, %eax
    ja  default
    jmp *table(,%eax,4)
```

For every computed jump of that shape, [`bounds`] looks for the comparison that bounds the index. The table is resolved
(Chanet et al. 2007, section 2.3) only if there is a bound, and every slot up to it names a block of the same function.
Its slots then belong to the jump, so they keep code alive only while the jump itself can run. Otherwise the table
remains ordinary data, and because it points into the middle of the function, the function is opaque
([`super::pointers`]).
*/

use std::ops::Range;

use kelf::{ObjectIndex, RelocClass, SectionIndex};
use rustc_hash::FxHashMap;

use super::bounds;
use super::nodes::Lifted;
use crate::graph::{Graph, JumpTable, NodeKind, Predecessors, Ref, Role, Target, Terminator};
use crate::index::{IdSet, NodeId, TableId};

/// Resolves the jump tables of all blocks that end with an indirect jump, if their size can be proved.
pub(super) fn resolve(graph: &mut Graph) {
    let predecessors = Predecessors::of(graph);
    for node in graph.node_ids() {
        if !matches!(graph.block(node), Some(block) if block.end == Terminator::IndirectJump) {
            continue;
        }
        let Some(index) = graph.table_index(node) else { continue };
        let table = bounds::index_bound(graph, &predecessors, node, index)
            .and_then(|bound| find_table(graph, node, bound));
        if let Some(table) = table {
            attach(graph, node, table);
        }
    }
    own_slots(graph);
}

/// Finds the slots of the table that the block jumps through.
fn find_table(graph: &Graph, node: NodeId, bound: u64) -> Option<JumpTable> {
    let word = i64::from(graph.machine.word_size());
    let NodeKind::Block(block) = &graph.node(node).kind else { return None };
    let jump = graph.instructions(node)?.pop()?;
    let field = graph.isa().memory_operand(&jump.inst)?.displacement_offset?;
    let at_field = |base: &&Ref| base.offset == jump.offset + u32::from(field);
    let base =
        graph.refs_of(node).last().filter(at_field).filter(|base| base.class == RelocClass::Absolute)?;
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
    jump_table(chunk, table, &refs[first + slots..]).filter(|_| matches)
}

/// Returns the table of these references of a chunk, if they directly follow one another. In a damaged object they may
/// overlap; then there is none.
fn jump_table(chunk: NodeId, slots: &[Ref], behind: &[Ref]) -> Option<JumpTable> {
    let end = |slot: &Ref| slot.offset + u32::from(slot.width);
    let range = slots.first()?.offset..end(slots.last()?);
    let is_dense = slots.windows(2).all(|pair| end(&pair[0]) == pair[1].offset);
    let ends = behind.first().is_none_or(|next| range.end <= next.offset);
    (is_dense && ends).then_some(JumpTable { chunk, range })
}

/// Makes the block's terminator a switch through the table. Two jumps may share one.
fn attach(graph: &mut Graph, node: NodeId, table: JumpTable) {
    let known = graph.tables.rposition(|other| *other == table);
    let id = known.unwrap_or_else(|| graph.tables.push_and_get_key(table));
    if let NodeKind::Block(block) = &mut graph.nodes[node].kind {
        block.end = Terminator::Switch(id);
    }
}

/// Adds a table whose jump an earlier rewrite removed. Its slots keep their targets alive, like other references.
pub(super) fn add_without_jump(
    lifted: &mut Lifted<'_>,
    object: ObjectIndex,
    section: SectionIndex,
    range: &Range<u32>,
) {
    let place = lifted.section(object, section).and_then(|id| lifted.locate(id, i64::from(range.start)));
    let Some((chunk, start)) = place else { return };
    let refs = lifted.graph.refs_of(chunk);
    let before = |end: i64| refs.partition_point(|slot| i64::from(slot.offset) < end);
    let (first, end) = (before(start), before(start + range.len() as i64));
    let table = jump_table(chunk, &refs[first..end], &refs[end..]);
    lifted.graph.tables.extend(table);
}

/// Gives the references of every table the role of slots. Tables that overlap, or that have users other than their
/// jumps, keep [`Role::Address`].
fn own_slots(graph: &mut Graph) {
    let mut spans: FxHashMap<NodeId, Vec<(i64, i64, TableId)>> = FxHashMap::default();
    for (table, JumpTable { chunk, range }) in graph.tables.iter_enumerated() {
        let span = (i64::from(range.start), i64::from(range.end), table);
        spans.entry(*chunk).or_default().push(span);
    }
    let mut shared = IdSet::with_capacity(graph.tables.len());
    for spans in spans.values_mut() {
        spans.sort_unstable();
        for pair in spans.windows(2) {
            if pair[1].0 < pair[0].1 {
                shared.extend([pair[0].2, pair[1].2]);
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
            shared.extend(inside.map(|span| span.2));
        }
    }
    for table in graph.tables.keys() {
        if !shared.contains(table) {
            let slots = graph.slot_indices(table);
            graph.refs[slots].iter_mut().for_each(|slot| slot.role = Role::Slot(table));
        }
    }
}

//! Slots of jump tables that control never takes.

use kcfg::flow::GraphProgram;
use kcfg::graph::{Graph, Terminator};
use kcfg::index::{NodeSet, TableId};
use kelf::RelocClass;
use kflow::{BlockIndex, Reached};
use typed_index_collections::TiVec;

use crate::switches::shared_tables;

/// A slot that control never takes, and a slot of the same table that it may take.
pub(super) struct Untaken {
    pub table: TableId,
    pub slot: usize,
    pub like: usize,
}

/// Finds slots that control never takes, in tables that serve one jump. That jump takes several other slots, or must
/// precede its table, so that no plain jump can replace it.
pub(super) fn untaken(
    graph: &Graph,
    program: &GraphProgram<'_>,
    reached: &TiVec<BlockIndex, Option<Reached>>,
    fixed: &NodeSet,
) -> Vec<Untaken> {
    let shared = shared_tables(graph);
    let mut found = Vec::new();
    for node in graph.node_ids() {
        let Some(reached) = program.block(node).and_then(|block| reached[block].as_ref()) else {
            continue;
        };
        let Some(Terminator::Switch(table)) = graph.block(node).map(|block| &block.end) else { continue };
        let (table, slots) = (*table, graph.slots(*table));
        let mut taken = (0..slots.len()).filter(|&slot| reached.taken.get(slot) == Some(&true));
        let Some(like) = taken.next() else { continue };
        // A distance from the slot itself would need another value there; a distance from the beginning of the table
        // does not.
        let has = |class: RelocClass| slots.iter().all(|slot| slot.class == class);
        let is_plain = match fixed.contains(node) {
            true => has(RelocClass::Literal),
            false => has(RelocClass::Absolute) && taken.next().is_some(),
        };
        if shared.contains(&table) || !is_plain || reached.taken.len() != slots.len() {
            continue;
        }
        let is_untaken = |&slot: &usize| {
            let (one, other) = (&slots[slot], &slots[like]);
            !reached.taken[slot] && (one.target, one.addend) != (other.target, other.addend)
        };
        found.extend((0..slots.len()).filter(is_untaken).map(|slot| Untaken { table, slot, like }));
    }
    found
}

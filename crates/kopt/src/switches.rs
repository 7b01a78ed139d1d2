//! Jump tables.

use kcfg::graph::{Graph, Role, Terminator};
use kcfg::index::TableId;
use rustc_hash::FxHashSet;

/// The jump tables with more than one user: several jumps, or references that name their slots.
pub(crate) fn shared_tables(graph: &Graph) -> FxHashSet<TableId> {
    let mut seen = FxHashSet::default();
    let tables = graph.node_ids().filter_map(|node| match graph.block(node)?.end {
        Terminator::Switch(table) => Some(table),
        _ => None,
    });
    let is_own = |table: TableId| graph.slots(table).iter().all(|slot| slot.role == Role::Slot(table));
    tables.filter(|&table| !seen.insert(table) || !is_own(table)).collect()
}

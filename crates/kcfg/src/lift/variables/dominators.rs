//! Dominators of basic blocks, computed backwards from one block at a time.

use rustc_hash::FxHashSet;

use crate::graph::Predecessors;
use crate::index::NodeId;

/// Maximum number of blocks that one query visits; beyond it, nothing dominates.
const MAX_BLOCKS: usize = 200;

/// Whether `node` dominates `later`: every path to `later` contains `node`. Also `false` if a search of [`MAX_BLOCKS`]
/// does not prove it.
pub(super) fn dominates(predecessors: &Predecessors, node: NodeId, later: NodeId) -> bool {
    let (mut seen, mut worklist) = (FxHashSet::default(), vec![later]);
    while let Some(block) = worklist.pop() {
        if block == node || !seen.insert(block) {
            continue;
        }
        let Some(before) = predecessors.all(block).filter(|_| seen.len() <= MAX_BLOCKS) else {
            return false;
        };
        worklist.extend(before);
    }
    true
}

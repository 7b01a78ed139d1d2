//! Inverting conditional branches so that hot code falls through.

use kcfg::graph::{Dest, Editor, Graph, Target, Terminator};
use kcfg::index::NodeId;

/// Inverts the conditional branches of blocks that will be placed in this order, in two cases: the target of the branch
/// is the next block, or neither successor is next and only the fall-through is hot (the extra jump then leads to the
/// cold one). Returns the number of inverted branches.
pub(crate) fn invert_branches(graph: &mut Graph, order: &[NodeId], is_hot: impl Fn(NodeId) -> bool) -> u64 {
    let isa = graph.isa();
    let live: Vec<NodeId> = order.iter().copied().filter(|&node| graph.node(node).live).collect();
    let mut editor = Editor::new(graph, "layout");
    let mut inverted = 0;
    for (i, &node) in live.iter().enumerate() {
        let graph = editor.graph();
        let behind = live.get(i + 1).copied();
        let Some(block) = graph.block(node) else { continue };
        let Terminator::Branch { branch, taken, next } = block.end else { continue };
        let Some(target) = own_block(graph, node, &taken) else { continue };
        let straight = Some(target) == behind;
        let apart = Some(next) != behind && is_hot(next) && !is_hot(target);
        if next == target || !(straight || apart) || Some(next) == behind || !graph.node(next).live {
            continue;
        }
        let Some(inverse) = isa.inverse(branch) else { continue };
        let taken = Dest { target: Target::Node(next), offset: 0 };
        editor.end_block(node, Terminator::Branch { branch: inverse, taken, next: target });
        inverted += 1;
    }
    editor.finish();
    inverted
}

/// The target of a branch, if it is a block of the same function.
fn own_block(graph: &Graph, from: NodeId, dest: &Dest) -> Option<NodeId> {
    let (to, inside) = graph.resolve(dest.target)?;
    let function = |node| graph.block(node).map(|block| block.function);
    let own = inside == 0 && dest.offset == 0 && function(to) == function(from);
    (own && graph.node(to).live).then_some(to)
}

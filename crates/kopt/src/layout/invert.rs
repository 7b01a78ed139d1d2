//! Conditional branches, inverted round so that what runs runs straight on.

use kcfg::graph::{Dest, Graph, NodeKind, Target, Terminator};
use kcfg::index::NodeId;

use super::hot::Hot;

/// Turns round the branches of blocks that will lie in this order, where the block behind is the one that they
/// jump to, or where neither is and the jump leads to the colder one. Returns how many.
pub fn invert_branches(graph: &mut Graph, order: &[NodeId], hot: &Hot<'_>) -> u64 {
    let isa = graph.isa();
    let live: Vec<NodeId> = order.iter().copied().filter(|&node| graph.node(node).live).collect();
    let mut inverted = 0;
    for (i, &node) in live.iter().enumerate() {
        let behind = live.get(i + 1).copied();
        let NodeKind::Block(block) = &graph.node(node).kind else { continue };
        let Terminator::Branch { branch, taken, next } = block.end else { continue };
        let Some(target) = own_block(graph, node, &taken) else { continue };
        let straight = Some(target) == behind;
        let apart = Some(next) != behind && hot.rank(next).is_some() && hot.rank(target).is_none();
        if next == target || !(straight || apart) || Some(next) == behind || !graph.node(next).live {
            continue;
        }
        let Some(inverse) = isa.inverse(branch) else { continue };
        let NodeKind::Block(block) = &mut graph.nodes[node.get()].kind else { continue };
        let taken = Dest { target: Target::Node(next), offset: 0 };
        block.end = Terminator::Branch { branch: inverse, taken, next: target };
        inverted += 1;
    }
    inverted
}

/// The block of the same function that a branch leads to.
fn own_block(graph: &Graph, from: NodeId, dest: &Dest) -> Option<NodeId> {
    let (to, inside) = graph.resolve(dest.target)?;
    let function = |node| graph.block(node).map(|block| block.function);
    let own = inside == 0 && dest.offset == 0 && function(to) == function(from);
    (own && graph.node(to).live).then_some(to)
}

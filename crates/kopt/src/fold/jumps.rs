//! Jumps to empty blocks, and branches with equal successors.

use kcfg::graph::{Dest, Graph, Target, Terminator};
use kcfg::index::{FunctionId, NodeId, NodeSet};
use kisa::BranchKind;

/// Maximum length of a chain of empty blocks. It ends the search in a cycle.
const MAX_BLOCKS: usize = 16;

/// Returns the terminator of a block whose jump or taken branch leads to an empty block of the same function,
/// redirected to the end of the chain of empty blocks. `end` is its present or future terminator.
pub(super) fn shortened(
    graph: &Graph,
    fixed: &NodeSet,
    node: NodeId,
    end: &Terminator,
) -> Option<Terminator> {
    let function = graph.function_of(node)?;
    let behind = |dest: &Dest| behind(graph, fixed, function, dest);
    match end {
        Terminator::Jump(dest) => Some(Terminator::Jump(behind(dest)?)),
        Terminator::Branch { branch, taken, next } if branch.kind == BranchKind::Conditional => {
            let taken = behind(taken)?;
            Some(Terminator::Branch { branch: *branch, taken, next: *next })
        }
        _ => None,
    }
}

/// Returns the new terminator of a block whose conditional branch has equal successors, empty blocks aside.
pub(super) fn with_one_end(graph: &Graph, fixed: &NodeSet, node: NodeId) -> Option<Terminator> {
    let Terminator::Branch { branch, taken, next } = &graph.block(node)?.end else { return None };
    let function = graph.function_of(node)?;
    let goes_on = |dest: Dest| target(graph, &behind(graph, fixed, function, &dest).unwrap_or(dest));
    let not_taken = goes_on(Dest { target: Target::Node(*next), offset: 0 });
    (branch.kind == BranchKind::Conditional && not_taken.is_some() && goes_on(*taken) == not_taken)
        .then_some(Terminator::FallThrough(*next))
}

/// Follows a chain of empty blocks to its end; `None` for another block.
fn behind(graph: &Graph, fixed: &NodeSet, function: FunctionId, dest: &Dest) -> Option<Dest> {
    let mut last = None;
    let mut to = target(graph, dest).filter(|&to| graph.function_of(to) == Some(function))?;
    for _ in 0..MAX_BLOCKS {
        let Some(next) = passed_through(graph, fixed, to) else { return last };
        to = target(graph, &next)?;
        last = Some(next);
    }
    None
}

/// Returns the node that a branch enters at its beginning.
fn target(graph: &Graph, dest: &Dest) -> Option<NodeId> {
    match graph.resolve(dest.target) {
        Some((to, 0)) if dest.offset == 0 && !graph.may_be_replaced(dest.target) => Some(to),
        _ => None,
    }
}

/// The successor of an empty block.
fn passed_through(graph: &Graph, fixed: &NodeSet, node: NodeId) -> Option<Dest> {
    let block = graph.block(node).filter(|_| graph.node(node).size == 0 && !fixed.contains(node))?;
    let dest = match &block.end {
        Terminator::FallThrough(next) => Dest { target: Target::Node(*next), offset: 0 },
        Terminator::Jump(dest) => *dest,
        _ => return None,
    };
    // Control stays in the function.
    let to = target(graph, &dest)?;
    (graph.function_of(to) == Some(block.function)).then_some(dest)
}

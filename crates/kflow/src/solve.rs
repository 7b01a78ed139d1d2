//! The states of all blocks of a graph: the least solution of the dataflow equations, if a few rounds find it.
//!
//! A block outside loops is visited once, after all its predecessors. A loop is visited until it is stable, before its
//! successors ([`crate::order`]). Each visit recomputes the state before a block from the states after its
//! predecessors. Only the head of a loop also keeps its old state, and after a few rounds makes everything that still
//! changes unknown. No value that an early round assumed in a loop is left in the result.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use crate::order::Order;
use crate::{BlockIndex, Cfg};

/// Maximum number of visits to the head of a loop before changing values become unknown. Variables that the loop sets
/// to a few numbers are stable by then; counters never are.
const MAX_ROUNDS: u32 = 3;

/// Maximum number of visits to one block, and on average to all blocks, before the solver gives up. Nested loops
/// multiply the visits; compiled code does not come near this limit.
const MAX_VISITS: u32 = 300;
const MAX_AVERAGE: usize = 40;

/// Maximum number of blocks of a graph. The largest interpreters have a tenth of it.
const MAX_BLOCKS: usize = 50_000;

/// A forward analysis: the effect of a block on a state, and the join of states.
pub trait Analysis {
    /// The knowledge at one place.
    type State: Clone + PartialEq;

    /// Forgets the results of earlier visits of blocks: the graph is solved again.
    fn restart(&mut self) {}

    /// Makes a state hold for `other` too. If `widen` names the head of a loop, every difference becomes unknown at
    /// once, so that loops converge.
    fn join(&mut self, state: &mut Self::State, other: &Self::State, widen: Option<Head>);

    /// Applies a block to the state before it and stores the states after it in `behind`: one for each possible
    /// successor, in order, or a single one for all.
    fn block(&mut self, block: BlockIndex, state: Self::State, behind: &mut [Option<Rc<Self::State>>]);

    /// Records that a block, visited before, is not reached.
    fn unreached(&mut self, _block: BlockIndex) {}
}

/// The head of a loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Head {
    /// A block.
    Block(BlockIndex),
    /// The hub of jumps to the same blocks; this block ends with one of the jumps.
    Jumps(BlockIndex),
}

/// The state before each block; `None` if the block is not reached.
pub type States<S> = Vec<Option<Rc<S>>>;

/// Computes the state before each block from the state `begin` before the first. Returns `None` if the graph is too
/// large, or takes too long.
pub fn solve<A: Analysis>(
    analysis: &mut A,
    cfg: &impl Cfg,
    begin: &Rc<A::State>,
) -> Option<States<A::State>> {
    if cfg.blocks() > MAX_BLOCKS {
        return None;
    }
    let order = Order::of(cfg);
    // If nested loops multiply the visits, widen at the first change of a loop head.
    [MAX_ROUNDS, 0].into_iter().find_map(|rounds| {
        analysis.restart();
        solve_within(analysis, &order, cfg.blocks(), begin, rounds)
    })
}

/// Solves the graph; the head of a loop may change `rounds` times. Returns `None` if it takes too long.
fn solve_within<A: Analysis>(
    analysis: &mut A,
    order: &Order,
    count: usize,
    begin: &Rc<A::State>,
    rounds: u32,
) -> Option<States<A::State>> {
    let mut budget = 1000 + MAX_AVERAGE * count;
    let mut front: States<A::State> = vec![None; order.nodes()];
    let mut behind: States<A::State> = vec![None; order.edges()];
    let mut visits = vec![0u32; order.nodes()];
    let mut pending = BinaryHeap::from([Reverse(order.first())]);
    // The priorities of the nodes on the worklist.
    let mut turns = vec![None; order.nodes()];
    turns[order.first().node.get()] = Some(order.first());
    while let Some(Reverse(turn)) = pending.pop() {
        let node = turn.node;
        if turns[node.get()] != Some(turn) {
            continue; // it was visited with a higher priority since
        }
        turns[node.get()] = None;
        visits[node.get()] += 1;
        budget = budget.saturating_sub(1);
        if visits[node.get()] > MAX_VISITS || budget == 0 {
            return None;
        }
        let is_first = node == order.first().node;
        let mut state = is_first.then(|| Rc::clone(begin));
        for arriving in order.edges_to(node).iter().filter_map(|edge| behind[edge.get()].as_ref()) {
            match &mut state {
                Some(state) if Rc::ptr_eq(state, arriving) => {}
                Some(state) => analysis.join(Rc::make_mut(state), arriving, None),
                None => state = Some(Rc::clone(arriving)),
            }
        }
        let block = order.block(node);
        if let (true, Some(state), Some(before)) = (order.is_head(node), &mut state, &front[node.get()]) {
            let head = || block.map_or_else(|| Head::Jumps(order.jump(node)), Head::Block);
            let late = visits[node.get()] > rounds;
            let arriving = std::mem::replace(state, Rc::clone(before));
            analysis.join(Rc::make_mut(state), &arriving, late.then(head));
        }
        if state == front[node.get()] {
            continue;
        }
        front[node.get()] = state.clone();
        let behind = &mut behind[order.edges_from(node)];
        behind.fill(None);
        match (state, block) {
            (Some(state), Some(block)) => analysis.block(block, Rc::unwrap_or_clone(state), behind),
            (None, Some(block)) => analysis.unreached(block),
            (state, None) => behind.fill(state),
        }
        for turn in order.next(node) {
            let known = &mut turns[turn.node.get()];
            if known.is_none_or(|known| turn < known) {
                *known = Some(turn);
                pending.push(Reverse(turn));
            }
        }
    }
    front.truncate(count);
    Some(front)
}

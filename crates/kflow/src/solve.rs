//! The states of all blocks of a graph: the least that agrees with every way to get there, where that can be found in a
//! few rounds.
//!
//! A block without loops around it is visited once, after all that lead to it, and a loop until it has settled, before
//! what follows it ([`crate::order`]). The state in front of a block is made anew from the states behind its
//! predecessors at each visit; only at the head of a loop does it also keep what it was, and give up what changes
//! after a few rounds. Nothing that an early round took for a value in a loop is left in the end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use crate::order::Order;
use crate::{BlockIndex, Cfg};

/// How often the head of a loop is visited before what still changes is unknown. Variables that the loop
/// sets to a few numbers have settled by then; counters never do.
const MAX_ROUNDS: u32 = 3;

/// How often one block is visited, and how often all are on average, before the graph is given up. Loops
/// within loops multiply; nothing compiled comes near.
const MAX_VISITS: u32 = 300;
const MAX_AVERAGE: usize = 40;

/// How many blocks a graph may have. The largest interpreters have a tenth of it.
const MAX_BLOCKS: usize = 50_000;

/// A forward analysis: what a block does to a state, and how states are joined.
pub trait Analysis {
    /// What is known at one place.
    type State: Clone + PartialEq;

    /// All is forgotten that earlier visits of blocks have left: the graph is solved once more.
    fn restart(&mut self) {}

    /// Makes a state hold for `other` too. If `widen` names the head of a loop, every difference becomes unknown at
    /// once, so that loops converge.
    fn join(&mut self, state: &mut Self::State, other: &Self::State, widen: Option<Head>);

    /// Applies a block to the state before it and stores the states after it in `behind`: one for each possible
    /// successor, in order, or a single one for all.
    fn block(&mut self, block: BlockIndex, state: Self::State, behind: &mut [Option<Rc<Self::State>>]);

    /// Control does not get to a block after all.
    fn unreached(&mut self, _block: BlockIndex) {}
}

/// The head of a loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Head {
    /// A block.
    Block(BlockIndex),
    /// What jumps have in common that lead to the same blocks; this block ends with one of them.
    Jumps(BlockIndex),
}

/// The state in front of each block; `None` if control does not get there.
pub type States<S> = Vec<Option<Rc<S>>>;

/// Computes the state in front of each block, `begin` being that in front of the first. `None` if the graph is too
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
    // Where loops within loops multiply, the first change at the head of one has to do.
    [MAX_ROUNDS, 0].into_iter().find_map(|rounds| {
        analysis.restart();
        solve_within(analysis, &order, cfg.blocks(), begin, rounds)
    })
}

/// The same, `rounds` being how often the head of a loop may change. `None` if it takes too long.
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

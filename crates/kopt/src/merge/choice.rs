//! Choosing the identical blocks to merge.
//!
//! A removed block saves its bytes and its final branch. Each remaining predecessor needs a jump instead of a
//! fall-through, and a long branch instead of a short one. So blocks that lead to one another are removed together or
//! not at all: edges between them need no redirection.

use kcfg::graph::{Dest, Graph, Terminator};
use kcfg::index::{NodeId, NodeSet};
use kisa::Branch;
use rustc_hash::FxHashMap;

use crate::identical::End;

/// Maximum number of blocks after a tail that are checked for removal along with it.
const BEHIND: usize = 8;

/// Whether a jump may take less than a tail and the following blocks that have identical twins (`shared`).
pub fn may_pay(graph: &Graph, (block, start): End, shared: &NodeSet) -> bool {
    let jump = graph.isa().longest_form(graph.isa().jump(graph.encoding(block))).len;
    let next = |block: &NodeId| match &graph.block(*block)?.end {
        Terminator::Jump(dest) => graph.resolve_node(dest.target),
        end => end.next(),
    };
    let behind = std::iter::successors(next(&block), next).take(BEHIND);
    let behind = behind.take_while(|block| shared.contains(*block));
    let size = |block: NodeId| graph.size_with_branch(block);
    size(block) - start + behind.map(size).sum::<u32>() > jump.into()
}

/// Drops the pairs of a block and its kept twin that would not make the code smaller.
pub fn worthwhile(graph: &Graph, twins: Vec<(NodeId, NodeId)>) -> Vec<(NodeId, NodeId)> {
    let prices = Prices::of(graph, &twins);
    let mut twin_of: FxHashMap<NodeId, NodeId> = twins.iter().copied().collect();
    let mut order: Vec<NodeId> = twins.iter().map(|&(block, _)| block).collect();
    order.sort_unstable();
    loop {
        let before = twin_of.len();
        // A block with outside predecessors is kept if that costs less than redirecting them.
        for &block in &order {
            if !twin_of.contains_key(&block) {
                continue;
            }
            let goes = |node: NodeId| twin_of.contains_key(&node);
            let entering = prices.entering(block, goes);
            let behind: u32 = prices
                .ways_out(block)
                .iter()
                .filter(|way| goes(way.to) && way.to != block)
                .map(|way| way.price)
                .sum();
            if entering > graph.size_with_branch(block) + behind {
                twin_of.remove(&block);
            }
        }
        for group in groups(&prices, &order, &twin_of) {
            let saved: u32 = group.iter().map(|&block| graph.size_with_branch(block)).sum();
            let paid: u32 =
                group.iter().map(|&block| prices.entering(block, |node| twin_of.contains_key(&node))).sum();
            if saved <= paid {
                for block in group {
                    twin_of.remove(&block);
                }
            }
        }
        if twin_of.len() == before {
            break;
        }
    }
    twins.into_iter().filter(|(block, _)| twin_of.contains_key(block)).collect()
}

/// The removable blocks, in groups that lead to one another.
fn groups(prices: &Prices, order: &[NodeId], twin_of: &FxHashMap<NodeId, NodeId>) -> Vec<Vec<NodeId>> {
    let mut group_of: FxHashMap<NodeId, usize> = FxHashMap::default();
    let mut groups: Vec<Vec<NodeId>> = Vec::new();
    for &first in order.iter().filter(|block| twin_of.contains_key(block)) {
        if group_of.contains_key(&first) {
            continue;
        }
        let (number, mut group, mut pending) = (groups.len(), Vec::new(), vec![first]);
        while let Some(block) = pending.pop() {
            if !twin_of.contains_key(&block) || group_of.insert(block, number).is_some() {
                continue;
            }
            group.push(block);
            pending.extend(prices.ways_out(block).iter().map(|way| way.to));
            pending.extend(prices.ways_in(block).iter().map(|way| way.from));
        }
        groups.push(group);
    }
    groups
}

/// An edge from one block to another, and the cost of redirecting it in bytes.
#[derive(Clone, Copy)]
struct Way {
    from: NodeId,
    to: NodeId,
    price: u32,
}

/// The cost of redirecting edges from and to removable blocks.
struct Prices {
    into: FxHashMap<NodeId, Vec<Way>>,
    out: FxHashMap<NodeId, Vec<Way>>,
}

impl Prices {
    fn of(graph: &Graph, twins: &[(NodeId, NodeId)]) -> Prices {
        let isa = graph.isa();
        let mut may_go = NodeSet::with_capacity(graph.nodes().len());
        may_go.extend(twins.iter().map(|&(block, _)| block));
        let longest = |branch| u32::from(isa.longest_form(branch).len);
        let mut prices = Prices { into: FxHashMap::default(), out: FxHashMap::default() };
        for from in graph.node_ids().filter(|&id| graph.node(id).live) {
            let Some(block) = graph.block(from) else { continue };
            let jump = isa.jump(graph.encoding(from));
            let mut add = |to: NodeId, price: u32| {
                let way = Way { from, to, price };
                if may_go.contains(to) {
                    prices.into.entry(to).or_default().push(way);
                }
                if may_go.contains(from) {
                    prices.out.entry(from).or_default().push(way);
                }
            };
            let grows = |branch: Branch| longest(branch).saturating_sub(graph.branch_len(from));
            let target = |dest: &Dest| graph.resolve_node(dest.target);
            match &block.end {
                Terminator::Jump(dest) => target(dest).into_iter().for_each(|to| add(to, grows(jump))),
                Terminator::Branch { branch, taken, .. } => {
                    target(taken).into_iter().for_each(|to| add(to, grows(*branch)));
                }
                Terminator::Switch(table) => {
                    let slots = graph.slots(*table).iter();
                    slots.filter_map(|slot| graph.resolve_node(slot.target)).for_each(|to| add(to, 0));
                }
                _ => {}
            }
            if let Some(next) = block.end.next() {
                add(next, longest(jump));
            }
        }
        prices
    }

    /// The cost of redirecting the edges from blocks that are kept into a block.
    fn entering(&self, block: NodeId, goes: impl Fn(NodeId) -> bool) -> u32 {
        self.ways_in(block).iter().filter(|way| !goes(way.from)).map(|way| way.price).sum()
    }

    fn ways_in(&self, block: NodeId) -> &[Way] {
        self.into.get(&block).map_or(&[], Vec::as_slice)
    }

    fn ways_out(&self, block: NodeId) -> &[Way] {
        self.out.get(&block).map_or(&[], Vec::as_slice)
    }
}

//! On ARM, a store to another address between an exclusive load and its store (`ldrex` and `strex`) may make the
//! exclusive store fail, however often the program retries (DDI 0406, A3.4.5).
//!
//! A block is entered between the two if an exclusive load leads to it and it leads to an exclusive store, with no
//! other exclusive access on either path. Calls in between are not followed: a callee stores its return address, so
//! compilers place no call there.

use kcfg::graph::Graph;
use kcfg::graph::for_each_successor;
use kcfg::index::{NodeId, NodeMap, NodeSet};
use kisa::Exclusive;
use typed_index_collections::ti_vec;

/// The blocks that control enters between an exclusive load and its store, as a set of bits.
pub(crate) fn entered_between(graph: &Graph) -> NodeSet {
    let blocks: Vec<NodeId> =
        graph.node_ids().filter(|&id| graph.node(id).live && graph.block(id).is_some()).collect();
    let mut next: NodeMap<Vec<NodeId>> = ti_vec![Vec::new(); graph.nodes().len()];
    let mut before: NodeMap<Vec<NodeId>> = ti_vec![Vec::new(); graph.nodes().len()];
    let mut accesses: NodeMap<Vec<Exclusive>> = ti_vec![Vec::new(); graph.nodes().len()];
    for &id in &blocks {
        accesses[id] = accesses_of(graph, id);
        let Some(block) = graph.block(id) else { continue };
        for_each_successor(graph, &block.end, |to| {
            next[id].push(to);
            before[to].push(id);
        });
    }
    // Whether control leaves a block after a load, given whether it entered after one.
    let leaves = |id: NodeId, behind: bool| {
        accesses[id].iter().fold(behind, |behind, access| access.loads || behind && !access.always)
    };
    // Whether control that enters a block reaches a store, given whether it does so after the block.
    let comes = |id: NodeId, ahead: bool| {
        accesses[id].iter().rev().fold(ahead, |ahead, access| !access.loads || ahead && !access.always)
    };
    // Propagates a property to neighbours in one direction until nothing changes.
    let spread = |from: &NodeMap<Vec<NodeId>>, passes: &dyn Fn(NodeId, bool) -> bool| {
        let mut reached = NodeSet::with_capacity(graph.nodes().len());
        let mut pending: Vec<NodeId> = blocks.iter().copied().filter(|&id| passes(id, false)).collect();
        while let Some(id) = pending.pop() {
            for &to in &from[id] {
                if !reached.put(to) && !passes(to, false) && passes(to, true) {
                    pending.push(to);
                }
            }
        }
        reached
    };
    let behind_load = spread(&next, &leaves);
    let ahead_of_exit = spread(&before, &comes);
    behind_load.iter().filter(|&id| comes(id, ahead_of_exit.contains(id))).collect()
}

/// The exclusive accesses of a block, in order. Bytes that cannot be decoded count as any access.
pub fn accesses_of(graph: &Graph, id: NodeId) -> Vec<Exclusive> {
    let mut all = Vec::new();
    for step in graph.decode(id) {
        match step {
            Some(inst) => all.extend(graph.isa().exclusive(&inst)),
            None => all.extend([false, true].map(|loads| Exclusive { loads, always: false })),
        }
    }
    all
}

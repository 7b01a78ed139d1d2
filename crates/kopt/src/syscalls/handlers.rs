//! The handlers of system calls.

use kcfg::graph::for_each_successor;
use kcfg::graph::{Graph, Role, Target};
use kcfg::index::{NodeId, NodeSet, SymbolId};
use kplan::Abi;
use rustc_hash::FxHashMap;

use super::dispatch;
use super::dispatchers::{NI_SYSCALLS, Table, defined, dispatchers, symbol};
use crate::switches::shared_tables;

/// The handlers of the calls of an ABI.
pub(crate) struct Handlers {
    /// The numbers of the calls of each handler, by its first block.
    pub numbers: FxHashMap<NodeId, Vec<u32>>,
    /// The handler that returns `-ENOSYS`.
    pub ni: SymbolId,
    /// Nodes that are named or reached outside of the dispatchers.
    elsewhere: NodeSet,
}

impl Handlers {
    /// Finds the handlers of these calls. `Err`: the reason why they are not known.
    pub fn of(graph: &Graph, abi: Abi, numbers: &[u32]) -> Result<Handlers, String> {
        let known = dispatchers(graph.machine()).iter().find(|dispatchers| dispatchers.abi == abi);
        let dispatchers = known.ok_or("the dispatchers of this machine are not supported")?;
        let ni = NI_SYSCALLS.iter().find_map(|name| symbol(graph, name));
        let ni = ni.ok_or("the kernel has no sys_ni_syscall")?;
        let entry = dispatchers.function.and_then(|function| defined(graph, function));
        // Handlers that only the table of an old ABI names have no numbers here, and count as named elsewhere.
        let name = dispatchers.tables[0];
        let table = Table::of(graph, name);
        if entry.is_none() && table.is_none() {
            return Err(format!("the kernel has no {name}"));
        }
        let mut found = Handlers { numbers: FxHashMap::default(), ni, elsewhere: NodeSet::default() };
        if let Some(entry) = entry {
            let shared = shared_tables(graph);
            for &nr in numbers {
                let handler = dispatch::handler_of(graph, &shared, entry, nr);
                let handler = handler.ok_or(format!("the handler of call {nr} is not certain"))?;
                found.add(graph, handler, nr);
            }
        }
        if let Some(table) = &table {
            for slot in graph.refs_of(table.node) {
                if let Some(nr) = table.number(slot.offset).filter(|nr| numbers.contains(nr)) {
                    found.add(graph, slot.target, nr);
                }
            }
        }
        found.elsewhere = elsewhere(graph, entry, table.as_ref());
        Ok(found)
    }

    fn add(&mut self, graph: &Graph, handler: Target, nr: u32) {
        let Some(entry) = graph.resolve_node(handler) else { return };
        let numbers = self.numbers.entry(entry).or_default();
        if !numbers.contains(&nr) {
            numbers.push(nr);
        }
    }

    /// Whether only the dispatchers name a block or lead to it, table entries about it aside.
    pub fn is_only_dispatched(&self, entry: NodeId) -> bool {
        !self.elsewhere.contains(entry)
    }
}

/// The nodes that are named or reached from outside of the dispatcher's function and the slots of its table.
fn elsewhere(graph: &Graph, dispatcher: Option<NodeId>, table: Option<&Table>) -> NodeSet {
    let mut elsewhere = NodeSet::with_capacity(graph.nodes().len());
    let dispatcher = dispatcher.and_then(|entry| graph.function_of(entry));
    for node in graph.node_ids().filter(|&node| graph.node(node).live) {
        if dispatcher.is_some() && graph.function_of(node) == dispatcher {
            continue;
        }
        let slots = table.filter(|table| table.node == node);
        let named = graph.refs_of(node).iter().filter(|reference| {
            reference.role != Role::Site && slots.and_then(|table| table.number(reference.offset)).is_none()
        });
        elsewhere.extend(named.filter_map(|reference| graph.resolve_node(reference.target)));
        if let Some(block) = graph.block(node) {
            for_each_successor(graph, &block.end, |to| elsewhere.insert(to));
        }
    }
    elsewhere.extend(graph.roots().iter().map(|root| root.node));
    elsewhere
}

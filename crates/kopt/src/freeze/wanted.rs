//! Finding the code and data that the plan lists as frozen.

use kcfg::graph::{CodeName, Graph};
use kcfg::index::{InputId, NodeId, NodeSet};
use kplan::{Frozen, FrozenCode, FrozenData};
use rustc_hash::FxHashMap;
use typed_index_collections::TiVec;

use crate::names::CodeNames;

/// The nodes that the plan lists as frozen.
pub struct Wanted {
    /// The nodes whose bytes are all listed, as a set of bits.
    pub nodes: NodeSet,
    /// The nodes with bytes that the plan lists as used by every boot.
    pub at_boot: NodeSet,
    /// Functions and sections of the plan that the graph does not have.
    pub unknown: Vec<String>,
}

impl Wanted {
    /// Finds the nodes that a plan lists.
    pub fn find(graph: &Graph, frozen: &Frozen) -> Wanted {
        let none = NodeSet::with_capacity(graph.nodes().len());
        let mut wanted = Wanted { nodes: none.clone(), at_boot: none, unknown: Vec::new() };
        let names = CodeNames::of(graph);
        for code in &frozen.code {
            match names.find(&code.function) {
                Some(named) => wanted.add_code(graph, code, &named),
                None => wanted.unknown.push(code.function.to_string()),
            }
        }
        let mut places: FxHashMap<_, usize> = FxHashMap::default();
        for (place, data) in frozen.data.iter().enumerate() {
            places.insert((data.object.as_str(), data.section.as_str(), data.nth), place);
        }
        let inputs = InputNames::of(graph);
        let listed: TiVec<InputId, Option<&FrozenData>> = graph
            .inputs()
            .keys()
            .map(|input| places.remove(&inputs.name(graph, input)).map(|place| &frozen.data[place]))
            .collect();
        let mut missing: Vec<usize> = places.into_values().collect();
        missing.sort_unstable();
        wanted.unknown.extend(missing.into_iter().map(|place| frozen.data[place].to_string()));
        for id in graph.node_ids().filter(|&id| graph.chunk(id).is_some_and(|chunk| !chunk.code)) {
            let Some(origin) = graph.node(id).origin() else { continue };
            let (offset, size) = (u64::from(origin.offset), u64::from(graph.node(id).size));
            let Some(data) = listed[origin.section].filter(|data| data.contains(offset, size)) else {
                continue;
            };
            wanted.nodes.insert(id);
            wanted.at_boot.set(id, data.is_used_at_boot(offset, size));
        }
        wanted.add_outlined(graph);
        wanted
    }

    /// Adds functions that a pass outlined, if all of their callers are wanted.
    fn add_outlined(&mut self, graph: &Graph) {
        let call = |id: NodeId| {
            let calls = graph.node(id).live && graph.calls_outlined(id);
            Some((id, graph.resolve_node(graph.callee(id).filter(|_| calls)?.target)?))
        };
        let calls: Vec<(NodeId, NodeId)> = graph.node_ids().filter_map(call).collect();
        self.nodes.extend(calls.iter().map(|&(_, callee)| callee));
        for (caller, callee) in calls {
            let (is_wanted, at_boot) = (self.nodes.contains(caller), self.at_boot.contains(caller));
            self.nodes.set(callee, is_wanted && self.nodes.contains(callee));
            self.at_boot.set(callee, at_boot || self.at_boot.contains(callee));
        }
    }

    /// Adds the listed parts of a function, given its symbol.
    fn add_code(&mut self, graph: &Graph, code: &FrozenCode, named: &CodeName<'_>) {
        let (node, inside) = (named.node, named.offset);
        let Some(function) = graph.function_of(node) else {
            // A chunk of code freezes if it is the whole function.
            let size = graph.node(node).size;
            if inside == 0 && named.symbol.size >= u64::from(size) && code.contains(0, size.into()) {
                self.nodes.insert(node);
                self.at_boot.set(node, code.is_used_at_boot(0, size.into()));
            }
            return;
        };
        let blocks = &graph.function(function).blocks;
        let is_whole = code.ranges.is_empty() && inside == 0 && graph.function(function).entry() == node;
        if is_whole {
            self.nodes.extend(blocks.iter().copied());
        }
        let origin = graph.node(node).origin().or_else(|| graph.start_of(function));
        let Some(start) = origin.map(|origin| origin.offset + inside) else { return };
        for &id in blocks.iter().filter(|&&id| graph.home_of(id) == graph.home_of(node)) {
            let Some(origin) = graph.node(id).origin() else { continue };
            let Some(offset) = origin.offset.checked_sub(start) else { continue };
            // The padding after a function is not part of it.
            let size = origin.size.min(graph.size_with_branch(id));
            if is_whole || code.contains(offset.into(), size.into()) {
                self.nodes.insert(id);
                self.at_boot.set(id, code.is_used_at_boot(offset.into(), size.into()));
            }
        }
    }
}

/// The names of the input sections of a graph, as plans use them.
pub struct InputNames {
    /// For each input section, the number of earlier ones with the same name and object.
    nth: TiVec<InputId, u32>,
}

impl InputNames {
    /// Counts the sections of a graph.
    pub fn of(graph: &Graph) -> InputNames {
        let mut counts: FxHashMap<(&str, &str), u32> = FxHashMap::default();
        let nth = graph.inputs().iter().map(|input| {
            let count = counts.entry((&input.object, &input.name)).or_default();
            let nth = *count;
            *count += 1;
            nth
        });
        InputNames { nth: nth.collect() }
    }

    /// Returns the object, the name, and the number among sections with both, of an input section given by its index.
    pub fn name<'g>(&self, graph: &'g Graph, input: InputId) -> (&'g str, &'g str, u32) {
        let section = &graph.inputs()[input];
        (&section.object, &section.name, self.nth[input])
    }
}

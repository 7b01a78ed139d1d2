//! Naming the nodes that freeze in the terms of plans.

use std::collections::BTreeMap;

use kcfg::graph::{CodeName, Graph};
use kcfg::index::{InputId, NodeId};
use kopt::freeze::wanted::InputNames;
use kplan::{ByteRange, Frozen, FrozenCode, FrozenData, FunctionName, Mechanism};
use rustc_hash::FxHashMap;

/// Returns the section for the nodes that satisfy `freezes`, and the nodes among them that satisfy `at_boot`. Code
/// without a name is left out.
pub fn frozen(
    graph: &Graph,
    mechanism: Mechanism,
    minimum: Option<u32>,
    freezes: impl Fn(NodeId) -> bool,
    at_boot: impl Fn(NodeId) -> bool,
) -> Frozen {
    let data = match mechanism {
        Mechanism::Page => data(graph, &freezes, &at_boot),
        Mechanism::Stub => Vec::new(),
    };
    Frozen { mechanism, minimum, code: code(graph, &freezes, &at_boot), data }
}

fn code(
    graph: &Graph,
    freezes: impl Fn(NodeId) -> bool,
    at_boot: impl Fn(NodeId) -> bool,
) -> Vec<FrozenCode> {
    let mut names: FxHashMap<NodeId, CodeName<'_>> = FxHashMap::default();
    for named in graph.code_names().filter(|named| named.offset == 0) {
        let name = names.entry(named.node).or_insert(named);
        // Prefers a global to a local name, as traces do.
        if name.symbol.file.is_some() && named.symbol.file.is_none() {
            *name = named;
        }
    }
    let name = |entry: NodeId| {
        let CodeName { symbol, nth, .. } = names.get(&entry)?;
        let file = symbol.file.as_deref().map(str::to_owned);
        Some(FunctionName { name: symbol.name.clone(), file, nth: *nth })
    };
    let mut code = Vec::new();
    for (id, function) in graph.functions().iter_enumerated() {
        let is_own = |block: &NodeId| graph.node(*block).live && graph.home_of(*block) == Some(id);
        let live = || function.blocks.iter().copied().filter(is_own);
        if !live().any(&freezes) {
            continue;
        }
        let (Some(name), Some(start)) = (name(function.entry()), graph.start_of(id)) else { continue };
        let ranges_of = |blocks: &mut dyn Iterator<Item = NodeId>| {
            let origins = blocks.filter_map(|block| graph.node(block).origin());
            merged(origins.filter_map(|origin| Some((origin.offset.checked_sub(start.offset)?, origin.size))))
        };
        let mut ranges = Vec::new();
        if !live().all(&freezes) {
            ranges = ranges_of(&mut live().filter(|&block| freezes(block)));
            if ranges.is_empty() {
                continue;
            }
        }
        let at_boot = ranges_of(&mut live().filter(|&block| freezes(block) && at_boot(block)));
        code.push(FrozenCode { function: name, ranges, at_boot });
    }
    let whole =
        graph.node_ids().filter(|&node| graph.chunk(node).is_some_and(|chunk| chunk.code) && freezes(node));
    code.extend(whole.filter_map(|node| {
        let used = at_boot(node).then_some((0, graph.node(node).size));
        Some(FrozenCode { function: name(node)?, ranges: Vec::new(), at_boot: merged(used.into_iter()) })
    }));
    code
}

fn data(
    graph: &Graph,
    freezes: impl Fn(NodeId) -> bool,
    at_boot: impl Fn(NodeId) -> bool,
) -> Vec<FrozenData> {
    /// Byte offsets and sizes of the parts that freeze, and of the parts among them that are used at boot.
    #[derive(Default)]
    struct Parts {
        all: Vec<(u32, u32)>,
        at_boot: Vec<(u32, u32)>,
    }
    let mut inputs: BTreeMap<InputId, Parts> = BTreeMap::new();
    // Literals move with the code that reads them.
    let is_data =
        |&node: &NodeId| graph.chunk(node).is_some_and(|chunk| !chunk.code) && !graph.is_among_code(node);
    for node in graph.node_ids().filter(is_data) {
        if let Some(origin) = graph.node(node).origin().filter(|_| freezes(node)) {
            let parts = inputs.entry(origin.section).or_default();
            parts.all.push((origin.offset, origin.size));
            parts.at_boot.extend(at_boot(node).then_some((origin.offset, origin.size)));
        }
    }
    let names = InputNames::of(graph);
    let data = inputs.into_iter().map(|(input, parts)| {
        let (object, section, nth) = names.name(graph, input);
        FrozenData {
            object: object.to_owned(),
            section: section.to_owned(),
            nth,
            ranges: merged(parts.all.into_iter()),
            at_boot: merged(parts.at_boot.into_iter()),
        }
    });
    data.filter(|data| !data.ranges.is_empty()).collect()
}

/// Returns the disjoint ranges, in rising order, that these pairs of byte offset and size cover.
fn merged(parts: impl Iterator<Item = (u32, u32)>) -> Vec<ByteRange> {
    let mut parts: Vec<(u64, u64)> =
        parts.filter(|part| part.1 > 0).map(|(offset, size)| (offset.into(), size.into())).collect();
    parts.sort_unstable();
    let mut ranges: Vec<ByteRange> = Vec::new();
    for (offset, size) in parts {
        match ranges.last_mut().filter(|last| offset <= last.end()) {
            Some(last) => last.size = last.size.max(offset + size - last.offset),
            None => ranges.push(ByteRange { offset, size }),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_become_one() {
        let range = |offset, size| ByteRange { offset, size };
        let parts = [(32, 8), (0, 8), (8, 4), (40, 0), (20, 4), (20, 2)];
        assert_eq!(merged(parts.into_iter()), [range(0, 12), range(20, 4), range(32, 8)]);
    }
}

//! The reason why a function or variable freezes or does not.

use std::collections::BTreeMap;
use std::fmt::Write;

use kcfg::graph::Graph;
use kcfg::index::NodeId;
use kopt::freeze::select::{holds_frozen_code, holds_frozen_data, size};
use kplan::Mechanism;

use super::{Plan, nodes_of};

/// Returns, for each function or variable of this name, the bytes that freeze, and the reasons why others do not;
/// `None` if there is no such symbol.
pub fn explain(plan: &Plan<'_>, symbol: &str) -> Option<String> {
    let graph = plan.graph;
    let mut nodes = nodes_of(graph, symbol);
    nodes.sort_unstable();
    nodes.dedup();
    if nodes.is_empty() {
        return None;
    }
    let mut text = String::new();
    // The blocks of a function, or one piece of data.
    for group in nodes.chunk_by(|&one, &other| {
        graph.function_of(one).is_some() && graph.function_of(one) == graph.function_of(other)
    }) {
        let all: u64 = group.iter().map(|&node| size(graph, node)).sum();
        let mut reasons: Vec<(String, u64)> = Vec::new();
        for &node in group {
            let reason = reason(plan, node);
            match reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, bytes)) => *bytes += size(graph, node),
                None => reasons.push((reason, size(graph, node))),
            }
        }
        let _ = writeln!(text, "{symbol} ({}), {all} bytes:", graph.name_of(group[0]));
        for (reason, bytes) in reasons {
            let _ = writeln!(text, "  {bytes} bytes {reason}");
        }
    }
    Some(text)
}

/// Lists all pinned code, most bytes first, one function per line: bytes, cold bytes among them, name, reason, and the
/// path of the closure to it.
pub fn pinned(plan: &Plan<'_>) -> String {
    let graph = plan.graph;
    let mut functions: BTreeMap<(String, String), (u64, u64)> = BTreeMap::new();
    for node in graph.node_ids().filter(|&node| graph.node(node).live) {
        let Some(reason) = plan.closure.reason(node) else { continue };
        if !holds_frozen_code(graph, graph.section_of(node)) {
            continue;
        }
        let chain = plan.closure.chain(node);
        let why = format!("{reason}{}", text_of(graph, &chain));
        let (all, cold) = functions.entry((name(graph, node), why)).or_default();
        *all += size(graph, node);
        *cold += if plan.cold.nodes.contains(node) { size(graph, node) } else { 0 };
    }
    let mut functions: Vec<_> = functions.into_iter().collect();
    functions.sort_by_key(|(_, (all, _))| std::cmp::Reverse(*all));
    let line = |((name, why), (all, cold)): ((String, String), (u64, u64))| {
        format!("{all}\t{cold}\t{name}\t{why}\n")
    };
    functions.into_iter().map(line).collect()
}

/// Returns the decision for a node, and its reason.
fn reason(plan: &Plan<'_>, node: NodeId) -> String {
    let graph = plan.graph;
    let section = graph.section_of(node);
    if !graph.node(node).live {
        return "are removed".to_owned();
    }
    if !holds_frozen_code(graph, section) && !holds_frozen_data(graph, section) {
        return format!("do not freeze: they are in {}", section.name);
    }
    if plan.mechanism == Mechanism::Stub && holds_frozen_data(graph, section) {
        return "do not freeze: mechanism `stub` does not freeze data".to_owned();
    }
    if let Some(reason) = plan.closure.reason(node) {
        return format!("are pinned: {reason}{}", text_of(graph, &plan.closure.chain(node)));
    }
    if plan.pinned.contains(node) {
        return "are pinned by --pin".to_owned();
    }
    if !plan.cold.nodes.contains(node) {
        return match graph.chunk(node) {
            Some(chunk) if !chunk.code && plan.cold.read.contains(node) => "do not freeze: they were read",
            Some(chunk) if !chunk.code => "do not freeze: code or data that is not cold names them",
            _ => "do not freeze: they ran",
        }
        .to_owned();
    }
    let selection = &plan.selection;
    if selection.code.contains(&node) || selection.data.contains(&node) {
        return "freeze".to_owned();
    }
    match selection.whole.iter().find(|(first, _)| graph.function_of(*first) == graph.function_of(node)) {
        Some((_, why)) => format!("do not freeze: the function {why}"),
        None => match plan.mechanism {
            Mechanism::Page => "do not freeze: longer branches would take more than freezing saves",
            Mechanism::Stub => "do not freeze: their region and its stub would take more than freezing saves",
        }
        .to_owned(),
    }
}

/// Returns the path of the closure to a node, function by function.
fn text_of(graph: &Graph, chain: &[NodeId]) -> String {
    let mut names: Vec<String> = chain.iter().map(|&node| name(graph, node)).collect();
    names.dedup();
    if names.len() < 2 { String::new() } else { format!(", by {}", names.join(" -> ")) }
}

/// The function of a node, or the node's own name.
fn name(graph: &Graph, node: NodeId) -> String {
    match graph.function_of(node) {
        Some(function) => graph.function(function).name.clone(),
        None => graph.name_of(node),
    }
}

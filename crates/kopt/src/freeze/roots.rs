/*!
Finds the roots of [`super::closure`]: the code of a kernel that the records of [`super::marks`] name.
*/

use kcfg::HAND_WRITTEN;
use kcfg::edges::{Destination, EdgeKind, Edges};
use kcfg::graph::{Graph, Role, SymbolPlace, Target, Terminator};
use kcfg::index::{FunctionId, NodeId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::marks::{Mark, Reach, What};
use super::variables::Variables;

/// The data that roots are searched in.
pub(super) struct Roots<'g> {
    pub(super) graph: &'g Graph,
    pub(super) edges: &'g Edges<'g>,
    pub(super) variables: &'g Variables<'g>,
    pub(super) functions: Functions<'g>,
}

impl Roots<'_> {
    /// Returns the code that a record names. Blocks at which a root ends are added to `cuts`.
    pub(super) fn of(&self, mark: &Mark, cuts: &mut FxHashSet<NodeId>) -> Vec<NodeId> {
        let functions = &self.functions;
        let graph = self.graph;
        let code = |id: &NodeId| graph.is_code(*id) && graph.node(*id).live;
        let entries = match mark.what {
            What::Function(names) => functions.named(names),
            What::GivenTo(names) => self.given_to(&functions.named(names)),
            What::HandWritten => return hand_written(graph).filter(code).collect(),
            What::OperationsOf(sections) => self.operations_of(sections),
            What::Object(end) => {
                let of_object =
                    |id: &NodeId| graph.input_of(*id).is_some_and(|input| is_object(&input.object, end));
                return graph.node_ids().filter(of_object).filter(code).collect();
            }
            What::Section(name) => {
                let in_section = |id: &NodeId| *graph.section_of(*id).name == *name;
                return graph.node_ids().filter(in_section).filter(code).collect();
            }
        };
        match mark.reach {
            Reach::UpTo(callee) => {
                let callee = functions.named(callee);
                let mut found = Vec::new();
                for entry in entries {
                    found.extend(self.up_to(entry, &callee, cuts));
                }
                found
            }
            Reach::Alone => entries
                .into_iter()
                .flat_map(|entry| match graph.function_of(entry) {
                    Some(function) => graph.function(function).blocks.clone(),
                    None => vec![entry],
                })
                .filter(code)
                .collect(),
            Reach::Calls => entries,
        }
    }

    /// The entries of functions whose addresses are taken by callers of one of these functions.
    fn given_to(&self, callees: &[NodeId]) -> Vec<NodeId> {
        let graph = self.graph;
        let calls = |&node: &NodeId| callee_of(graph, node).is_some_and(|callee| callees.contains(&callee));
        let callers: FxHashSet<FunctionId> =
            graph.node_ids().filter(calls).filter_map(|node| graph.function_of(node)).collect();
        let blocks = callers.into_iter().flat_map(|function| &graph.function(function).blocks);
        let taken = blocks
            .flat_map(|&block| self.variables.references(block))
            .filter(|reference| reference.role == Role::Address);
        let entries = taken.filter_map(|reference| graph.resolve_node(reference.target));
        entries
            .filter(|&to| {
                graph.function_of(to).is_some_and(|function| graph.function(function).entry() == to)
            })
            .collect()
    }

    /// The functions in the data that the data of these sections, separated by `|`, refers to.
    fn operations_of(&self, sections: &str) -> Vec<NodeId> {
        let graph = self.graph;
        let refs = |node: NodeId| graph.refs_of(node).iter().filter_map(|to| graph.resolve_node(to.target));
        let listed = graph
            .node_ids()
            .filter(|&id| sections.split('|').any(|name| *graph.section_of(id).name == *name));
        let operations = listed.flat_map(refs).filter(|&to| !graph.is_code(to)).flat_map(refs);
        operations.filter(|&to| graph.is_code(to) && graph.node(to).live).collect()
    }

    /// The blocks of a function that run before it calls one of these, directly or through a pointer in data; none if
    /// it does not. The calling blocks are added to `cuts`, because the root ends there.
    fn up_to(&self, entry: NodeId, callees: &[NodeId], cuts: &mut FxHashSet<NodeId>) -> Vec<NodeId> {
        let graph = self.graph;
        let Some(function) = graph.function_of(entry) else { return Vec::new() };
        let is_callee = |target: Target| graph.resolve_node(target).is_some_and(|to| callees.contains(&to));
        let calls = |&id: &NodeId| match graph.block(id).map(|block| &block.end) {
            Some(Terminator::Call { .. }) => graph.callee(id).is_some_and(|callee| is_callee(callee.target)),
            Some(Terminator::Jump(to)) => is_callee(to.target),
            Some(Terminator::IndirectCall { .. }) => graph.refs_of(id).iter().any(|slot| {
                let Some((data, inside)) = graph.resolve(slot.target) else { return false };
                let at = i64::from(inside) + slot.addend;
                graph.refs_of(data).iter().any(|held| i64::from(held.offset) == at && is_callee(held.target))
            }),
            _ => false,
        };
        let ends: Vec<NodeId> = graph.function(function).blocks.iter().copied().filter(calls).collect();
        if ends.is_empty() {
            return Vec::new();
        }
        cuts.extend(&ends);
        let mut seen: FxHashSet<NodeId> = FxHashSet::from_iter([entry]);
        let mut blocks = vec![entry];
        let mut at = 0;
        while let Some(&block) = blocks.get(at) {
            at += 1;
            if ends.contains(&block) {
                continue;
            }
            self.edges.for_each(block, |edge| {
                if let Destination::Node(to) = edge.to
                    && !matches!(edge.kind, EdgeKind::Data | EdgeKind::Site | EdgeKind::Call)
                    && graph.function_of(to) == Some(function)
                    && seen.insert(to)
                {
                    blocks.push(to);
                }
            });
        }
        blocks
    }
}

/// The function that a block calls or jumps to.
pub(super) fn callee_of(graph: &Graph, id: NodeId) -> Option<NodeId> {
    let target = match &graph.block(id)?.end {
        Terminator::Jump(dest) => dest.target,
        _ => graph.callee(id)?.target,
    };
    graph.resolve_node(target)
}

/// The hand-written code.
pub(super) fn hand_written(graph: &Graph) -> impl Iterator<Item = NodeId> {
    let opaque = graph.opaque().iter().filter(|opaque| opaque.reason == HAND_WRITTEN);
    opaque.map(|opaque| opaque.node).filter(|&node| graph.is_code(node))
}

/// Whether a path of an object, or of a member of an archive, ends in this path.
fn is_object(path: &str, end: &str) -> bool {
    path.strip_suffix(')')
        .unwrap_or(path)
        .strip_suffix(end)
        .is_some_and(|before| before.is_empty() || before.ends_with(['/', '(']))
}

/// The entries of functions by their names in the source: compilers append a dot and a suffix to the name of a changed
/// copy or of a part.
pub(super) struct Functions<'g> {
    by_name: FxHashMap<&'g str, Vec<NodeId>>,
}

impl<'g> Functions<'g> {
    pub(super) fn of(graph: &'g Graph) -> Functions<'g> {
        let mut by_name: FxHashMap<&str, Vec<NodeId>> = FxHashMap::default();
        for symbol in graph.symbols() {
            let SymbolPlace::Node(node, _) = symbol.place else { continue };
            if graph.is_code(node) && graph.node(node).live {
                let name = symbol.name.split('.').next().unwrap_or_default();
                by_name.entry(name).or_default().push(node);
            }
        }
        Functions { by_name }
    }

    /// The functions with one of these names, separated by `|`.
    pub(super) fn named(&self, names: &str) -> Vec<NodeId> {
        names.split('|').flat_map(|name| self.by_name.get(name).into_iter().flatten()).copied().collect()
    }
}

/*!
Pass `reach`: unreachable code and data elimination (Chanet et al. 2007, section 2.4).

Code and data without a chain of edges from a root is removed, at the granularity of basic blocks and chunks. Two
properties of the edges make this precise: calls and returns match ([`kcfg::returns`]), and an indirect branch reaches
only code whose address is computable. Weak tables keep nothing alive, and their entries are removed with their sites.
*/

use kcfg::edges::{Destination, EdgeKind, Edges};
use kcfg::graph::{Block, Editor, Function, Graph, Terminator};
use kcfg::index::{NodeId, NodeSet};

use crate::pass::{Context, Facts, Pass, Phase, Runs};
use crate::report::PassReport;

/// Pass `reach`: removes what is unreachable.
pub struct Reach;

impl Pass for Reach {
    fn facts(&self) -> Facts {
        Facts {
            name: "reach",
            summary: "removes unreachable code and data",
            phase: Phase::Removes,
            runs: Runs::Always,
            on_64_bits: true,
        }
    }

    fn run(&self, graph: &mut Graph, _: &mut Context<'_>) -> PassReport {
        run(graph)
    }
}

/// Removes what is unreachable.
pub fn run(graph: &mut Graph) -> PassReport {
    let mut report = PassReport::new("reach");
    let edges = Edges::of(graph);
    let reachable = reachable_by(graph, &edges);
    let last_calls: Vec<NodeId> = graph
        .node_ids()
        .filter(|&node| reachable.contains(node) && is_last_call(graph, &edges, node))
        .collect();
    let mut editor = Editor::new(graph, "reach");
    last_calls.into_iter().for_each(|node| editor.end_block(node, Terminator::Call { next: None }));
    editor.finish();
    let gone = |function: &&Function| {
        let mut blocks = function.blocks.iter();
        blocks.any(|&block| graph.node(block).live)
            && !function.blocks.iter().any(|block| reachable.contains(*block))
    };
    report.removed.functions = graph.functions().iter().filter(gone).count();
    for node in graph.node_ids() {
        if graph.node(node).live && !reachable.contains(node) {
            report.removed.remove(graph, node);
        }
    }
    for opaque in graph.opaque().iter().filter(|opaque| reachable.contains(opaque.node)) {
        report.keep(&opaque.name, format!("opaque: {}", opaque.reason));
    }
    report
}

/// Whether a block ends in a call that does not return, although the terminator has a return point. The return point is
/// then cleared, so that lowering adds no jump to it.
fn is_last_call(graph: &Graph, edges: &Edges<'_>, node: NodeId) -> bool {
    let calls = matches!(graph.block(node), Some(Block { end: Terminator::Call { next: Some(_) }, .. }));
    let mut returns = false;
    if calls {
        edges.for_each(node, |edge| returns |= edge.kind == EdgeKind::Return);
    }
    calls && !returns
}

/// The nodes that are reachable from a root.
pub fn reachable(graph: &Graph) -> NodeSet {
    reachable_by(graph, &Edges::of(graph))
}

/// The nodes that are reachable from a root along the given edges.
fn reachable_by(graph: &Graph, edges: &Edges<'_>) -> NodeSet {
    let mut reachable = NodeSet::with_capacity(graph.nodes().len());
    add_reachable(graph, edges, graph.roots().iter().map(|root| root.node), &mut reachable);
    reachable
}

/// Adds the nodes that are reachable from the given ones to a set, and returns the new ones.
pub(crate) fn add_reachable(
    graph: &Graph,
    edges: &Edges<'_>,
    from: impl IntoIterator<Item = NodeId>,
    reachable: &mut NodeSet,
) -> Vec<NodeId> {
    let mut is_new = |node: NodeId| graph.node(node).live && !reachable.put(node);
    let mut added: Vec<NodeId> = from.into_iter().filter(|&node| is_new(node)).collect();
    // The list of new nodes is also the worklist.
    let mut next = 0;
    while let Some(&node) = added.get(next) {
        next += 1;
        edges.for_each(node, |edge| {
            if let Destination::Node(to) = edge.to
                && is_new(to)
            {
                added.push(to);
            }
        });
    }
    added
}

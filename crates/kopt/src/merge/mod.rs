/*!
Pass `merge`: merges identical blocks, and the tails and sequences that blocks share (Chanet et al. 2007, section 2.4).

Two blocks are identical if they have the same bytes and references, and end in the same way with the same or again
identical successors (`identical`). From there on, execution is the same, so control may continue in either block,
without a call and with any frame. One block of each class is kept in its place. This is done where it makes the code
smaller (`choice`).

If only the last instructions of blocks are identical, the blocks are cut before them (`identical/tails.rs`), so that
the shared tail is a block of its own in each. There is no cut where a jump would change the behaviour: after an
instruction that holds interrupts off for the next one (`sti`), and before an instruction under an `it` of ARM. Neither
is a block cut that has a reference into it.

Finally, instructions that are repeated in the middle of blocks are outlined into functions (`outline`).

Merging costs time: jumps, calls, and a loss of locality. So only blocks are merged that did not run in the traces of
the plan's section `coverage`, unless [`Scope::All`] is requested. A compressed image does not get smaller
([`OptimizeFor::Image`] leaves merging out): a repeated piece of code compresses to a few bytes, but the distance of a
jump does not compress (section 6.3.1).

Only blocks of `.text` without table entries are merged. Code that may fault, is patched, or has a `BUG()` is kept. The
first blocks of functions are left to pass `icf`, but other blocks may be merged into them. Functions that a list of
the kernel names (`_kprobe_blacklist`) are kept whole, because the list covers all of their code.

objtool makes the unwind tables of x86-64 kernels. It follows control within one function, and expects the same state
of the stack on each way to an instruction (tools/objtool/check.c). So only blocks of one function are merged there,
and only if they return or continue in the same blocks: the state behind them is then the same, and so is the state
before them. Two ends that do not continue, like calls of `panic()`, may have different stacks.
*/

mod choice;
mod link;
mod movable;
mod outline;
mod sequences;

use indexmap::IndexMap;
use kcfg::edges::Edges;
use kcfg::graph::{Editor, Graph, Terminator, for_each_successor};
use kcfg::index::{FunctionId, NodeId, NodeSet};

use crate::identical::{End, Partition};
use crate::options::{OptimizeFor, Scope};
use crate::pass::{Context, Facts, Pass, Phase, Runs};
use crate::ran::Ran;
use crate::report::PassReport;
use movable::{Uses, cut, movable};

/// Pass `merge`: merges identical blocks.
pub struct Merge;

impl Pass for Merge {
    fn facts(&self) -> Facts {
        Facts {
            name: "merge",
            summary: "merges identical blocks, tails and sequences of code that did not run, or of all code with --merge all",
            phase: Phase::Finishes,
            runs: Runs::WithPlan(|plan| plan.coverage.is_some()),
            on_64_bits: true,
        }
    }

    fn run(&self, graph: &mut Graph, context: &mut Context<'_>) -> PassReport {
        let (plan, options) = (context.plan, context.options);
        let mut report = PassReport::new(self.name());
        if options.optimize_for == OptimizeFor::Image {
            report.keep("identical blocks", "merging does not make a compressed image smaller");
            return report;
        }
        if options.merge == Scope::Cold && plan.coverage.is_none() {
            report.keep(
                "identical blocks",
                "the plan has no section `coverage` that lists the blocks that ran; see --merge",
            );
            return report;
        }
        let ran = (options.merge == Scope::Cold).then(|| Ran::of(graph, plan));
        let is_cold = |block: NodeId| ran.as_ref().is_none_or(|ran| !ran.may_have(block));
        let classes = classes(graph, is_cold);
        let parts = cut(graph, classes.iter().flat_map(|class| &class.ends).copied().collect());
        let twins: Vec<(NodeId, NodeId)> = classes
            .iter()
            .flat_map(|class| class.going.iter().map(|end| (parts[end], parts[&class.stays])))
            .collect();
        let cuts = parts.keys().filter(|(_, start)| *start > 0).count();
        report.count("blocks cut where others end alike", cuts as u64);
        report.count("identical blocks", twins.len() as u64);
        let merged = choice::worthwhile(graph, twins);
        let mut editor = Editor::new(graph, "merge");
        merged.iter().for_each(|&(block, stays)| editor.merge(block, stays));
        editor.finish();
        for (block, _) in merged {
            report.removed.remove(graph, block);
        }
        let ran = (options.merge == Scope::Cold).then(|| Ran::of(graph, plan));
        outline::run(graph, |block| ran.as_ref().is_none_or(|ran| !ran.may_have(block)), &mut report);
        report
    }
}

/// Divides a class of identical tails into classes that have the same state of the stack.
fn of_one_function(graph: &Graph, ends: Vec<End>) -> Vec<Vec<End>> {
    let mut classes: IndexMap<(FunctionId, Vec<NodeId>), Vec<End>> = IndexMap::new();
    for end in ends {
        let Some(block) = graph.block(end.0) else { continue };
        // A jump to the entry of a function would be a call at the end of a function.
        if end == (graph.function(block.function).entry(), 0) {
            continue;
        }
        let mut next = Vec::new();
        for_each_successor(graph, &block.end, |to| next.push(to));
        let leaves = matches!(
            block.end,
            Terminator::Return | Terminator::IndirectJump | Terminator::Jump(_) | Terminator::Branch { .. }
        );
        if leaves || !next.is_empty() {
            classes.entry((block.function, next)).or_default().push(end);
        }
    }
    classes.into_values().filter(|ends| ends.len() > 1).collect()
}

/// A class of identical tails.
struct Class {
    ends: Vec<End>,
    stays: End,
    /// The tails that may be removed.
    going: Vec<End>,
}

/// The classes of identical tails, including whole blocks, with the removable members.
fn classes(graph: &Graph, is_cold: impl Fn(NodeId) -> bool) -> Vec<Class> {
    let edges = Edges::of(graph);
    let uses = Uses::of(graph);
    let blocks = movable(graph, &edges);
    let whole: Vec<NodeId> = blocks.iter().copied().filter(|block| !uses.named.contains(*block)).collect();
    let pieces: Vec<&[NodeId]> = whole.iter().map(std::slice::from_ref).collect();
    let partition = Partition::of(graph, &edges, &pieces);
    let mut shared = NodeSet::with_capacity(graph.nodes().len());
    let mut classes: Vec<Vec<End>> = Vec::new();
    // Blocks with a jump table are compared whole.
    let is_switch =
        |block: NodeId| matches!(graph.block(block).map(|block| &block.end), Some(Terminator::Switch(_)));
    for class in partition.classes() {
        shared.extend(class.iter().map(|&member| whole[member]));
        if is_switch(whole[class[0]]) {
            classes.push(class.iter().map(|&member| (whole[member], 0)).collect());
        }
    }
    let is_divisible = |&block: &NodeId| !is_switch(block) && !uses.inside.contains(block);
    let blocks: Vec<NodeId> = blocks.into_iter().filter(is_divisible).collect();
    classes.extend(partition.tails(&blocks, &is_cold, |end| choice::may_pay(graph, end, &shared)));
    if graph.world().is_checked_by_objtool() {
        classes = classes.into_iter().flat_map(|ends| of_one_function(graph, ends)).collect();
    }
    let may_go = |&(block, start): &End| is_cold(block) && (start > 0 || !uses.named.contains(block));
    let class = |ends: Vec<End>| {
        let stays = *ends.iter().find(|end| !may_go(end)).unwrap_or(&ends[0]);
        let going = ends.iter().copied().filter(|end| may_go(end) && *end != stays).collect();
        Class { ends, stays, going }
    };
    classes.into_iter().map(class).filter(|class| !class.going.is_empty()).collect()
}

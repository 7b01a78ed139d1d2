/*!
Pass `merge`: identical blocks become one (Chanet et al. 2007, section 2.4).

Two blocks are identical if they have the same bytes and references, and end in the same way with the same or again
identical successors (`identical`). What happens from there on is the same, so that control may go on in either,
without a call and whatever the frame holds. Of each class one block stays, where it is. What went to another one goes
there, with a jump where it fell through. That is done where it makes the code smaller (`choice`).

It costs time: jumps, and code that no longer lies where it runs. So only blocks are merged that did not run in the traces
of the plan's section `coverage`, unless [`Scope::All`] is asked for. A compressed image does not get smaller by it
([`OptimizeFor::Image`] leaves it out): a repeated piece of code compresses to a few bytes, and the distance of a jump does not
(section 6.3.1). Of `web-i386`, merging all that is worth it takes 13,536 bytes of memory off, and puts 3,958 bytes on what
`gzip -9` makes of the image.

Merged are blocks of `.text` without table entries: what may fault, is patched, or has a `BUG()` in it stays, and so do
the first blocks of functions, which are for pass `icf`.
*/

mod choice;

use fixedbitset::FixedBitSet;
use kcfg::edges::Edges;
use kcfg::graph::{Editor, Graph, Ref, Role, SymbolPlace, Terminator};
use kcfg::index::NodeId;
use kelf::RelocClass;
use kplan::Plan;

use crate::identical::{self, entries};
use crate::instrument;
use crate::layout;
use crate::ran::Ran;
use crate::report::PassReport;
use crate::{OptimizeFor, Options, Scope};

/// Width in bytes of a branch field that reaches all of a kernel.
const FAR: u8 = 4;

/// Merges identical blocks.
pub fn run(graph: &mut Graph, plan: &Plan, options: Options) -> PassReport {
    let mut report = PassReport::new("merge");
    if options.optimize_for == OptimizeFor::Image {
        report.keep("identical blocks", "they take next to nothing in a compressed image");
        return report;
    }
    if options.merge == Scope::Cold && plan.coverage.is_none() {
        report
            .keep("identical blocks", "the plan has no section `coverage`, so that any may run; see --merge");
        return report;
    }
    let edges = Edges::of(graph);
    let blocks = candidates(graph, &edges);
    let pieces: Vec<&[NodeId]> = blocks.iter().map(std::slice::from_ref).collect();
    let classes = identical::classes(graph, &edges, &pieces);
    let ran = (options.merge == Scope::Cold).then(|| Ran::of(graph, plan));
    let may_go = |block: NodeId| ran.as_ref().is_none_or(|ran| !ran.may_have(block));
    let mut twins = Vec::new();
    for class in &classes {
        let stays = blocks[class[0]];
        let others = class[1..].iter().map(|&member| blocks[member]);
        twins.extend(others.filter(|&block| may_go(block)).map(|block| (block, stays)));
    }
    report.count("identical blocks", twins.len() as u64);
    let merged = choice::worthwhile(graph, twins);
    let mut editor = Editor::new(graph, "merge");
    merged.iter().for_each(|&(block, stays)| editor.merge(block, stays));
    editor.finish();
    for (block, _) in merged {
        report.removed.remove(graph, block);
    }
    report
}

/// The blocks that may be merged, in their order.
fn candidates(graph: &Graph, edges: &Edges<'_>) -> Vec<NodeId> {
    let relative = instrument::position_independent(graph);
    let named = named(graph);
    let may_merge = |&id: &NodeId| {
        let Some(block) = graph.block(id).filter(|_| graph.node(id).live) else { return false };
        let section = graph.section_of(id);
        layout::class(&graph.world, &section.name) == ".text"
            && section.group.is_none()
            && !block.is_fixed()
            && !named.contains(id.get())
            && !relative.contains(block.function.get())
            && entries(edges, id).is_empty()
    };
    graph.node_ids().filter(may_merge).collect()
}

/// The blocks that others have to find where they are: the first ones of functions, those that are glued to others, and
/// those that anything refers to, but for branches that reach far and for jump tables of addresses. (Tables of distances
/// reach forward only.)
fn named(graph: &Graph) -> FixedBitSet {
    let mut named = FixedBitSet::with_capacity(graph.nodes.len());
    for function in &graph.functions {
        let mut blocks = function.blocks.iter();
        named.extend(blocks.find(|block| graph.node(**block).live).map(|block| block.get()));
    }
    for id in graph.node_ids().filter(|&id| graph.node(id).live) {
        if let Some(before) = graph.node(id).glued_to {
            named.extend([id.get(), before.get()]);
        }
        if let Some(Terminator::Branch { branch, taken, .. }) = graph.block(id).map(|block| &block.end)
            && graph.isa().branch_forms(*branch).last().is_none_or(|form| form.field_width < FAR)
        {
            named.extend(graph.resolve_node(taken.target).map(NodeId::get));
        }
        let reaches_far =
            |slot: &Ref| matches!(slot.role, Role::Slot(_)) && slot.class != RelocClass::Literal;
        let refs = graph.refs_of(id).iter().filter(|reference| !reaches_far(reference));
        named.extend(refs.filter_map(|reference| graph.resolve_node(reference.target)).map(NodeId::get));
    }
    for symbol in &graph.symbols {
        if let SymbolPlace::Node(node, _) = symbol.place {
            named.insert(node.get());
        }
    }
    named.extend(graph.roots.iter().map(|root| root.node.get()));
    named
}

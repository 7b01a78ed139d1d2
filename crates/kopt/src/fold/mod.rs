/*!
Pass `fold`: conditional constant propagation over the whole program (Chanet et al. 2007, sections 2.4 and 3.3), and
the removal of instructions that it makes dead.

The known values ([`kflow::propagate`]) are the arguments of all callers, the results of functions, and the content of
memory that live instructions only load from ([`DataUses`]). So a variable becomes constant as soon as no live code
writes it or takes its address.

- A conditional branch or a `switch` with one feasible successor becomes a jump, or falls through
  ([`reach`](crate::reach) removes the other successor). A computed call to a known function becomes a direct one. In a
  `switch` with several feasible successors, infeasible slots are redirected to a feasible target. The same happens in
  a `switch` that must precede its table.
- Instructions with dead results are removed ([`kflow::Liveness`]), and so are stores to variables that are never read
  and whose address is not taken. Instructions that compute a known number become shorter ones.
- A function that takes no more bytes than a call replaces the call. A jump to an empty block goes to that block's
  successor, and a branch with equal successors falls through.

Blocks are not changed if they are patched, may fault or trap and are found by their addresses, depend on their own
address, or are glued to others. An instruction is removed only if it is known to have no other effect. Loads are
removed only if they read the frame or memory that is never written. Any other load may be volatile, for example from a
device or from a page that a program has protected and polls.

Dead stores to the frame are kept, and so are saves and restores of registers that a function no longer changes. The
cost of this caution for `web-i386`, with a footprint of 2.6 MB after folding: dead frame stores take 37 bytes, and the
computation of their addresses 17, counting only functions that never take an address in their frame. Other dead loads
take 459.
*/

mod block;
mod calls;
mod jumps;
mod slots;
mod stores;

use kcfg::flow::{DataUses, GraphProgram};
use kcfg::graph::{Editor, Graph, Role};
use kcfg::index::{NodeId, NodeSet};
use kflow::{BlockIndex, Liveness, Reached, Summaries, propagate};
use rayon::prelude::*;
use typed_index_collections::TiVec;

use crate::pass::{Context, Facts, Pass, Phase, Runs};
use crate::report::PassReport;
use crate::sysargs;
use block::{Change, Folder};

/// Number of blocks that one worker folds at a time.
const BLOCKS_AT_ONCE: usize = 1024;

/// Pass `fold`: folds constants. The findings about functions are remembered for the next round.
pub struct Fold;

impl Pass for Fold {
    fn facts(&self) -> Facts {
        Facts {
            name: "fold",
            summary: "propagates constants through the whole program, decides branches on them, and removes dead instructions",
            phase: Phase::Exposes,
            runs: Runs::Always,
            on_64_bits: true,
        }
    }

    fn run(&self, graph: &mut Graph, context: &mut Context<'_>) -> PassReport {
        let mut report = PassReport::new(self.name());
        let (changes, untaken) = {
            let program = GraphProgram::of(graph);
            let uses = DataUses::of(graph);
            let memory = uses.constant_memory(graph);
            let summaries =
                Summaries::of_changed(&program, program.machine(), memory, &mut context.remembered);
            let liveness = Liveness::of(&program, &summaries);
            let blocks = graph.node_ids().filter(|&node| program.block(node).is_some()).count();
            let mut reached: TiVec<BlockIndex, Option<Reached>> = (0..blocks).map(|_| None).collect();
            propagate(&program, &summaries, &sysargs::guards(graph, &program), |block| {
                let at = block.block;
                reached[at] = Some(block);
            });
            let fixed = unchangeable(graph);
            let unread = stores::unread(graph, &uses, &program, &summaries, &liveness);
            let folder = Folder {
                graph,
                program: &program,
                summaries: &summaries,
                liveness: &liveness,
                unread: &unread,
                fixed: &fixed,
            };
            let nodes: Vec<NodeId> = graph.node_ids().filter(|node| !fixed.contains(*node)).collect();
            let folded: Vec<(Vec<Change>, PassReport)> = nodes
                .par_chunks(BLOCKS_AT_ONCE)
                .map(|nodes| {
                    let mut report = PassReport::new(self.name());
                    let blocks = nodes.iter().filter_map(|&node| Some((node, program.block(node)?)));
                    let changes = blocks.filter_map(|(node, block)| {
                        folder.fold(node, block, reached[block].as_ref(), &mut report)
                    });
                    (changes.collect(), report)
                })
                .collect();
            let mut changes = Vec::new();
            for (of_some, counts) in folded {
                changes.extend(of_some);
                report.add(counts);
            }
            (changes, slots::untaken(graph, &program, &reached, &fixed))
        };
        report.count("jump-table slots redirected", untaken.len() as u64);
        let mut editor = Editor::new(graph, "fold");
        for slot in &untaken {
            let like = editor.graph().slots(slot.table)[slot.like];
            editor.redirect_slot(slot.table, slot.slot, like.target, like.addend);
        }
        for Change { node, contents, end } in changes {
            if let Some((contents, moved)) = contents {
                let before = u64::from(editor.graph().node(node).size);
                report.removed.code_bytes += before.saturating_sub(contents.bytes.len() as u64);
                editor.edit_block(node, contents, &moved);
            }
            if let Some(end) = end {
                editor.end_block(node, end);
            }
        }
        editor.finish();
        report
    }
}

/// The nodes that must not change: patched, found by address, or bound to their place.
fn unchangeable(graph: &Graph) -> NodeSet {
    let mut fixed = NodeSet::with_capacity(graph.nodes().len());
    for node in graph.node_ids().filter(|&node| graph.node(node).live) {
        let is_fixed = graph.block(node).is_none_or(|block| block.is_fixed());
        if is_fixed || graph.knows_own_address(node) {
            fixed.insert(node);
        }
        if let Some(before) = graph.node(node).glued_to {
            fixed.extend([node, before]);
        }
        // An unwind entry describes a whole function, not one block.
        if graph.is_unwind_entry(node) {
            continue;
        }
        let sites = graph.refs_of(node).iter().filter(|reference| reference.role == Role::Site);
        fixed.extend(sites.filter_map(|site| graph.resolve_node(site.target)));
    }
    fixed
}

/*!
Pass `fold`: conditional constant propagation over the whole program (Chanet et al. 2007, sections 2.4 and 3.3), and what
it leaves without use.

The known values ([`kflow::propagate`]): the arguments of all callers, the results of functions, and the content of
memory that live instructions only load from ([`DataUses`]). A variable is thus constant as soon as nothing alive
writes it or takes its address, whoever has seen to that.

- A conditional branch or a `switch` with one feasible successor becomes a jump, or falls through
  ([`reach`](crate::reach) removes the other successor). A computed call to a known function becomes a direct one. In a
  `switch` with several feasible successors, infeasible slots are redirected to a feasible target. The same happens in
  a `switch` that must precede its table.
- Instructions whose results nobody needs are removed ([`kflow::Liveness`]), and those that compute a known number become
  shorter ones. So are stores to variables that nothing alive reads, or has the address of.
- A function that takes no more bytes than a call replaces the call. A jump to an empty block goes to that block's
  successor, and a branch with equal successors falls through.

Blocks are not changed if they are patched, may fault or trap and are found by their addresses, depend on their own
address, or are glued to others. Nothing but the instructions that are known to do nothing else is removed. Only loads
from the frame and from memory that nothing writes are removed. Any other load may be volatile, for example from a
device or from a page that a program has protected and polls.

Stores to words of the frame that nothing reads stay, and so does what saves and restores registers that a function no
longer changes. The cost of this caution for `web-i386`, with a footprint of 2.6 MB after folding: such loads take 37
bytes, and the computation of their addresses 17, as far as functions never take an address in their frame; other loads
take 459.
*/

mod block;
mod calls;
mod jumps;
mod slots;
mod stores;

use fixedbitset::FixedBitSet;
use kcfg::flow::{DataUses, GraphProgram};
use kcfg::graph::{Contents, Editor, Graph, Role, Terminator};
use kcfg::index::NodeId;
use kflow::{Liveness, Reached, Remembered, Summaries, propagate};
use rayon::prelude::*;

use crate::report::PassReport;
use crate::sysargs;
use block::Folder;

/// How many blocks are looked at one behind the other, while others look at others.
const BLOCKS_AT_ONCE: usize = 1024;

/// What becomes of a block.
struct Change {
    node: NodeId,
    /// Its bytes and references, with the places that move, unless they stay.
    contents: Option<(Contents, Vec<(u32, u32)>)>,
    /// Its terminator, unless that stays.
    end: Option<Terminator>,
}

/// Folds what is constant. What is found out about functions is remembered for the next round.
pub fn run(graph: &mut Graph, remembered: &mut Remembered) -> PassReport {
    let mut report = PassReport::new("fold");
    let (changes, untaken) = {
        let program = GraphProgram::of(graph);
        let uses = DataUses::of(graph);
        let memory = uses.constant_memory(graph);
        let summaries = Summaries::of_changed(&program, program.machine(), memory, remembered);
        let liveness = Liveness::of(&program, &summaries);
        let blocks = graph.node_ids().filter(|&node| program.block(node).is_some()).count();
        let mut reached: Vec<Option<Reached>> = (0..blocks).map(|_| None).collect();
        propagate(&program, &summaries, &sysargs::guards(graph, &program), |block| {
            let at = block.block.get();
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
        let nodes: Vec<NodeId> = graph.node_ids().filter(|node| !fixed.contains(node.get())).collect();
        let folded: Vec<(Vec<Change>, PassReport)> = nodes
            .par_chunks(BLOCKS_AT_ONCE)
            .map(|nodes| {
                let mut report = PassReport::new("fold");
                let blocks = nodes.iter().filter_map(|&node| Some((node, program.block(node)?)));
                let changes = blocks.filter_map(|(node, block)| {
                    folder.fold(node, block, reached[block.get()].as_ref(), &mut report)
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
    report.count("slots of jump tables turned", untaken.len() as u64);
    let mut editor = Editor::new(graph, "fold");
    untaken.iter().for_each(|slot| editor.turn_slot(slot.table, slot.slot, slot.like));
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

/// The nodes that no pass may change: what is patched or found by its address, and what has to lie as it does.
fn unchangeable(graph: &Graph) -> FixedBitSet {
    let mut fixed = FixedBitSet::with_capacity(graph.nodes.len());
    for node in graph.node_ids().filter(|&node| graph.node(node).live) {
        let is_fixed = graph.block(node).is_none_or(|block| block.is_fixed());
        if is_fixed || graph.knows_own_address(node) {
            fixed.insert(node.get());
        }
        if let Some(before) = graph.node(node).glued_to {
            fixed.extend([node.get(), before.get()]);
        }
        // How a function is unwound is said of all of it.
        if graph.is_unwind_entry(node) {
            continue;
        }
        let sites = graph.refs_of(node).iter().filter(|reference| reference.role == Role::Site);
        fixed.extend(sites.filter_map(|site| graph.resolve_node(site.target)).map(NodeId::get));
    }
    fixed
}

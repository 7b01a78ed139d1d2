/*!
Pass `fold`: conditional constant propagation over the whole program (Chanet et al. 2007, sections 2.4 and 3.3), and what
it leaves without use.

What is known ([`kflow::propagate`]): what all callers of a function pass it, what functions return, and what memory holds
to which nothing that is alive refers but instructions that load from it ([`DataUses`]). A variable is
thus constant as soon as nothing alive writes it or takes its address, whoever has seen to that.

- A conditional branch or a `switch` that goes one way only becomes a jump, or falls through ([`reach`](crate::reach)
  removes the other way), and a computed call to a known function a direct one. Of a `switch` that goes several ways,
  slots that it never takes lead where one does that it may take; so they do of one that has to stay in front of its table.
- Instructions whose results nobody needs are removed ([`kflow::Liveness`]), and those that compute a known number become
  shorter ones. So are stores to variables that nothing alive reads, or has the address of.
- A function that takes no more bytes than a call of it takes its place, a jump to a block that is empty goes where that
  does, and a branch that goes to the same place whether it is taken or not falls through.

Blocks are left alone that are patched, that may fault or trap and are found by their addresses, that know their own
address, or that lie glued to others. Nothing but the instructions that are known to do nothing else is removed. Of loads,
only those from the frame and from memory that nobody writes are: any other may be volatile, as one from a device is or one
by which a program polls a page that it has protected.

Stores to words of the frame that nothing reads stay, and so does what saves and restores registers that a function no longer
changes. Of the footprint of `web-i386`, 2.6 MB when it is folded, the former are 37 bytes and what computes them 17, as far as
functions never take an address in their frame, and the latter 459.
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

/*!
Pass `icf`: identical functions become one (duplicate procedures of Chanet et al. 2007, section 2.4).

Two functions are identical if their blocks have the same bytes and end in the same way, and if their references, calls
and jumps lead to the same or again identical targets (`identical`). One function of each class is kept, the
representative. Calls and jumps to the others are redirected to it, and it gets all their names.

C may compare the addresses of functions, so a function whose address is taken keeps its own. It may be the
representative. Otherwise its code becomes a jump to the representative, if that is shorter and the function did not
run in the traces of the plan's section `coverage` (without that section, never). The linker LLD follows the same rule
with `--icf=safe`, and uses a table from the compiler instead of the graph's edges.

Functions are not folded if their addresses matter outside of the graph (`candidates`): functions that the function
tracer, static keys or static calls patch, or that lists name; weak functions; and all code except `.text` and
`.init.text`, because the kernel tests whether addresses are in the other sections.
*/

mod candidates;

use std::cmp::Reverse;

use kcfg::edges::Edges;
use kcfg::graph::{Block, Editor, Graph};
use kcfg::index::NodeId;
use kisa::Encoding;

use crate::identical::{Partition, entries};
use crate::pass::{Context, Facts, Pass, Phase, Runs};
use crate::ran::Ran;
use crate::report::PassReport;
use candidates::Candidate;

/// Pass `icf`: folds identical functions.
pub struct Icf;

impl Pass for Icf {
    fn facts(&self) -> Facts {
        Facts {
            name: "icf",
            summary: "merges identical functions, except where their addresses may be compared",
            phase: Phase::Removes,
            runs: Runs::Always,
            on_64_bits: true,
        }
    }

    fn run(&self, graph: &mut Graph, context: &mut Context<'_>) -> PassReport {
        let plan = context.plan;
        let mut report = PassReport::new(self.name());
        let edges = Edges::of(graph);
        let candidates = candidates::find(graph, &edges);
        let pieces: Vec<&[NodeId]> = candidates.iter().map(|candidate| candidate.blocks.as_slice()).collect();
        let classes = Partition::of(graph, &edges, &pieces).classes();
        // The length is the same in every encoding.
        let jump = u32::from(graph.isa().longest_form(graph.isa().jump(Encoding::Main)).len);
        let ran = Ran::of(graph, plan);
        let mut gone: Vec<NodeId> = Vec::new();
        let mut folds: Vec<Fold<'_>> = Vec::new();
        let mut left_alone = 0;
        for class in &classes {
            let class: Vec<&Candidate> = class.iter().map(|&member| &candidates[member]).collect();
            let stays =
                *class.iter().min_by_key(|&&member| rank(graph, member)).expect("a class has members");
            for &folded in class.iter().filter(|&&member| member.function != stays.function) {
                if room(graph, folded) > room(graph, stays) {
                    continue;
                }
                let jumps = folded.is_address_taken;
                let ran = || folded.blocks.iter().any(|&block| ran.may_have(block));
                // A jump in place of a patch site would be patched.
                let is_patched = || graph.block(folded.entry()).is_some_and(Block::is_fixed);
                let is_bound = || is_patched() || graph.begins_with_landing_pad(folded.entry());
                if jumps && (folded.size(graph) <= jump || is_bound() || ran()) {
                    left_alone += 1;
                    continue;
                }
                gone.extend(folded.blocks.iter().skip(usize::from(jumps)));
                gone.extend(folded.blocks.iter().flat_map(|&block| entries(&edges, block)));
                folds.push(Fold { folded, stays, jumps });
            }
        }
        if left_alone > 0 {
            report.keep(format!("{left_alone} identical functions"), "their addresses are taken");
        }
        let aligns: Vec<(NodeId, u32)> = folds
            .iter()
            .filter(|fold| !fold.jumps)
            .map(|fold| (fold.stays.entry(), graph.node(fold.folded.entry()).align))
            .collect();
        for fold in &folds {
            report.count("functions made a jump to an identical one", u64::from(fold.jumps));
            report.removed.functions += usize::from(!fold.jumps);
        }
        let mut editor = Editor::new(graph, "icf");
        for Fold { folded, stays, jumps } in &folds {
            let pairs = folded.blocks.iter().zip(&stays.blocks);
            pairs.skip(usize::from(*jumps)).for_each(|(&of, &into)| editor.merge(of, into));
            if *jumps {
                editor.jump_instead(folded.entry(), stays.entry());
            }
        }
        for (entry, align) in aligns {
            let kept = editor.graph().node(entry).align;
            editor.align(entry, align.max(kept));
        }
        editor.finish();
        for node in gone {
            report.removed.remove(graph, node);
        }
        report
    }
}

/// Chooses the representative: prefer persistent, then most room before it, then address-taken, then best aligned.
fn rank(graph: &Graph, member: &Candidate) -> (bool, Reverse<usize>, bool, Reverse<u32>) {
    let align = Reverse(graph.node(member.entry()).align);
    (member.is_init, Reverse(room(graph, member)), !member.is_address_taken, align)
}

/// Returns the bytes before a function that the program may write over.
fn room(graph: &Graph, member: &Candidate) -> usize {
    graph.room_before(member.entry()).len()
}

/// A function that is replaced by an identical one.
struct Fold<'c> {
    folded: &'c Candidate,
    stays: &'c Candidate,
    /// Its address is taken, so that it is kept as a jump.
    jumps: bool,
}

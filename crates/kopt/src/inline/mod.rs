/*!
Pass `inline`: puts functions in the place of their only call.

A function that one call or one jump uses, and nothing else, moves there. The call, the return and the padding before
the function go; its blocks, their entries in tables, and all references to them stay as they are. The pass moves
blocks and copies none, so each of them still exists once.

The call pushes a return address, so the stack pointer is one word higher in place of the call. The pass follows the
stack pointer through the body (`frame`), and shifts the operands that count from it to arguments on the stack. It
refuses functions that look at their return address, that change the stack pointer in an unknown way, or that do not
return as they were called (`body`). A jump to another function becomes a call of that one, which finds its return
address and its arguments in the same places of the memory. In place of a jump, the body stays as it is.

A return becomes a fall-through, or a jump to the code after the call, and longer code makes the branches around it
longer. The pass therefore compares the lengths of the encodings with and without the body in place (`size`), and
inlines only what makes the code smaller.

Functions whose addresses matter outside of the graph stay (`candidates`): those with another reference, exported or weak
ones, those that a table lists, and all code except `.text` and `.init.text`. A function does not move between these two.
With traces, a function that did not run stays out of code that ran, and the other way round.

In x86-64 kernels, the unwind tables would grow: each push and pop of a body then needs entries that count from the frame of
the caller. The pass does nothing there. In an i386 kernel with frame pointers, a backtrace through a function with one in
its new place shows a word of the caller's frame instead of a return address.

Where calls leave the return address in a register (ARM), each function has an entry in the index of unwind tables, and a
return loads what the function has saved. The pass does nothing there. User programs may need a stack that is aligned to
more than a word; if an instruction shows that, only functions that call nothing are inlined.

The pass runs only if it is named: freezing finds the code that must not freeze by the names of functions, and refuses a
kernel in which one of them has moved into its caller.
*/

mod body;
mod candidates;
mod frame;
mod size;

use indexmap::IndexMap;
use kcfg::edges::Edges;
use kcfg::flow::GraphProgram;
use kcfg::graph::{Contents, Editor, Graph, Terminator};
use kcfg::index::{FunctionId, FunctionSet, NodeId};
use kcfg::special::World;
use kplan::Plan;
use rustc_hash::FxHashMap;
use tracing::debug;

use crate::pass::{Context, Facts, Pass, Phase, Runs};
use crate::ran::Ran;
use crate::report::PassReport;
use body::Change;
use candidates::{Candidate, call_start};
use frame::Why;
use size::{Piece, size};

/// Pass `inline`: puts functions in the place of their only call.
pub struct Inline;

impl Pass for Inline {
    fn facts(&self) -> Facts {
        Facts {
            name: "inline",
            summary: "puts functions in the place of their only call, where that is smaller",
            phase: Phase::Finishes,
            runs: Runs::IfNamed,
            on_64_bits: true,
        }
    }

    fn run(&self, graph: &mut Graph, context: &mut Context<'_>) -> PassReport {
        let mut report = PassReport::new(self.name());
        if let Some(why) = why_not(graph) {
            report.keep("functions with one call", why);
            return report;
        }
        let aligned = body::aligns_stack(graph);
        let mut refused: FxHashMap<FunctionId, Why> = FxHashMap::default();
        while let Some(round) = Round::choose(graph, context.plan, aligned, &mut refused) {
            round.apply(graph, &mut report);
        }
        let mut reasons: IndexMap<Why, u64> = IndexMap::new();
        let mut reasons_of: Vec<(FunctionId, Why)> = refused.into_iter().collect();
        reasons_of.sort_unstable();
        for (function, why) in reasons_of {
            debug!("inline: kept {}: {why}", graph.function(function).name);
            *reasons.entry(why).or_default() += 1;
        }
        reasons.sort_by(|_, one, _, other| other.cmp(one));
        for (why, count) in reasons {
            report.keep(format!("{count} functions with one call"), why);
        }
        report
    }
}

/// The reason why nothing of a program can be inlined.
fn why_not(graph: &Graph) -> Option<Why> {
    if graph.isa().convention().link_register.is_some() {
        return Some(
            "calls leave the return address in a register, and unwind tables describe whole functions",
        );
    }
    if graph.world().is_checked_by_objtool() {
        return Some("the unwind tables would grow by more than the code shrinks");
    }
    let is_kernel = matches!(graph.world(), World::Kernel(_));
    let pops = is_kernel && GraphProgram::of(graph).machine().convention.is_none();
    pops.then_some("a function pops its arguments, so that the stack pointer after calls is unknown")
}

/// Functions that move at the same time: none of them is the caller of another.
struct Round {
    moves: Vec<Inlined>,
}

/// A function in the place of its call, or of the jump to it.
struct Inlined {
    candidate: Candidate,
    changes: Vec<Change>,
    /// Bytes that the code becomes smaller, without padding.
    saved: u64,
}

impl Round {
    /// Chooses the functions of a round; `None` if there are no more. Adds the functions that stay to `refused`.
    fn choose(
        graph: &Graph,
        plan: &Plan,
        aligned: bool,
        refused: &mut FxHashMap<FunctionId, Why>,
    ) -> Option<Round> {
        let edges = Edges::of(graph);
        let ran = Ran::of(graph, plan);
        let mut left = Vec::new();
        for (candidate, why) in candidates::find(graph, &edges) {
            match why {
                Some(why) => drop(refused.insert(candidate.function, why)),
                None if refused.contains_key(&candidate.function) => {}
                None => left.push(candidate),
            }
        }
        let mut callers = FunctionSet::with_capacity(graph.functions().len());
        callers.extend(left.iter().filter_map(|candidate| graph.function_of(candidate.user)));
        let (waiting, leaves): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|candidate| callers.contains(candidate.function));
        if leaves.is_empty() {
            refused
                .extend(waiting.iter().map(|waiting| (waiting.function, "it calls itself through others")));
            return None;
        }
        let mut sequences = Sequences { graph, pieces: FxHashMap::default() };
        let mut moves = Vec::new();
        for candidate in leaves {
            let chosen = match ran.may_have(candidate.user) == ran.may_have(candidate.blocks[0]) {
                true => place(graph, &edges, &candidate, aligned),
                false => Err("it ran and its caller did not, or the other way round"),
            };
            match chosen.and_then(|changes| Ok((sequences.insert(&candidate, &changes)?, changes))) {
                Ok((saved, changes)) => moves.push(Inlined { candidate, changes, saved }),
                Err(why) => drop(refused.insert(candidate.function, why)),
            }
        }
        Some(Round { moves })
    }

    /// Moves the functions.
    fn apply(self, graph: &mut Graph, report: &mut PassReport) {
        let mut editor = Editor::new(graph, "inline");
        for Inlined { candidate, changes, saved } in &self.moves {
            let what = if candidate.is_call {
                "functions in place of a call"
            } else {
                "functions in place of a jump"
            };
            report.count(what, 1);
            report.count("bytes saved", *saved);
            report.redirected += 1;
            let (user, entry) = (candidate.user, candidate.blocks[0]);
            editor.unlink_symbols(entry);
            let adopted = editor.adopt(&candidate.blocks, user);
            let unit = editor.graph().isa().unit(editor.graph().encoding(user)) as u32;
            editor.align(adopted[0], unit);
            for (&node, change) in adopted.iter().zip(changes) {
                if editor.graph().block(node).is_some_and(|block| !block.is_fixed()) {
                    let Change { contents, end, .. } = change;
                    editor.edit_block(node, contents.clone(), &[]);
                    editor.end_block(node, end.clone());
                }
            }
            if candidate.is_call {
                let contents = without_call(editor.graph(), user);
                editor.edit_block(user, contents, &[]);
            }
            editor.end_block(user, Terminator::FallThrough(entry));
        }
        editor.finish();
        for block in self.moves.iter().flat_map(|inlined| &inlined.candidate.blocks) {
            graph.remove(*block);
        }
    }
}

/// Returns the blocks of a function as they are in its new place.
fn place(graph: &Graph, edges: &Edges<'_>, candidate: &Candidate, aligned: bool) -> Result<Vec<Change>, Why> {
    if candidate.is_call {
        let next = graph.block(candidate.user).and_then(|user| user.end.next());
        return body::in_place(graph, edges, &candidate.blocks, next, aligned);
    }
    let unchanged = |&node: &NodeId| {
        let contents = Contents { bytes: graph.bytes_of(node).to_vec(), refs: graph.refs_of(node).to_vec() };
        Some(Change { node, contents, end: graph.block(node)?.end.clone() })
    };
    Ok(candidate.blocks.iter().filter_map(unchanged).collect())
}

/// Returns the contents of a block without the call that ends it.
fn without_call(graph: &Graph, node: NodeId) -> Contents {
    let end = graph.callee(node).map_or(0, |callee| call_start(graph, node, callee.offset));
    let refs = graph.refs_of(node).iter().filter(|reference| reference.offset < end);
    Contents { bytes: graph.bytes_of(node)[..end as usize].to_vec(), refs: refs.copied().collect() }
}

/// The blocks of the functions that other functions move into.
struct Sequences<'g> {
    graph: &'g Graph,
    pieces: FxHashMap<FunctionId, Vec<Piece>>,
}

impl Sequences<'_> {
    /// Inserts a function in its new place, and returns the bytes that the code becomes smaller.
    ///
    /// # Errors
    /// The reason why it stays, if the code would not become smaller.
    fn insert(&mut self, candidate: &Candidate, changes: &[Change]) -> Result<u64, Why> {
        let graph = self.graph;
        let pieces_of = |blocks: &[NodeId]| -> Vec<Piece> {
            blocks
                .iter()
                .filter(|&&node| graph.node(node).live)
                .filter_map(|&node| Piece::new(graph, node))
                .collect()
        };
        let caller = graph.function_of(candidate.user).ok_or("its caller is opaque")?;
        let before = self.pieces.entry(caller).or_insert_with(|| pieces_of(&graph.function(caller).blocks));
        let at =
            before.iter().position(|piece| piece.node == candidate.user).ok_or("its caller is opaque")?;
        let mut after = before.clone();
        if candidate.is_call {
            after[at].size = without_call(graph, candidate.user).bytes.len() as u32;
        }
        after[at].end = Terminator::FallThrough(candidate.blocks[0]);
        let body = changes.iter().map(|change| Piece {
            node: change.node,
            size: change.contents.bytes.len() as u32,
            end: change.end.clone(),
        });
        after.splice(at + 1..at + 1, body);
        let saved = size(graph, before) + size(graph, &pieces_of(&candidate.blocks)) - size(graph, &after);
        let saved = u64::try_from(saved).ok().filter(|&saved| saved > 0);
        let saved = saved.ok_or("the code would not become smaller")?;
        *before = after;
        Ok(saved)
    }
}

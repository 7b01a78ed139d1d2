/*!
Pass `specialize`: copies of paths through a kernel for known inputs (Bhatia et al. 2004, section 3).

The plan names a function, objects that its arguments lead to, and facts about their words. The pass makes a copy of the
code that runs from there on, as far as traces show it: it follows the functions into their callees (`explore`) with what
is known (`state`, `step`), decides branches, makes computed calls direct, and leaves out what then has no effect (`op`,
`demand`). The copy begins with a comparison of the facts that decided something (`guard`); if one does not hold, it jumps
to the original function, whose arguments and stack are untouched.

**Frames.** The copy has the frames of all functions on the path, each at the place where the original would have it, so
that addresses in frames are the same. But it moves the stack pointer only once, to the lowest place that it reaches: pushes,
pops, calls and returns of functions in their new places become plain stores and loads, and most of these go. Words of the
frames are stored only if something in the copy reads them.

**Exits.** A block that did not run is not copied. The way to it is an exit: it stores the known words of the frames that
the copy has not stored, return addresses among them, sets the registers and the stack pointer, and jumps to the block in
the original code. From there on, everything is as if the copy had never run.

**Facts.** A fact holds until a store that may change it: a store through a pointer to another object, or a call of original
code. A fact that the plan calls stable holds in spite of them; it is an assumption, which the report lists. Nothing else
about memory outside of the frames is remembered: every other load of the original is made, and made in its order.

The pass copies no code that is patched at run time or that a table is about. A function with such code on its hot way stays
a call.
*/

mod calls;
mod context;
mod copies;
mod demand;
mod emit;
mod explore;
mod guard;
mod known;
mod loader;
mod op;
mod pieces;
mod state;
mod step;
mod value;

pub use emit::loadable::Loadable;
pub use loader::Loader;

use std::collections::{BTreeMap, BTreeSet};

use kcfg::graph::{Editor, Graph, Terminator};
use kcfg::index::{FunctionId, NodeId};
use kflow::Callee;
use kplan::Plan;

use crate::pass::{Context, Facts, Pass, Phase, Runs};
use crate::report::PassReport;
use demand::Needs;
use explore::{Explorer, Original, RETRIES};
use known::Known;
use pieces::pieces;

/// Pass `specialize`: copies paths for known inputs.
pub struct Specialize;

impl Pass for Specialize {
    fn facts(&self) -> Facts {
        Facts {
            name: "specialize",
            summary: "copies the paths of the plan for their facts, and guards the copies",
            phase: Phase::Finishes,
            runs: Runs::WithPlan(|plan| plan.paths.is_some()),
            on_64_bits: false,
        }
    }

    fn run(&self, graph: &mut Graph, context: &mut Context<'_>) -> PassReport {
        let mut report = PassReport::new(self.name());
        let Some(paths) = &context.plan.paths else {
            report.keep("every path", "the plan has no paths");
            return report;
        };
        for path in &paths.paths {
            match specialize(graph, context.plan, path, &mut report) {
                Ok(()) => report.count("paths", 1),
                Err(why) => report.keep(format!("the path from {}", path.entry), why),
            }
        }
        report
    }
}

/// Copies a path.
///
/// # Errors
/// The reason why there is no copy.
fn specialize(
    graph: &mut Graph,
    plan: &Plan,
    path: &kplan::Path,
    report: &mut PassReport,
) -> Result<(), String> {
    let entry = function(graph, &path.entry)?;
    let targets = targets(graph, path)?;
    separate(graph, &targets);
    let made = make(&Known::of(graph, plan)?, path, entry, &targets)?;
    for (what, number) in made.counts {
        report.count(what, number);
    }
    for (name, why) in made.kept {
        report.keep(format!("the call of {name}"), why);
    }
    // Everybody enters through a gate, which then becomes the path; the path itself goes to the original function.
    let mut editor = Editor::new(graph, "specialize");
    let align = editor.graph().node(entry).align;
    let gate = editor.add_block(entry, Default::default(), Terminator::FallThrough(entry));
    editor.replace_uses(entry, gate);
    editor.align(entry, align);
    editor.finish();
    let mut editor = Editor::new(graph, "specialize");
    let first = made.path.add(&mut editor, entry);
    editor.replace_uses(gate, first);
    editor.finish();
    graph.remove(gate);
    report.redirected += 1;
    Ok(())
}

/// Returns the block at the start of a function.
///
/// # Errors
/// If there is no function of that name, or several.
fn function(graph: &Graph, name: &str) -> Result<NodeId, String> {
    let mut found = context::named(graph, name);
    let node = found.find(|&node| graph.function_of(node).is_some());
    let node = node.ok_or_else(|| format!("there is no function {name}"))?;
    match found.any(|other| other != node) {
        true => Err(format!("there are several functions {name}")),
        false => Ok(node),
    }
}

/// Returns the functions that computed calls of functions are expected to call, by caller.
///
/// # Errors
/// As for [`function`].
fn targets(graph: &Graph, path: &kplan::Path) -> Result<BTreeMap<FunctionId, NodeId>, String> {
    let mut targets = BTreeMap::new();
    for target in &path.targets {
        let caller = function(graph, &target.caller)?;
        let callee = function(graph, &target.callee)?;
        targets.extend(graph.function_of(caller).map(|caller| (caller, callee)));
    }
    Ok(targets)
}

/// Makes each computed call of these functions a block of its own, to which a path can leave.
fn separate(graph: &mut Graph, targets: &BTreeMap<FunctionId, NodeId>) {
    let callers = targets.keys().flat_map(|&caller| graph.function(caller).blocks.clone());
    let mut cuts = Vec::new();
    for node in callers.filter(|&node| graph.node(node).live) {
        let Some(Terminator::IndirectCall { .. }) = graph.block(node).map(|block| &block.end) else {
            continue;
        };
        let at = graph.decode(node).flatten().last().map(|inst| inst.at.address as u32);
        cuts.extend(at.filter(|&at| at > 0).map(|at| (node, at)));
    }
    let mut editor = Editor::new(graph, "specialize");
    for (node, at) in cuts {
        editor.split_block(node, at);
    }
    editor.finish();
}

/// A copy of a path, before it has a place.
struct Made {
    path: emit::Path,
    /// What is counted for the report.
    counts: Vec<(&'static str, u64)>,
    /// The calls that stay calls, with the reason.
    kept: Vec<(String, &'static str)>,
}

/// Makes the copy of a path.
fn make(
    known: &Known<'_>,
    path: &kplan::Path,
    entry: NodeId,
    targets: &BTreeMap<FunctionId, NodeId>,
) -> Result<Made, String> {
    let Known { graph, specialize, program, memory, summaries, liveness, edges, ran } = known;
    let is_hot = |node: NodeId| ran.may_have(node);
    let calls: BTreeSet<FunctionId> = path
        .calls
        .iter()
        .flat_map(|name| context::named(graph, name).filter_map(|node| graph.function_of(node)))
        .collect();
    let original = Original {
        graph,
        isa: graph.isa(),
        specialize: *specialize,
        program,
        summaries,
        memory,
        edges,
        ran: &is_hot,
        calls: &calls,
        targets,
    };
    let mut explorer = Explorer::new(original);
    let state = context::enter(&mut explorer, path)?;
    let needs = Needs { graph, program, summaries, liveness };
    let mut retries = RETRIES;
    let (pieces, exits) = loop {
        explorer.run(entry, state.clone())?;
        explorer.used.clear();
        explorer.used_addresses.clear();
        match pieces(&mut explorer, &needs) {
            Ok(made) => break made,
            Err((node, why)) if node != entry && retries > 0 => {
                explorer.refuse(node, why);
                retries -= 1;
            }
            Err((_, why)) => return Err(why.into()),
        }
    };
    let after = demand::solve(&pieces, &exits, |node| needs.at_return(node));
    let convention = graph.isa().convention();
    let (live, changes) = match program.block(entry) {
        Some(block) => {
            let summary = summaries.get(Callee::Function(program.function_of(block)));
            (liveness.before(block), summary.changes)
        }
        None => (u64::MAX, 0),
    };
    let objects = explorer.context.objects.iter();
    let bases = objects.fold(0, |set, object| match object.from {
        context::From::Register(reg) => set | op::bit(reg),
        _ => set,
    });
    let scratch = guard::scratch(live | bases, changes, convention.stack_pointer, convention.call_clobbered);
    let (context, used, addresses) = (&explorer.context, &explorer.used, &explorer.used_addresses);
    let guard = guard::guard(graph, *specialize, context, used, addresses, scratch)?;
    let used_facts = context.facts.iter().enumerate().filter(|(number, _)| used.contains(number));
    let stable = used_facts.filter(|(_, fact)| fact.stable).count();
    let mut counts = vec![
        ("facts compared", guard.compared),
        ("instructions that compare facts", guard.instructions),
        ("facts assumed to be stable", stable as u64),
        ("facts that decide nothing", (context.facts.len() - used.len()) as u64),
        ("functions on paths", explorer.instances.len() as u64),
    ];
    let path = emit::lay_out(&explorer, &pieces, &exits, &after, guard, entry)?;
    counts.extend([
        ("bytes of paths, without branches", path.size),
        ("bytes of exits among them", path.exit_size),
        ("exits", path.exits),
        ("words in code that exits share", path.shared_words),
        ("operations left", path.left),
        ("operations that went", path.gone),
    ]);
    let kept = explorer.kept.iter().map(|(name, why)| (name.clone(), *why)).collect();
    Ok(Made { path, counts, kept })
}

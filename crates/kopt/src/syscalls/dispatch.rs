/*!
The `switch` that dispatches system calls.

The compiler translates it to a jump table, a tree of comparisons, or both. Instead of recognising these, this module
interprets the dispatcher once for every number. It follows the blocks as long as the next one is certain, and records
the edges on the path of each number and the *leaf* at its end: the block that calls a handler, or the handler itself
if a branch goes to it (clang: `ja sys_ni_syscall`).

- An edge on the paths of unused numbers only is redirected to a block that calls `sys_ni_syscall`, as the default does,
  if the processor is in the same state there: the same instructions ran, comparisons aside.
- If only unused numbers reach a leaf, and their paths have no such edge, the leaf calls `sys_ni_syscall` instead.
*/

use kcfg::graph::{Block, Dest, Editor, Graph, Role, Target, Terminator};
use kcfg::index::{NodeId, TableId};
use kcfg::instructions::Instruction;
use kflow::values::{Names, Site, State, ValueSet};
use kisa::{Effect, Flags, RelocatedField, Rewritable};
use rustc_hash::{FxHashMap, FxHashSet};

use super::dispatchers::is_ni_syscall;
use crate::switches::shared_tables;

/// A number beyond every table, for which a dispatcher takes its default.
const NO_CALL: u32 = u32::MAX;
/// Numbers below this one are examined. The largest of Linux 6.12 is 466.
const NUMBERS: u32 = 1024;

/// The result of redirecting a dispatcher.
pub(super) struct Outcome {
    /// Edges and calls that now lead to `sys_ni_syscall`.
    pub redirected: usize,
    /// Unused numbers that still reach a handler.
    pub stuck: Vec<u32>,
}

/// Redirects the dispatch of every unused number. `Err`: the reason why the dispatcher is not understood.
pub(super) fn redirect_unused(
    graph: &mut Graph,
    entry: NodeId,
    used: &FxHashSet<u32>,
) -> Result<Outcome, &'static str> {
    let shared = shared_tables(graph);
    let walks: Vec<Walk> = (0..NUMBERS).map(|nr| walk(graph, &shared, entry, nr)).collect();
    let default = walk(graph, &shared, entry, NO_CALL);
    let ni = handler(graph, default.leaf).ok_or("its default does not call a handler")?;
    if !is_ni_syscall(graph, ni) {
        return Err("its default does not call sys_ni_syscall");
    }
    // The block that unused numbers are redirected to, and the state there.
    let calls_ni = |walk: &&Walk| handler(graph, walk.leaf) == Some(ni);
    let mut calls_ni = std::iter::once(&default).chain(&walks).filter(calls_ni);
    let refusal = calls_ni.find_map(|walk| Some((walk.leaf.block()?, walk.state.clone())));
    let mut edges: FxHashMap<Edge, Users> = FxHashMap::default();
    let mut leaves: FxHashMap<Leaf, bool> = FxHashMap::default();
    for (nr, walk) in walks.iter().enumerate() {
        let is_used = used.contains(&(nr as u32));
        for step in &walk.steps {
            let users = edges.entry(step.edge).or_insert_with(|| Users { used: false, states: Vec::new() });
            users.used |= is_used;
            if !users.states.contains(&step.state) {
                users.states.push(step.state.clone());
            }
        }
        *leaves.entry(walk.leaf).or_default() |= is_used;
    }
    let same_state = |users: &Users, state: &History| users.states.iter().all(|one| one == state);

    let mut outcome = Outcome { redirected: 0, stuck: Vec::new() };
    let mut redirected: FxHashSet<Edge> = FxHashSet::default();
    let mut editor = Editor::new(graph, "syscalls");
    for (nr, walk) in walks.iter().enumerate() {
        let is_refused = walk.leaf == default.leaf
            || refusal.as_ref().is_some_and(|(to, _)| walk.leaf == Leaf::Block(*to));
        if used.contains(&(nr as u32)) || is_refused {
            continue;
        }
        let cut = refusal.as_ref().and_then(|(to, state)| {
            let is_cut = |users: &Users| !users.used && same_state(users, state);
            Some((walk.steps.iter().find(|step| is_cut(&edges[&step.edge]))?.edge, *to))
        });
        match (cut, walk.leaf, handler(editor.graph(), walk.leaf)) {
            (Some((edge, to)), ..) => {
                if redirected.insert(edge) {
                    redirect(&mut editor, edge, to);
                    outcome.redirected += 1;
                }
            }
            (None, Leaf::Block(leaf), Some(to)) if !leaves[&walk.leaf] => {
                if to != ni {
                    set_handler(&mut editor, leaf, ni);
                    outcome.redirected += 1;
                }
            }
            (None, _, Some(to)) if to == ni => {}
            _ => outcome.stuck.push(nr as u32),
        }
    }
    editor.finish();
    Ok(outcome)
}

/// An edge from a block to one of its successors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Edge {
    from: NodeId,
    successor: Successor,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Successor {
    Only,
    Taken,
    Next,
    Slot(u32),
}

/// The instructions that ran, without comparisons, as bytes and relocated fields. After equal histories, the processor
/// is in the same state.
type History = Vec<(Vec<u8>, Vec<RelocatedField>)>;

struct Users {
    used: bool,
    states: Vec<History>,
}

struct Step {
    edge: Edge,
    state: History,
}

/// The end of a path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Leaf {
    /// A block of the dispatcher.
    Block(NodeId),
    /// A handler: a branch goes to it.
    Handler(Target),
}

impl Leaf {
    fn block(self) -> Option<NodeId> {
        match self {
            Leaf::Block(block) => Some(block),
            Leaf::Handler(_) => None,
        }
    }
}

/// The path of one number through the dispatcher.
struct Walk {
    steps: Vec<Step>,
    leaf: Leaf,
    /// The state on entry to the leaf.
    state: History,
}

fn walk(graph: &Graph, shared: &FxHashSet<TableId>, entry: NodeId, nr: u32) -> Walk {
    let isa = graph.isa();
    let mut names = Names::new(graph.machine().word_size(), isa.registers(), isa.convention().stack_pointer);
    let mut state = State::begin(&mut names, true);
    if let Some(&number) = isa.convention().arguments.get(1) {
        state.set_register(number, ValueSet::number(nr.into()));
    }
    let traced = after_landing_pad(graph, entry);
    let mut walker = Walker { isa, shared, traced, names, state, history: Vec::new() };
    let mut walk = Walk { steps: Vec::new(), leaf: Leaf::Block(entry), state: Vec::new() };
    let mut seen: FxHashSet<NodeId> = FxHashSet::default();
    while let Some(node) = walk.leaf.block().filter(|&node| seen.insert(node)) {
        let before = walker.history.clone();
        match walker.block(graph, node) {
            Some((successor, to)) => {
                walk.steps.push(Step { edge: Edge { from: node, successor }, state: walker.history.clone() });
                walk.leaf = to;
            }
            None => {
                walk.state = before;
                return walk;
            }
        }
    }
    walk.state = walker.history;
    walk
}

/// Returns the block with the first instruction of a function that has an effect.
fn after_landing_pad(graph: &Graph, entry: NodeId) -> NodeId {
    match graph.block(entry).map(|block| &block.end) {
        Some(&Terminator::FallThrough(next)) if graph.effects(entry).iter().all(Vec::is_empty) => next,
        _ => entry,
    }
}

struct Walker<'i> {
    isa: &'i dyn Rewritable,
    shared: &'i FxHashSet<TableId>,
    /// The block that the function tracer may have patched.
    traced: NodeId,
    names: Names,
    state: State,
    history: History,
}

impl Walker<'_> {
    /// Interprets a block; `None` if it is a leaf.
    fn block(&mut self, graph: &Graph, node: NodeId) -> Option<(Successor, Leaf)> {
        let block = graph.block(node)?;
        if let Terminator::Patched { next } = block.end {
            // The call of the function tracer preserves all registers.
            return next.filter(|_| node == self.traced).map(|next| (Successor::Only, Leaf::Block(next)));
        }
        for (number, instruction) in graph.instructions(node)?.iter().enumerate() {
            self.instruction(instruction, Site { block: node.0, number: number as u32 });
        }
        let same_function =
            |to: NodeId| graph.block(to).is_some_and(|other| other.function == block.function);
        let to = |dest: &Dest| graph.resolve_node(dest.target).filter(|&to| same_function(to));
        match &block.end {
            Terminator::FallThrough(next) => Some((Successor::Only, Leaf::Block(*next))),
            Terminator::Jump(dest) => to(dest).map(|to| (Successor::Only, Leaf::Block(to))),
            Terminator::Branch { branch, taken, next } => {
                if !self.state.holds(self.isa.condition(*branch), &self.names)? {
                    return Some((Successor::Next, Leaf::Block(*next)));
                }
                let handler = || (taken.offset == 0).then_some(Leaf::Handler(taken.target));
                Some((Successor::Taken, to(taken).map(Leaf::Block).or_else(handler)?))
            }
            Terminator::Switch(table) => {
                // A slot that another jump uses too cannot be redirected for this jump alone.
                if self.shared.contains(table) {
                    return None;
                }
                let slots = graph.slots(*table);
                let slot = self.slot(graph, node)?;
                let to = graph.resolve_node(slots.get(slot as usize)?.target)?;
                same_function(to).then_some((Successor::Slot(slot), Leaf::Block(to)))
            }
            _ => None,
        }
    }

    /// The slot that the jump at the end of the block takes.
    fn slot(&self, graph: &Graph, node: NodeId) -> Option<u32> {
        let index = graph.table_index(node)?;
        u32::try_from(self.state.number(index, &self.names)?).ok()
    }

    fn instruction(&mut self, instruction: &Instruction, at: Site) {
        let effects = &instruction.effects;
        let compares =
            |effect: &Effect| effect.flags() != Flags::Kept || matches!(effect, Effect::Transfer(_));
        let is_jump = effects.iter().any(|effect| matches!(effect, Effect::Transfer(_)));
        let only_compares =
            effects.iter().all(compares) && (is_jump || self.isa.only_computes(&instruction.inst));
        if !only_compares {
            self.history.push((instruction.inst.bytes.to_vec(), instruction.fields.to_vec()));
        }
        self.state.apply(&mut self.names, at, effects);
    }
}

/// Returns the handler of a number; `None` if it is not certain.
pub(super) fn handler_of(
    graph: &Graph,
    shared: &FxHashSet<TableId>,
    entry: NodeId,
    nr: u32,
) -> Option<Target> {
    handler(graph, walk(graph, shared, entry, nr).leaf)
}

/// The handler that a leaf calls or jumps to.
fn handler(graph: &Graph, leaf: Leaf) -> Option<Target> {
    let leaf = match leaf {
        Leaf::Block(leaf) => leaf,
        Leaf::Handler(target) => return Some(target),
    };
    match &graph.block(leaf)?.end {
        Terminator::Jump(dest) if dest.offset == 0 => Some(dest.target),
        Terminator::Call { .. } => graph.callee(leaf).map(|callee| callee.target),
        _ => None,
    }
}

fn set_handler(editor: &mut Editor<'_>, leaf: NodeId, handler: Target) {
    if let Some(Block { end: Terminator::Jump(_), .. }) = editor.graph().block(leaf) {
        editor.end_block(leaf, Terminator::Jump(Dest { target: handler, offset: 0 }));
    }
    let refs = editor.graph().refs_of(leaf);
    if let Some(callee) = refs.iter().position(|reference| reference.role == Role::Callee) {
        let addend = refs[callee].addend;
        editor.redirect(leaf, callee, handler, addend);
    }
}

fn redirect(editor: &mut Editor<'_>, edge: Edge, to: NodeId) {
    let Some(Block { end, .. }) = editor.graph().block(edge.from) else { return };
    let (mut end, dest) = (end.clone(), Dest { target: Target::Node(to), offset: 0 });
    match (&mut end, edge.successor) {
        (Terminator::Branch { taken, .. }, Successor::Taken) => *taken = dest,
        (
            Terminator::Branch { next, .. } | Terminator::FallThrough(next),
            Successor::Next | Successor::Only,
        ) => *next = to,
        (Terminator::Jump(target), Successor::Only) => *target = dest,
        (&mut Terminator::Switch(table), Successor::Slot(slot)) => {
            let addend = editor.graph().slots(table)[slot as usize].addend;
            editor.redirect_slot(table, slot as usize, dest.target, addend);
        }
        _ => unreachable!("a path takes edges that exist"),
    }
    editor.end_block(edge.from, end);
}

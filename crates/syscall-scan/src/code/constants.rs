//! Which way branches go that constants decide: conditional constant propagation (Wegman and Zadeck 1991) over the
//! whole program, while it is explored.
//!
//! Arguments of callers decide branches in a function: the name given to `sysconf`, flags, a null pointer for an
//! optional argument. So what registers and words of the frame are known to hold ([`Facts`]) is carried from run to
//! run, into callees as what they are called with, and back behind calls as far as calls leave it alone. A way that no
//! known constant leads to is not explored, until other facts arrive. Code that is entered in another way than by a
//! followed call or jump (its address is taken, it is looked up by name, the unwinder jumps there) begins without
//! facts. Facts only become weaker, so that in the end they hold for every way to a place.
//!
//! The assumptions about compiled code are those of [`crate::flow`]: calls keep the registers that the ABI preserves,
//! and other functions write to a frame only above an address that it has given away. Addresses are no numbers: of one
//! that is loaded elsewhere than the file says, only is known that it is not 0.

use std::sync::Arc;

use kelf::Machine;
use kisa::{Effect, Reg};
use rustc_hash::{FxHashMap, FxHashSet};

use super::known::{BranchFact, Facts};
use super::marks::RunId;
use super::walk::RunWalk;
use super::{Code, Exit, ExitId, ExitKind, Returns};
use crate::abi::Convention;
use crate::image::{Addr, Image};

/// How often a run is looked at again because something else is known in front of it, before what still changes is
/// unknown: counters never settle.
const MAX_VISITS: u8 = 8;

/// What is known where.
pub(super) struct Constants {
    convention: &'static Convention,
    /// The stack pointer, if frames are followed.
    frame: Option<Reg>,
    /// What is known where anybody may have come from.
    nothing: Arc<Facts>,
    /// The facts of all places, each kept once: many places have the same.
    all: FxHashSet<Arc<Facts>>,
    /// By run, the facts in front of it, once an edge has reached it.
    starts: Vec<Option<Start>>,
    /// By exit, the facts behind it; behind a call, those where the callee begins, in terms of the caller's frame.
    exits: Vec<Option<Behind>>,
    /// The worklist: runs in front of which facts have changed.
    changed: Vec<RunId>,
    /// By conditional branch, the successor that is not feasible so far.
    closed: FxHashMap<ExitId, Addr>,
    /// The computed jumps whose targets are constants so far.
    decided: FxHashSet<ExitId>,
}

/// The facts behind an exit.
struct Behind {
    known: Arc<Facts>,
    /// What a conditional branch tells.
    learnt: Option<BranchFact>,
}

/// The facts in front of a run.
struct Start {
    known: Arc<Facts>,
    visits: u8,
    is_changed: bool,
}

impl Constants {
    /// Nothing known so far. `None` for machines on which it is not seen how often a function's address is taken.
    pub(super) fn new(image: &Image) -> Option<Constants> {
        let convention =
            Some(Convention::of(image.machine)).filter(|convention| convention.link.is_none())?;
        // Functions of i386 may take their arguments off the stack, so that frames are not known behind calls.
        let frame = (image.machine == Machine::X86_64).then_some(convention.stack_pointer);
        let nothing = Arc::new(Facts::nothing());
        Some(Constants {
            convention,
            frame,
            all: FxHashSet::default(),
            nothing,
            starts: Vec::new(),
            exits: Vec::new(),
            changed: Vec::new(),
            closed: FxHashMap::default(),
            decided: FxHashSet::default(),
        })
    }

    fn behind(&self, exit: ExitId) -> Option<&Behind> {
        self.exits.get(exit.0 as usize)?.as_ref()
    }

    /// The same facts, in the one copy that all places share.
    fn shared(&mut self, known: Facts) -> Arc<Facts> {
        if known.is_nothing() {
            return Arc::clone(&self.nothing);
        }
        if let Some(known) = self.all.get(&known) {
            return Arc::clone(known);
        }
        let known = Arc::new(known);
        self.all.insert(Arc::clone(&known));
        known
    }

    fn start(&self, run: RunId) -> Option<&Start> {
        self.starts.get(run.get())?.as_ref()
    }

    /// Whether nothing is known in front of a run, so that it does not matter what arrives.
    fn is_nothing(&self, run: RunId) -> bool {
        self.start(run).is_some_and(|start| start.known.is_nothing())
    }

    /// Joins facts into those in front of a run. The run may not have been decoded so far, or may be the very one that
    /// is being decoded: where it ends at an exit that is known, it may lead to its own beginning.
    fn arrive(&mut self, run: RunId, known: &Arc<Facts>) {
        if self.starts.len() <= run.get() {
            self.starts.resize_with(run.get() + 1, || None);
        }
        let Some(start) = &mut self.starts[run.get()] else {
            self.starts[run.get()] = Some(Start { known: Arc::clone(known), visits: 0, is_changed: false });
            return;
        };
        if Arc::ptr_eq(&start.known, known) || start.known.covers(known) {
            return;
        }
        Arc::make_mut(&mut start.known).join(known, start.visits >= MAX_VISITS);
        if start.known.is_nothing() {
            start.known = Arc::clone(&self.nothing);
        }
        if !start.is_changed {
            start.is_changed = true;
            self.changed.push(run);
        }
    }
}

impl<'a> Code<'a> {
    /// Exploration is over: what is known where is not needed any more.
    pub fn forget_constants(&mut self) {
        self.constants = None;
    }

    /// Whether constants say where a computed jump goes.
    pub fn is_decided(&self, jump: ExitId) -> bool {
        self.constants.as_ref().is_some_and(|constants| constants.decided.contains(&jump))
    }

    /// Whether a function may be called with an argument of which something holds, as far as is known by now.
    pub(super) fn may_be_called_with(
        &self,
        function: Addr,
        index: usize,
        holds: impl Fn(u64) -> bool,
    ) -> bool {
        let Some(constants) = &self.constants else { return self.entry(function).is_some() };
        // Who calls it comes later, and tells what with.
        let run = self.marks.run_at(function);
        let Some(start) = run.and_then(|run| constants.start(run)) else { return false };
        // Others take their arguments off the stack.
        let in_registers = self.image.machine == Machine::X86_64;
        let register = constants.convention.arguments.get(index).filter(|_| in_registers);
        let numbers = register.and_then(|&register| start.known.numbers_in(register));
        numbers.is_none_or(|numbers| numbers.iter().any(holds))
    }

    /// Anybody may come to where a run begins.
    pub(super) fn arrive_from_anywhere(&mut self, run: RunId) {
        if let Some(constants) = &mut self.constants {
            let nothing = Arc::clone(&constants.nothing);
            constants.arrive(run, &nothing);
        }
    }

    /// An exit goes on where a run begins, or jumps there.
    pub(super) fn arrive_from(&mut self, exit: ExitId, run: RunId) {
        let Exit { next, successors, .. } = self.exit(exit);
        let (next, is_two_ways) =
            (*next, successors.first() != Some(next) || successors.get(1) != Some(next));
        let callee = match self.exit(exit).kind {
            ExitKind::Call(callee) => Some(Some(callee)),
            ExitKind::IndirectCall => Some(None),
            _ => None,
        };
        let Some(constants) = &mut self.constants else { return };
        let Some(behind) = constants.behind(exit) else {
            let nothing = Arc::clone(&constants.nothing);
            return constants.arrive(run, &nothing);
        };
        match callee {
            None => {
                let mut known = Arc::clone(&behind.known);
                if let Some(learnt) = behind.learnt.as_ref().filter(|_| is_two_ways) {
                    Arc::make_mut(&mut known).learn(learnt, self.marks.run(run).start != next);
                }
                constants.arrive(run, &known);
            }
            Some(callee) => {
                let mut behind = behind.known.behind_call(constants.convention);
                // When it returns for the second time, the frame is as it was left after the first.
                if behind.has_frame() && callee.is_some_and(|callee| self.returns_twice(callee)) {
                    behind.forget_frame();
                }
                if let (true, Some(callee)) = (behind.has_numbers(), callee) {
                    behind.forget(self.written_by_leaf(callee));
                }
                if let Some(constants) = &mut self.constants {
                    let behind = constants.shared(behind);
                    constants.arrive(run, &behind);
                }
            }
        }
    }

    /// A call enters a function.
    pub(super) fn arrive_by_call(&mut self, call: ExitId, callee: RunId) {
        let is_direct = matches!(self.exit(call).kind, ExitKind::Call(_));
        let Some(constants) = &mut self.constants else { return };
        if constants.is_nothing(callee) {
            return;
        }
        let behind = constants.behind(call).filter(|_| is_direct);
        let known = behind.map(|behind| behind.known.in_callee(constants.convention, constants.frame));
        let known = match known {
            Some(known) => constants.shared(known),
            None => Arc::clone(&constants.nothing),
        };
        constants.arrive(callee, &known);
    }

    /// Begins to walk over a run.
    pub(super) fn walk_from(&self, run: RunId) -> Option<RunWalk<'a>> {
        let constants = self.constants.as_ref()?;
        let known = constants.start(run).map_or(&constants.nothing, |start| &start.known);
        Some(RunWalk::new(self.image, Facts::clone(known), constants.convention.stack_pointer))
    }

    /// Notes a successor of a conditional branch that is not feasible so far.
    pub(super) fn close(&mut self, branch: ExitId, way: Addr) {
        self.constants.iter_mut().for_each(|constants| {
            constants.closed.insert(branch, way);
        });
    }

    /// The targets of a computed jump, if constants say them.
    pub(super) fn constant_targets(&self, walk: &RunWalk, effects: &[Effect]) -> Option<Vec<Addr>> {
        let targets = walk.targets(effects)?;
        targets.iter().all(|&target| self.image.is_code(target)).then_some(targets)
    }

    /// Says that a jump goes to constants.
    pub(super) fn decide(&mut self, jump: ExitId) {
        self.constants.iter_mut().for_each(|constants| {
            constants.decided.insert(jump);
        });
    }

    /// Control comes to the end of a run.
    pub(super) fn leave_knowing(&mut self, exit: ExitId, walk: Option<RunWalk<'_>>, effects: &[Effect]) {
        let Some(mut walk) = walk else { return };
        self.open_more(exit, &walk, effects);
        let is_call = matches!(self.exit(exit).kind, ExitKind::Call(_) | ExitKind::IndirectCall);
        let learnt = walk.learnt(effects);
        if !is_call {
            walk.apply(effects);
        }
        let is_tail_call = !is_call && self.leaves_function(exit);
        let Some(constants) = &mut self.constants else { return };
        match is_call {
            true => {}
            false if is_tail_call => walk.known.enter_by_jump(constants.convention),
            false => walk.known.keep_from_caller(),
        }
        let index = exit.0 as usize;
        if constants.exits.len() <= index {
            constants.exits.resize_with(index + 1, || None);
        }
        let Some(behind) = &mut constants.exits[index] else {
            // Successors are visited later and ask then.
            let known = constants.shared(walk.known);
            constants.exits[index] = Some(Behind { known, learnt });
            return;
        };
        let learns_less = behind.learnt.is_some() && behind.learnt != learnt;
        if learns_less {
            behind.learnt = None;
        }
        if learns_less || !behind.known.covers(&walk.known) {
            Arc::make_mut(&mut behind.known).join(&walk.known, false);
            self.pass_on(exit);
        }
    }

    /// Whether an exit is a jump to another function.
    fn leaves_function(&self, exit: ExitId) -> bool {
        let Exit { at, kind, successors, .. } = self.exit(exit);
        let &[target] = &successors[..] else { return false };
        let own = self.image.extent_around(*at);
        let is_elsewhere =
            own.map_or(self.entry(target).is_some(), |own| !(own.start..own.end).contains(&target));
        *kind == ExitKind::Jump && is_elsewhere
    }

    /// What is known behind an exit has changed.
    fn pass_on(&mut self, exit: ExitId) {
        if let ExitKind::Call(callee) = self.exit(exit).kind {
            let callee = self.marks.run_from(callee);
            self.arrive_by_call(exit, callee);
        }
        for next in self.exit(exit).successors.clone() {
            let next = self.marks.run_from(next);
            self.arrive_from(exit, next);
        }
    }

    /// Adds the successors of a branch that have become feasible.
    fn open_more(&mut self, exit: ExitId, walk: &RunWalk, effects: &[Effect]) {
        let Some(constants) = &mut self.constants else { return };
        if let Some(&closed) = constants.closed.get(&exit) {
            let is_next = self.exits[exit.0 as usize].next == closed;
            let open = walk.ways(effects);
            if open[usize::from(!is_next)] {
                constants.closed.remove(&exit);
                self.go_also(exit, closed);
            }
        } else if constants.decided.contains(&exit) {
            match self.constant_targets(walk, effects) {
                Some(targets) => drop(self.add_targets(exit, &targets)),
                None => {
                    self.constants.iter_mut().for_each(|constants| {
                        constants.decided.remove(&exit);
                    });
                    self.changes.exit(exit);
                    self.set_returns(exit, Returns::Somehow);
                }
            }
        }
    }

    /// Whether something has changed in front of a run.
    pub(super) fn is_to_revisit(&self) -> bool {
        self.constants.as_ref().is_some_and(|constants| !constants.changed.is_empty())
    }

    /// Looks at the runs again in front of which something has changed. Returns whether there are any.
    pub(super) fn revisit(&mut self) -> bool {
        let Some(constants) = &mut self.constants else { return false };
        let mut changed = std::mem::take(&mut constants.changed);
        changed.sort_unstable_by_key(|&run| self.marks.run(run).start);
        for &run in &changed {
            if let Some(Some(start)) = self.constants.as_mut().map(|c| &mut c.starts[run.get()]) {
                start.is_changed = false;
                start.visits = start.visits.saturating_add(1);
            }
            self.walk_again(run);
        }
        !changed.is_empty()
    }

    fn walk_again(&mut self, run: RunId) {
        let Some(mut walk) = self.walk_from(run) else { return };
        let mut effects = Vec::new();
        let mut at = self.marks.run(run).start;
        loop {
            effects.clear();
            let length = self.length(at);
            if length.is_some() {
                self.effects(at, &mut effects);
            }
            if let Some(exit) = self.exit_at(at) {
                return self.leave_knowing(exit, Some(walk), &effects);
            }
            let Some(length) = length else { return };
            walk.apply(&effects);
            at = at.plus(length);
        }
    }
}

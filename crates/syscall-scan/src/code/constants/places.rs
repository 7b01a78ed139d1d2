//! The facts before each run and after each exit.

use std::sync::Arc;

use kisa::{Addressing, Convention, Reg};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::code::known::{BranchFact, Facts};
use crate::code::run::{ExitId, RunId};
use crate::image::{Addr, Image};

/// Maximum number of visits of a run before facts that still change become unknown: counters never settle.
const MAX_VISITS: u8 = 8;

/// The facts by place.
pub(in crate::code) struct Constants {
    pub(super) convention: &'static Convention,
    /// The stack pointer, if frames are tracked.
    pub(super) frame: Option<Reg>,
    /// The facts at a place that may be reached from anywhere.
    pub(super) nothing: Arc<Facts>,
    /// The facts of all places, each stored once, because many places share them.
    all: FxHashSet<Arc<Facts>>,
    /// The facts before each run that an edge has reached, by run.
    pub(super) starts: Vec<Option<Start>>,
    /// The facts after each exit, by exit; for a call, the facts where the callee begins, in terms of the caller's
    /// frame.
    pub(super) exits: Vec<Option<Behind>>,
    /// The worklist: runs with changed facts before them.
    pub(super) changed: Vec<RunId>,
    /// The successor of each conditional branch that is not yet feasible, by branch.
    pub(super) closed: FxHashMap<ExitId, Addr>,
    /// The computed jumps whose targets are constants so far.
    pub(super) decided: FxHashSet<ExitId>,
}

/// The facts after an exit.
pub(super) struct Behind {
    pub(super) known: Arc<Facts>,
    /// The fact that a conditional branch implies.
    pub(super) learnt: Option<BranchFact>,
}

/// The facts before a run.
pub(super) struct Start {
    pub(super) known: Arc<Facts>,
    pub(super) visits: u8,
    pub(super) is_changed: bool,
}

impl Constants {
    /// Creates empty facts. `None` for machines on which not every use of a function's address is recognised.
    pub(in crate::code) fn new(image: &Image) -> Option<Constants> {
        let isa = kisa::isa(image.machine);
        if isa.addressing() != Addressing::Whole {
            return None;
        }
        let convention = isa.convention();
        // Functions that may pop their arguments leave frames unknown.
        let frame = (!convention.passes_on_stack).then_some(convention.stack_pointer);
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

    pub(super) fn behind(&self, exit: ExitId) -> Option<&Behind> {
        self.exits.get(exit.0 as usize)?.as_ref()
    }

    /// Returns the shared copy of facts.
    pub(super) fn shared(&mut self, known: Facts) -> Arc<Facts> {
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

    pub(super) fn start(&self, run: RunId) -> Option<&Start> {
        self.starts.get(run.get())?.as_ref()
    }

    /// Returns whether nothing is known before a run, so that arriving facts do not matter.
    pub(super) fn is_nothing(&self, run: RunId) -> bool {
        self.start(run).is_some_and(|start| start.known.is_nothing())
    }

    /// Joins facts into those before a run. The run may not be decoded yet, or may be the one being decoded: a run that
    /// ends at a known exit may lead to its own beginning.
    pub(super) fn arrive(&mut self, run: RunId, known: &Arc<Facts>) {
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

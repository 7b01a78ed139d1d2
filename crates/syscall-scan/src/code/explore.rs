//! Exploration: turns the items of a worklist into runs, exits and edges, until the list is empty.

mod exits;

use std::collections::BTreeMap;

use kisa::{Effect, Flow, Insn};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::changes::Changes;
use super::constants::places::Constants;
use super::deferred::comparison::EntryComparison;
use super::deferred::waiting::Deferred;
use super::distances::sums::Distances;
use super::entry::{Entry, Taken};
use super::held::tracker::{Held, Tracker};
use super::instructions::Reader;
use super::live::readable::Live;
use super::marks::Marks;
use super::reachable::{Activity, Code};
use super::references::recorder::Recorder;
use super::run::{Exit, ExitId, ExitKind, Returns, RunId};
use super::taken::candidates::Candidates;
use super::thunks;
use super::work::Work;
use crate::image::{Addr, Image};

/// Bytes of code per exit if all code can run. Room for as many exits is reserved at once; only existing ones occupy
/// memory.
const BYTES_PER_EXIT: u64 = 16;

impl<'a> Code<'a> {
    /// Starts the exploration at the program's entry. Follow with [`Code::explore`].
    pub fn new(image: &'a Image) -> Code<'a> {
        let isa = kisa::isa(image.machine);
        let bytes_of_code: u64 = image.code().iter().map(|range| range.end - range.start).sum();
        let mut code = Code {
            image,
            isa,
            sites: Vec::new(),
            exits: Vec::with_capacity((bytes_of_code / BYTES_PER_EXIT) as usize),
            computed_jumps: Vec::new(),
            entries: FxHashMap::default(),
            marks: Marks::new(image),
            work: Vec::new(),
            taken: Candidates::new(image),
            references: Recorder::new(image),
            predicates: FxHashMap::default(),
            thunks: thunks::find(image, isa),
            tracker: Tracker::new(image),
            claimed: FxHashSet::default(),
            slots_read: FxHashSet::default(),
            distances: Distances::default(),
            changes: Changes::default(),
            landed: FxHashSet::default(),
            inner: Vec::new(),
            made_inner: BTreeMap::new(),
            active: vec![Activity::No; image.objects.len()],
            live: Live::default(),
            deferred: Deferred::new(image),
            constants: Constants::new(image),
        };
        code.find_rules();
        if image.is_code(image.entry) {
            code.take(image.entry, Taken::Start);
        }
        for (index, _) in image.objects.iter().enumerate().filter(|(_, loaded)| loaded.at_start) {
            code.activate(index);
        }
        code
    }

    /// Marks an object as loaded: its initialisers run. Its data counts after the next [`Code::read_data`].
    pub fn activate(&mut self, object: usize) {
        if self.active[object] != Activity::No {
            return;
        }
        self.active[object] = Activity::Loaded;
        for &start in &self.image.objects[object].starts {
            self.take(start, Taken::Start);
        }
    }

    /// Explores everything reachable from the current work, except the targets of computed jumps, which the caller has
    /// to find ([`Code::add_targets`]). Returns whether there was any work.
    pub fn explore(&mut self) -> bool {
        let any = !self.work.is_empty() || self.is_to_revisit();
        let mut reader = self.reader(Addr(0));
        while !self.work.is_empty() || self.is_to_revisit() {
            while let Some(work) = self.work.pop() {
                self.perform(work, &mut reader);
            }
            if !self.revisit() || !self.is_to_revisit() && self.work.is_empty() {
                self.take_relative_addresses();
                self.release();
            }
        }
        any
    }

    /// Adds targets of a computed jump. Returns whether any is new.
    pub fn add_targets(&mut self, jump: ExitId, targets: &[Addr]) -> bool {
        let before = self.work.len();
        let mut known: FxHashSet<Addr> = self.exit(jump).successors.iter().copied().collect();
        for &target in targets {
            if self.image.is_code(target) && known.insert(target) {
                self.go(jump, target);
            }
        }
        self.work.len() > before
    }

    /// Marks a word of data as part of a jump table, so that it does not make its target address-taken.
    pub fn claim(&mut self, word: Addr, target: Addr) {
        if self.claimed.insert(word) {
            if let Some(entry) = self.entries.get_mut(&target) {
                entry.release(Taken::Data(word));
                self.changes.entry(target);
            }
        }
    }

    /// Marks code as callable from anywhere.
    pub fn take(&mut self, target: Addr, by: Taken) {
        self.work.push(Work::Taken(target, by));
    }

    /// Returns the entry for the beginning of a function, which is added if it is new.
    pub(super) fn entry_at(&mut self, at: Addr) -> &mut Entry {
        if self.entry(at).is_none() {
            self.changes.entry(at);
        }
        self.marks.set_entry(at);
        self.entries.entry(at).or_default()
    }

    fn perform(&mut self, work: Work, reader: &mut Reader<'a>) {
        let Some(work) = self.defer(work) else { return };
        match work {
            Work::Taken(target, by) => {
                self.entry_at(target).take(by);
                let run = self.marks.run_from(target);
                self.arrive_from_anywhere(run);
                self.run(run, None, reader);
            }
            Work::Edge(from, target) => {
                let run = self.marks.run_from(target);
                self.arrive_from(from, run);
                let exit = self.run(run, Some(from), reader);
                self.pass_on_held(from, target);
                self.marks.set_incoming(run, from);
                self.changes.exit(from);
                let returns = self.exit(exit).returns;
                self.set_returns(from, returns);
            }
            Work::Site(at, _) if self.sites.contains(&at) => {}
            Work::Site(at, _) => self.sites.push(at),
            Work::Holds(target, held) => self.arrive_holding(target, held),
            Work::Reloads { function, page, loads } => self.reload(function, page, loads),
            Work::Call(from, target) => {
                self.entry_at(target).callers.push(from);
                let run = self.marks.run_from(target);
                self.arrive_by_call(from, run);
                let exit = self.run(run, None, reader);
                if self.exit(exit).returns == Returns::No {
                    self.exits[exit.0 as usize].waiting.push(from);
                } else {
                    self.come_back(from);
                }
            }
        }
    }

    /// Returns the exit of a run, which is decoded if it is new. Control arrives from the exit `from`, or by a call.
    fn run(&mut self, run: RunId, from: Option<ExitId>, reader: &mut Reader<'a>) -> ExitId {
        if let Some(exit) = self.marks.exit_of(run) {
            return exit;
        }
        let exit = self.decode_run(run, from, reader);
        self.marks.set_decoded(run, exit);
        self.exits[exit.0 as usize].runs.push(run);
        self.changes.exit(exit);
        exit
    }

    fn decode_run(&mut self, run: RunId, from: Option<ExitId>, reader: &mut Reader<'a>) -> ExitId {
        let start = self.marks.run(run).start;
        let mut at = start;
        let mut effects = Vec::new();
        let mut holding = Vec::new();
        let mut replaced = false;
        let mut comparison = EntryComparison::default();
        let mut walk = self.walk_from(run);
        let mut sums = self.sums_behind(from);
        let word = self.image.machine.word_size();
        loop {
            if let Some(length) = self.length(at) {
                let next = at.plus(length);
                effects.clear();
                if !holding.is_empty() || walk.is_some() || !sums.is_empty() {
                    self.read_effects(reader, at, &mut effects);
                }
                if !holding.is_empty() {
                    self.follow_held((at, next), &effects, &mut holding, false);
                }
                sums.follow(&effects, word);
                if let Some(exit) = self.exit_at(at) {
                    self.leave_with_sums(exit, &effects, sums);
                    self.leave_holding(exit, &holding);
                    self.leave_knowing(exit, walk, &effects);
                    self.release_if_entered(exit, start);
                    return exit;
                }
                // Another number may arrive later.
                if effects.iter().any(|effect| matches!(effect, Effect::SystemCall { .. })) {
                    let number = walk.as_ref().and_then(|walk| walk.call_number());
                    self.work.push(Work::Site(at, number));
                }
                walk.iter_mut().for_each(|walk| walk.apply(&effects));
                comparison = EntryComparison::default();
                at = next;
                continue;
            }
            if let Some(exit) = self.exit_at(at) {
                return exit;
            }
            effects.clear();
            let Some(inst) = self.explain(reader, at, &mut effects) else {
                return self.add_exit(at, at, ExitKind::Stop, Returns::No);
            };
            let mut insn = inst.insn;
            let next = at.plus(insn.len.into());
            match self.tracker {
                Some(_) => self.follow_held((at, next), &effects, &mut holding, true),
                None => {
                    self.note_addresses((at, next), &effects, self.isa.memory_operand(&inst));
                    comparison.follow(at, &effects, self.deferred.entry);
                }
            }
            self.marks.set_length(at, insn.len);
            self.note_predicates(next, &insn);
            if self.comes_back(&holding, next) {
                insn.flow = insn.flow.as_call();
            }
            // `push %rax; ret`
            if replaced && insn.flow == Flow::Return {
                insn.flow = Flow::IndirectJump;
            }
            replaced = self.replaces_return_address(&effects);
            sums.follow(&effects, word);
            let linkage = self.linked_by_held(at, insn.flow, &effects, &holding);
            if insn.system_call {
                self.work.push(Work::Site(at, walk.as_ref().and_then(|walk| walk.call_number())));
            } else if let Some(target) = linkage {
                let exit = self.add_exit(at, next, ExitKind::Jump, Returns::No);
                self.link(exit, target);
                return exit;
            } else if let Some(exit) = self.leave(at, next, insn, &effects, &comparison, walk.as_ref()) {
                self.leave_with_sums(exit, &effects, sums);
                self.leave_holding(exit, &holding);
                self.leave_knowing(exit, walk, &effects);
                return exit;
            }
            walk.iter_mut().for_each(|walk| walk.apply(&effects));
            at = next;
        }
    }

    /// Returns whether the link register holds the address after a jump, which makes the jump a call:
    /// `mov lr, pc; bx r3`, before there was `blx`.
    fn comes_back(&self, holding: &[Held], next: Addr) -> bool {
        self.isa.convention().link_register.is_some_and(|link| holding.contains(&(link, next.0)))
    }

    /// Records the conditions that an instruction puts on those that follow it from `next` on.
    fn note_predicates(&mut self, mut next: Addr, insn: &Insn) {
        for &condition in insn.predicates.conditions() {
            self.predicates.insert(next, condition);
            let Some(insn) = self.decode(next) else { return };
            next = next.plus(insn.len.into());
        }
    }

    fn add_exit(&mut self, at: Addr, next: Addr, kind: ExitKind, returns: Returns) -> ExitId {
        let id = ExitId(self.exits.len() as u32);
        self.computed_jumps.extend((kind == ExitKind::IndirectJump).then_some(id));
        self.exits.push(Exit {
            at,
            next,
            kind,
            conditional: false,
            successors: SmallVec::new(),
            returns,
            runs: SmallVec::new(),
            waiting: SmallVec::new(),
        });
        self.marks.set_exit(at, id);
        id
    }

    /// Adds the jump of a procedure linkage table to a function.
    fn link(&mut self, exit: ExitId, target: Addr) {
        self.entry_at(target).linked = true;
        self.go(exit, target);
    }

    pub(super) fn go(&mut self, exit: ExitId, target: Addr) {
        self.exits[exit.0 as usize].successors.push(target);
        self.changes.exit(exit);
        self.work.push(Work::Edge(exit, target));
    }

    /// Continues after a call whose callee returns. A call that is the last instruction of its function does not
    /// return: the compiler knew that, even if the callee ends in a computed jump that the exploration cannot follow.
    /// If the callee ends in a return, such a call returns to an immediately following function: compilers leave a gap
    /// there, but assembly code may fall through.
    fn come_back(&mut self, call: ExitId) {
        let Exit { at, next, kind, .. } = *self.exit(call);
        if !self.exit(call).successors.is_empty() {
            return;
        }
        if self.image.extent_around(at).is_some_and(|extent| extent.end == next) {
            let callee = match kind {
                ExitKind::Call(callee) => self.marks.exit_of_run(callee),
                _ => None,
            };
            let follows = self.image.extent_around(next).is_some_and(|extent| extent.start == next);
            let Some(callee) = callee.filter(|_| follows) else { return };
            if self.exit(callee).returns <= Returns::Somehow {
                return self.exits[callee.0 as usize].waiting.push(call);
            }
        }
        self.go(call, next);
    }

    /// Marks an exit, and all exits that lead to it, as able to reach a return.
    pub(super) fn set_returns(&mut self, exit: ExitId, returns: Returns) {
        let mut stack = vec![(exit, returns)];
        while let Some((id, returns)) = stack.pop() {
            let exit = &mut self.exits[id.0 as usize];
            let joined = exit.returns.join(returns);
            if joined == exit.returns {
                continue;
            }
            exit.returns = joined;
            let incoming = exit.runs.iter().flat_map(|&run| &self.marks.run(run).incoming);
            stack.extend(incoming.map(|&predecessor| (predecessor, joined)));
            for call in std::mem::take(&mut exit.waiting) {
                self.come_back(call);
            }
        }
    }
}

//! Code that counts only once other code does.
//!
//! Some pointers, calls and branches have no effect as long as certain other code cannot run. Their targets are
//! deferred until that code becomes reachable, and are then explored as usual. All of this concerns private data of
//! glibc on x86:
//!
//! - *Functions of name services.* The library fills a table with the addresses of a service's functions,
//!   `_nss_files_getpwnam_r` and so on, and selects from it by name (`__nss_lookup_function`, which finds the name's
//!   place in the table). Such a function counts once live code of the library or of a service's module refers to the
//!   string that selects it, or any word of their data points to the string: a program that looks up only users does
//!   not look up hosts. A direct call counts at once, as does a request for the whole name.
//! - *Optional features*: attributes of threads and of started programs, mutexes that change priorities, see
//!   [`super::rules`].
//! - *The interpreter as a program.* The dynamic linker compares the program's entry point, which the kernel passes to
//!   it, with its own. In a process that has a program and an interpreter, they differ, and code for the other case
//!   never counts.
//!
//! A branch is deferred only if the comparison precedes it in one straight-line piece of code. If control later enters
//! the middle of that piece, the branch counts.

pub(super) mod comparison;
pub(super) mod waiting;

use kisa::{Condition, Effect, Flow};

use self::comparison::EntryComparison;
use self::waiting::{Deferred, Until};
use super::entry::Taken;
use super::reachable::Code;
use super::run::{Exit, ExitId};
use super::work::Work;
use crate::image::Addr;

impl Code<'_> {
    /// Defers a piece of work, if it has to wait. Returns it otherwise.
    pub(super) fn defer(&mut self, work: Work) -> Option<Work> {
        let Deferred { rules, services, .. } = &self.deferred;
        let until = match work {
            Work::Call(from, target) | Work::Edge(from, target) => {
                self.rule_for_call(rules, from, target).map(Until::Rule)
            }
            Work::Site(at, Some(number)) => self.rule_for_site(rules, at, number).map(Until::Rule),
            Work::Taken(target, Taken::Start | Taken::Code(_) | Taken::Data(_)) => {
                services.get(&target).map(|name| Until::Named(name))
            }
            _ => None,
        };
        match until {
            Some(until) if !self.counts(until) => {
                self.deferred.work.push((until, work));
                None
            }
            _ => Some(work),
        }
    }

    /// Returns whether a condition is met.
    fn counts(&self, until: Until) -> bool {
        match until {
            Until::Named(name) => self.deferred.named.contains(name),
            Until::Rule(rule) => self.is_met(rule),
        }
    }

    /// Resumes work whose condition is now met.
    pub(super) fn release(&mut self) {
        let image = self.image;
        let strings = self.named_strings()[self.deferred.strings..].to_vec();
        self.deferred.strings += strings.len();
        strings.into_iter().for_each(|string| self.deferred.name(image, string));
        for (until, work) in std::mem::take(&mut self.deferred.work) {
            if self.counts(until) {
                self.work.push(work);
            } else {
                self.deferred.work.push((until, work));
            }
        }
    }

    /// Adds the other successor of a conditional branch.
    pub(super) fn go_also(&mut self, exit: ExitId, other: Addr) {
        self.go(exit, other);
        // The next instruction always comes first.
        let Exit { next, successors, .. } = &mut self.exits[exit.0 as usize];
        if other == *next {
            successors.rotate_right(1);
        }
    }

    /// Handles a run that begins at `start` and ends at a known exit. A branch there whose comparison is before `start`
    /// counts from now on: it may be reached without the comparison.
    pub(super) fn release_if_entered(&mut self, exit: ExitId, start: Addr) {
        let entered = self.deferred.branches.get(&exit).filter(|&&(from, _)| from < start);
        if let Some(&(_, other)) = entered {
            self.deferred.branches.remove(&exit);
            self.go_also(exit, other);
        }
    }

    /// Adds the successors of a conditional branch (the next instruction and the target) that constants allow, except
    /// deferred ones. Each successor comes with that flag.
    pub(super) fn branch(
        &mut self,
        exit: ExitId,
        ways: [(Addr, bool); 2],
        effects: &[Effect],
        comparison: &EntryComparison,
    ) {
        let [(next, _), (target, _)] = ways;
        let equal = effects.iter().find_map(|effect| match effect {
            Effect::BranchIf(Condition::Equal) => Some(target),
            Effect::BranchIf(Condition::NotEqual) => Some(next),
            _ => None,
        });
        let never = comparison.compared.zip(equal).filter(|_| next != target);
        self.deferred.branches.extend(never.map(|never| (exit, never)));
        for (way, is_open) in ways {
            if never.is_some_and(|(_, other)| other == way) {
                continue;
            }
            if is_open || next == target {
                self.go(exit, way);
            } else {
                self.close(exit, way);
            }
        }
    }

    /// Finds the functions that the rules for glibc refer to, if it is present.
    pub(super) fn find_rules(&mut self) {
        if self.deferred.is_gnu {
            self.deferred.rules = self.rules();
        }
    }

    /// Returns the functions that a function calls or jumps to directly.
    pub(super) fn calls_in(&self, function: Addr) -> Vec<Addr> {
        let Some(extent) = self.image.extent_around(function).filter(|extent| extent.start == function)
        else {
            return Vec::new();
        };
        let insns = self.sweep(extent.start, extent.end).into_iter().filter_map(|at| self.decode(at));
        let targets = insns.filter_map(|insn| match insn.flow {
            Flow::Direct { target, .. } => Some(Addr(target)),
            _ => None,
        });
        targets.filter(|target| !(extent.start..extent.end).contains(target)).collect()
    }
}

//! The calls that the rules concern, and whether their conditions hold.

use rustc_hash::{FxHashMap, FxHashSet};

use super::Calls::{Creating, Priorities, Spawning};
use super::Condition::{Called, CalledFromOutside, CalledWith};
use super::{ASKING_FOR_PRIORITIES, CREATING, RULES, Rule, Rules, SPAWN, USING_PRIORITIES};
use crate::abi;
use crate::code::reachable::Code;
use crate::code::run::ExitId;
use crate::image::{Addr, Loaded};

impl Code<'_> {
    /// Finds the functions that the rules refer to.
    pub(in crate::code) fn rules(&self) -> Rules {
        let mut calls = FxHashMap::default();
        for rule in &RULES {
            match rule.calls {
                Spawning(callee) => calls.extend(self.c_library(callee).map(|callee| (callee, rule))),
                Creating(_) => {}
                Priorities => {
                    calls.extend(self.functions_for_priorities().into_iter().map(|callee| (callee, rule)));
                }
            }
        }
        Rules { calls, creating: self.c_library(CREATING).collect() }
    }

    /// Returns the functions of the C library that read or change priorities: those that only it can call, that
    /// [`USING_PRIORITIES`] call, and that call one of [`ASKING_FOR_PRIORITIES`].
    fn functions_for_priorities(&self) -> Vec<Addr> {
        let asking: Vec<Addr> = ASKING_FOR_PRIORITIES.iter().flat_map(|name| self.c_library(name)).collect();
        let libraries = self.image.objects.iter().filter(|loaded| loaded.is_c_library);
        let exported: FxHashSet<Addr> = libraries.flat_map(Loaded::exported_functions).collect();
        let using = USING_PRIORITIES.iter().flat_map(|name| self.c_library(name));
        let own =
            using.flat_map(|function| self.calls_in(function)).filter(|callee| !exported.contains(callee));
        own.filter(|&callee| self.calls_in(callee).iter().any(|called| asking.contains(called))).collect()
    }

    /// Returns the rule for a call.
    pub(in crate::code) fn rule_for_call(
        &self,
        rules: &Rules,
        call: ExitId,
        callee: Addr,
    ) -> Option<&'static Rule> {
        let rule = *rules.calls.get(&callee)?;
        if !matches!(rule.calls, Spawning(_)) {
            return Some(rule);
        }
        let at = self.exit(call).at;
        let caller = self.image.extent_around(at)?.start;
        if !self.image.object_at(at)?.is_c_library {
            return None;
        }
        let called = self.calls_in(caller);
        let is_called = |name: &&'static str| self.c_library(name).any(|own| called.contains(&own));
        SPAWN.iter().all(is_called).then_some(rule)
    }

    /// Returns the rule for a system call that the library makes inline.
    pub(in crate::code) fn rule_for_site(
        &self,
        rules: &Rules,
        at: Addr,
        number: u64,
    ) -> Option<&'static Rule> {
        if rules.creating.is_empty() || !self.image.object_at(at)?.is_c_library {
            return None;
        }
        let name = abi::name(abi::abi(self.image.machine, false), u32::try_from(number).ok()?)?;
        let rule = RULES.iter().find(|rule| matches!(rule.calls, Creating(call) if call == name))?;
        let function = self.image.extent_around(at)?.start;
        let creates = |&own: &Addr| own == function || self.calls_in(own).contains(&function);
        // Other functions also call a function for the call.
        let is_own = self.c_library(name).all(|other| other != function);
        (is_own && rules.creating.iter().any(creates)).then_some(rule)
    }

    /// Returns whether some condition of a rule holds.
    pub(in crate::code) fn is_met(&self, rule: &Rule) -> bool {
        rule.until.iter().any(|condition| match *condition {
            Called(names) => {
                let mut functions = names.iter().flat_map(|name| self.exported(name));
                functions.any(|function| self.entry(function).is_some())
            }
            CalledFromOutside(names) => {
                let mut functions = names.iter().flat_map(|name| self.c_library(name));
                functions.any(|function| self.is_called_from_outside(function))
            }
            CalledWith(name, index, flag, is_set) => self.exported(name).any(|function| {
                self.may_be_called_with(function, index, |flags| (flags & flag != 0) == is_set)
            }),
        })
    }

    fn is_called_from_outside(&self, function: Addr) -> bool {
        let Some(entry) = self.entry(function) else { return false };
        let is_outside = |exit: &ExitId| {
            self.image.object_at(self.exit(*exit).at).is_none_or(|loaded| !loaded.is_c_library)
        };
        !entry.taken.is_empty() || entry.callers.iter().chain(self.incoming(function)).any(is_outside)
    }

    /// Returns the functions of this name that objects export.
    fn exported(&self, name: &'static str) -> impl Iterator<Item = Addr> {
        self.image.objects.iter().flat_map(move |loaded| loaded.functions_named(name))
    }

    /// Returns the functions of this name that the C library exports.
    fn c_library(&self, name: &'static str) -> impl Iterator<Item = Addr> {
        let libraries = self.image.objects.iter().filter(|loaded| loaded.is_c_library);
        libraries.flat_map(move |loaded| loaded.functions_named(name))
    }
}

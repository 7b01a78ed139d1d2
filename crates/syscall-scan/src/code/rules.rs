//! Calls that the C library of GNU makes only if somebody has asked for them, as a table of rules: which calls, and what
//! they wait for.
//!
//! - *New processes and threads.* What `posix_spawn` does in the new process, and what `pthread_create` does about
//!   scheduling, is said by attributes and actions. Their structures are the library's own business: programs set them by
//!   its functions. So a call that is for one attribute counts once a function can be called that sets it; where that
//!   takes flags, once it can be called with the flag. The library's own `system` and `popen` set few.
//! - *Mutexes that change the priority of their owner* (`PTHREAD_PRIO_PROTECT`). Of what kind a mutex is, only the library
//!   writes into it, and only for attributes with such a protocol. The functions that ask for priorities and change them
//!   when it is made or locked count once a function can be called that gives an attribute a protocol or has to do with
//!   ceilings; or one through which a process gets at mutexes that another one has made. Not thought of is a mutex for
//!   that in a file which the process maps, made by another program.

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Code, ExitId};
use crate::abi;
use crate::image::{Addr, Loaded};

/// Calls that count only once one of some conditions holds.
#[derive(Debug)]
pub(super) struct Rule {
    calls: Calls,
    until: &'static [Condition],
}

/// The calls that a rule is about.
#[derive(Debug)]
enum Calls {
    /// Those of a function of the library, by the function that [`SPAWN`] tells apart.
    Spawning(&'static str),
    /// A system call that the library makes itself, without a function for it, in what [`CREATING`] calls.
    Creating(&'static str),
    /// Those of functions that ask for priorities or change them, see [`Code::functions_for_priorities`].
    Priorities,
}

/// What a rule waits for.
#[derive(Debug)]
enum Condition {
    /// A function of one of these names can be called.
    Called(&'static [&'static str]),
    /// A function of one of these names in the library can be called from outside of it. What the library sets for
    /// itself, it copies from what others have set.
    CalledFromOutside(&'static [&'static str]),
    /// A function can be called with an argument, by its index, that has this flag, or has it not.
    CalledWith(&'static str, usize, u64, bool),
}

use Calls::{Creating, Priorities, Spawning};
use Condition::{Called, CalledFromOutside, CalledWith};

/// What the function calls that `posix_spawn` starts in the new process, and no other one does.
const SPAWN: [&str; 4] = ["setsid", "setpgid", "sched_setparam", "sched_setscheduler"];

/// What creates threads.
const CREATING: &str = "pthread_create";

/// What makes a thread not inherit its scheduling.
const SCHEDULING: &[Condition] =
    &[CalledFromOutside(&["pthread_attr_setinheritsched", "pthread_setattr_default_np"])];

/// What says which processors a thread runs on.
const AFFINITY: &[Condition] = &[CalledFromOutside(&[
    "pthread_attr_setaffinity_np",
    "pthread_getattr_np",
    "pthread_setattr_default_np",
])];

/// A function that has to do with ceilings, and calls the one which changes priorities.
const PRIORITY_CEILING: &str = "pthread_mutex_setprioceiling";

/// That function, one that calls both the function which changes priorities and the one which asks for them, and one
/// that asks for the priorities of a mutex of that kind.
const USING_PRIORITIES: [&str; 3] = [PRIORITY_CEILING, "pthread_mutex_trylock", "pthread_mutex_init"];

/// What the functions call that they call for that, and nothing else that deals with mutexes does.
const ASKING_FOR_PRIORITIES: [&str; 2] = ["sched_getparam", "sched_get_priority_max"];

const SHM_RDONLY: u64 = 0x1000;

const fn spawning(callee: &'static str, until: &'static [Condition]) -> Rule {
    Rule { calls: Spawning(callee), until }
}

const fn creating(callee: &'static str, until: &'static [Condition]) -> Rule {
    Rule { calls: Creating(callee), until }
}

static RULES: [Rule; 13] = [
    // With it goes the rest of `POSIX_SPAWN_RESETIDS`, which follows the first call.
    spawning("getuid", &[CalledWith("posix_spawnattr_setflags", 1, 0x1, true)]),
    spawning("setpgid", &[CalledWith("posix_spawnattr_setflags", 1, 0x2, true)]),
    spawning("sched_setparam", &[CalledWith("posix_spawnattr_setflags", 1, 0x10, true)]),
    spawning("sched_setscheduler", &[CalledWith("posix_spawnattr_setflags", 1, 0x20, true)]),
    spawning("setsid", &[CalledWith("posix_spawnattr_setflags", 1, 0x80, true)]),
    spawning("chdir", &[CalledFromOutside(&["posix_spawn_file_actions_addchdir_np"])]),
    spawning("fchdir", &[CalledFromOutside(&["posix_spawn_file_actions_addfchdir_np"])]),
    spawning("getpgid", &[CalledFromOutside(&["posix_spawn_file_actions_addtcsetpgrp_np"])]),
    creating("sched_getparam", SCHEDULING),
    creating("sched_getscheduler", SCHEDULING),
    creating("sched_setscheduler", SCHEDULING),
    creating("sched_setaffinity", AFFINITY),
    Rule {
        calls: Priorities,
        until: &[
            Called(&["pthread_mutexattr_setprotocol", "pthread_mutexattr_setprioceiling", PRIORITY_CEILING]),
            // What shares mutexes, or memory that they may be in and that is not only read.
            Called(&["pthread_mutexattr_setpshared", "shm_open"]),
            CalledWith("shmat", 2, SHM_RDONLY, false),
        ],
    },
];

/// What the rules are about in a program.
#[derive(Default)]
pub(super) struct Rules {
    /// The functions whose calls wait.
    calls: FxHashMap<Addr, &'static Rule>,
    /// [`CREATING`].
    creating: Vec<Addr>,
}

impl Code<'_> {
    /// Finds what the rules are about.
    pub(super) fn rules(&self) -> Rules {
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

    /// The functions of the C library that ask for priorities and change them: those that only it can call, that
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

    /// The rule for a call.
    pub(super) fn rule_for_call(&self, rules: &Rules, call: ExitId, callee: Addr) -> Option<&'static Rule> {
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

    /// The rule for a system call that the library makes by itself.
    pub(super) fn rule_for_site(&self, rules: &Rules, at: Addr, number: u64) -> Option<&'static Rule> {
        if rules.creating.is_empty() || !self.image.object_at(at)?.is_c_library {
            return None;
        }
        let name = abi::name(abi::abi(self.image.machine, false), u32::try_from(number).ok()?)?;
        let rule = RULES.iter().find(|rule| matches!(rule.calls, Creating(call) if call == name))?;
        let function = self.image.extent_around(at)?.start;
        let creates = |&own: &Addr| own == function || self.calls_in(own).contains(&function);
        // A function for the call is called by others, too.
        let is_own = self.c_library(name).all(|other| other != function);
        (is_own && rules.creating.iter().any(creates)).then_some(rule)
    }

    /// Whether calls do not have to wait any more.
    pub(super) fn is_met(&self, rule: &Rule) -> bool {
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

    /// The functions of this name that objects export.
    fn exported(&self, name: &'static str) -> impl Iterator<Item = Addr> {
        self.image.objects.iter().flat_map(move |loaded| loaded.functions_named(name))
    }

    /// The functions of this name that the C library exports.
    fn c_library(&self, name: &'static str) -> impl Iterator<Item = Addr> {
        let libraries = self.image.objects.iter().filter(|loaded| loaded.is_c_library);
        libraries.flat_map(move |loaded| loaded.functions_named(name))
    }
}

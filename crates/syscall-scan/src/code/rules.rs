//! Calls that glibc makes only on request, as a table of rules: the calls, and their conditions.
//!
//! - *New processes and threads.* Attributes and actions control the work of `posix_spawn` in the new process and the
//!   scheduling by `pthread_create`. Their structures are private to the library: programs set them through its
//!   functions. A call for one attribute therefore counts once a function can be called that sets the attribute; if
//!   that function takes flags, once it can be called with the flag. The library's own `system` and `popen` set few.
//! - *Mutexes that change the priority of their owner* (`PTHREAD_PRIO_PROTECT`). Only the library writes the kind of a
//!   mutex into it, and only for attributes with such a protocol. The functions that read and change priorities when
//!   such a mutex is created or locked count once a function can be called that sets an attribute's protocol or uses
//!   ceilings, or one that gives a process access to mutexes of another process. The rule does not cover such a mutex
//!   in a mapped file that another program created.

mod conditions;

use rustc_hash::FxHashMap;

use crate::image::Addr;

/// Calls that count only once some condition holds.
#[derive(Debug)]
pub(super) struct Rule {
    calls: Calls,
    until: &'static [Condition],
}

/// The calls of a rule.
#[derive(Debug)]
enum Calls {
    /// Calls of this library function by the function that [`SPAWN`] identifies.
    Spawning(&'static str),
    /// A system call that the library makes inline, in functions that [`CREATING`] calls.
    Creating(&'static str),
    /// Calls of functions that read or change priorities, see `Code::functions_for_priorities`.
    Priorities,
}

/// A condition of a rule.
#[derive(Debug)]
enum Condition {
    /// A function of one of these names can be called.
    Called(&'static [&'static str]),
    /// A library function of one of these names can be called from outside of the library. The library itself only
    /// copies settings of others.
    CalledFromOutside(&'static [&'static str]),
    /// A function can be called with an argument, given by its index, that has this flag set or clear.
    CalledWith(&'static str, usize, u64, bool),
}

use Calls::{Creating, Priorities, Spawning};
use Condition::{Called, CalledFromOutside, CalledWith};

/// The callees that identify the function which `posix_spawn` starts in the new process.
const SPAWN: [&str; 4] = ["setsid", "setpgid", "sched_setparam", "sched_setscheduler"];

/// The function that creates threads.
const CREATING: &str = "pthread_create";

/// The functions that stop a thread from inheriting its scheduling.
const SCHEDULING: &[Condition] =
    &[CalledFromOutside(&["pthread_attr_setinheritsched", "pthread_setattr_default_np"])];

/// The functions that select the processors of a thread.
const AFFINITY: &[Condition] = &[CalledFromOutside(&[
    "pthread_attr_setaffinity_np",
    "pthread_getattr_np",
    "pthread_setattr_default_np",
])];

/// A function that uses ceilings, and calls the function which changes priorities.
const PRIORITY_CEILING: &str = "pthread_mutex_setprioceiling";

/// Callers of the priority functions: the first changes priorities, the second reads and changes them, and the third
/// reads the priorities for such a mutex.
const USING_PRIORITIES: [&str; 3] = [PRIORITY_CEILING, "pthread_mutex_trylock", "pthread_mutex_init"];

/// The callees that identify the priority functions: no other code that handles mutexes calls them.
const ASKING_FOR_PRIORITIES: [&str; 2] = ["sched_getparam", "sched_get_priority_max"];

const SHM_RDONLY: u64 = 0x1000;

const fn spawning(callee: &'static str, until: &'static [Condition]) -> Rule {
    Rule { calls: Spawning(callee), until }
}

const fn creating(callee: &'static str, until: &'static [Condition]) -> Rule {
    Rule { calls: Creating(callee), until }
}

static RULES: [Rule; 13] = [
    // The rest of `POSIX_SPAWN_RESETIDS` follows the first call.
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
            // Functions that share mutexes, or memory for them that is not read-only.
            Called(&["pthread_mutexattr_setpshared", "shm_open"]),
            CalledWith("shmat", 2, SHM_RDONLY, false),
        ],
    },
];

/// The functions of a program that the rules refer to.
#[derive(Default)]
pub(super) struct Rules {
    /// The functions whose calls are deferred.
    calls: FxHashMap<Addr, &'static Rule>,
    /// [`CREATING`].
    creating: Vec<Addr>,
}

//! Mutexes that change the priority of their owner (`PTHREAD_PRIO_PROTECT`) in the C library of GNU.
//!
//! Of what kind a mutex is, only the library writes into it, and only for attributes with such a protocol. The
//! functions that ask for priorities and change them when it is made or locked count once [`MAKING_PROTOCOLS`] can be
//! called, the functions that give an attribute a protocol or that have to do with ceilings; or [`SHARING`] or
//! [`ATTACHING`] can, through which a process gets at mutexes that another one has made. Not thought of is a mutex
//! for that in a file which the process maps, made by another program.

use rustc_hash::FxHashSet;

use super::Code;
use super::deferred::{all_exports, exports};
use crate::image::{Addr, Image};

/// What makes mutexes that change priorities.
const MAKING_PROTOCOLS: [&str; 3] =
    ["pthread_mutexattr_setprotocol", "pthread_mutexattr_setprioceiling", PRIORITY_CEILING];

/// What shares mutexes, or memory that they may be in.
const SHARING: [&str; 2] = ["pthread_mutexattr_setpshared", "shm_open"];

/// What shares memory that they may be in, unless its third argument says that it is only read.
const ATTACHING: &str = "shmat";
const SHM_RDONLY: u64 = 0x1000;

/// A function that has to do with ceilings, and calls the one which changes priorities.
const PRIORITY_CEILING: &str = "pthread_mutex_setprioceiling";

/// A function that calls both the one which changes priorities and the one which asks for them.
const LOCKING: &str = "pthread_mutex_trylock";

/// A function that asks what priorities there are for a mutex of that kind.
const MAKING_MUTEXES: &str = "pthread_mutex_init";

/// What the functions call that they call for that, and nothing else that deals with mutexes does.
const ASKING_FOR_PRIORITIES: [&str; 2] = ["sched_getparam", "sched_get_priority_max"];

/// What has to do with such mutexes.
#[derive(Default)]
pub(super) struct Priorities {
    /// The functions for the priority of a thread that locks a mutex.
    pub(super) functions: FxHashSet<Addr>,
    /// The functions that make mutexes for it, or share them.
    protocols: Vec<Addr>,
    /// [`ATTACHING`].
    attaching: Vec<Addr>,
}

impl Priorities {
    pub(super) fn of(image: &Image) -> Priorities {
        let of = |name| image.objects.iter().flat_map(move |loaded| exports(loaded, name));
        Priorities {
            functions: FxHashSet::default(),
            protocols: MAKING_PROTOCOLS.into_iter().chain(SHARING).flat_map(of).collect(),
            attaching: of(ATTACHING).collect(),
        }
    }

    /// Whether a function counts only once there may be such mutexes.
    pub(super) fn is_deferred(&self, function: Addr) -> bool {
        self.functions.contains(&function)
    }
}

impl Code<'_> {
    /// Finds the functions of the C library that ask for priorities and change them: those that only it can call,
    /// that [`PRIORITY_CEILING`], [`LOCKING`] and [`MAKING_MUTEXES`] call, and that call one of
    /// [`ASKING_FOR_PRIORITIES`].
    pub(super) fn functions_for_priorities(&self) -> FxHashSet<Addr> {
        let libraries = || self.image.objects.iter().filter(|loaded| loaded.is_c_library);
        let of = |name| libraries().flat_map(move |loaded| exports(loaded, name));
        let asking: Vec<Addr> = ASKING_FOR_PRIORITIES.into_iter().flat_map(of).collect();
        let exported: FxHashSet<Addr> = libraries().flat_map(all_exports).collect();
        let locking = of(PRIORITY_CEILING).chain(of(LOCKING)).chain(of(MAKING_MUTEXES));
        let callees = locking.flat_map(|function| self.calls_in(function));
        let own = callees.filter(|callee| !exported.contains(callee));
        let asks = |callee: &Addr| self.calls_in(*callee).iter().any(|called| asking.contains(called));
        own.filter(asks).collect()
    }

    /// Whether there may be mutexes that change priorities.
    pub(super) fn may_change_priorities(&self) -> bool {
        let is_live = |&function: &Addr| self.entry(function).is_some();
        let writes =
            |&attaching: &Addr| self.may_be_called_with(attaching, 2, |flags| flags & SHM_RDONLY == 0);
        let Priorities { protocols, attaching, .. } = self.priorities();
        protocols.iter().any(is_live) || attaching.iter().any(writes)
    }
}

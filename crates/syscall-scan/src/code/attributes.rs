//! Calls that the C library of GNU makes only if an attribute says so which somebody has to set.
//!
//! What `posix_spawn` does in the new process, and what `pthread_create` does about scheduling, is said by
//! attributes and actions. Their structures are the library's own business: programs set them by its functions.
//! So a call that is for one attribute counts once a function can be called that sets it; where that
//! takes flags, once it can be called with the flag. The library's own `system` and `popen` set few.

use rustc_hash::FxHashMap;

use super::deferred::exports;
use super::{Code, ExitId};
use crate::abi;
use crate::image::{Addr, Image};

/// A call that is made if an attribute says so.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(super) struct Attribute {
    /// What is called.
    callee: &'static str,
    /// What the function that calls it calls besides, which no other one does; nothing for what creates
    /// threads.
    besides: &'static [&'static str],
    /// The functions that set the attribute.
    setters: &'static [&'static str],
    /// The flag that it is in their second argument.
    flag: Option<u64>,
}

/// What the function calls that `posix_spawn` starts in the new process.
const SPAWN: &[&str] = &["setsid", "setpgid", "sched_setparam", "sched_setscheduler"];

const fn spawn_flag(callee: &'static str, flag: u64) -> Attribute {
    Attribute { callee, besides: SPAWN, setters: &["posix_spawnattr_setflags"], flag: Some(flag) }
}

const fn spawn_action(callee: &'static str, setters: &'static [&'static str]) -> Attribute {
    Attribute { callee, besides: SPAWN, setters, flag: None }
}

/// What makes a thread not inherit its scheduling.
const SCHEDULING: &[&str] = &["pthread_attr_setinheritsched", "pthread_setattr_default_np"];

/// What says which processors a thread runs on.
const AFFINITY: &[&str] =
    &["pthread_attr_setaffinity_np", "pthread_getattr_np", "pthread_setattr_default_np"];

/// What creates threads, and makes calls of its own.
const CREATING: &str = "pthread_create";

const fn of_thread(callee: &'static str, setters: &'static [&'static str]) -> Attribute {
    Attribute { callee, besides: &[], setters, flag: None }
}

static ATTRIBUTES: [Attribute; 12] = [
    // With it goes the rest of `POSIX_SPAWN_RESETIDS`, which follows the first call.
    spawn_flag("getuid", 0x1),
    spawn_flag("setpgid", 0x2),
    spawn_flag("sched_setparam", 0x10),
    spawn_flag("sched_setscheduler", 0x20),
    spawn_flag("setsid", 0x80),
    spawn_action("chdir", &["posix_spawn_file_actions_addchdir_np"]),
    spawn_action("fchdir", &["posix_spawn_file_actions_addfchdir_np"]),
    spawn_action("getpgid", &["posix_spawn_file_actions_addtcsetpgrp_np"]),
    of_thread("sched_getparam", SCHEDULING),
    of_thread("sched_getscheduler", SCHEDULING),
    of_thread("sched_setscheduler", SCHEDULING),
    of_thread("sched_setaffinity", AFFINITY),
];

/// The functions of the C library that have to do with attributes.
#[derive(Default)]
pub(super) struct Attributes {
    /// The calls of functions that are for an attribute of a new process.
    calls: FxHashMap<Addr, &'static Attribute>,
    creating: Vec<Addr>,
}

impl Attributes {
    pub(super) fn of(image: &Image) -> Attributes {
        let libraries = || image.objects.iter().filter(|loaded| loaded.is_c_library);
        let of = |name| libraries().flat_map(move |loaded| exports(loaded, name));
        let spawning = ATTRIBUTES.iter().filter(|attribute| !attribute.besides.is_empty());
        let calls =
            spawning.flat_map(|attribute| of(attribute.callee).map(move |callee| (callee, attribute)));
        Attributes { calls: calls.collect(), creating: of(CREATING).collect() }
    }
}

impl Code<'_> {
    /// The attribute that a call is for.
    pub(super) fn attribute_of_call(&self, call: ExitId, callee: Addr) -> Option<&'static Attribute> {
        let attribute = *self.attributes().calls.get(&callee)?;
        let at = self.exit(call).at;
        let caller = self.image.extent_around(at)?.start;
        if !self.image.object_at(at)?.is_c_library {
            return None;
        }
        let called = self.calls_in(caller);
        let is_called = |name: &'static str| self.exported(name).any(|own| called.contains(&own));
        attribute.besides.iter().copied().all(is_called).then_some(attribute)
    }

    /// The attribute that the library makes a system call for by itself, without a function for it.
    pub(super) fn attribute_of_site(&self, at: Addr, number: u64) -> Option<&'static Attribute> {
        let creating = &self.attributes().creating;
        if creating.is_empty() || !self.image.object_at(at)?.is_c_library {
            return None;
        }
        let name = abi::name(abi::abi(self.image.machine, false), u32::try_from(number).ok()?)?;
        let mut of_threads = ATTRIBUTES.iter().filter(|attribute| attribute.besides.is_empty());
        let attribute = of_threads.find(|attribute| attribute.callee == name)?;
        let function = self.image.extent_around(at)?.start;
        let creates = |&own: &Addr| own == function || self.calls_in(own).contains(&function);
        // A function for the call is called by others, too.
        let is_own = self.exported(name).all(|other| other != function);
        (is_own && creating.iter().any(creates)).then_some(attribute)
    }

    /// Whether an attribute may be set.
    pub(super) fn is_set(&self, attribute: &Attribute) -> bool {
        let mut setters = attribute.setters.iter().flat_map(|name| self.exported(name));
        match attribute.flag {
            None => setters.any(|setter| self.is_called_from_outside(setter)),
            Some(flag) => setters.any(|setter| self.may_be_called_with(setter, 1, |flags| flags & flag != 0)),
        }
    }

    /// Whether others call a function of the C library. What the library sets for itself, it copies from what
    /// others have set.
    fn is_called_from_outside(&self, function: Addr) -> bool {
        let Some(entry) = self.entry(function) else { return false };
        let is_outside = |exit: &ExitId| {
            self.image.object_at(self.exit(*exit).at).is_none_or(|loaded| !loaded.is_c_library)
        };
        !entry.taken.is_empty() || entry.callers.iter().chain(self.incoming(function)).any(is_outside)
    }

    /// The functions of this name that the C library exports.
    fn exported(&self, name: &'static str) -> impl Iterator<Item = Addr> {
        let libraries = self.image.objects.iter().filter(|loaded| loaded.is_c_library);
        libraries.flat_map(move |loaded| exports(loaded, name))
    }
}

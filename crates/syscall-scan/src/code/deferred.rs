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

use std::sync::LazyLock;

use kelf::Machine;
use kisa::{Address, Condition, Effect, Flow, Reg, Value};
use rustc_hash::{FxHashMap, FxHashSet};

use super::explore::Work;
use super::rules::{Rule, Rules};
use super::{Code, Exit, ExitId, Taken};
use crate::image::{Addr, Image, Loaded};

/// The functions of services (glibc's `nss/function.def`).
static SERVICE_FUNCTIONS: LazyLock<FxHashSet<&str>> = LazyLock::new(|| {
    "endaliasent endetherent endgrent endhostent endnetent endnetgrent endprotoent endpwent endrpcent \
     endservent endsgent endspent getaliasbyname_r getaliasent_r getcanonname_r getetherent_r \
     getgrent_r getgrgid_r getgrnam_r gethostbyaddr2_r gethostbyaddr_r gethostbyname2_r \
     gethostbyname3_r gethostbyname4_r gethostbyname_r gethostent_r gethostton_r getnetbyaddr_r \
     getnetbyname_r getnetent_r getnetgrent_r getntohost_r getprotobyname_r getprotobynumber_r \
     getprotoent_r getpublickey getpwent_r getpwnam_r getpwuid_r getrpcbyname_r getrpcbynumber_r \
     getrpcent_r getsecretkey getservbyname_r getservbyport_r getservent_r getsgent_r getsgnam_r \
     getspent_r getspnam_r initgroups_dyn netname2user setaliasent setetherent setgrent sethostent \
     setnetent setnetgrent setprotoent setpwent setrpcent setservent setsgent setspent"
        .split(' ')
        .collect()
});

/// A function that only glibc has.
const GNU: &str = "gnu_get_libc_version";

/// The condition of a deferral.
#[derive(Clone, Copy, Debug)]
enum Until {
    /// A request for the name.
    Named(&'static str),
    /// A condition of the rule may hold.
    Rule(&'static Rule),
}

/// The deferred work.
#[derive(Default)]
pub(super) struct Deferred {
    /// The functions of services, with the names that select them.
    services: FxHashMap<Addr, &'static str>,
    /// The names that have been requested.
    named: FxHashSet<&'static str>,
    /// The number of strings of the C library that have been processed.
    strings: usize,
    /// Whether the C library is glibc, on x86.
    is_gnu: bool,
    /// The optional features of the C library.
    rules: Rules,
    /// The interpreter's entry.
    pub(super) entry: Option<Addr>,
    /// The deferred work with its conditions.
    work: Vec<(Until, Work)>,
    /// The branches that are taken only if the interpreter is run as a program: the first instruction of the
    /// comparison, and the successor for that case.
    branches: FxHashMap<ExitId, (Addr, Addr)>,
}

/// The comparisons in a straight-line piece of code.
#[derive(Default)]
pub(super) struct EntryComparison {
    /// The register with the interpreter's entry, and the instruction that loads it.
    entry: Option<(Reg, Addr)>,
    /// The instruction that loads the entry, if the flags compare a value with the entry.
    compared: Option<Addr>,
}

impl Deferred {
    pub(super) fn new(image: &Image) -> Deferred {
        let mut deferred =
            Deferred { entry: image.interpreter().map(|_| image.entry), ..Deferred::default() };
        let is_gnu = |loaded: &Loaded| loaded.functions_named(GNU).next().is_some();
        let is_x86 = matches!(image.machine, Machine::I386 | Machine::X86_64);
        if !is_x86 || !image.objects.iter().any(is_gnu) {
            return deferred;
        }
        deferred.is_gnu = true;
        for loaded in image.objects.iter().filter(|loaded| is_service(loaded)) {
            for symbol in loaded.object.exported_functions() {
                if let Some(name) = service_function(&symbol.name) {
                    deferred.services.insert(loaded.address(symbol.value), name);
                }
            }
            for &(_, string) in &loaded.data_pointers {
                deferred.name(image, string);
            }
        }
        deferred
    }

    /// Records that code refers to a string.
    fn name(&mut self, image: &Image, string: Addr) {
        let name = image.string(string).and_then(|name| std::str::from_utf8(name).ok());
        self.named.extend(name.and_then(|name| SERVICE_FUNCTIONS.get(name)));
    }
}

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

impl EntryComparison {
    /// Applies an instruction of the straight-line piece. `entry` is the interpreter's.
    pub(super) fn follow(&mut self, at: Addr, effects: &[Effect], entry: Option<Addr>) {
        for effect in effects {
            match *effect {
                Effect::Set {
                    dst,
                    value: Value::Address(Address { base: None, index: None, displacement, .. }),
                    ..
                } if entry == Some(Addr(displacement as u64)) => self.entry = Some((dst, at)),
                Effect::Set { dst, .. } => self.entry = self.entry.filter(|&(register, _)| register != dst),
                Effect::Store { .. } | Effect::BranchIf(_) => {}
                Effect::Compare { left, right, width } => {
                    let is_entry =
                        |reg| (left == Value::Reg { reg, width }) != (right == Value::Reg { reg, width });
                    let compared = self.entry.filter(|&(register, _)| width == 8 && is_entry(register));
                    self.compared = compared.map(|(_, from)| from);
                }
                _ => *self = EntryComparison::default(),
            }
        }
    }
}

/// Returns whether an object is the C library or has the functions of a service.
pub(super) fn is_service(loaded: &Loaded) -> bool {
    let name = loaded.file.rsplit('/').next().unwrap_or("");
    loaded.is_c_library || name.starts_with("libnss_")
}

/// Returns the name that selects a function of a service.
fn service_function(name: &[u8]) -> Option<&'static str> {
    let name = std::str::from_utf8(name).ok()?.strip_prefix("_nss_")?;
    let (_, function) = name.split_once('_')?;
    SERVICE_FUNCTIONS.get(function).copied()
}

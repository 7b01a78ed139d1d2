//! Code that counts only once something else does.
//!
//! Some pointers, calls and branches lead nowhere as long as certain other code cannot run. What they lead to is
//! deferred until that code turns out to be able to; then it is explored as if it had never been deferred. All
//! of this is about what the C library of GNU does with data that only it knows, on x86:
//!
//! - *Functions of name services.* The library fills a table with the addresses of the functions that a service
//!   has, `_nss_files_getpwnam_r` and so on, and picks from it by name (`__nss_lookup_function`, which finds the
//!   name's place in the table). Such a function counts once live code of the library or of a service's module
//!   names the string that it is picked by, or any word of their data points to the string: who only asks for
//!   users does not look for hosts. A direct call counts at once, as does asking for the whole name.
//! - *Several threads.* The thread's own descriptor says whether there is more than one (`header.multiple_threads`);
//!   it is 0 at first, and only what creates a thread writes to it. Where it is compared with 0, the way for
//!   other values counts once any live instruction writes to that place of the descriptor.
//! - *What somebody has to ask for*: attributes of threads and of programs that are started, mutexes that change
//!   priorities, see [`super::rules`].
//! - *The interpreter as a program.* The dynamic linker compares where the program starts, which the kernel tells
//!   it, with its own entry. In a process that has a program and an interpreter, these are not the same, and what
//!   is only for the other case never counts.
//!
//! A branch is only deferred where the comparison stands in front of it in one straight piece of code; once it
//! turns out that control may come into the middle of that piece, it counts.

use std::ops::Range;
use std::sync::LazyLock;

use kelf::Machine;
use kisa::{Address, Condition, Effect, Flow, MemoryOperand, Reg, Value};
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

/// What only the C library of GNU has.
const GNU: &str = "gnu_get_libc_version";

/// What is waited for.
#[derive(Clone, Copy, Debug)]
enum Until {
    /// Nothing: it never counts.
    Never,
    /// The name is asked for.
    Named(&'static str),
    /// There may be several threads.
    Threads,
    /// A condition of the rule may hold.
    Rule(&'static Rule),
}

/// What is deferred.
#[derive(Default)]
pub(super) struct Deferred {
    /// The functions of services, with the names that they are picked by.
    services: FxHashMap<Addr, &'static str>,
    /// The names that have been asked for.
    named: FxHashSet<&'static str>,
    /// How many strings of the C library have been looked at.
    strings: usize,
    /// Where the descriptor says how many threads there are, from the segment's beginning on.
    threads: Option<Range<u64>>,
    /// Whether something writes there.
    has_threads: bool,
    /// What the C library calls only if somebody asks for it.
    rules: Rules,
    /// The interpreter's entry.
    entry: Option<Addr>,
    /// What waits.
    work: Vec<(Until, Work)>,
    /// The branches that go one way so far.
    branches: FxHashMap<ExitId, DeferredBranch>,
}

/// A conditional branch that goes one way.
struct DeferredBranch {
    /// The first instruction of the comparison that says so.
    from: Addr,
    until: Until,
    /// Where it would go else.
    other: Addr,
}

/// What a straight piece of code has compared.
#[derive(Default)]
pub(super) struct Comparison {
    /// The register with the interpreter's entry, and the instruction that made it.
    entry: Option<(Reg, Addr)>,
    /// What the flags wait for, which tell that two things differ, or are equal, until it counts; and the first
    /// instruction of the comparison.
    compared: Option<(Until, Addr)>,
}

impl Deferred {
    pub(super) fn new(image: &Image) -> Deferred {
        let mut deferred =
            Deferred { entry: image.interpreter().map(|_| image.entry), ..Deferred::default() };
        let is_gnu = |loaded: &Loaded| loaded.functions_named(GNU).next().is_some();
        if !image.objects.iter().any(is_gnu) {
            return deferred;
        }
        deferred.threads = match image.machine {
            Machine::X86_64 => Some(0x18..0x1c),
            Machine::I386 => Some(0xc..0x10),
            Machine::Arm | Machine::Aarch64 => return deferred,
        };
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

    /// Notes that a string is named.
    fn name(&mut self, image: &Image, string: Addr) {
        let name = image.string(string).and_then(|name| std::str::from_utf8(name).ok());
        self.named.extend(name.and_then(|name| SERVICE_FUNCTIONS.get(name)));
    }
}

impl Code<'_> {
    /// Puts a piece of work aside, if it waits for something. Returns it if not.
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

    /// Whether what waits for this does not have to any more.
    fn counts(&self, until: Until) -> bool {
        match until {
            Until::Never => false,
            Until::Named(name) => self.deferred.named.contains(name),
            Until::Threads => self.deferred.has_threads,
            Until::Rule(rule) => self.is_met(rule),
        }
    }

    /// Goes on with what does not have to wait any more.
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
        let branches: Vec<ExitId> = self.deferred.branches.keys().copied().collect();
        for exit in branches {
            if self.counts(self.deferred.branches[&exit].until) {
                self.release_branch(exit);
            }
        }
    }

    fn release_branch(&mut self, exit: ExitId) {
        if let Some(branch) = self.deferred.branches.remove(&exit) {
            self.go_also(exit, branch.other);
        }
    }

    /// A conditional branch goes the other way, too.
    pub(super) fn go_also(&mut self, exit: ExitId, other: Addr) {
        self.go(exit, other);
        // The next instruction comes first, as everywhere.
        let Exit { next, successors, .. } = &mut self.exits[exit.0 as usize];
        if other == *next {
            successors.rotate_right(1);
        }
    }

    /// A run that begins at `start` ends at an exit that another one has ended at before. A branch there whose comparison
    /// lies in front of `start` counts from now on: it may be reached without the comparison.
    pub(super) fn release_if_entered(&mut self, exit: ExitId, start: Addr) {
        if self.deferred.branches.get(&exit).is_some_and(|branch| branch.from < start) {
            self.release_branch(exit);
        }
    }

    /// Where a conditional branch goes, of the instruction that follows it and its target, each with whether
    /// constants let it go there: both, but for what is deferred.
    pub(super) fn branch(
        &mut self,
        exit: ExitId,
        ways: [(Addr, bool); 2],
        effects: &[Effect],
        compared: &Comparison,
    ) {
        let [(next, _), (target, _)] = ways;
        let equal = effects.iter().find_map(|effect| match effect {
            Effect::BranchIf(Condition::Equal) => Some(target),
            Effect::BranchIf(Condition::NotEqual) => Some(next),
            _ => None,
        });
        let other = match (compared.compared, equal) {
            (Some((until @ Until::Threads, from)), Some(equal)) => {
                Some((until, from, if equal == target { next } else { target }))
            }
            (Some((until, from)), Some(equal)) => Some((until, from, equal)),
            _ => None,
        };
        let other = other.filter(|&(until, ..)| next != target && !self.counts(until));
        if let Some((until, from, other)) = other {
            self.deferred.branches.insert(exit, DeferredBranch { from, until, other });
        }
        for (way, is_open) in ways {
            if other.is_some_and(|(_, _, other)| other == way) {
                continue;
            }
            if is_open || next == target {
                self.go(exit, way);
            } else {
                self.close(exit, way);
            }
        }
    }

    /// Follows what is compared in a straight piece of code.
    pub(super) fn compare(
        &mut self,
        at: Addr,
        effects: &[Effect],
        operand: Option<MemoryOperand>,
        comparison: &mut Comparison,
    ) {
        if let Some(operand) = operand.filter(|operand| operand.address.segment) {
            self.note_threads(effects, operand);
        }
        for effect in effects {
            comparison.follow(at, effect, &self.deferred);
        }
    }

    /// Notes an instruction that writes where the descriptor says how many threads there are.
    fn note_threads(&mut self, effects: &[Effect], operand: MemoryOperand) {
        let Some(threads) = &self.deferred.threads else { return };
        let Address { base: None, index: None, displacement, .. } = operand.address else { return };
        let start = displacement as u64;
        let apart = threads.end <= start || start.saturating_add(operand.width.into()) <= threads.start;
        let reads = |effect: &Effect| {
            matches!(
                effect,
                Effect::Set { .. }
                    | Effect::SetSigned { .. }
                    | Effect::MaybeSet { .. }
                    | Effect::Binary { .. }
                    | Effect::Compare { .. }
                    | Effect::CompareZero { .. }
                    | Effect::ClobberFlags
            )
        };
        self.deferred.has_threads |= !apart && !effects.iter().all(reads);
    }

    /// Finds what the rules for the C library of GNU are about, if it is there.
    pub(super) fn find_rules(&mut self) {
        if self.deferred.threads.is_some() {
            self.deferred.rules = self.rules();
        }
    }

    /// The functions that a function calls or jumps to directly.
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

impl Comparison {
    fn follow(&mut self, at: Addr, effect: &Effect, deferred: &Deferred) {
        let written = match *effect {
            Effect::Set { dst, value, .. } => {
                let entry = match value {
                    Value::Address(Address { base: None, index: None, displacement, .. }) => {
                        deferred.entry.filter(|entry| entry.0 == displacement as u64)
                    }
                    _ => None,
                };
                if entry.is_some() {
                    self.entry = Some((dst, at));
                    return;
                }
                Some(dst)
            }
            Effect::Store { .. } | Effect::BranchIf(_) => None,
            Effect::Compare { left, right, width } => {
                self.compared = self.comparison(at, left, right, width, deferred);
                None
            }
            _ => {
                *self = Comparison::default();
                None
            }
        };
        self.entry = self.entry.filter(|&(register, _)| Some(register) != written);
    }

    fn comparison(
        &self,
        at: Addr,
        left: Value,
        right: Value,
        width: u8,
        deferred: &Deferred,
    ) -> Option<(Until, Addr)> {
        if let Some((register, from)) = self.entry {
            let entry = Value::Reg { reg: register, width };
            if width == 8 && (left == entry) != (right == entry) {
                return Some((Until::Never, from));
            }
        }
        let Value::Load { from: Address { base: None, index: None, displacement, segment: true }, width } =
            left
        else {
            return None;
        };
        let place = displacement as u64..(displacement as u64).saturating_add(width.into());
        (deferred.threads.as_ref() == Some(&place) && right == Value::Const(0))
            .then_some((Until::Threads, at))
    }
}

/// Whether an object is the C library or has the functions of a service.
pub(super) fn is_service(loaded: &Loaded) -> bool {
    let name = loaded.file.rsplit('/').next().unwrap_or("");
    loaded.is_c_library || name.starts_with("libnss_")
}

/// The name that a function is picked by, if it is one of a service.
fn service_function(name: &[u8]) -> Option<&'static str> {
    let name = std::str::from_utf8(name).ok()?.strip_prefix("_nss_")?;
    let (_, function) = name.split_once('_')?;
    SERVICE_FUNCTIONS.get(function).copied()
}

//! System call filters from a plan: a profile for container runtimes ([`seccomp`]), or lines for a systemd unit
//! ([`systemd`]).
//!
//! Both use names rather than numbers, and apply to all architectures alike, so that the calls of several ABIs are
//! merged by name. A filter always allows at least the calls of the plan. A number without a name is omitted: no kernel
//! has such a call, and the program gets an error in any case.

pub mod seccomp;
pub mod systemd;

use std::collections::BTreeMap;
use std::str::FromStr;

use kplan::{Abi, Arguments, Syscalls};
pub use syscalls::Errno;

use crate::abi::word_size;
use crate::arguments::Prototype;

/// A call that every process needs, even if its program does not make it: the process that installs the filter starts
/// the program with it.
const STARTS_PROGRAM: &str = "execve";

/// The effect of a call that is not allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Failure with this error.
    Errno(Errno),
    /// The end of the process.
    Kill,
    /// Execution, with a record in the kernel's log.
    Log,
}

impl Action {
    /// The error of `errno` without a value.
    pub const ERRNO: Action = Action::Errno(Errno::EPERM);
}

impl FromStr for Action {
    type Err = String;

    /// Parses `errno`, `errno=ENOSYS`, `kill` or `log`.
    fn from_str(text: &str) -> Result<Action, String> {
        match text.split_once('=') {
            None if text == "errno" => Ok(Action::ERRNO),
            None if text == "kill" => Ok(Action::Kill),
            None if text == "log" => Ok(Action::Log),
            Some(("errno", name)) => {
                let mut all = (1..=MAX_ERRNO).map(Errno::new);
                let named = all.find(|errno| errno.name() == Some(name));
                named
                    .map(Action::Errno)
                    .ok_or_else(|| format!("{name}: no error of this name; expected one such as ENOSYS"))
            }
            _ => Err("expected errno, errno=NAME, kill or log".to_owned()),
        }
    }
}

/// The greatest error number that a system call returns (`MAX_ERRNO`, include/linux/err.h).
const MAX_ERRNO: i32 = 4095;

/// A filter: the allowed calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The ABIs that programs use.
    pub abis: Vec<Abi>,
    /// The calls by name.
    pub calls: BTreeMap<String, Allowed>,
    /// The effect of all other calls.
    pub action: Action,
}

/// The conditions of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// The allowed values of its arguments.
    pub arguments: Arguments,
    /// The number of significant bits of an argument, if not all bits of the register.
    pub bits: BTreeMap<u8, u8>,
}

impl Filter {
    /// Allows the calls of a plan and those in `also`. Without `arguments`, calls are allowed with any arguments.
    pub fn new(syscalls: &Syscalls, action: Action, arguments: bool, also: &[String]) -> Filter {
        let mut filter =
            Filter { abis: syscalls.abis.keys().copied().collect(), calls: BTreeMap::new(), action };
        for (&abi, calls) in &syscalls.abis {
            for call in &calls.calls {
                let Some(name) = &call.name else { continue };
                let allowed = match Prototype::of(abi, call.nr.into()) {
                    Some(prototype) if arguments => Allowed::of(abi, prototype, &call.args),
                    _ => Allowed::default(),
                };
                filter.allow(name, allowed);
            }
        }
        for name in also.iter().map(String::as_str).chain([STARTS_PROGRAM]) {
            filter.allow(name, Allowed::default());
        }
        filter
    }

    fn allow(&mut self, name: &str, allowed: Allowed) {
        match self.calls.get_mut(name) {
            Some(known) => known.merge(allowed),
            None => drop(self.calls.insert(name.to_owned(), allowed)),
        }
    }
}

impl Allowed {
    fn of(abi: Abi, prototype: Prototype, arguments: &Arguments) -> Allowed {
        let word = 8 * word_size(abi);
        let bits = arguments.values.keys().map(|&index| (index, prototype.bits(index.into())));
        Allowed { arguments: arguments.clone(), bits: bits.filter(|&(_, bits)| bits < word).collect() }
    }

    /// Joins the conditions of another ABI: the arguments of either are allowed, and the smaller number of bits counts.
    fn merge(&mut self, other: Allowed) {
        self.arguments.merge(&other.arguments);
        for (index, bits) in other.bits {
            self.bits.entry(index).and_modify(|own| *own = bits.min(*own)).or_insert(bits);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use kplan::{AbiCalls, ArgumentValue, Call};

    use super::*;

    /// The values of arguments, by index.
    type Known<'a> = &'a [(u8, &'a [u64])];

    pub(crate) fn arguments(known: Known) -> Arguments {
        let list = |values: &[u64]| values.iter().map(|&value| ArgumentValue { value, name: None }).collect();
        Arguments { values: known.iter().map(|&(index, values)| (index, list(values))).collect() }
    }

    pub(crate) fn plan(abi: Abi, calls: &[(u32, &str, Known)]) -> Syscalls {
        let call = |&(nr, name, known): &(u32, &str, Known)| Call {
            args: arguments(known),
            ..Call::new(nr, Some(name))
        };
        let calls = calls.iter().map(call).collect();
        let calls = AbiCalls { complete: true, calls, ..AbiCalls::default() };
        Syscalls { abis: BTreeMap::from([(abi, calls)]) }
    }

    #[test]
    fn abis_are_put_together_by_name() {
        let mut both = plan(Abi::X86_64, &[(1, "write", &[(0, &[1, 2])]), (92, "chown", &[(1, &[0])])]);
        both.merge(plan(
            Abi::I386,
            &[(4, "write", &[(0, &[2, 3]), (2, &[9])]), (182, "chown", &[(1, &[0])])],
        ));
        let filter = Filter::new(&both, Action::ERRNO, true, &["kexec_load".to_owned()]);
        assert_eq!(filter.abis, [Abi::I386, Abi::X86_64]);
        let names: Vec<_> = filter.calls.keys().map(String::as_str).collect();
        assert_eq!(names, ["chown", "execve", "kexec_load", "write"]);
        assert_eq!(filter.calls["write"].arguments, arguments(&[(0, &[1, 2, 3])]));
        // An `int` is the low half of a 64-bit register; i386 has an older chown with 16 bits.
        assert_eq!(filter.calls["write"].bits, BTreeMap::from([(0, 32)]));
        assert_eq!(filter.calls["chown"].bits, BTreeMap::from([(1, 16)]));
        let filter = Filter::new(&both, Action::ERRNO, false, &[]);
        assert!(filter.calls.values().all(|allowed| allowed.arguments.is_empty()));
    }

    #[test]
    fn actions_are_parsed() {
        assert_eq!("errno".parse(), Ok(Action::Errno(Errno::EPERM)));
        assert_eq!("errno=ENOSYS".parse(), Ok(Action::Errno(Errno::ENOSYS)));
        assert_eq!("log".parse(), Ok(Action::Log));
        assert!("errno=ENOSUCH".parse::<Action>().is_err_and(|error| error.starts_with("ENOSUCH: ")));
        assert!("kill=ENOSYS".parse::<Action>().is_err());
    }

    #[test]
    fn the_start_of_the_program_has_no_condition() {
        let plan = plan(Abi::X86_64, &[(59, "execve", &[(2, &[0])])]);
        let filter = Filter::new(&plan, Action::Kill, true, &[]);
        assert!(filter.calls["execve"].arguments.is_empty());
    }
}

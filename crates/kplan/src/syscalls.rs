//! The section `syscalls`: the system calls that the programs of a system make, by ABI.
//!
//! One process may use two ABIs (an x86-64 program may execute `int $0x80`), and one root file system may hold programs
//! for several machines. Every ABI therefore has its own list, and its own flag that says whether the list is complete.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use indexmap::IndexSet;
use serde::{Deserialize, Serialize};

use crate::abi::Abi;
use crate::call::Call;
use crate::implicit::implicit_calls;

/// The section: the calls by ABI. An absent ABI was not scanned, and nothing is known about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Syscalls {
    /// The calls of each ABI.
    pub abis: BTreeMap<Abi, AbiCalls>,
}

impl Syscalls {
    /// Returns the calls of one ABI, if the plan has them.
    pub fn get(&self, abi: Abi) -> Option<&AbiCalls> {
        self.abis.get(&abi)
    }

    /// Adds the calls that another scan found. The union is complete if both are.
    pub fn merge(&mut self, other: Syscalls) {
        *self = [std::mem::take(self), other].into_iter().collect();
    }
}

impl FromIterator<Syscalls> for Syscalls {
    /// Joins the results of several scans, like [`Syscalls::merge`].
    fn from_iter<I: IntoIterator<Item = Syscalls>>(found: I) -> Syscalls {
        let mut abis: BTreeMap<Abi, Union> = BTreeMap::new();
        for (abi, calls) in found.into_iter().flat_map(|syscalls| syscalls.abis) {
            abis.entry(abi).or_default().add(calls);
        }
        Syscalls { abis: abis.into_iter().map(|(abi, union)| (abi, union.calls())).collect() }
    }
}

/// The union of several scans for one ABI, each entry once and in the order of arrival.
#[derive(Default)]
struct Union {
    incomplete: bool,
    programs: IndexSet<String>,
    calls: BTreeMap<u32, Call>,
    unresolved: IndexSet<Unresolved>,
    executable: IndexSet<Place>,
    sites: IndexSet<Site>,
}

impl Union {
    fn add(&mut self, other: AbiCalls) {
        self.incomplete |= !other.complete;
        self.programs.extend(other.programs);
        for call in other.calls {
            match self.calls.entry(call.nr) {
                Entry::Vacant(entry) => drop(entry.insert(call)),
                Entry::Occupied(mut entry) => entry.get_mut().merge(&call),
            }
        }
        self.unresolved.extend(other.unresolved);
        self.executable.extend(other.executable);
        self.sites.extend(other.sites);
    }

    fn calls(self) -> AbiCalls {
        AbiCalls {
            complete: !self.incomplete,
            programs: self.programs.into_iter().collect(),
            calls: self.calls.into_values().collect(),
            unresolved: self.unresolved.into_iter().collect(),
            executable: self.executable.into_iter().collect(),
            sites: self.sites.into_iter().collect(),
        }
    }
}

/// The system calls that programs make through one ABI.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbiCalls {
    /// Whether `calls` lists all calls that the programs can make. False as soon as one site is unresolved.
    pub complete: bool,
    /// The scanned programs, by path.
    pub programs: Vec<String>,
    /// The calls, by rising number.
    pub calls: Vec<Call>,
    /// The places whose calls are unknown.
    pub unresolved: Vec<Unresolved>,
    /// Places that make memory executable. Code that a program generates there is in no file, and its calls are not
    /// listed; `complete` covers only code in files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub executable: Vec<Place>,
    /// Every place that makes a call, with its calls, if the scanner was asked for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<Site>,
}

impl AbiCalls {
    /// Returns whether the call of this number is listed.
    pub fn uses(&self, nr: u32) -> bool {
        self.call(nr).is_some()
    }

    /// Adds the calls of [`implicit_calls`] that are not yet listed.
    pub fn add_implicit(&mut self, abi: Abi) {
        for implicit in implicit_calls(abi) {
            self.add(Call { via: Some(implicit.via), ..Call::new(implicit.nr, Some(implicit.name)) });
        }
    }

    /// Returns the call of this number, if it is listed.
    pub fn call(&self, nr: u32) -> Option<&Call> {
        self.calls.iter().find(|call| call.nr == nr)
    }

    /// Inserts a call by its number, or joins it into the listed one ([`Call::merge`]).
    pub fn add(&mut self, call: Call) {
        if let Some(listed) = self.calls.iter_mut().find(|listed| listed.nr == call.nr) {
            return listed.merge(&call);
        }
        let place = self.calls.iter().position(|listed| listed.nr > call.nr);
        self.calls.insert(place.unwrap_or(self.calls.len()), call);
    }
}

/// A place in a program that makes system calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Site {
    /// The program, by path.
    pub file: String,
    /// The address of the instruction, in hexadecimal (`0x804aa12`).
    pub address: String,
    /// The function that contains it, if the program has symbols.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The numbers of the calls.
    pub calls: Vec<u32>,
    /// Known arguments of the calls made here. Calls without known arguments are omitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<Call>,
}

/// A place in a program whose system calls are unknown.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Unresolved {
    /// The program, by path.
    pub file: String,
    /// The address of the instruction, in hexadecimal (`0x804aa12`).
    pub address: String,
    /// The function that contains it, if the program has symbols.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The unknown fact.
    #[serde(default)]
    pub kind: UnresolvedKind,
    /// The reason.
    pub reason: String,
}

/// A place in a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The program, by path.
    pub file: String,
    /// The address of the instruction, in hexadecimal.
    pub address: String,
    /// The function that contains it, if the program has symbols.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
}

/// The kind of an unknown fact. Every kind makes a plan incomplete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UnresolvedKind {
    /// The system calls of an instruction, apart from those listed.
    #[default]
    Call,
    /// The targets of a computed jump.
    Jump,
    /// A library to load, or a function of a library to call: its name is made at run time.
    Name,
    /// Code that was not read or not recognised.
    Code,
}

impl fmt::Display for UnresolvedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UnresolvedKind::Call => "call",
            UnresolvedKind::Jump => "jump",
            UnresolvedKind::Name => "name",
            UnresolvedKind::Code => "code",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Via;

    fn calls(numbers: &[u32], complete: bool) -> AbiCalls {
        AbiCalls {
            complete,
            programs: vec!["a".into()],
            calls: numbers.iter().map(|&nr| Call::new(nr, None)).collect(),
            ..AbiCalls::default()
        }
    }

    fn numbers(calls: &AbiCalls) -> Vec<u32> {
        calls.calls.iter().map(|call| call.nr).collect()
    }

    #[test]
    fn merging_unites_and_is_complete_where_both_are() {
        let section = |calls| Syscalls { abis: BTreeMap::from([(Abi::I386, calls)]) };
        let mut one = section(calls(&[1, 4], true));
        one.merge(section(calls(&[3, 4, 5], true)));
        let merged = one.get(Abi::I386).unwrap();
        assert_eq!(numbers(merged), [1, 3, 4, 5]);
        assert_eq!(merged.programs, ["a"]);
        assert!(merged.complete);
        one.merge(section(calls(&[], false)));
        assert!(!one.get(Abi::I386).unwrap().complete);
    }

    #[test]
    fn implicit_calls_come_in_once_and_marked() {
        let mut calls = calls(&[119, 300], true);
        calls.add_implicit(Abi::I386);
        calls.add_implicit(Abi::I386);
        let via = |nr| calls.call(nr).unwrap().via;
        assert_eq!(via(119), None);
        assert_eq!(via(0), Some(Via::Kernel));
        assert_eq!(via(265), Some(Via::Vdso));
        assert!(calls.calls.is_sorted_by_key(|call| call.nr));
    }
}

//! The user's statement about a place that the scan could not resolve: `--assume`.

use std::fmt;
use std::str::FromStr;

use kplan::{Abi, Call, Site, Syscalls, Unresolved};

use crate::abi;

/// The additional calls of a place, as stated by the user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assumption {
    /// The calls, by name or number. Empty if the place makes only known calls, or is never reached.
    pub calls: Vec<String>,
    /// The program, by its path in the plan, if the address alone is ambiguous.
    pub file: Option<String>,
    /// The address of the place.
    pub address: u64,
}

/// An assumption that cannot be applied.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Malformed text.
    #[error("{text}: expected CALL,CALL...@ADDRESS or CALL,CALL...@FILE:ADDRESS, as in read,write@0x401216")]
    Form {
        /// The text.
        text: String,
    },
    /// No unresolved place at the address.
    #[error("--assume {assumption}: no unresolved place there; {}", Places(.places))]
    NoPlace {
        /// The assumption.
        assumption: Assumption,
        /// The unresolved places, as `file:address`.
        places: Vec<String>,
    },
    /// A name that no system call of the place's ABI has.
    #[error("--assume {assumption}: {call} is not a system call of {abi}")]
    NoCall {
        /// The assumption.
        assumption: Assumption,
        /// The name.
        call: String,
        /// The ABI of the place.
        abi: Abi,
    },
}

/// The unresolved places for a message.
struct Places<'a>(&'a [String]);

impl fmt::Display for Places<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            f.write_str("the plan has none")
        } else {
            write!(f, "unresolved: {}", self.0.join(", "))
        }
    }
}

impl FromStr for Assumption {
    type Err = Error;

    fn from_str(text: &str) -> Result<Assumption, Error> {
        let form = || Error::Form { text: text.to_owned() };
        let (calls, place) = text.split_once('@').ok_or_else(form)?;
        let (file, address) = match place.rsplit_once(':') {
            Some((file, address)) => (Some(file.to_owned()), address),
            None => (None, place),
        };
        let digits = address.strip_prefix("0x").unwrap_or(address);
        let address = u64::from_str_radix(digits, 16).map_err(|_| form())?;
        let calls = calls.split(',').map(str::trim).filter(|call| !call.is_empty());
        Ok(Assumption { calls: calls.map(str::to_owned).collect(), file, address })
    }
}

impl fmt::Display for Assumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@", self.calls.join(","))?;
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
        }
        write!(f, "{:#x}", self.address)
    }
}

impl Assumption {
    /// Resolves the place. The arguments of its calls are then unknown. With `sites`, the place is listed among the
    /// sites.
    ///
    /// # Errors
    /// If nothing is unresolved there, or the ABI has no such call.
    pub fn settle(&self, found: &mut Syscalls, sites: bool) -> Result<(), Error> {
        let address = format!("{:#x}", self.address);
        let here = |place: &Unresolved| {
            place.address == address && self.file.as_ref().is_none_or(|file| *file == place.file)
        };
        let mut settled = false;
        for (&abi, calls) in &mut found.abis {
            let unresolved = std::mem::take(&mut calls.unresolved);
            let (places, others): (Vec<_>, Vec<_>) = unresolved.into_iter().partition(here);
            calls.unresolved = others;
            if places.is_empty() {
                continue;
            }
            settled = true;
            calls.complete = calls.unresolved.is_empty();
            let numbers = self.calls.iter().map(|call| self.number(call, abi));
            let numbers: Vec<u32> = numbers.collect::<Result<_, Error>>()?;
            for &nr in &numbers {
                calls.add(Call::new(nr, abi::name(abi, nr)));
            }
            for Unresolved { file, address, function, .. } in places.into_iter().filter(|_| sites) {
                let known =
                    calls.sites.iter_mut().find(|site| (&site.file, &site.address) == (&file, &address));
                match known {
                    Some(site) => {
                        // The arguments of these calls may differ from those known so far.
                        site.args.retain(|call| !numbers.contains(&call.nr));
                        site.calls.extend(&numbers);
                        site.calls.sort_unstable();
                        site.calls.dedup();
                    }
                    None => {
                        let (calls_here, args) = (numbers.clone(), Vec::new());
                        calls.sites.push(Site { file, address, function, calls: calls_here, args });
                    }
                }
            }
        }
        let places = found.abis.values().flat_map(|calls| &calls.unresolved);
        let places = places.map(|place| format!("{}:{}", place.file, place.address));
        let no_place = || Error::NoPlace { assumption: self.clone(), places: places.collect() };
        if settled { Ok(()) } else { Err(no_place()) }
    }

    fn number(&self, call: &str, abi: Abi) -> Result<u32, Error> {
        let no_call = || Error::NoCall { assumption: self.clone(), call: call.to_owned(), abi };
        call.parse().ok().or_else(|| abi::number(abi, call)).ok_or_else(no_call)
    }
}

#[cfg(test)]
mod tests {
    use kplan::{AbiCalls, UnresolvedKind};

    use super::*;

    fn plan() -> Syscalls {
        let place = |file: &str, address: &str| Unresolved {
            file: file.to_owned(),
            address: address.to_owned(),
            function: None,
            kind: UnresolvedKind::Call,
            reason: "why".to_owned(),
        };
        let calls = AbiCalls {
            programs: vec!["a".to_owned(), "b".to_owned()],
            unresolved: vec![place("a", "0x10"), place("b", "0x10"), place("b", "0x20")],
            ..AbiCalls::default()
        };
        Syscalls { abis: [(Abi::X86_64, calls)].into() }
    }

    fn settle(plan: &mut Syscalls, text: &str) -> Result<(), String> {
        let assumption: Assumption = text.parse().map_err(|error: Error| error.to_string())?;
        assumption.settle(plan, true).map_err(|error| error.to_string())
    }

    #[test]
    fn places_are_settled_one_by_one() {
        let mut plan = plan();
        settle(&mut plan, "read,39@b:0x10").unwrap();
        let calls = plan.get(Abi::X86_64).unwrap();
        assert!(calls.uses(0) && calls.uses(39) && !calls.complete);
        assert_eq!(calls.unresolved.len(), 2);
        assert_eq!((calls.sites[0].file.as_str(), &calls.sites[0].calls[..]), ("b", &[0, 39][..]));
        settle(&mut plan, "@0x10").unwrap();
        settle(&mut plan, "getpid@20").unwrap();
        let calls = plan.get(Abi::X86_64).unwrap();
        assert!(calls.complete && calls.calls.len() == 2);
    }

    #[test]
    fn what_cannot_be_settled_is_an_error() {
        let mut plan = plan();
        let error = |plan: &mut Syscalls, text: &str| settle(plan, text).unwrap_err();
        let none = "--assume read@0x30: no unresolved place there; unresolved: a:0x10, b:0x10, b:0x20";
        assert_eq!(error(&mut plan, "read@0x30"), none);
        assert!(error(&mut plan, "read@c:0x10").contains("no unresolved place there"));
        assert!(error(&mut plan, "raed@0x20").contains("raed is not a system call of x86_64"));
        assert!(error(&mut plan, "read").contains("expected CALL,CALL...@ADDRESS"));
        assert!(error(&mut plan, "read@x").contains("expected CALL,CALL...@ADDRESS"));
    }
}

//! Programs that a program starts.
//!
//! The path is an argument of `execve`, and is found like the name of a library ([`crate::by_name`]). Most programs that
//! start others take the path from a script, a file or `PATH`, so it is unknown.

use std::collections::BTreeSet;

use kplan::Abi;

use crate::abi;
use crate::by_name::constant_strings;
use crate::calls::Calls;
use crate::code::{Code, References};
use crate::image::Addr;
use crate::resolve::Resolver;

/// The calls that start a program, and the index of the argument with its path.
const STARTING: [(&str, usize); 2] = [("execve", 0), ("execveat", 1)];

/// The programs that a program starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Children<Place> {
    /// Their paths.
    pub paths: BTreeSet<String>,
    /// The places that may start programs with other paths, and the reason.
    pub unknown: Vec<(Place, String)>,
}

/// Whether a call starts a program.
pub fn is_starting(call: &str) -> bool {
    STARTING.iter().any(|(name, _)| *name == call)
}

/// Finds the programs that the sites start.
pub fn children(code: &Code, references: &References, sites: &[(Addr, Abi, Calls)]) -> Children<Addr> {
    let mut resolver = Resolver::new(code, references);
    let mut children = Children::default();
    for (site, site_abi, calls) in sites {
        let names = calls.known.keys().filter_map(|&number| abi::name(*site_abi, number));
        for (_, argument) in names.filter_map(|name| STARTING.iter().find(|(own, _)| *own == name)) {
            let register = abi::registers(*site_abi).arguments[*argument];
            let pointers = resolver.numbers(*site, |state| state.register(register).clone());
            if let Err(reason) = &pointers {
                let reason = reason.describe(code.image).replacen("the number", "the path", 1);
                children.unknown.push((*site, reason));
            }
            let known = pointers
                .unwrap_or_else(|_| resolver.some_numbers(*site, |state| state.register(register).clone()));
            for path in constant_strings(code.image, known) {
                match path {
                    Ok(path) => drop(children.paths.insert(String::from_utf8_lossy(&path).into_owned())),
                    Err(reason) => children.unknown.push((*site, reason)),
                }
            }
        }
    }
    children
}

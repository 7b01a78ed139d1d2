//! The scan: from bytes to sites and their numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kisa::Effect;
use kplan::{Abi, Place, Unresolved, UnresolvedKind};

use crate::Error;
use crate::abi;
use crate::calls::{Calls, SiteCall, calls};
use crate::children::{Children, children};
use crate::code::{Code, References};
use crate::executable;
use crate::image::{Addr, Image, Process};
use crate::parallel::share;
use crate::reach::{Reached, reach};
use crate::resolve::Resolver;
use crate::why::Chain;

/// The system calls of a program.
#[derive(Debug)]
pub struct Scan {
    /// The ABI of the program itself; sites may use another one.
    pub abi: Abi,
    /// Every reachable place that enters the kernel, by rising address.
    pub sites: Vec<Site>,
    /// Places that lead to code that was not found and may make any call.
    pub lost: Vec<Unresolved>,
    /// Places that make memory executable: code that is in no file may run there.
    pub executable: Vec<Place>,
    /// The libraries that are loaded by name but missing from the root file system: the file that loads them, and their
    /// names.
    pub absent: BTreeSet<(Arc<str>, String)>,
    /// The programs that it starts.
    pub children: Children<Place>,
    /// The number of reachable instructions.
    pub instructions: usize,
}

/// An instruction that enters the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The file that contains it.
    pub file: Arc<str>,
    /// The address of the instruction in the file.
    pub address: Addr,
    /// The function that contains it, if the program has symbols.
    pub function: Option<String>,
    /// Its ABI.
    pub abi: Abi,
    /// The known calls that it can make, by number.
    pub calls: BTreeMap<u32, SiteCall>,
    /// Why it may make other calls; `None` if it does not.
    pub unknown: Option<String>,
}

/// Scans a process.
///
/// # Errors
/// If it cannot be linked. Unresolved places are not errors.
pub fn scan(process: &Process) -> Result<Scan, Error> {
    let image = Image::link(process)?;
    let Reached { code, lost, absent } = reach(&image);
    let references = References::new(&code);
    let found = sites(&code, &references);
    let place = |at| {
        let (file, address) = image.place(at);
        let function = image.function_at(at).map(str::to_owned);
        Place { file: file.to_string(), address: address.to_string(), function }
    };
    let executable = executable::places(&code, &references, &found).into_iter().map(place).collect();
    let Children { paths, unknown } = children(&code, &references, &found);
    let unknown = unknown.into_iter().map(|(at, reason)| (place(at), reason)).collect();
    let children = Children { paths, unknown };
    let sites = found.into_iter().map(|(at, abi, calls)| {
        let Calls { known: calls, unknown } = calls;
        let unknown = unknown.map(|reason| reason.describe(&image));
        let (file, address) = image.place(at);
        Site { file, address, function: image.function_at(at).map(str::to_owned), abi, calls, unknown }
    });
    let lost = lost.into_iter().map(|(at, kind, reason)| {
        let Place { file, address, function } = place(at);
        Unresolved { file, address, function, kind, reason }
    });
    let not_scanned = |file: &str, reason| Unresolved {
        file: file.to_owned(),
        address: Addr(0).to_string(),
        function: None,
        kind: UnresolvedKind::Code,
        reason,
    };
    let variants = process.variants.iter().map(|(member, path)| {
        let reason = format!("newer processors load {path} instead, which is not scanned");
        not_scanned(&process.members[member.get()].file, reason)
    });
    let others = process.members.iter().flat_map(|member| {
        let others = member.object.dynamic.iter().flat_map(|dynamic| &dynamic.others);
        let reason = |other| format!("the dynamic linker also loads {other}, which is not scanned");
        others.map(move |other| not_scanned(&member.file, reason(other)))
    });
    let lost = lost.chain(variants).chain(others).collect();
    let abi = abi::abi(image.machine, false);
    let absent = absent.into_iter().map(|(at, name)| (image.place(at).0, name)).collect();
    let sites = sites.collect();
    Ok(Scan { abi, sites, lost, executable, absent, children, instructions: code.instructions() })
}

/// Returns the shortest chain from the start of a process to a site that makes a call, for people. `call` is a name or
/// number. `None` if no known site makes it.
///
/// # Errors
/// As for [`scan`].
pub fn why(process: &Process, call: &str) -> Result<Option<String>, Error> {
    let image = Image::link(process)?;
    let code = reach(&image).code;
    Ok(Chain::to(&code, &sites(&code, &References::new(&code)), call).map(|chain| chain.describe(&image)))
}

/// Returns the sites of a program by rising address, each with its ABI and its calls.
fn sites(code: &Code, references: &References) -> Vec<(Addr, Abi, Calls)> {
    let mut addresses = code.sites.clone();
    addresses.sort_unstable();
    let sites = share(
        &addresses,
        || Resolver::new(code, references),
        |resolver, &at| {
            let (compat, number) = gate(code, at);
            let abi = abi::abi(code.image.machine, compat);
            (at, abi, calls(resolver, at, abi, number))
        },
    );
    sites.into_iter().flat_map(by_abi).collect()
}

/// Splits a site that makes calls of two ABIs into one site for each.
fn by_abi((at, abi, calls): (Addr, Abi, Calls)) -> Vec<(Addr, Abi, Calls)> {
    let mut abis: BTreeMap<Abi, Calls> = BTreeMap::new();
    for (number, call) in calls.known {
        let (abi, number) = abi::split(abi, number);
        abis.entry(abi).or_default().known.insert(number, call);
    }
    if abis.is_empty() || calls.unknown.is_some() {
        abis.entry(abi).or_default().unknown = calls.unknown;
    }
    abis.into_iter().map(|(abi, calls)| (at, abi, calls)).collect()
}

/// Returns whether a site enters through the 32-bit gate of a 64-bit machine, and the number if the instruction
/// contains it.
fn gate(code: &Code, at: Addr) -> (bool, Option<u32>) {
    let effects = code.effects_at(at);
    let gate = effects.iter().find_map(|effect| match *effect {
        Effect::SystemCall { compat, number } => Some((compat, number)),
        _ => None,
    });
    gate.unwrap_or((false, None))
}

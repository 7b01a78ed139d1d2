//! From bytes to sites and their numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kisa::Effect;
use kplan::{Abi, Place, Unresolved, UnresolvedKind};

use crate::Error;
use crate::abi;
use crate::calls::{Calls, SiteCall, calls};
use crate::code::{Code, References};
use crate::executable;
use crate::image::{Addr, Image, Process};
use crate::parallel::share;
use crate::reach::{Reached, reach};
use crate::resolve::Resolver;
use crate::why::Chain;

/// What a program can ask of the kernel.
#[derive(Debug)]
pub struct Scan {
    /// The ABI of the program itself; sites may use another one.
    pub abi: Abi,
    /// Every place that enters the kernel and that can run, by rising address.
    pub sites: Vec<Site>,
    /// Places that lead to code which was not seen, and may make any call.
    pub lost: Vec<Unresolved>,
    /// Places that make memory executable, so that code may run there that is in no file.
    pub executable: Vec<Place>,
    /// The libraries that are loaded by name, but that the root file system does not have: who loads them, and
    /// their names.
    pub absent: BTreeSet<(Arc<str>, String)>,
    /// How many instructions can run.
    pub instructions: usize,
}

/// An instruction that enters the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The file that it is in.
    pub file: Arc<str>,
    /// The instruction, as an address of the file.
    pub address: Addr,
    /// The function that it is in, where the program has symbols.
    pub function: Option<String>,
    /// The ABI that it uses.
    pub abi: Abi,
    /// The calls that it can make by their numbers, as far as they are known.
    pub calls: BTreeMap<u32, SiteCall>,
    /// Why it may make others, too; `None` if it does not.
    pub unknown: Option<String>,
}

/// Scans a process.
///
/// # Errors
/// If it cannot be put into memory. What cannot be resolved in it is no error.
pub fn scan(process: &Process) -> Result<Scan, Error> {
    let image = Image::link(process)?;
    let Reached { code, lost, absent } = reach(&image);
    let (found, executable) = sites(&code);
    let executable = executable.into_iter().map(|at| {
        let (file, address) = image.place(at);
        let function = image.function_at(at).map(str::to_owned);
        Place { file: file.to_string(), address: address.to_string(), function }
    });
    let sites = found.into_iter().map(|(at, abi, calls)| {
        let Calls { known: calls, unknown } = calls;
        let unknown = unknown.map(|reason| reason.describe(&image));
        let (file, address) = image.place(at);
        Site { file, address, function: image.function_at(at).map(str::to_owned), abi, calls, unknown }
    });
    let lost = lost.into_iter().map(|(at, kind, reason)| {
        let (file, address) = image.place(at);
        let function = image.function_at(at).map(str::to_owned);
        Unresolved { file: file.to_string(), address: address.to_string(), function, kind, reason }
    });
    let not_scanned = |file: &str, reason| Unresolved {
        file: file.to_owned(),
        address: Addr(0).to_string(),
        function: None,
        kind: UnresolvedKind::Code,
        reason,
    };
    let variants = process.variants.iter().map(|(member, path)| {
        let reason = format!("newer processors take {path} in its place, which is not scanned");
        not_scanned(&process.members[member.get()].file, reason)
    });
    let others = process.members.iter().flat_map(|member| {
        let others = member.object.dynamic.iter().flat_map(|dynamic| &dynamic.others);
        let reason = |other| format!("the dynamic linker loads {other} for it, which is not scanned");
        others.map(move |other| not_scanned(&member.file, reason(other)))
    });
    let lost = lost.chain(variants).chain(others).collect();
    let abi = abi::abi(image.machine, false);
    let absent = absent.into_iter().map(|(at, name)| (image.place(at).0, name)).collect();
    let (sites, executable) = (sites.collect(), executable.collect());
    Ok(Scan { abi, sites, lost, executable, absent, instructions: code.instructions() })
}

/// The shortest chain from where a process starts to a site that makes a call, which is given by name or
/// number, for people. `None` if no site is known to make it.
///
/// # Errors
/// As for [`scan`].
pub fn why(process: &Process, call: &str) -> Result<Option<String>, Error> {
    let image = Image::link(process)?;
    let code = reach(&image).code;
    Ok(Chain::to(&code, &sites(&code).0, call).map(|chain| chain.describe(&image)))
}

/// The sites of a program by rising address, each with its ABI and its calls; and the places that make memory
/// executable.
fn sites(code: &Code) -> (Vec<(Addr, Abi, Calls)>, BTreeSet<Addr>) {
    let references = References::new(code);
    let mut addresses = code.sites.clone();
    addresses.sort_unstable();
    let sites = share(
        &addresses,
        || Resolver::new(code, &references),
        |resolver, &at| {
            let (compat, number) = gate(code, at);
            let abi = abi::abi(code.image.machine, compat);
            (at, abi, calls(resolver, at, abi, number))
        },
    );
    let sites: Vec<_> = sites.into_iter().flat_map(by_abi).collect();
    let executable = executable::places(code, &references, &sites);
    (sites, executable)
}

/// A site that makes calls of two ABIs as one of each.
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

/// Whether a site enters through the 32-bit gate of a 64-bit machine; and the number, if the instruction has it.
fn gate(code: &Code, at: Addr) -> (bool, Option<u32>) {
    let effects = code.effects_at(at);
    let gate = effects.iter().find_map(|effect| match *effect {
        Effect::SystemCall { compat, number } => Some((compat, number)),
        _ => None,
    });
    gate.unwrap_or((false, None))
}

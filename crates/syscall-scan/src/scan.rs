//! From bytes to sites and their numbers.

use std::collections::BTreeMap;

use kcfg::isa::Effect;
use kplan::Abi;
use rayon::prelude::*;

use crate::Error;
use crate::abi;
use crate::calls::{SiteCall, calls};
use crate::code::{Code, References};
use crate::image::{Addr, Image};
use crate::reach::{reach, share};
use crate::resolve::Resolver;

/// What a program can ask of the kernel.
#[derive(Debug)]
pub struct Scan {
    /// The ABI of the program itself; sites may use another one.
    pub abi: Abi,
    /// Every place that enters the kernel and that can run, by rising address.
    pub sites: Vec<Site>,
    /// Jumps that may lead to code which was not seen, by rising address.
    pub lost_jumps: Vec<Lost>,
    /// How many instructions can run.
    pub instructions: usize,
}

/// An instruction that enters the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The instruction.
    pub address: Addr,
    /// The function that it is in, where the program has symbols.
    pub function: Option<String>,
    /// The ABI that it uses.
    pub abi: Abi,
    /// The calls that it can make by their numbers, or why these are not known.
    pub calls: Result<BTreeMap<u32, SiteCall>, String>,
}

/// A computed jump whose targets are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The instruction.
    pub address: Addr,
    /// The function that it is in, where the program has symbols.
    pub function: Option<String>,
}

/// Scans a static executable.
///
/// # Errors
/// If the file is not one that can be scanned. What cannot be resolved in it is no error.
pub fn scan(bytes: &[u8]) -> Result<Scan, Error> {
    let image = Image::read(bytes)?;
    let unknown = || Error::OtherMachine { name: image.machine.to_string() };
    let (code, lost_jumps) = reach(&image).ok_or_else(unknown)?;
    let references = References::new(&code);
    let name = |at: Addr| image.symbols.function_at(at).map(str::to_owned);
    let mut addresses = code.sites.clone();
    addresses.sort_unstable();
    let share = share(addresses.len());
    let sites = addresses
        .into_par_iter()
        .with_min_len(share)
        .map_init(
            || Resolver::new(&code, &references),
            |resolver, address| {
                let resolver = resolver.as_mut().ok_or_else(unknown)?;
                let (compat, number) = gate(&code, address);
                let abi = abi::abi(image.machine, compat);
                let calls = calls(resolver, address, abi, number);
                let calls = calls.map_err(|reason| reason.describe(&image.symbols));
                Ok(Site { address, function: name(address), abi, calls })
            },
        )
        .collect::<Result<_, Error>>()?;
    let lost_jumps =
        lost_jumps.into_iter().map(|address| Lost { address, function: name(address) }).collect();
    let abi = abi::abi(image.machine, false);
    Ok(Scan { abi, sites, lost_jumps, instructions: code.instructions() })
}

/// Whether a site enters through the 32-bit gate of a 64-bit machine; and the number, if the instruction has it.
fn gate(code: &Code, at: Addr) -> (bool, Option<u32>) {
    let mut effects = Vec::new();
    code.effects(at, &mut effects);
    let gate = effects.iter().find_map(|effect| match *effect {
        Effect::SystemCall { compat, number } => Some((compat, number)),
        _ => None,
    });
    gate.unwrap_or((false, None))
}

//! The result of a scan as a section of a plan, and that section for people and for scripts.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt::Write;

use kplan::{Abi, AbiCalls, Call, Syscalls, Unresolved, Via};

use crate::abi;
use crate::scan::Scan;

/// The section `syscalls` of a plan for one program. With `sites`, every site is listed.
pub fn section(file: &str, scan: &Scan, sites: bool) -> Syscalls {
    let abis: BTreeSet<Abi> = scan.sites.iter().map(|site| site.abi).chain([scan.abi]).collect();
    let abis = abis.into_iter().map(|abi| (abi, calls(file, scan, abi, sites)));
    Syscalls { abis: BTreeMap::from_iter(abis) }
}

fn calls(file: &str, scan: &Scan, abi: Abi, sites: bool) -> AbiCalls {
    let mut numbers = BTreeSet::new();
    let mut unresolved = Vec::new();
    let mut listed = Vec::new();
    for site in scan.sites.iter().filter(|site| site.abi == abi) {
        let (address, function) = (site.address.to_string(), site.function.clone());
        match &site.numbers {
            Ok(found) => {
                numbers.extend(found);
                let calls = found.iter().copied().collect();
                let file = file.to_owned();
                listed.push(kplan::Site { file, address, function, calls, args: Vec::new() });
            }
            Err(reason) => unresolved.push(Unresolved {
                file: file.to_owned(),
                address,
                function,
                reason: reason.clone(),
            }),
        }
    }
    // Code that was not seen may use any ABI.
    unresolved.extend(scan.lost_jumps.iter().map(|lost| Unresolved {
        file: file.to_owned(),
        address: lost.address.to_string(),
        function: lost.function.clone(),
        reason: "a jump whose targets are not known, so that not all code was seen".to_owned(),
    }));
    let call = |nr| Call::new(nr, abi::name(abi, nr));
    let mut calls = AbiCalls {
        complete: unresolved.is_empty(),
        programs: vec![file.to_owned()],
        calls: numbers.into_iter().map(call).collect(),
        unresolved,
        sites: if sites { listed } else { Vec::new() },
    };
    calls.add_implicit(abi);
    calls
}

/// The section as text, for people.
pub fn text(syscalls: &Syscalls) -> String {
    let mut out = String::new();
    for (abi, calls) in &syscalls.abis {
        let complete = if calls.complete { "complete" } else { "INCOMPLETE" };
        let _ = writeln!(out, "{abi}: {} system calls, {complete}", calls.calls.len());
        for call in &calls.calls {
            let _ = write!(out, "{:6}  {}", call.nr, call.name.as_deref().unwrap_or("?"));
            let _ = match call.via {
                None => writeln!(out),
                Some(Via::Kernel) => writeln!(out, "  (by the kernel)"),
                Some(Via::Vdso) => writeln!(out, "  (by the vDSO)"),
            };
        }
        for site in &calls.sites {
            let names = site.calls.iter().map(|&nr| match abi::name(*abi, nr) {
                Some(name) => name.to_owned(),
                None => nr.to_string(),
            });
            let names = names.collect::<Vec<_>>().join(" ");
            let _ = writeln!(out, "{}: {names}", place(&site.file, &site.address, &site.function));
        }
        for site in &calls.unresolved {
            let place = place(&site.file, &site.address, &site.function);
            let _ = writeln!(out, "{place}: unresolved: {}", site.reason);
        }
    }
    out
}

/// The numbers alone, one a line. `None` if the section has more than one ABI, whose numbers mean different
/// things.
pub fn numbers(syscalls: &Syscalls) -> Option<String> {
    if syscalls.abis.len() > 1 {
        return None;
    }
    let calls = syscalls.abis.values().flat_map(|calls| &calls.calls);
    Some(calls.map(|call| format!("{}\n", call.nr)).collect())
}

/// A place in a program, as `file:address (function)`.
pub fn place(file: &str, address: &str, function: &Option<String>) -> String {
    match function {
        Some(function) => format!("{file}:{address} ({function})"),
        None => format!("{file}:{address}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Addr;
    use crate::scan::{Lost, Site};

    fn site(address: u64, abi: Abi, numbers: Result<&[u32], &str>) -> Site {
        let numbers = numbers.map(|n| n.iter().copied().collect()).map_err(str::to_owned);
        Site { address: Addr(address), function: None, abi, numbers }
    }

    fn scan(sites: Vec<Site>) -> Scan {
        Scan { abi: Abi::X86_64, sites, lost_jumps: Vec::new(), instructions: 0 }
    }

    #[test]
    fn a_section_has_every_abi_and_knows_whether_it_is_complete() {
        let mut scan =
            scan(vec![site(0x1000, Abi::X86_64, Ok(&[0, 1])), site(0x2000, Abi::I386, Err("why"))]);
        let found = section("a", &scan, true);
        let native = found.get(Abi::X86_64).unwrap();
        assert!(native.complete && native.uses(1) && native.uses(219) && !native.uses(2));
        assert_eq!(native.sites.len(), 1);
        assert!(!found.get(Abi::I386).unwrap().complete);
        assert!(text(&found).contains("a:0x2000: unresolved: why"), "{}", text(&found));
        assert_eq!(numbers(&found), None);
        scan.lost_jumps.push(Lost { address: Addr(0x3000), function: Some("f".into()) });
        let found = section("a", &scan, false);
        assert!(!found.get(Abi::X86_64).unwrap().complete);
        assert!(text(&found).contains("a:0x3000 (f): unresolved: a jump"));
    }
}

//! The result of a scan as a section of a plan, and the human-readable and script-readable forms of the section.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt::Write;

use kplan::{
    Abi, AbiCalls, ArgumentValue, Arguments, Call, Operation, Syscalls, Unresolved, UnresolvedKind, Via,
};

use crate::abi;
use crate::calls::{KnownArguments, SiteCall};
use crate::constants;
use crate::scan::Scan;

/// Maximum number of values per argument in the text. The plan has all values.
const MAX_LISTED: usize = 8;

/// Returns the section `syscalls` of a plan for one program. With `sites`, every site is listed.
pub fn section(file: &str, scan: &Scan, sites: bool) -> Syscalls {
    let abis: BTreeSet<Abi> = scan.sites.iter().map(|site| site.abi).chain([scan.abi]).collect();
    let abis = abis.into_iter().map(|abi| (abi, calls(file, scan, abi, sites)));
    Syscalls { abis: BTreeMap::from_iter(abis) }
}

fn calls(file: &str, scan: &Scan, abi: Abi, sites: bool) -> AbiCalls {
    let mut calls = BTreeMap::new();
    let mut unresolved = Vec::new();
    let mut listed = Vec::new();
    for site in scan.sites.iter().filter(|site| site.abi == abi) {
        let (address, function) = (site.address.to_string(), site.function.clone());
        let file = site.file.to_string();
        if let Some(reason) = site.unknown.clone() {
            let (file, address, function) = (file.clone(), address.clone(), function.clone());
            unresolved.push(Unresolved { file, address, function, kind: UnresolvedKind::Call, reason });
        }
        let found: Vec<Call> = site.calls.iter().map(|(&nr, site)| call(abi, nr, site)).collect();
        for call in &found {
            merge(&mut calls, call);
        }
        if site.unknown.is_none() || !found.is_empty() {
            let calls = found.iter().map(|call| call.nr).collect();
            let args = found.into_iter().filter(is_known).map(|call| Call { name: None, ..call });
            listed.push(kplan::Site { file, address, function, calls, args: args.collect() });
        }
    }
    // Code that was not found may use any ABI.
    unresolved.extend(scan.lost.iter().cloned());
    let mut calls = AbiCalls {
        complete: unresolved.is_empty(),
        programs: vec![file.to_owned()],
        calls: calls.into_values().collect(),
        unresolved,
        executable: if abi == scan.abi { scan.executable.clone() } else { Vec::new() },
        sites: if sites { listed } else { Vec::new() },
    };
    calls.add_implicit(abi);
    calls
}

fn merge(calls: &mut BTreeMap<u32, Call>, call: &Call) {
    calls.entry(call.nr).and_modify(|listed| listed.merge(call)).or_insert_with(|| call.clone());
}

/// Returns whether any argument of a call is known.
fn is_known(call: &Call) -> bool {
    !call.args.is_empty() || !call.operations.is_empty()
}

/// Converts a call of a site to a call of a plan.
fn call(abi: Abi, nr: u32, site: &SiteCall) -> Call {
    let name = abi::name(abi, nr);
    let args = arguments(abi, name.unwrap_or_default(), &site.arguments);
    let operations = site.operations.iter().flatten().map(|(&value, known)| {
        let (operation, call) = constants::operation(abi, name.unwrap_or_default(), value);
        let args = arguments(abi, &call.unwrap_or_default(), known);
        Operation { value, name: operation, args }
    });
    Call { args, operations: operations.collect(), ..Call::new(nr, name) }
}

fn arguments(abi: Abi, call: &str, known: &KnownArguments) -> Arguments {
    let values = known.iter().enumerate().filter_map(|(index, values)| {
        let value = |&value| ArgumentValue { value, name: constants::name(abi, call, index, value) };
        Some((index as u8, values.as_ref()?.iter().map(value).collect()))
    });
    Arguments { values: values.collect() }
}

/// Returns the section as human-readable text.
pub fn text(syscalls: &Syscalls) -> String {
    let mut out = String::new();
    for (abi, calls) in &syscalls.abis {
        let complete = if calls.complete { "complete" } else { "INCOMPLETE" };
        let constant = calls.calls.iter().map(|call| call.args.constants().count()).sum::<usize>();
        let count = calls.calls.len();
        let _ = writeln!(out, "{abi}: {count} system calls, {complete}; constant arguments: {constant}");
        for call in &calls.calls {
            let name = call.name.as_deref().unwrap_or("?");
            let via = match call.via {
                None => "",
                Some(Via::Kernel) => "  (by the kernel)",
                Some(Via::Vdso) => "  (by the vDSO)",
            };
            let _ = writeln!(out, "{:6}  {name}{via}{}", call.nr, values(&call.args));
            for operation in &call.operations {
                let name = operation.name.clone().unwrap_or_else(|| operation.value.to_string());
                let _ = writeln!(out, "{:10}{name}{}", "", values(&operation.args));
            }
        }
        for site in &calls.sites {
            let names = site.calls.iter().map(|&nr| {
                let known = site.args.iter().find(|call| call.nr == nr).map(|call| values(&call.args));
                let name = abi::name(*abi, nr).map_or_else(|| nr.to_string(), str::to_owned);
                name + &known.unwrap_or_default()
            });
            let names = names.collect::<Vec<_>>().join(" ");
            let _ = writeln!(out, "{}: {names}", place(&site.file, &site.address, &site.function));
        }
        for site in &calls.executable {
            let place = place(&site.file, &site.address, &site.function);
            let _ = writeln!(out, "{place}: makes memory executable: code generated there is not scanned");
        }
        for site in &calls.unresolved {
            let place = place(&site.file, &site.address, &site.function);
            let _ = writeln!(out, "{place}: unresolved {}: {}", site.kind, site.reason);
        }
    }
    out
}

/// Returns arguments as text: `  1={TCGETS,TCSETS} 2={0}`.
fn values(arguments: &Arguments) -> String {
    let listed = arguments.values.iter().map(|(index, values)| {
        let named = values.iter().take(MAX_LISTED);
        let named = named.map(|value| value.name.clone().unwrap_or_else(|| value.value.to_string()));
        let more = values.len().checked_sub(MAX_LISTED).filter(|&more| more > 0);
        let more = more.map(|more| format!("{more} more"));
        format!("{index}={{{}}}", named.chain(more).collect::<Vec<_>>().join(","))
    });
    let listed = listed.collect::<Vec<_>>().join(" ");
    if listed.is_empty() { listed } else { format!("  {listed}") }
}

/// Returns the numbers only, one per line. `None` if the section has several ABIs, whose numbers mean different calls.
pub fn numbers(syscalls: &Syscalls) -> Option<String> {
    if syscalls.abis.len() > 1 {
        return None;
    }
    let calls = syscalls.abis.values().flat_map(|calls| &calls.calls);
    Some(calls.map(|call| format!("{}\n", call.nr)).collect())
}

/// Returns a place in a program as `file:address (function)`.
pub fn place(file: &str, address: &str, function: &Option<String>) -> String {
    match function {
        Some(function) => format!("{file}:{address} ({function})"),
        None => format!("{file}:{address}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::children::Children;
    use crate::image::Addr;
    use crate::scan::Site;

    fn site(address: u64, abi: Abi, numbers: Result<&[u32], &str>) -> Site {
        let call = |&nr| (nr, SiteCall::default());
        let calls = numbers.iter().flat_map(|numbers| numbers.iter()).map(call).collect();
        let unknown = numbers.err().map(str::to_owned);
        Site { file: "a".into(), address: Addr(address), function: None, abi, calls, unknown }
    }

    fn scan(sites: Vec<Site>) -> Scan {
        Scan {
            abi: Abi::X86_64,
            sites,
            lost: Vec::new(),
            executable: Vec::new(),
            absent: BTreeSet::new(),
            children: Children { paths: BTreeSet::new(), unknown: Vec::new() },
            instructions: 0,
        }
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
        assert!(text(&found).contains("a:0x2000: unresolved call: why"), "{}", text(&found));
        assert_eq!(numbers(&found), None);
        let lost = Unresolved {
            file: "a".into(),
            address: "0x3000".into(),
            function: Some("f".into()),
            kind: UnresolvedKind::Jump,
            reason: "a jump".into(),
        };
        scan.lost.push(lost);
        let found = section("a", &scan, false);
        assert!(!found.get(Abi::X86_64).unwrap().complete);
        assert!(text(&found).contains("a:0x3000 (f): unresolved jump: a jump"));
    }
}

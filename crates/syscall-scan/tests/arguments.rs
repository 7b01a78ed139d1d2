//! Arguments of calls with exactly known values, in programs compiled with common options.

mod common;

use std::collections::BTreeMap;

use common::{Machine, compile, expectation, section};
use serde_json::Value;

const OPTIONS: [&str; 6] = [
    "-static -O0",
    "-static -O1",
    "-static -O2",
    "-static -Os -fno-pie -no-pie",
    "-static -O2 -s",
    "-static-pie -O2",
];

/// The values of arguments, by index.
type Known = BTreeMap<u64, Vec<u64>>;

/// Returns the expectation in a fixture, by call.
fn expected(fixture: &str) -> BTreeMap<String, Known> {
    let mut expected: BTreeMap<String, Known> = BTreeMap::new();
    for word in expectation(fixture, "args").unwrap().split_whitespace() {
        let (argument, values) = word.split_once('=').unwrap();
        let (call, index) = argument.split_once('.').unwrap_or((argument, ""));
        let known = expected.entry(call.to_owned()).or_default();
        if let Ok(index) = index.parse() {
            known.insert(index, values.split(',').map(|value| value.parse().unwrap()).collect());
        }
    }
    expected
}

/// Returns the known arguments in a plan.
fn known(call: &Value) -> Known {
    let arguments = call["args"].as_object().into_iter().flatten();
    let values = |values: &Value| -> Vec<u64> {
        values.as_array().unwrap().iter().map(|value| value["value"].as_u64().unwrap()).collect()
    };
    arguments.map(|(index, list)| (index.parse().unwrap(), values(list))).collect()
}

fn check(machine: Machine, fixture: &str, options: &str) {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("program");
    compile(machine, fixture, options, &program);
    let section = section(&program, machine.abi());
    let calls = section["calls"].as_array().unwrap();
    for (name, expected) in expected(fixture) {
        let what = format!("{name} of {fixture} for {} with {options}", machine.abi());
        let call = calls.iter().find(|call| call["name"] == *name);
        let call = call.unwrap_or_else(|| panic!("{what}: not found"));
        assert_eq!(known(call), expected, "{what}");
        // The places that make the call know at least as much.
        let sites = section["sites"].as_array().unwrap().iter();
        let sites = sites.filter(|site| site["calls"].as_array().unwrap().contains(&call["nr"]));
        for site in sites {
            let here = site["args"].as_array().into_iter().flatten();
            let here = here.filter(|here| here["nr"] == call["nr"]).map(known).next();
            let here = here.unwrap_or_default();
            assert!(expected.keys().all(|index| here.contains_key(index)), "{what}: {site}");
        }
    }
}

#[test]
fn arguments() {
    for machine in Machine::ALL {
        for options in OPTIONS {
            check(machine, "arguments.c", options);
        }
    }
}

/// The straight-line code before a call determines some arguments, but not others.
#[test]
fn arguments_made_just_before_calls() {
    check(Machine::I386, "passed.S", "-nostdlib -static");
}

/// BusyBox: at least as many constant arguments as Chanet et al. 2007 (section 6.2.3) found on ARM, 17.
#[test]
fn constant_arguments_of_busybox() {
    for machine in Machine::ALL {
        let section = section(&common::busybox(machine), machine.abi());
        let calls = section["calls"].as_array().unwrap();
        let constant = calls.iter().flat_map(|call| known(call).into_values()).filter(|v| v.len() == 1);
        let count = constant.count();
        assert!(count >= 40, "{}: {count} constant arguments", machine.abi());
    }
}

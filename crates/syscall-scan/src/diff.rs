//! The differences between two plans: calls, the values of their arguments, and whether the plans are complete.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use kplan::{Abi, AbiCalls, ArgumentValue, Arguments, Call, Syscalls};
use serde_json::{Map, Value, json};

/// The differences from one plan to another.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Difference {
    /// The differences by ABI; ABIs without differences are omitted.
    pub abis: BTreeMap<Abi, AbiDifference>,
}

/// The differences in one ABI. An ABI that is absent from one plan counts as one without calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AbiDifference {
    /// The calls that only the second plan has.
    pub added: Vec<Call>,
    /// The calls that only the first plan has.
    pub removed: Vec<Call>,
    /// The calls of both plans whose arguments differ.
    pub changed: Vec<ChangedCall>,
    /// Whether the first and the second plan are complete, if that differs; `None` for a plan without the ABI.
    pub complete: Option<[Option<bool>; 2]>,
}

/// A call whose arguments differ.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangedCall {
    /// Its number.
    pub nr: u32,
    /// Its name.
    pub name: Option<String>,
    /// The arguments: `1`, or `SYS_SOCKET.1` for an argument of an operation.
    pub arguments: BTreeMap<String, [Option<Vec<ArgumentValue>>; 2]>,
}

impl Difference {
    /// Compares two plans.
    pub fn of(before: &Syscalls, after: &Syscalls) -> Difference {
        let abis: BTreeSet<Abi> = before.abis.keys().chain(after.abis.keys()).copied().collect();
        let abis = abis.into_iter().filter_map(|abi| {
            let difference = AbiDifference::of(before.get(abi), after.get(abi));
            (difference != AbiDifference::default()).then_some((abi, difference))
        });
        Difference { abis: abis.collect() }
    }

    /// Returns whether the plans are the same.
    pub fn is_empty(&self) -> bool {
        self.abis.is_empty()
    }

    /// Returns the differences for people, one per line, marked as in `diff`.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (abi, difference) in &self.abis {
            let _ = writeln!(out, "{abi}:");
            if let Some([before, after]) = difference.complete {
                let _ = writeln!(out, "  {} -> {}", completeness(before), completeness(after));
            }
            for (mark, calls) in [('-', &difference.removed), ('+', &difference.added)] {
                for call in calls {
                    let _ = writeln!(out, "{mark} {:6}  {}", call.nr, call.name.as_deref().unwrap_or("?"));
                }
            }
            for changed in &difference.changed {
                for (argument, [before, after]) in &changed.arguments {
                    let name = changed.name.as_deref().unwrap_or("?");
                    let (before, after) = (values(before), values(after));
                    let _ =
                        writeln!(out, "! {:6}  {name} argument {argument}: {before} -> {after}", changed.nr);
                }
            }
        }
        out
    }

    /// Returns the differences as JSON. An argument that can have any value is `null`.
    pub fn json(&self) -> Value {
        let calls = |calls: &[Call]| -> Value {
            calls.iter().map(|call| json!({ "nr": call.nr, "name": call.name })).collect()
        };
        let abis = self.abis.iter().map(|(abi, difference)| {
            let changed = difference.changed.iter().map(|changed| {
                let arguments = changed.arguments.iter().map(|(argument, [before, after])| {
                    (argument.clone(), json!({ "before": before, "after": after }))
                });
                let arguments: Map<String, Value> = arguments.collect();
                json!({ "nr": changed.nr, "name": changed.name, "args": arguments })
            });
            let mut object = json!({
                "added": calls(&difference.added),
                "removed": calls(&difference.removed),
                "changed": changed.collect::<Value>(),
            });
            if let Some([before, after]) = difference.complete {
                object["complete"] = json!({ "before": before, "after": after });
            }
            (abi.to_string(), object)
        });
        Value::Object(abis.collect())
    }
}

fn completeness(complete: Option<bool>) -> &'static str {
    match complete {
        Some(true) => "complete",
        Some(false) => "incomplete",
        None => "not scanned",
    }
}

/// Returns values for people.
fn values(values: &Option<Vec<ArgumentValue>>) -> String {
    let Some(values) = values else { return "anything".to_owned() };
    let name = |value: &ArgumentValue| value.name.clone().unwrap_or_else(|| value.value.to_string());
    values.iter().map(name).collect::<Vec<_>>().join(" ")
}

impl AbiDifference {
    fn of(before: Option<&AbiCalls>, after: Option<&AbiCalls>) -> AbiDifference {
        let calls = |calls: Option<&AbiCalls>| -> BTreeMap<u32, Call> {
            calls.iter().flat_map(|calls| &calls.calls).map(|call| (call.nr, call.clone())).collect()
        };
        let complete = [before, after].map(|calls| calls.map(|calls| calls.complete));
        let (before, mut after) = (calls(before), calls(after));
        let complete = (complete[0] != complete[1]).then_some(complete);
        let mut difference = AbiDifference { complete, ..AbiDifference::default() };
        for (nr, call) in before {
            match after.remove(&nr) {
                Some(other) => difference.changed.extend(ChangedCall::of(&call, &other)),
                None => difference.removed.push(call),
            }
        }
        difference.added = after.into_values().collect();
        difference
    }
}

impl ChangedCall {
    fn of(before: &Call, after: &Call) -> Option<ChangedCall> {
        let (mut before_all, mut after_all) = (all_arguments(before), all_arguments(after));
        let names: BTreeSet<String> = before_all.keys().chain(after_all.keys()).cloned().collect();
        let arguments: BTreeMap<_, _> = names
            .into_iter()
            .map(|name| {
                let sides = [before_all.remove(&name), after_all.remove(&name)];
                (name, sides)
            })
            // Compare values only: their names may depend on the tool that made the plan.
            .filter(|(_, [before, after])| numbers(before) != numbers(after))
            .collect();
        let name = before.name.clone().or_else(|| after.name.clone());
        (!arguments.is_empty()).then_some(ChangedCall { nr: before.nr, name, arguments })
    }
}

fn numbers(values: &Option<Vec<ArgumentValue>>) -> Option<Vec<u64>> {
    Some(values.as_ref()?.iter().map(|value| value.value).collect())
}

/// Returns the known arguments of a call and of its operations, by name.
fn all_arguments(call: &Call) -> BTreeMap<String, Vec<ArgumentValue>> {
    let named = |prefix: String, arguments: &Arguments| {
        let arguments = arguments.values.clone().into_iter();
        arguments.map(move |(index, values)| (format!("{prefix}{index}"), values)).collect::<Vec<_>>()
    };
    let operations = call.operations.iter().flat_map(|operation| {
        let name = operation.name.clone().unwrap_or_else(|| operation.value.to_string());
        named(format!("{name}."), &operation.args)
    });
    named(String::new(), &call.args).into_iter().chain(operations).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::tests::plan;

    #[test]
    fn differences_are_found_and_told() {
        let before =
            plan(Abi::I386, &[(1, "exit", &[]), (3, "read", &[(0, &[0])]), (54, "ioctl", &[(1, &[7])])]);
        let mut after = plan(
            Abi::I386,
            &[(3, "read", &[(0, &[0])]), (4, "write", &[]), (54, "ioctl", &[(0, &[1]), (1, &[7, 8])])],
        );
        assert!(Difference::of(&before, &before).is_empty());
        after.abis.get_mut(&Abi::I386).unwrap().complete = false;
        let difference = Difference::of(&before, &after);
        let text = "i386:\n  complete -> incomplete\n-      1  exit\n+      4  write\n\
            !     54  ioctl argument 0: anything -> 1\n!     54  ioctl argument 1: 7 -> 7 8\n";
        assert_eq!(difference.text(), text);
        let json = difference.json();
        assert_eq!(json["i386"]["added"], json!([{ "nr": 4, "name": "write" }]));
        assert_eq!(
            json["i386"]["changed"][0]["args"]["0"],
            json!({ "before": null, "after": [{ "value": 1 }] })
        );
        assert_eq!(json["i386"]["complete"], json!({ "before": true, "after": false }));
    }

    #[test]
    fn an_abi_may_be_absent() {
        let one = plan(Abi::I386, &[(1, "exit", &[])]);
        let difference = Difference::of(&one, &Syscalls::default());
        assert_eq!(difference.text(), "i386:\n  complete -> not scanned\n-      1  exit\n");
    }
}

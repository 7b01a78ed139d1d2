//! A seccomp profile for container runtimes (the Linux section of the OCI runtime specification; Docker and Podman read
//! it from a file).

use std::collections::BTreeSet;

use kisa::low_mask;
use kplan::Abi;
use serde_json::{Value, json};

use super::{Action, Allowed, Errno, Filter};

/// Maximum number of rules for one call. The kernel's filter has 4096 instructions for all calls.
const MAX_RULES: usize = 32;

/// Returns the profile.
///
/// A call whose arguments may have several values has a rule for each combination, because all conditions of a rule
/// must hold together. If there are too many combinations, the argument with the most values is unrestricted.
pub fn profile(filter: &Filter) -> Value {
    let default = match filter.action {
        Action::Errno(_) => "SCMP_ACT_ERRNO",
        Action::Kill => "SCMP_ACT_KILL_PROCESS",
        Action::Log => "SCMP_ACT_LOG",
    };
    let architectures: Vec<&str> = filter.abis.iter().map(|&abi| architecture(abi)).collect();
    let free = filter.calls.iter().filter(|(_, allowed)| allowed.arguments.is_empty());
    let names: Vec<&String> = free.map(|(name, _)| name).collect();
    let mut rules = vec![json!({ "names": names, "action": "SCMP_ACT_ALLOW" })];
    for (name, allowed) in filter.calls.iter().filter(|(_, allowed)| !allowed.arguments.is_empty()) {
        rules.extend(
            combinations(allowed)
                .into_iter()
                .map(|args| json!({ "names": [name], "action": "SCMP_ACT_ALLOW", "args": args })),
        );
    }
    let mut profile = json!({ "defaultAction": default, "architectures": architectures, "syscalls": rules });
    // Runtimes use EPERM by default.
    if let Action::Errno(errno) = filter.action
        && errno != Errno::EPERM
    {
        profile["defaultErrnoRet"] = errno.into_raw().into();
    }
    profile
}

fn architecture(abi: Abi) -> &'static str {
    match abi {
        Abi::I386 => "SCMP_ARCH_X86",
        Abi::X86_64 => "SCMP_ARCH_X86_64",
        Abi::X32 => "SCMP_ARCH_X32",
        Abi::Arm => "SCMP_ARCH_ARM",
        Abi::Aarch64 => "SCMP_ARCH_AARCH64",
    }
}

/// Returns the combinations of conditions under which a call is allowed; one without conditions if they are too many.
fn combinations(allowed: &Allowed) -> Vec<Vec<Value>> {
    let mut arguments: Vec<(u8, Vec<u64>)> = allowed
        .arguments
        .values
        .iter()
        .map(|(&index, values)| {
            let seen = low_mask(allowed.bits.get(&index).map_or(8, |bits| bits / 8));
            let values: BTreeSet<u64> = values.iter().map(|value| value.value & seen).collect();
            (index, values.into_iter().collect())
        })
        .collect();
    let rules =
        |arguments: &[(u8, Vec<u64>)]| arguments.iter().map(|(_, values)| values.len()).product::<usize>();
    while rules(&arguments) > MAX_RULES {
        let largest = arguments.iter().enumerate().max_by_key(|(_, (_, values))| values.len());
        let Some((place, _)) = largest else { break };
        arguments.remove(place);
    }
    let mut combinations = vec![Vec::new()];
    for (index, values) in arguments {
        combinations = combinations
            .iter()
            .flat_map(|conditions: &Vec<Value>| {
                values.iter().map(move |&value| {
                    let condition = condition(index, value, allowed.bits.get(&index).copied());
                    [&conditions[..], &[condition]].concat()
                })
            })
            .collect();
    }
    combinations
}

/// Returns the condition that an argument has a value, in the bits that the kernel reads.
fn condition(index: u8, value: u64, bits: Option<u8>) -> Value {
    match bits {
        Some(bits) => {
            let mask = low_mask(bits / 8);
            json!({ "index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ" })
        }
        None => json!({ "index": index, "value": value, "op": "SCMP_CMP_EQ" }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::plan;
    use super::*;

    #[test]
    fn a_rule_for_each_combination() {
        let plan = plan(
            Abi::X86_64,
            &[(0, "read", &[]), (9, "mmap", &[(0, &[0]), (2, &[1, 3])]), (16, "ioctl", &[(1, &[0x5401])])],
        );
        let profile = profile(&Filter::new(&plan, Action::ERRNO, true, &[]));
        let allow = "SCMP_ACT_ALLOW";
        let equal = |index, value| json!({ "index": index, "value": value, "op": "SCMP_CMP_EQ" });
        let expected = json!({
            "defaultAction": "SCMP_ACT_ERRNO",
            "architectures": ["SCMP_ARCH_X86_64"],
            "syscalls": [
                { "names": ["execve", "read"], "action": allow },
                { "names": ["ioctl"], "action": allow, "args": [
                    { "index": 1, "value": 0xffff_ffffu32, "valueTwo": 0x5401, "op": "SCMP_CMP_MASKED_EQ" }
                ] },
                { "names": ["mmap"], "action": allow, "args": [equal(0, 0), equal(2, 1)] },
                { "names": ["mmap"], "action": allow, "args": [equal(0, 0), equal(2, 3)] },
            ]
        });
        assert_eq!(profile, expected);
    }

    #[test]
    fn what_has_too_many_values_is_left_out() {
        let many: Vec<u64> = (0..40).collect();
        let plan = plan(Abi::I386, &[(54, "ioctl", &[(0, &[1, 2]), (1, &many)])]);
        let profile = profile(&Filter::new(&plan, Action::Kill, true, &[]));
        assert_eq!(profile["defaultAction"], "SCMP_ACT_KILL_PROCESS");
        let rules = profile["syscalls"].as_array().unwrap();
        let conditions: Vec<&Value> = rules[1..].iter().map(|rule| &rule["args"]).collect();
        let equal = |value: u32| json!([{ "index": 0, "value": value, "op": "SCMP_CMP_EQ" }]);
        assert_eq!(conditions, [&equal(1), &equal(2)]);
    }
}

//! The plan that a command reads, from a named file or from a pipe.

use std::path::Path;

use kplan::Plan;

use crate::input::{is_piped_stdin, read_input};
use crate::run::Failure;

/// Returns the name of the input at `path` for messages: `standard input` for `-`.
pub fn input_name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".into() } else { path.display().to_string() }
}

/// Returns the path of an optional input: `-` if no path is given and standard input is piped, `None` if there is no
/// input.
pub fn named_or_piped(path: Option<&Path>) -> Option<&Path> {
    path.or_else(|| is_piped_stdin().then_some(Path::new("-")))
}

/// Reads the plan in the file at `path`, or on standard input for `-`.
///
/// # Errors
/// A failed job if the file cannot be read, bad input if it is not a plan. The message names the path.
pub fn read_plan(path: &Path) -> Result<Plan, Failure> {
    Plan::read(read_input(path)?.as_slice(), &input_name(path)).map_err(Failure::of)
}

/// Reads the plan that is piped to a command that adds to it, as [`Plan::read_piped`] does.
///
/// # Errors
/// As for [`read_plan`].
pub fn read_piped_plan() -> Result<Plan, Failure> {
    Plan::read_piped(std::io::stdin().lock(), &input_name(Path::new("-"))).map_err(Failure::of)
}

/// Checks that the system calls of a plan, if any, include those of the kernel's machine, given as `i386` or `arm`.
/// `path` names the plan.
///
/// # Errors
/// Bad input, if the plan has only system calls of other machines.
pub fn check_machine_of_plan(plan: &Plan, path: Option<&Path>, machine: &str) -> Result<(), Failure> {
    let Some(syscalls) = &plan.syscalls else { return Ok(()) };
    let found: Vec<String> = syscalls.abis.keys().map(|abi| abi.to_string()).collect();
    if found.is_empty() || found.iter().any(|abi| abi == machine) {
        return Ok(());
    }
    Err(Failure::bad_input(format!(
        "{}: the plan has the system calls of {}, but the kernel is for {machine}; scan the programs that run on it",
        input_name(path.unwrap_or(Path::new("-"))),
        found.join(", "),
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_that_is_not_there_is_no_bad_input() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plan.json");
        let failed = |content: &[u8]| {
            std::fs::write(&path, content).unwrap();
            let failure = read_plan(&path).unwrap_err();
            (failure.exit_code(), failure.message())
        };
        assert_eq!(read_plan(Path::new("/nonexistent")).unwrap_err().exit_code(), 1);
        for content in [&b""[..], b"{", b"\xff"] {
            let (code, message) = failed(content);
            assert!(code == 2 && message.contains("plan.json"), "{code} {message}");
        }
    }
}

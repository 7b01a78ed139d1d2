//! Commands that have to succeed.

use std::io;
use std::ops::ControlFlow;
use std::process::{Command, Output};

use kcli::Failure;
use kcli::scratch::{self, last_lines};

/// Runs a command that has to succeed. `what` describes it.
///
/// # Errors
/// A failed job if it does not.
pub fn run(command: &mut Command, what: &str) -> Result<(), Failure> {
    let output = scratch::run(command, |_| ControlFlow::Continue(()));
    succeeded(&output.map_err(|error| failed(command, what, &error))?, what)
}

/// Checks that a command has succeeded. `what` describes it.
///
/// # Errors
/// A failed job if it has not.
pub(crate) fn succeeded(output: &Output, what: &str) -> Result<(), Failure> {
    match output.status.success() {
        true => Ok(()),
        false => Err(Failure::job(format!("{what} failed ({}):{}", output.status, last_lines(output)))),
    }
}

/// Returns the error for a command that cannot be run.
pub(crate) fn failed(command: &Command, what: &str, error: &io::Error) -> Failure {
    Failure::job(format!("{what}: cannot run {}: {error}", command.get_program().to_string_lossy()))
}

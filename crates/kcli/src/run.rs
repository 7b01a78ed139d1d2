//! Runs a command, prints its error on standard error, and returns its exit code.
//!
//! | code | meaning |
//! | --- | --- |
//! | 0 | success, or the reader of standard output went away |
//! | 1 | the job failed: a file could not be read or written, a step failed; nothing was written |
//! | 2 | usage error or bad input: repeating the command cannot succeed |
//!
//! Code 2 is also the code of `clap` for a usage error. A script therefore treats a damaged kernel like a misspelt
//! option: the caller has to fix both.
//!
//! A closed pipe (`kelf size vmlinux | head -1`) silently ends a C program by `SIGPIPE`. Rust ignores that signal, and
//! the write returns [`std::io::ErrorKind::BrokenPipe`] instead. Restoring the signal would require `unsafe`. Recording
//! that the write failed does not, and broken pipes of child processes remain visible failures.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use crate::log;
use crate::output::stdout_is_closed;

/// An unsuccessful end of a command: its exit code and its message.
#[derive(Debug)]
pub enum Failure {
    /// The job failed; exit code 1.
    Job(Box<dyn Error + Send + Sync>),
    /// The input or the arguments were wrong; exit code 2.
    BadInput(Box<dyn Error + Send + Sync>),
}

impl Failure {
    /// Creates a failed job with this message.
    pub fn job(message: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Failure::Job(message.into())
    }

    /// Creates bad input with this message.
    pub fn bad_input(message: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Failure::BadInput(message.into())
    }

    /// Classifies an error as bad input or a failed job by its [`Fault`].
    pub fn of(error: impl Fault) -> Self {
        if error.is_bad_input() { Failure::bad_input(error) } else { Failure::job(error) }
    }

    /// Returns the exit code, as in the table at the top of this file.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::Job(_) => 1,
            Failure::BadInput(_) => 2,
        }
    }

    fn error(&self) -> &(dyn Error + Send + Sync + 'static) {
        match self {
            Failure::Job(error) | Failure::BadInput(error) => error.as_ref(),
        }
    }

    /// Returns the message followed by its causes, as `message: cause: cause of the cause`. Omits a cause that the text
    /// before it already quotes.
    pub fn message(&self) -> String {
        let mut message = self.error().to_string();
        let mut cause = self.error().source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !message.ends_with(&text) {
                let _ = write!(message, ": {text}");
            }
            cause = error.source();
        }
        message
    }
}

/// An error that says whether the input caused it ([`Failure::of`]).
pub trait Fault: Error + Send + Sync + 'static {
    /// Whether the input is at fault. If so, the same call on the same files cannot succeed; otherwise the job failed.
    fn is_bad_input(&self) -> bool;
}

impl Fault for kelf::Error {
    fn is_bad_input(&self) -> bool {
        kelf::Error::is_bad_input(self)
    }
}

impl Fault for kelf::DumpError {
    fn is_bad_input(&self) -> bool {
        kelf::DumpError::is_bad_input(self)
    }
}

impl Fault for kplan::Error {
    fn is_bad_input(&self) -> bool {
        kplan::Error::is_bad_input(self)
    }
}

/// Any other error is a failed job until [`OrBadInput::or_bad_input`] says otherwise.
impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Failure::Job(Box::new(error))
    }
}

/// Marks the error of a result as the caller's to fix.
pub trait OrBadInput<T> {
    /// Makes the error a [`Failure::BadInput`].
    ///
    /// # Errors
    /// The original error.
    fn or_bad_input(self) -> Result<T, Failure>;
}

impl<T, E: Error + Send + Sync + 'static> OrBadInput<T> for Result<T, E> {
    fn or_bad_input(self) -> Result<T, Failure> {
        self.map_err(|error| Failure::BadInput(Box::new(error)))
    }
}

/// Runs `command`, prints `name: error: …` on standard error if it fails, and returns the exit code for `main`. Uses
/// colour only on a terminal, and not if `NO_COLOR` is set. `KSHRINK_LOG` selects events to print on standard error.
pub fn main<E: Into<Failure>>(name: &str, command: impl FnOnce() -> Result<(), E>) -> ExitCode {
    let started = log::start().map_err(Failure::bad_input);
    let Err(failure) = started.and_then(|()| command().map_err(Into::into)) else {
        return ExitCode::SUCCESS;
    };
    if stdout_is_closed() {
        return ExitCode::SUCCESS;
    }
    let stderr = io::stderr();
    let (red, plain) = if stderr.is_terminal() && !no_color() { ("\x1b[1;31m", "\x1b[0m") } else { ("", "") };
    // If standard error is closed, only the exit code reports the failure.
    let _ = writeln!(stderr.lock(), "{name}: {red}error:{plain} {}", failure.message());
    ExitCode::from(failure.exit_code())
}

/// Whether the user asked for no colour (<https://no-color.org>).
fn no_color() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Outer(io::Error);

    impl std::fmt::Display for Outer {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("cannot read a.o")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn message_lists_causes() {
        let failure = Failure::from(Outer(io::Error::other("disk on fire")));
        assert_eq!(failure.message(), "cannot read a.o: disk on fire");
        assert_eq!(failure.exit_code(), 1);
    }

    #[test]
    fn bad_input_has_code_two() {
        let result: Result<(), _> = Err(io::Error::other("no"));
        assert_eq!(result.or_bad_input().unwrap_err().exit_code(), 2);
        assert_eq!(Failure::bad_input("no such option").message(), "no such option");
    }
}

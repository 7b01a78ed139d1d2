//! Running commands, always with a time limit, because a wrongly rewritten program is as likely to hang as to crash.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The default limit of a command.
const DEFAULT_LIMIT: Duration = Duration::from_secs(60);
/// Number of lines of a long output that a message quotes.
const QUOTED_LINES: usize = 30;

/// A command to run.
pub struct Run {
    command: Command,
    stdin: Vec<u8>,
    limit: Duration,
}

/// The outcome of a command.
pub struct Outcome {
    /// The command, for pasting into a shell.
    pub line: String,
    /// Its exit status; 128 + N for signal N, as in shells; `None` if it exceeded its time.
    pub status: Option<i32>,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: String,
    /// Its duration.
    pub time: Duration,
}

impl Run {
    /// A program, searched in `PATH` unless it has a slash. Its standard input is empty.
    pub fn new(program: impl AsRef<OsStr>) -> Run {
        Run { command: Command::new(program), stdin: Vec::new(), limit: DEFAULT_LIMIT }
    }

    /// One of the workspace's commands; the rewriter verifies its graphs.
    pub fn kshrink(name: &str) -> Run {
        let run = Run::new(crate::command(name));
        if name == "kshrink-spec" { run.arg("--verify") } else { run }
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Run {
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Run {
        self.command.args(arguments);
        self
    }

    /// Runs it in this directory.
    pub fn dir(mut self, dir: &Path) -> Run {
        self.command.current_dir(dir);
        self
    }

    /// Sets a variable of its environment.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Run {
        self.command.env(name, value);
        self
    }

    /// Passes these bytes on a pipe as standard input.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Run {
        self.stdin = bytes.into();
        self
    }

    /// Ends it, and everything that it started, after this time.
    pub fn limit(mut self, limit: Duration) -> Run {
        self.limit = limit;
        self
    }

    /// Returns the command, for pasting into a shell.
    pub fn line(&self) -> String {
        let dir =
            self.command.get_current_dir().map(|dir| format!("cd {} && ", shell_quoted(dir.as_os_str())));
        let variables = self
            .command
            .get_envs()
            .filter_map(|(name, value)| Some(format!("{}={}", name.to_string_lossy(), shell_quoted(value?))));
        let words =
            std::iter::once(self.command.get_program()).chain(self.command.get_args()).map(shell_quoted);
        dir.unwrap_or_default() + &variables.chain(words).collect::<Vec<_>>().join(" ")
    }

    /// Runs it to its end, with any outcome.
    pub fn outcome(self) -> Outcome {
        let line = self.line();
        let Run { mut command, stdin, limit } = self;
        let start = Instant::now();
        // A process group of its own, so that it can be killed with its children.
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(if stdin.is_empty() { Stdio::null() } else { Stdio::piped() });
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot run {line}: {error}"));
        let group = child.id();
        let pipe = child.stdin.take();
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            thread::scope(|scope| {
                // A command may end without reading all of its input.
                scope.spawn(move || pipe.map(|mut pipe| pipe.write_all(&stdin)));
                sender.send(child.wait_with_output())
            })
        });
        let (output, in_time) = match receiver.recv_timeout(limit) {
            Ok(output) => (output, true),
            Err(_) => {
                // Uses the shell's builtin kill, because a small system may lack the program of that name.
                let _ = Command::new("sh").args(["-c", &format!("kill -KILL -{group}")]).status();
                (receiver.recv().expect("the thread sends once"), false)
            }
        };
        let Output { status, stdout, stderr } = output.unwrap_or_else(|error| panic!("{line}: {error}"));
        let status = in_time.then(|| status.code().or(status.signal().map(|signal| 128 + signal)));
        Outcome {
            line,
            status: status.flatten(),
            stdout,
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
            time: start.elapsed(),
        }
    }

    /// Runs the command.
    ///
    /// # Errors
    /// The outcome as text, unless it exits with 0.
    pub fn result(self) -> Result<Outcome, String> {
        let outcome = self.outcome();
        if outcome.status == Some(0) { Ok(outcome) } else { Err(outcome.to_string()) }
    }

    /// Runs it, and panics with all details unless it exits with 0.
    pub fn succeed(self) -> Outcome {
        self.result().unwrap_or_else(|outcome| panic!("{outcome}"))
    }
}

impl Outcome {
    /// Its standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Whether it equals another outcome: the same output and the same exit status.
    pub fn equals(&self, other: &Outcome) -> bool {
        self.status == other.status && self.stdout == other.stdout && self.stderr == other.stderr
    }

    /// The first difference between this outcome and another one.
    pub fn difference(&self, other: &Outcome) -> String {
        let streams = [
            ("standard output", self.text(), other.text()),
            ("standard error", self.stderr.clone(), other.stderr.clone()),
        ];
        for (name, here, there) in streams {
            let mut lines = here.lines().zip(there.lines()).enumerate();
            if let Some((number, (here, there))) = lines.find(|(_, (here, there))| here != there) {
                return format!("line {} of {name} was {here:?} and is {there:?}", number + 1);
            }
            if here != there {
                let (before, after) = (here.lines().count(), there.lines().count());
                return format!("{name} had {before} lines and has {after}");
            }
        }
        format!("{} before, {} now", self.status_text(), other.status_text())
    }

    fn status_text(&self) -> String {
        match self.status {
            Some(status @ 129..) => format!("signal {}", status - 128),
            Some(status) => format!("status {status}"),
            None => format!("no end after {:.0?}", self.time),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.status_text())?;
        for (name, text) in [("standard output", &*self.text()), ("standard error", &*self.stderr)] {
            let lines: Vec<&str> = text.lines().collect();
            let skipped = lines.len().saturating_sub(QUOTED_LINES);
            if skipped > 0 {
                write!(f, "\n  {name}, its last lines:")?;
            } else if !lines.is_empty() {
                write!(f, "\n  {name}:")?;
            }
            for line in &lines[skipped..] {
                write!(f, "\n    {line}")?;
            }
        }
        Ok(())
    }
}

/// Quotes a word for a POSIX shell.
pub fn shell_quoted(word: &OsStr) -> String {
    let word = OsString::from(word).to_string_lossy().into_owned();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_status_and_input() {
        let outcome = Run::new("sh").args(["-c", "cat; echo oops >&2; exit 3"]).stdin("in\n").outcome();
        assert_eq!(
            (outcome.text().as_str(), outcome.stderr.as_str(), outcome.status),
            ("in\n", "oops\n", Some(3))
        );
        assert_eq!(outcome.line, "sh -c 'cat; echo oops >&2; exit 3'");
    }

    #[test]
    fn signals_are_not_success() {
        assert_eq!(Run::new("sh").args(["-c", "kill -SEGV $$"]).outcome().status, Some(139));
    }

    #[test]
    fn what_does_not_end_is_ended_with_its_children() {
        let run = Run::new("sh").args(["-c", "sleep 60 & wait"]).limit(Duration::from_millis(200));
        let outcome = run.outcome();
        assert_eq!(outcome.status, None);
        assert!(outcome.time < Duration::from_secs(20), "{outcome}");
    }
}

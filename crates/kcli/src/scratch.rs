//! Scratch directories and files, and commands that work in them. A signal that ends this process cleans up all of them.
//!
//! SIGINT, SIGTERM and SIGHUP kill the commands and everything that they started, remove the directories and files, and
//! then end the process as by default. Each command runs in a process group of its own, so that none of its processes survives.

use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, Once};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use tempfile::{NamedTempFile, TempDir};
use tracing::info_span;

/// The time between two attempts to remove a directory that a killed process may still have used.
const PAUSE: Duration = Duration::from_millis(20);
/// Maximum number of attempts to remove a directory.
const ATTEMPTS: usize = 100;

/// Number of lines at the end of make's output that an error message quotes.
const QUOTED_LINES: usize = 15;

/// Everything that a signal must not leave behind.
struct Registry {
    directories: Vec<PathBuf>,
    files: Vec<PathBuf>,
    /// The process groups of running commands.
    groups: Vec<Pid>,
}

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { directories: Vec::new(), files: Vec::new(), groups: Vec::new() });

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A directory that is removed when this is dropped, or when a signal ends the process.
pub struct ScratchDir {
    /// `None` only while it is dropped.
    dir: Option<TempDir>,
}

impl ScratchDir {
    /// Makes an empty directory in `parent`, whose name begins with `prefix`.
    ///
    /// # Errors
    /// The errors of the file system, and of installing the signal handlers.
    pub fn new_in(parent: &Path, prefix: &str) -> io::Result<ScratchDir> {
        watch_signals()?;
        let mut registry = registry();
        let dir = tempfile::Builder::new().prefix(prefix).tempdir_in(parent)?;
        registry.directories.push(dir.path().to_path_buf());
        Ok(ScratchDir { dir: Some(dir) })
    }

    /// Moves `part`, the directory or something in it, to another name, and removes the rest. A signal that comes
    /// meanwhile removes all or only the rest.
    ///
    /// # Errors
    /// The errors of the file system. Then everything is removed.
    pub fn keep(mut self, part: &Path, name: &Path) -> io::Result<()> {
        let mut registry = registry();
        let Some(dir) = self.dir.take() else { return Ok(()) };
        let path = dir.path().to_path_buf();
        let renamed = fs::rename(part, name);
        if renamed.is_ok() && part == path {
            let _ = dir.keep();
        }
        registry.directories.retain(|other| *other != path);
        renamed
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        self.dir.as_ref().expect("a directory until it is dropped").path()
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // Holds the lock to the end: the process must not exit while a signal handler removes the same directory.
        let mut registry = registry();
        if let Some(dir) = self.dir.take() {
            registry.directories.retain(|path| path != dir.path());
        }
    }
}

/// A file that is removed when this is dropped, or when a signal ends the process.
#[derive(Debug)]
pub(crate) struct ScratchFile {
    /// `None` only while it is dropped.
    file: Option<NamedTempFile>,
}

impl ScratchFile {
    /// Makes an empty file in `parent`, whose name begins with `prefix`.
    ///
    /// # Errors
    /// The errors of the file system, and of installing the signal handlers.
    pub(crate) fn new_in(parent: &Path, prefix: &str, permissions: Permissions) -> io::Result<ScratchFile> {
        watch_signals()?;
        let mut registry = registry();
        let file = tempfile::Builder::new().prefix(prefix).permissions(permissions).tempfile_in(parent)?;
        registry.files.push(file.path().to_path_buf());
        Ok(ScratchFile { file: Some(file) })
    }

    /// Gives the file another name.
    ///
    /// # Errors
    /// The errors of the file system. Then the file is removed, and one that already had the name is unchanged.
    pub(crate) fn keep(mut self, name: &Path) -> io::Result<()> {
        let mut registry = registry();
        let Some(file) = self.file.take() else { return Ok(()) };
        let path = file.path().to_path_buf();
        let renamed = file.persist(name).map(drop).map_err(|error| error.error);
        registry.files.retain(|other| *other != path);
        renamed
    }

    fn file(&mut self) -> &mut NamedTempFile {
        self.file.as_mut().expect("a file until it is dropped")
    }
}

impl Write for ScratchFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        let mut registry = registry();
        if let Some(file) = self.file.take() {
            registry.files.retain(|path| path != file.path());
        }
    }
}

/// Runs a command without input, and returns its output. Calls `watch` with each line of its standard output as it is
/// written; `Break` kills the command and everything that it started.
///
/// # Errors
/// If the command cannot be started, or its output cannot be read.
pub fn run(command: &mut Command, mut watch: impl FnMut(&str) -> ControlFlow<()>) -> io::Result<Output> {
    let _span = info_span!("command", line = ?command).entered();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let (mut child, group) = start(command)?;
    let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut err = child.stderr.take().expect("a pipe");
    let errors = thread::spawn(move || {
        let mut bytes = Vec::new();
        err.read_to_end(&mut bytes).map(|_| bytes)
    });
    let mut stdout = Vec::new();
    loop {
        let start = stdout.len();
        if out.read_until(b'\n', &mut stdout)? == 0 {
            break;
        }
        if watch(&String::from_utf8_lossy(&stdout[start..])).is_break() {
            kill(group);
            break;
        }
    }
    let stderr = errors.join().expect("reading does not panic")?;
    registry().groups.retain(|&other| other != group);
    Ok(Output { status: child.wait()?, stdout, stderr })
}

/// Runs a user's command, `sh -c COMMAND NAME PATH`, without input, and returns its output.
///
/// # Errors
/// If the shell cannot be started, or the output cannot be read.
pub fn run_shell(command: &str, name: &str, path: &Path) -> io::Result<Output> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).arg(name).arg(path);
    run(&mut shell, |_| ControlFlow::Continue(()))
}

/// The last lines of a command's output, to be quoted in a message.
pub fn last_lines(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(QUOTED_LINES)..].iter().map(|line| format!("\n  {line}")).collect()
}

/// Starts a command in a process group of its own, and registers the group.
fn start(command: &mut Command) -> io::Result<(Child, Pid)> {
    let mut registry = registry();
    let child = command.spawn()?;
    let group = Pid::from_child(&child);
    registry.groups.push(group);
    Ok((child, group))
}

fn kill(group: Pid) {
    // The only possible error is that the group has already ended.
    let _ = kill_process_group(group, Signal::KILL);
}

/// Installs the signal handlers, once, for signals that this process does not ignore (`nohup` makes it ignore some).
fn watch_signals() -> io::Result<()> {
    static STARTED: Once = Once::new();
    let mut result = Ok(());
    STARTED.call_once(|| {
        let ignored = ignored_signals();
        let watched = [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
        result = Signals::new(watched).map(|mut signals| {
            thread::spawn(move || {
                if let Some(signal) = signals.forever().next() {
                    end(signal);
                }
            });
        });
    });
    result
}

/// The signals that this process ignores, as a bit set: bit N - 1 is signal N (proc(5), `SigIgn`).
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

/// Removes everything that is registered, and ends the process by the signal. The lock is held, so no command starts
/// meanwhile.
fn end(signal: i32) {
    let registry = registry();
    registry.groups.iter().for_each(|&group| kill(group));
    for directory in &registry.directories {
        let mut attempts = 0..ATTEMPTS;
        while fs::remove_dir_all(directory).is_err() && directory.exists() && attempts.next().is_some() {
            thread::sleep(PAUSE);
        }
    }
    for file in &registry.files {
        let _ = fs::remove_file(file);
    }
    let _ = emulate_default_handler(signal);
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn run_returns_output_and_passes_lines() {
        let mut lines = Vec::new();
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo two; echo oops >&2; exit 3"]);
        let output = run(&mut command, |line| {
            lines.push(line.to_owned());
            ControlFlow::Continue(())
        });
        let output = output.expect("sh runs");
        assert_eq!(lines, ["one\n", "two\n"]);
        assert_eq!(
            (output.stdout.as_slice(), output.stderr.as_slice()),
            (&b"one\ntwo\n"[..], &b"oops\n"[..])
        );
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn run_break_kills_children_too() {
        let start = Instant::now();
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & echo line; wait"]);
        let output = run(&mut command, |_| ControlFlow::Break(())).expect("sh runs");
        assert!(!output.status.success());
        // The pipe of standard error closes when the last process ends.
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    }

    #[test]
    fn scratch_dir_keep_renames() {
        let parent = tempfile::tempdir().expect("a directory");
        let scratch = ScratchDir::new_in(parent.path(), "scratch-").expect("a directory");
        fs::write(scratch.path().join("file"), "text").expect("a file");
        let path = scratch.path().to_path_buf();
        scratch.keep(&path, &parent.path().join("kept")).expect("another name");
        assert!(parent.path().join("kept/file").exists());
        assert_eq!(fs::read_dir(parent.path()).expect("a directory").count(), 1);
    }

    #[test]
    fn scratch_dir_drop_removes_contents() {
        let parent = tempfile::tempdir().expect("a directory");
        let scratch = ScratchDir::new_in(parent.path(), "scratch-").expect("a directory");
        let path = scratch.path().to_path_buf();
        fs::write(path.join("file"), "text").expect("a file");
        drop(scratch);
        assert!(!path.exists());
        assert!(!registry().directories.contains(&path));
    }
}

/*!
For any defect of its input, a command prints one clear error, exits with the status that `--help` documents, and
leaves nothing behind.

A case is a command line, the exit status, and words that the error has to contain: the file, the place in it, the
remedy. Every case also has to satisfy [`Case::check`].
*/

mod inputs;
mod kernels;
mod rows;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::time::Duration;

use kernels::KERNELS;
use kshrink_tests::{Outcome, Run, command, parallel, recipe};
use rows::{BAD, OBJECTS, PIPED, PRINTING, PROGRAMS, Row, USAGE};
use tempfile::TempDir;

/// The address space of a command, in KiB: less than the size of the disk image.
const MEMORY_LIMIT_KIB: u32 = 4 << 20;

#[test]
fn objects_programs_and_usage() {
    recipe("install.sh", &["programs"]);
    let dir = directory();
    inputs::objects(dir.path());
    check_all(dir.path(), [OBJECTS, PROGRAMS, USAGE].concat().iter().map(|row| Case::new(row, "")));
}

#[test]
fn kernels_plans_and_outputs() {
    recipe("install.sh", &["programs"]);
    let dir = directory();
    inputs::objects(dir.path());
    inputs::kernels(dir.path());
    let piped = PIPED.iter().map(|(row, stdin)| Case::new(row, stdin));
    check_all(dir.path(), KERNELS.iter().map(|row| Case::new(row, "")).chain(piped));
}

#[test]
fn closed_pipes() {
    recipe("install.sh", &["programs"]);
    let dir = directory();
    inputs::objects(dir.path());
    inputs::census(dir.path());
    symlink(recipe("kernels/build.sh", &["web-i386"]), dir.path().join("build")).expect("a link");
    for line in PRINTING {
        check_closed_pipe(dir.path(), line);
    }
}

fn directory() -> TempDir {
    let dir = tempfile::Builder::new().prefix("kshrink-bad-input-").tempdir().expect("a temporary directory");
    // The directory for the commands' own temporary files, so that these are checked, too.
    fs::create_dir(dir.path().join("tmp")).expect("a directory");
    dir
}

struct Case {
    line: &'static str,
    status: i32,
    says: &'static [&'static str],
    stdin: &'static str,
}

impl Case {
    fn new(&(line, status, says): &Row, stdin: &'static str) -> Case {
        Case { line, status, says, stdin }
    }

    fn run(&self, dir: &Path) -> Outcome {
        let mut words = self.line.split(' ');
        let limited = format!("ulimit -c 0; ulimit -v {MEMORY_LIMIT_KIB}; exec \"$0\" \"$@\"");
        let run = Run::new("sh").args(["-c", &limited]).arg(command(words.next().unwrap_or_default()));
        let run = run.args(words).dir(dir).env("TMPDIR", dir.join("tmp"));
        run.stdin(self.stdin).limit(Duration::from_secs(120)).outcome()
    }

    /// Describes the problems of an outcome.
    fn check(&self, outcome: &Outcome) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut expect = |holds: bool, what: &str| {
            if !holds {
                wrong.push(what.to_owned());
            }
        };
        expect(outcome.status == Some(self.status), &format!("expected status {}", self.status));
        expect(outcome.stdout.is_empty(), "nothing should be on standard output");
        expect(!outcome.stderr.contains("panicked"), "it panicked");
        let command = self.line.split(' ').next().unwrap_or_default();
        let ours = format!("{command}: error: ");
        let lines: Vec<&str> = outcome.stderr.lines().collect();
        let errors = lines.iter().filter(|line| line.contains("error: ")).count();
        if lines.first().is_some_and(|line| line.starts_with("error: ")) {
            // The argument parser has its own style, with the usage in further lines.
            expect(outcome.status == Some(BAD), "a usage error has status 2");
        } else {
            expect(lines.first().is_some_and(|line| line.starts_with(&ours)), &format!("expected `{ours}…`"));
            // The output of a failed step of the kernel's build is quoted below, indented.
            let quoted = lines.iter().skip(1).all(|line| line.starts_with("  "));
            expect(quoted && (errors == 1 || lines.len() > 1), "expected one line");
        }
        for word in self.says {
            expect(outcome.stderr.contains(word), &format!("the error should contain `{word}`"));
        }
        // Output of make may name them: make runs in the copy of the build directory.
        for temporary in [".kshrink-", ".tmp"] {
            let named = lines.first().is_some_and(|line| line.contains(temporary));
            expect(!named, &format!("the error names a temporary file, {temporary}…"));
        }
        wrong
    }
}

/// Runs all cases, and fails with a list of all problems.
fn check_all(dir: &Path, cases: impl Iterator<Item = Case>) {
    let cases: Vec<Case> = cases.collect();
    let before = listing(dir);
    let mut failures: Vec<String> = parallel(cases.len(), |i| {
        let outcome = cases[i].run(dir);
        let wrong = cases[i].check(&outcome);
        (!wrong.is_empty()).then(|| format!("{}\n  {}\n  {outcome}", cases[i].line, wrong.join("\n  ")))
    })
    .into_iter()
    .flatten()
    .collect();
    failures.extend(changes(&before, &listing(dir)));
    assert!(
        failures.is_empty(),
        "{} failures of {} cases\n\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n\n")
    );
}

/// A closed pipe is not an error: nothing is printed, and the status is 0.
fn check_closed_pipe(dir: &Path, line: &str) {
    let (name, arguments) = line.split_once(' ').expect("arguments");
    // The reader has exited before the command starts.
    let script = format!("{{ sleep 0.2; \"$COMMAND\" {arguments}; echo \"status $?\" >&2; }} | true");
    let run = Run::new("sh").args(["-c", &script]).dir(dir).env("COMMAND", command(name));
    let outcome = run.limit(Duration::from_secs(120)).outcome();
    assert_eq!(outcome.stderr, "status 0\n", "{line} | true");
}

/// Size and time of modification in nanoseconds of every file below a directory.
fn listing(dir: &Path) -> BTreeMap<String, (u64, i64)> {
    let mut files = BTreeMap::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(&next).unwrap_or_else(|error| panic!("{}: {error}", next.display())) {
            let path = entry.expect("an entry").path();
            let metadata =
                path.symlink_metadata().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            if metadata.is_dir() {
                dirs.push(path);
            } else {
                let time = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
                files.insert(path.display().to_string(), (metadata.len(), time));
            }
        }
    }
    files
}

fn changes(before: &BTreeMap<String, (u64, i64)>, after: &BTreeMap<String, (u64, i64)>) -> Vec<String> {
    let appeared =
        after.keys().filter(|file| !before.contains_key(*file)).map(|file| format!("left behind: {file}"));
    let changed = before.iter().filter(|(file, was)| after.get(*file) != Some(was));
    appeared.chain(changed.map(|(file, _)| format!("changed or removed: {file}"))).collect()
}

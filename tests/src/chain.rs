//! Chains of commands that are recorded, so that a failure can be repeated by hand: commands that compile, rewrite,
//! link and run programs, for i386 by default, and any other command of a test.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::{Machine, Outcome, Run, order, places};

/// Rewriting a user program takes less than a second, or a few seconds for the largest.
const REWRITE_LIMIT: Duration = Duration::from_secs(60);

/// Removes unreachable code, and merges identical functions.
pub const DEDUPLICATED: &str = "reach,icf";
/// Removes what can be removed, and puts the remaining code in a random order.
pub const SHUFFLED: &str = "reach,icf,inline,merge,layout";
/// Also puts a store before every block. Not for position-independent programs, because the stores use absolute
/// addresses, as in a kernel.
pub const INSTRUMENTED: &str = "reach,merge,instrument,layout";
/// Makes every kind of edit (see `kopt::exercise`): blocks split and added, functions moved, dead registers
/// overwritten, also around merged code. Adds stores to absolute addresses, as [`INSTRUMENTED`] does.
pub const EXERCISED: &str = "reach,inline,merge,exercise,layout";

/// Propagates constants through the whole program, puts functions in the place of their only call, and puts the code in
/// a random order.
pub const PROPAGATED: &str = "reach,fold,inline,layout";

/// Moves random functions, random parts of functions and all constants to the frozen sections, and puts the rest in a
/// random order.
pub const FROZEN: &str = "reach,freeze,layout";

/// The commands of a failed test, as a script that runs them again.
const SCRIPT: &str = "repeat.sh";

/// A sequence of commands in a directory of its own. Dropping it removes the directory, unless the commands failed:
/// then the directory becomes `target/failed/NAME`.
pub struct Chain {
    name: String,
    machine: Machine,
    dir: TempDir,
    lines: Vec<String>,
    /// Further commands to run after a failure.
    after_failure: Vec<Run>,
}

/// The rewriter's report about a program, as far as tests read it.
#[derive(Clone, Debug, Default)]
pub struct Rewritten {
    /// Number of opaque parts, by reason.
    pub opaque: BTreeMap<String, usize>,
}

impl Chain {
    /// Creates an empty directory, without commands. Removes the directory of an earlier failure with this name in
    /// `target/failed/`. Tests that run at the same time need different names; characters other than letters, digits
    /// and `-_.=+,` are replaced.
    pub fn new(name: &str) -> Chain {
        let plain = |c: char| if c.is_alphanumeric() || "-_.=+,".contains(c) { c } else { '-' };
        let name: String = name.chars().map(plain).collect();
        let earlier = failed_dir(&name);
        if earlier.exists() {
            fs::remove_dir_all(&earlier).unwrap_or_else(|error| panic!("{}: {error}", earlier.display()));
        }
        // In the file system of its final place, so that it can be renamed if the commands fail.
        let dir = tempfile::Builder::new().prefix("kshrink-tests-").tempdir_in(places::target_dir());
        let dir = dir.expect("a temporary directory");
        Chain { name, machine: Machine::I386, dir, lines: Vec::new(), after_failure: Vec::new() }
    }

    /// Compiles and links for this machine.
    pub fn on(self, machine: Machine) -> Chain {
        Chain { machine, ..self }
    }

    /// Runs a test. If it panics, panics with its message and the directory where its files and commands are kept.
    pub fn check<T>(name: &str, test: impl FnOnce(&mut Chain) -> T) -> T {
        let mut chain = Chain::new(name);
        panic::catch_unwind(AssertUnwindSafe(|| test(&mut chain))).unwrap_or_else(|payload| {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let why = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
            panic!("{}", chain.failed(name, why))
        })
    }

    /// The directory, in which every command runs.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Runs a command, with any exit status.
    pub fn attempt(&mut self, run: Run) -> Outcome {
        self.lines.push(run.line());
        run.dir(self.dir.path()).outcome()
    }

    /// Runs a command that has to exit with 0.
    ///
    /// # Errors
    /// The outcome as text if it does not.
    pub fn step(&mut self, run: Run) -> Result<Outcome, String> {
        self.lines.push(run.line());
        run.dir(self.dir.path()).result()
    }

    /// Runs a command that has to exit with 0, and otherwise panics with all details.
    pub fn succeed(&mut self, run: Run) -> Outcome {
        self.step(run).unwrap_or_else(|outcome| panic!("{outcome}"))
    }

    /// Writes a file in the directory.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        fs::write(self.dir().join(name), contents).unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// If the commands fail, also runs this one, with any exit status, to make files that help to find the cause.
    pub fn after_failure(&mut self, run: Run) {
        self.after_failure.push(run);
    }

    /// Compiles C.
    ///
    /// # Errors
    /// The outcome as text if the compiler fails.
    pub fn compile(&mut self, source: impl AsRef<OsStr>, object: &str, flags: &[&str]) -> Result<(), String> {
        let run = self.machine.gcc().args(flags).arg("-c").arg(source).args(["-o", object]);
        self.step(run).map(drop)
    }

    /// Links a program; archives among its objects may depend on one another. Returns the linker's warnings without
    /// places and object names, which rewriting changes.
    ///
    /// # Errors
    /// The outcome as text if the linker fails.
    pub fn link(
        &mut self,
        program: &str,
        objects: &[&str],
        flags: &[&str],
    ) -> Result<BTreeSet<String>, String> {
        let run = self.machine.gcc().args(["-o", program, "-Wl,--start-group"]).args(objects);
        let outcome = self.step(run.arg("-Wl,--end-group").args(flags))?;
        let warnings = outcome.stderr.lines().filter_map(|line| Some(line.split_once("warning: ")?.1));
        let bare = |warning: &str| match warning.split_once(": ") {
            Some((place, about_it)) if objects.contains(&place) => about_it.to_owned(),
            _ => warning.to_owned(),
        };
        Ok(warnings.map(bare).collect())
    }

    /// Rewrites the objects of a program into one, with any exit status. Pass `layout` gets a random order, and
    /// `freeze` random code.
    pub fn attempt_rewrite(&mut self, output: &str, objects: &[&str], entry: &str, passes: &str) -> Outcome {
        let run = Run::kshrink("kshrink-spec").arg("--objects").args(objects).args(["--entry", entry]);
        let mut run =
            run.args(["--passes", passes, "--merge", "all", "--emit-object", output]).limit(REWRITE_LIMIT);
        // The C library of a static program has cleanups, which only a cancelled thread runs.
        run = run.arg("--drop-handlers");
        if passes.split(',').any(|pass| ["layout", "freeze"].contains(&pass)) {
            let paths: Vec<PathBuf> = objects.iter().map(|object| self.dir().join(object)).collect();
            let named = objects.iter().copied().zip(paths.iter().map(PathBuf::as_path));
            let plan = order::random(named, objects.len() as u64);
            self.write("order.json", plan);
            run = run.args(["--plan", "order.json"]);
        }
        self.attempt(run)
    }

    /// Rewrites the objects of a program into one. The pass `layout` gets a random order.
    ///
    /// # Errors
    /// The outcome as text if the rewriter fails.
    pub fn rewrite(
        &mut self,
        output: &str,
        objects: &[&str],
        entry: &str,
        passes: &str,
    ) -> Result<Rewritten, String> {
        let outcome = self.attempt_rewrite(output, objects, entry, passes);
        if outcome.status == Some(0) {
            Ok(Rewritten::parse(&outcome.stderr))
        } else {
            Err(outcome.to_string())
        }
    }

    /// Rewrites an object from [`Chain::rewrite`] again with the same passes, and compares: passes that only remove
    /// have nothing left to do. `once` is the rewriter's first report.
    ///
    /// # Errors
    /// The outcome as text if the rewriter fails, or the difference of the second object.
    pub fn rewrites_to_itself(
        &mut self,
        object: &str,
        entry: &str,
        passes: &str,
        once: &Rewritten,
    ) -> Result<(), String> {
        let again = format!("again-{object}");
        let twice = self.rewrite(&again, &[object], entry, passes)?;
        // If no code of an object is split, the object is not changed, either.
        if once.opaque.values().sum::<usize>() != twice.opaque.values().sum::<usize>() {
            return Err(format!("{object}: opaque {:?}, then {:?}", once.opaque, twice.opaque));
        }
        let read = |name: &str| fs::read(self.dir().join(name)).map_err(|error| format!("{name}: {error}"));
        same_bytes((object, &read(object)?), (&again, &read(&again)?))
    }

    /// Keeps the directory as `target/failed/NAME`, together with the commands as a script, and returns the failure and
    /// the commands before it.
    pub fn failed(mut self, what: &str, why: &str) -> String {
        for run in std::mem::take(&mut self.after_failure) {
            self.attempt(run);
        }
        let Chain { name, dir, lines, .. } = self;
        let (temporary, kept) = (dir.keep(), failed_dir(&name));
        // Messages and commands may contain the name of the directory.
        let moved = |text: &str| text.replace(&*temporary.to_string_lossy(), &kept.to_string_lossy());
        let lines: Vec<String> = lines.iter().map(|line| moved(line)).collect();
        let head = format!("#!/bin/sh\n# Runs again what led to the failure of {what}.\n");
        let script = format!("{head}cd \"$(dirname \"$0\")\" || exit\nset -x\n{}\n", lines.join("\n"));
        let keep = || {
            fs::write(temporary.join(SCRIPT), script)?;
            fs::create_dir_all(kept.parent().unwrap_or(&kept))?;
            fs::rename(&temporary, &kept)
        };
        let place = match keep() {
            Ok(()) => format!("{}, again with `sh {SCRIPT}`", kept.display()),
            Err(error) => format!("{} (not in {}: {error})", temporary.display(), kept.display()),
        };
        let lines = lines.join("\n    ");
        format!("{what}: {}\n  what led to it, in {place}:\n    {lines}", moved(why))
    }
}

/// Compares two files, each with its name.
///
/// # Errors
/// The first difference.
pub fn same_bytes(one: (&str, &[u8]), other: (&str, &[u8])) -> Result<(), String> {
    if one.1 == other.1 {
        return Ok(());
    }
    let alike = one.1.iter().zip(other.1).take_while(|(one, other)| one == other).count();
    let (one, other) = ((one.0, one.1.len()), (other.0, other.1.len()));
    Err(format!(
        "{} ({} bytes) and {} ({} bytes) differ from byte {alike} on",
        one.0, one.1, other.0, other.1
    ))
}

/// Returns the directory for a failure of this name.
fn failed_dir(name: &str) -> PathBuf {
    places::target_dir().join("failed").join(name)
}

impl Rewritten {
    /// Reads the lines `opaque: 3 × reason` of the report.
    pub fn parse(report: &str) -> Rewritten {
        let lines = report.lines().filter_map(|line| line.strip_prefix("opaque: "));
        let counts = lines.filter_map(|line| line.split_once(" × "));
        let counts = counts.filter_map(|(count, reason)| Some((reason.to_owned(), count.parse().ok()?)));
        Rewritten { opaque: counts.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the panic message of a failing test.
    fn failure(test: impl FnOnce()) -> String {
        let payload = panic::catch_unwind(AssertUnwindSafe(test)).expect_err("a failure");
        *payload.downcast::<String>().expect("a message")
    }

    #[test]
    fn a_failure_leaves_files_and_commands_until_it_passes() {
        let (name, kept) = ("chain: itself", failed_dir("chain--itself"));
        let made = |name: &str| Run::new("sh").args(["-c", &format!("echo made >> {name}")]);
        for _ in 0..2 {
            let message = failure(|| {
                Chain::check(name, |chain| {
                    chain.after_failure(made("object"));
                    chain.write("input", "bad");
                    chain.step(made("report")).expect("it writes a file");
                    let here = chain.dir().join("input");
                    chain.succeed(Run::new("grep").arg("good").arg(here));
                });
            });
            let (place, input) = (kept.display().to_string(), kept.join("input").display().to_string());
            for part in ["chain: itself: ", "grep good", "status 1", &place, &input, SCRIPT] {
                assert!(message.contains(part), "no {part} in {message}");
            }
            let read = |name: &str| fs::read_to_string(kept.join(name)).expect("a kept file");
            assert_eq!([read("input"), read("report"), read("object")], ["bad", "made\n", "made\n"]);
            // Again by hand: the same commands in the same directory.
            Run::new("sh").arg(kept.join(SCRIPT)).outcome();
            assert_eq!(read("report"), "made\nmade\n");
        }
        Chain::check(name, |chain| drop(chain.succeed(made("report"))));
        assert!(!kept.exists(), "{} is still there", kept.display());
    }

    #[test]
    fn a_failure_that_is_returned_is_kept_alike() {
        let mut chain = Chain::new("chain-returned");
        let why = chain.step(Run::new("false")).err().expect("a failure");
        let message = chain.failed("returned", &why);
        let kept = failed_dir("chain-returned");
        assert!(message.contains(&*kept.to_string_lossy()), "{message}");
        assert!(fs::read_to_string(kept.join(SCRIPT)).expect("the commands").ends_with("\nfalse\n"));
        drop(Chain::new("chain-returned"));
        assert!(!kept.exists());
    }
}

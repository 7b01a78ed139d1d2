//! Compiles, rewrites, links and runs i386 programs, and remembers how, so that a failure can be repeated by
//! hand.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::{Outcome, Run, order};

/// The cross compiler of Debian's package gcc-i686-linux-gnu.
const GCC: &str = "i686-linux-gnu-gcc";
/// A rewrite of a user program takes well below a second, of the largest a few.
const REWRITE_LIMIT: Duration = Duration::from_secs(60);

/// Passes that change all that can be changed without leaving anything out that runs: code in a random order.
pub const SHUFFLED: &str = "reach,layout";
/// The same, with a store in front of every block. Not for programs that may be loaded anywhere, because the stores
/// are to absolute addresses, as they may be in a kernel.
pub const INSTRUMENTED: &str = "reach,instrument,layout";

/// Commands that follow one another in a directory of their own. The directory goes when this does.
pub struct Chain {
    dir: TempDir,
    lines: Vec<String>,
}

/// What the rewriter said about a program.
#[derive(Clone, Debug, Default)]
pub struct Rewritten {
    /// How much code was carried whole, by reason.
    pub opaque: BTreeMap<String, usize>,
}

impl Chain {
    /// An empty directory and no command yet.
    pub fn new() -> Chain {
        let dir = tempfile::Builder::new().prefix("kshrink-tests-").tempdir().expect("a temporary directory");
        Chain { dir, lines: Vec::new() }
    }

    /// The directory, in which every command runs.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Runs a command whatever it exits with.
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

    /// Compiles C.
    ///
    /// # Errors
    /// The outcome as text if the compiler fails.
    pub fn compile(&mut self, source: impl AsRef<OsStr>, object: &str, flags: &[&str]) -> Result<(), String> {
        let run = Run::new(GCC).arg("-m32").args(flags).arg("-c").arg(source).args(["-o", object]);
        self.step(run).map(drop)
    }

    /// Links a program; archives among its objects may need one another. Returns the linker's warnings
    /// without the places that they are about, which rewriting changes.
    ///
    /// # Errors
    /// The outcome as text if the linker fails.
    pub fn link(
        &mut self,
        program: &str,
        objects: &[&str],
        flags: &[&str],
    ) -> Result<BTreeSet<String>, String> {
        let run = Run::new(GCC).args(["-m32", "-o", program, "-Wl,--start-group"]).args(objects);
        let outcome = self.step(run.arg("-Wl,--end-group").args(flags))?;
        let warnings = outcome.stderr.lines().filter_map(|line| line.split_once("warning: "));
        Ok(warnings.map(|(_, warning)| warning.to_owned()).collect())
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
        let run = Run::kshrink("kshrink-spec").arg("--objects").args(objects).args(["--entry", entry]);
        let mut run = run.args(["--passes", passes, "--emit-object", output]).limit(REWRITE_LIMIT);
        if [SHUFFLED, INSTRUMENTED].contains(&passes) {
            let paths: Vec<PathBuf> = objects.iter().map(|object| self.dir().join(object)).collect();
            let plan = order::random(paths.iter().map(PathBuf::as_path), objects.len() as u64);
            fs::write(self.dir().join("order.json"), plan).map_err(|error| error.to_string())?;
            run = run.args(["--plan", "order.json"]);
        }
        Ok(Rewritten::parse(&self.step(run)?.stderr))
    }

    /// Keeps the directory, and returns the failure together with what led to it.
    pub fn failed(self, what: &str, why: &str) -> String {
        let Chain { dir, lines } = self;
        let kept = dir.keep();
        format!("{what}: {why}\n  what led to it, in {}:\n    {}", kept.display(), lines.join("\n    "))
    }
}

impl Default for Chain {
    fn default() -> Chain {
        Chain::new()
    }
}

impl Rewritten {
    /// Reads the lines `carried whole: 3 × reason` of the report.
    fn parse(report: &str) -> Rewritten {
        let lines = report.lines().filter_map(|line| line.strip_prefix("carried whole: "));
        let counts = lines.filter_map(|line| line.split_once(" × "));
        let counts = counts.filter_map(|(count, reason)| Some((reason.to_owned(), count.parse().ok()?)));
        Rewritten { opaque: counts.collect() }
    }
}

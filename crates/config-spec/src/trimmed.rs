//! A copy of a build directory in which the kernel is built again with changes of some options.

use std::fs;
use std::path::{Path, PathBuf};

use kbuild::{BuildCopy, Content, Make, check_output, existing_ancestor};
use kcli::search::{self, Verdict};
use kcli::{Failure, Output, Progress};
use kelf::KernelBuild;
use kplan::Plan;

use crate::config::{Change, Config, changed};
use crate::tree::Tree;

/// The file of the plan in the new build directory.
pub const PLAN: &str = "advice.json";

/// A copy of a build directory. It is removed at the end unless it is kept.
pub struct Trimmed<'b> {
    build: &'b KernelBuild,
    text: &'b str,
    make: Make<'b>,
    targets: Vec<String>,
}

/// A kernel that was built and tested.
pub struct Trial {
    /// The verdict of the test. A kernel that cannot be built counts as a failure.
    pub verdict: Verdict,
    /// The configuration.
    pub config: Config,
    /// The output of the failure, to be quoted.
    pub failure: String,
}

/// A kernel that was built.
pub struct Built {
    /// The configuration.
    pub config: Config,
    /// The reason why it could not be built.
    pub failure: Option<Failure>,
}

impl<'b> Trimmed<'b> {
    /// Copies a build directory to the place of `out`. `variables` are for make.
    ///
    /// # Errors
    /// Bad input if `out` exists, or if make would not work in the copy.
    pub fn copy_to(
        build: &'b KernelBuild,
        tree: &'b Tree,
        variables: &'b [String],
        out: &Path,
    ) -> Result<Trimmed<'b>, Failure> {
        if fs::symlink_metadata(out).is_ok() {
            return Err(Failure::bad_input(format!(
                "{}: exists; expected the name of a new directory; remove it, or name another one",
                out.display()
            )));
        }
        check_output(build, out)?;
        Trimmed::copy(build, tree, variables, &existing_ancestor(out)?)
    }

    /// Copies a build directory to a new one in `parent`. `variables` are for make.
    ///
    /// # Errors
    /// Bad input if make would not work in the copy.
    pub fn copy(
        build: &'b KernelBuild,
        tree: &'b Tree,
        variables: &'b [String],
        parent: &Path,
    ) -> Result<Trimmed<'b>, Failure> {
        if fs::read_link(build.dir.join("source")).is_ok_and(|source| source == Path::new("..")) {
            return Err(Failure::bad_input(format!(
                "{}: the build directory is in its source tree, and names it `..`, so a copy elsewhere would compile \
                 everything again; expected a build in another directory (make O=DIR)",
                build.dir.display()
            )));
        }
        let progress = Progress::spinner("copying the build");
        let copy = BuildCopy::make(build, parent, Content::Everything)?;
        drop(progress);
        let make = Make::new(build, variables, copy)?;
        let image = make.boot_image()?;
        let image = image.file_name().and_then(|name| name.to_str()).unwrap_or("vmlinux").to_owned();
        let mut targets = vec![image];
        if tree.config.is_enabled("MODULES") {
            targets.push("modules".to_owned());
        }
        Ok(Trimmed { build, text: &tree.text, make, targets })
    }

    /// Builds the kernel with changes of options, and runs the test with the build directory as its argument.
    ///
    /// # Errors
    /// A failed job if Kconfig fails; bad input if the test cannot be run.
    pub fn trial(&self, changes: &[Change<'_>], test: &str) -> Result<Trial, Failure> {
        let Built { config, failure } = self.build(changes)?;
        let (verdict, failure) = match failure {
            None => search::run_test("--test", test, "config-spec", self.make.dir())?,
            Some(failure) => (Verdict::Bad, format!("\n  {}", failure.message())),
        };
        Ok(Trial { verdict, config, failure })
    }

    /// Builds the kernel with changes of options.
    ///
    /// # Errors
    /// A failed job if Kconfig fails.
    pub fn build(&self, changes: &[Change<'_>]) -> Result<Built, Failure> {
        let file = self.make.dir().join(".config");
        fs::write(&file, changed(self.text, changes))?;
        self.make.make(&["olddefconfig"], &[], "`make olddefconfig`")?;
        let config = Config::parse(&String::from_utf8_lossy(&fs::read(&file)?));
        let targets: Vec<&str> = self.targets.iter().map(String::as_str).collect();
        Ok(Built { config, failure: self.make.make(&targets, &[], "building the kernel").err() })
    }

    /// The copy.
    pub fn dir(&self) -> &Path {
        self.make.dir()
    }

    /// Moves the copy to its place, with the plan in it.
    ///
    /// # Errors
    /// A failed job if something cannot be written.
    pub fn keep(self, plan: &Plan, out: &Path) -> Result<(), Failure> {
        let out: PathBuf = std::path::absolute(out)?;
        let mut output = Output::create(&self.make.dir().join(PLAN))?;
        plan.write(&mut output)?;
        output.commit()?;
        if let Some(parent) = out.parent() {
            fs::create_dir_all(parent)?;
        }
        self.make.into_copy().keep(self.build, &out)
    }
}

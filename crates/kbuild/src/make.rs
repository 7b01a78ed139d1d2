//! The kernel's own make in the copy of its build directory.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use kcli::Failure;
use kcli::scratch::{self, last_lines};
use kelf::KernelBuild;
use kelf::archive::{self, MemberContent};
use rustc_hash::FxHashSet;

use crate::command::{failed, succeeded};
use crate::copy::{BuildCopy, Content};
use crate::toolchain;

/// Environment variables that would change make's directory or output. A build that runs this command exports some of
/// them.
const UNWANTED: [&str; 9] = [
    "MAKEFLAGS",
    "MFLAGS",
    "GNUMAKEFLAGS",
    "MAKELEVEL",
    "sub_make_done",
    "O",
    "KBUILD_OUTPUT",
    "KBUILD_EXTMOD",
    "KBUILD_EXTMOD_OUTPUT",
];

/// The start of the line in which each make prints its directory.
const WORKS_IN: &str = "kshrink: make works in ";

/// Calls of make in a copy of a build directory.
pub struct Make<'b> {
    build: &'b KernelBuild,
    variables: &'b [String],
    copy: BuildCopy,
    /// The variables that the build has recorded. The user's take precedence.
    recorded: Vec<(&'static str, String)>,
    /// If the copy is for a link, its existing inputs, relative to the build directory: the objects of the kernel and
    /// their archive.
    inputs: FxHashSet<PathBuf>,
}

impl<'b> Make<'b> {
    /// Prepares calls of make with the user's `variables`, and with those that select the recorded compiler.
    ///
    /// # Errors
    /// If an archive of the build cannot be read.
    pub fn new(
        build: &'b KernelBuild,
        variables: &'b [String],
        copy: BuildCopy,
    ) -> Result<Make<'b>, Failure> {
        let mut recorded = recorded_identity(&build.dir);
        recorded.extend(toolchain::recorded(build));
        let inputs = match copy.content {
            Content::Link => inputs(build)?,
            Content::Everything => FxHashSet::default(),
        };
        Ok(Make { build, variables, copy, recorded, inputs })
    }

    /// The copy.
    pub fn dir(&self) -> &Path {
        &self.copy.dir
    }

    /// Ends the use of make, and returns the copy.
    pub fn into_copy(self) -> BuildCopy {
        self.copy
    }

    /// Returns the place of the boot image, relative to the build directory. This call of make writes nothing, and
    /// shows where later calls would write.
    ///
    /// # Errors
    /// Bad input if make would work outside of the copy; a failed job if it names no image.
    pub fn boot_image(&self) -> Result<PathBuf, Failure> {
        // The option is passed on to every make that make starts.
        let say = format!("--eval=$(info {WORKS_IN}$(CURDIR))");
        let mut command = self.command(&["-s", &say, "image_name"]);
        let output = scratch::run(&mut command, |_| ControlFlow::Continue(()));
        let output = output.map_err(|error| failed(&command, "asking make for the boot image", &error))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (places, names): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.starts_with(WORKS_IN));
        let places: Vec<&Path> = places.iter().map(|line| Path::new(&line[WORKS_IN.len()..])).collect();
        // A make on the way may run elsewhere, as in `make -C SOURCE O=COPY`, but the last one may not.
        let elsewhere = places
            .iter()
            .find(|place| **place == self.build.dir)
            .or(places.last().filter(|place| **place != self.copy.dir));
        if let Some(elsewhere) = elsewhere {
            return Err(Failure::bad_input(format!(
                "{}: in a copy of this directory, make works in {} instead, so it would write there; \
                 nothing was done; expected a Makefile that obeys KBUILD_OUTPUT=DIR on the command line of make",
                self.build.dir.display(),
                elsewhere.display()
            )));
        }
        match names.last().map(|name| name.trim()) {
            Some(name) if output.status.success() && !name.is_empty() => Ok(PathBuf::from(name)),
            _ => Err(Failure::job(format!(
                "`make image_name` does not name a boot image ({}):{}",
                output.status,
                last_lines(&output)
            ))),
        }
    }

    /// Makes targets, with these `variables` besides the user's. Stops as soon as make starts to rebuild an input of the
    /// link, if the copy is for a link. `what` describes the job.
    ///
    /// # Errors
    /// Bad input if an input is not up to date; a failed job if make fails.
    pub fn make(&self, targets: &[&str], variables: &[&str], what: &str) -> Result<(), Failure> {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let mut command = self.command(targets);
        command.args(variables).arg(format!("-j{jobs}"));
        let mut stale = None;
        let output = scratch::run(&mut command, |line| match self.remade_input(line) {
            Some(input) => {
                stale = Some(input.to_owned());
                ControlFlow::Break(())
            }
            None => ControlFlow::Continue(()),
        });
        let output = output.map_err(|error| failed(&command, what, &error))?;
        if let Some(input) = stale {
            return Err(self.stale(&input));
        }
        succeeded(&output, what)
    }

    /// Makes targets as far as possible, and returns the output, also of commands that fail.
    ///
    /// # Errors
    /// A failed job if make cannot be run.
    pub fn attempt(&self, targets: &[&str]) -> Result<Output, Failure> {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let mut command = self.command(targets);
        command.arg("-k").arg(format!("-j{jobs}"));
        let output = scratch::run(&mut command, |_| ControlFlow::Continue(()));
        output.map_err(|error| failed(&command, "building the kernel", &error))
    }

    /// Returns the error for a build with an input of the link that is not up to date.
    pub fn stale(&self, input: &str) -> Failure {
        Failure::bad_input(format!(
            "{}: the kernel's build rebuilds {input} instead of linking the existing file; run `make` there until \
             everything is up to date, and pass your variables for make with --make",
            self.build.dir.display()
        ))
    }

    /// Returns the input of the link that make starts to rebuild, according to a line of its output
    /// (`  CC      kernel/fork.o`).
    fn remade_input<'l>(&self, line: &'l str) -> Option<&'l str> {
        let (_command, target) = line.strip_prefix("  ")?.trim_end().split_once(' ')?;
        let target = target.trim_start();
        self.inputs.contains(Path::new(target)).then_some(target)
    }

    /// Returns `make` with the variables that the build recorded, and with the user's variables.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("make");
        command.arg("-C").arg(&self.copy.dir);
        if self.copy.is_below_source {
            command.args(["-f", "../Makefile"]);
        }
        command.arg(format!("ARCH={}", self.build.machine.target().kernel.arch));
        for (name, value) in &self.recorded {
            command.arg(format!("{name}={value}"));
        }
        command.args(self.variables);
        // Since Linux 6.13, the Makefile of a build directory sets this variable to its own path. The command line
        // takes precedence.
        command.arg(format!("KBUILD_OUTPUT={}", self.copy.dir.display()));
        // One line for each command, which `remade_input` reads.
        command.arg("V=0");
        command.args(arguments);
        for variable in UNWANTED {
            command.env_remove(variable);
        }
        command
    }
}

/// Returns the objects of a kernel and the archive that is linked whole, relative to the build directory.
fn inputs(build: &KernelBuild) -> Result<FxHashSet<PathBuf>, Failure> {
    let relative = |path: &Path| path.strip_prefix(&build.dir).unwrap_or(path).to_path_buf();
    let mut inputs = FxHashSet::from_iter([relative(&build.archive)]);
    for path in std::iter::once(&build.archive).chain(&build.libraries) {
        let bytes = fs::read(path).map_err(|error| Failure::job(format!("{}: {error}", path.display())))?;
        let members = archive::members(path, &bytes).map_err(Failure::of)?;
        // Kbuild makes only thin archives: each member is a file.
        inputs.extend(members.iter().filter_map(|member| match &member.content {
            MemberContent::File(path) => Some(relative(path)),
            MemberContent::Inside(_) => None,
        }));
    }
    Ok(inputs)
}

/// Returns the kernel's release, and the builder, host and time of the build, as far as variables set them. They are
/// part of its banner, which is recompiled if it changes.
fn recorded_identity(dir: &Path) -> Vec<(&'static str, String)> {
    let quoted = |header: &str, macro_name: &str| {
        let text = fs::read_to_string(dir.join(header)).ok()?;
        let line = text.lines().find(|line| line.split_whitespace().nth(1) == Some(macro_name))?;
        line.split('"').nth(1).map(str::to_owned)
    };
    let compile = "include/generated/compile.h";
    let mut identity = Vec::new();
    identity.extend(
        quoted("include/generated/utsrelease.h", "UTS_RELEASE").map(|release| ("KERNELRELEASE", release)),
    );
    identity.extend(quoted(compile, "LINUX_COMPILE_BY").map(|by| ("KBUILD_BUILD_USER", by)));
    identity.extend(quoted(compile, "LINUX_COMPILE_HOST").map(|host| ("KBUILD_BUILD_HOST", host)));
    // Holds only values from variables: "#3 SMP PREEMPT Thu Jan  1 00:00:00 UTC 1970", or "# ".
    if let Some(version) = quoted("init/utsversion-tmp.h", "UTS_VERSION") {
        let mut words = version.split(' ').peekable();
        let number = words.next().and_then(|word| word.strip_prefix('#')).unwrap_or_default();
        while words.next_if(|word| word.starts_with("SMP") || word.starts_with("PREEMPT")).is_some() {}
        let timestamp = words.collect::<Vec<_>>().join(" ");
        identity.push(("KBUILD_BUILD_VERSION", number.to_owned()));
        identity.push(("KBUILD_BUILD_TIMESTAMP", timestamp));
    }
    identity.retain(|(_, value)| !value.is_empty());
    identity
}

/// Parses an argument with a variable for make, `VAR=VALUE`. Options of make could redirect its output or silence it.
///
/// # Errors
/// The expectation, if it is something else.
pub fn parse_variable(argument: &str) -> Result<String, String> {
    match argument.split_once('=') {
        Some((name, _)) if !name.is_empty() && !name.starts_with('-') => Ok(argument.to_owned()),
        _ => Err("expected a variable for make, as VAR=VALUE".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn make_takes_variables_alone() {
        assert_eq!(parse_variable("KCFLAGS=-Wp,-DX=1").as_deref(), Ok("KCFLAGS=-Wp,-DX=1"));
        for option in ["-s", "--eval=x", "vmlinux", "=x", ""] {
            assert!(parse_variable(option).is_err(), "{option}");
        }
    }
}

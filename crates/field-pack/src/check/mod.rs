//! Builds of the patched source. Members that do not compile stay as they are.

mod messages;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kbuild::{BuildCopy, Content, Make, check_output, existing_ancestor};
use kcli::scratch::ScratchDir;
use kcli::{Failure, Progress};
use kelf::KernelBuild;

use crate::document::Fields;
use crate::patch::{Name, Options, Patch, patch, selected};
use crate::scan::Facts;
use messages::{Message, members};

/// Makes the patch for a plan, and takes members back until all builds succeed. `keep` has no directories, or a new one
/// for each build.
///
/// # Errors
/// Bad input as [`patch`]; a failed job if a kernel does not build, and no member is the reason.
pub fn check(
    fields: &mut Fields,
    source: &Path,
    facts: &Facts,
    options: &Options,
    builds: &[PathBuf],
    keep: &[PathBuf],
) -> Result<Patch, Failure> {
    if let Some(found) = keep.iter().find(|keep| fs::symlink_metadata(keep).is_ok()) {
        return Err(Failure::bad_input(format!(
            "{}: exists; expected the name of a new directory",
            found.display()
        )));
    }
    if !keep.is_empty() && keep.len() != builds.len() {
        return Err(Failure::bad_input(format!(
            "--keep names {} directories; expected one for each of the {} --build",
            keep.len(),
            builds.len()
        )));
    }
    let find =
        |build: &PathBuf| KernelBuild::find(&fs::canonicalize(build)?.join("vmlinux")).map_err(Failure::of);
    let kernels = builds.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    // Beside the build, where there is room for another one; a kept build is moved to its place.
    let parent = |at: usize| match keep.get(at) {
        Some(keep) => existing_ancestor(keep),
        None => Ok(std::env::temp_dir()),
    };
    for (kernel, keep) in kernels.iter().zip(keep) {
        check_output(kernel, keep)?;
    }
    let mut excluded: BTreeMap<Name, String> = BTreeMap::new();
    let progress = Progress::spinner("building");
    let mut made = patch(fields, source, facts, options, &mut excluded)?;
    let mut attempts = Vec::new();
    for (at, (kernel, build)) in kernels.iter().zip(builds).enumerate() {
        let objects = selected(fields, build)?.into_iter().map(|unit| unit.object).collect();
        attempts.push(Attempt::new(kernel, objects, source, &parent(at)?)?);
    }
    // A member that one build takes back changes the patch for all.
    let (mut at, mut complete) = (0, 0);
    while complete < attempts.len() {
        let failed = attempts[at].build(&made, source, &progress)?;
        if failed.is_empty() {
            complete += 1;
            at = (at + 1) % attempts.len();
            continue;
        }
        complete = 0;
        for (name, reason) in failed {
            progress.note(format!("{}.{} stays: {reason}", name.0, name.1));
            excluded.insert(name, reason);
        }
        made = patch(fields, source, facts, options, &mut excluded)?;
    }
    for ((attempt, kernel), keep) in attempts.into_iter().zip(&kernels).zip(keep) {
        let (copy, source) = (attempt.make.into_copy(), std::path::absolute(keep.with_extension("source"))?);
        let built = attempt.patched.dir().to_owned();
        attempt.patched.keep(&source)?;
        copy.redirect(&source)?;
        copy.rename_in_records(&built, &source)?;
        copy.keep(kernel, &std::path::absolute(keep)?)?;
    }
    Ok(made)
}

/// A build of the patched source.
struct Attempt<'a> {
    make: Make<'a>,
    patched: PatchedSource,
    /// The objects of the files that use members.
    objects: Vec<String>,
}

impl<'a> Attempt<'a> {
    fn new(
        kernel: &'a KernelBuild,
        objects: Vec<String>,
        source: &Path,
        parent: &Path,
    ) -> Result<Attempt<'a>, Failure> {
        let patched = PatchedSource::new(source, parent)?;
        let copy = BuildCopy::make(kernel, parent, Content::Everything)?;
        copy.redirect(patched.dir())?;
        Ok(Attempt { make: Make::new(kernel, &[], copy)?, patched, objects })
    }

    /// Builds with a patch: first the files that use members, then everything. Returns members that do not compile.
    fn build(
        &mut self,
        made: &Patch,
        source: &Path,
        progress: &Progress,
    ) -> Result<BTreeMap<Name, String>, Failure> {
        self.patched.write(made)?;
        let image = self.make.boot_image()?;
        let image = image.file_name().and_then(|name| name.to_str()).unwrap_or("vmlinux").to_owned();
        let some: Vec<&str> = self.objects.iter().map(String::as_str).collect();
        for (targets, what) in
            [(&some[..], "the files that use members"), (&[image.as_str()][..], "the kernel")]
        {
            progress.message(format!("building {what}"));
            let output = self.make.attempt(targets)?;
            let text = String::from_utf8_lossy(&output.stderr);
            let errors = messages::messages(&text, "error");
            let failed = members(&errors, &made.accessors);
            if !failed.is_empty() {
                return Ok(failed);
            }
            if !output.status.success() {
                let shown: Vec<&str> = match errors.first() {
                    Some(error) => error.lines.lines().collect(),
                    None => text.lines().rev().take(8).collect::<Vec<_>>().into_iter().rev().collect(),
                };
                return Err(Failure::job(format!(
                    "building {what} failed, and no member is the reason:\n  {}",
                    shown.join("\n  ")
                )));
            }
            let warnings = messages::messages(&text, "warning");
            let new = new_warnings(self.make.dir(), source, &self.patched, &warnings)?;
            let warned = members(&new, &made.accessors);
            if !warned.is_empty() {
                return Ok(warned);
            }
            if let Some(warning) = new.first() {
                return Err(Failure::job(format!(
                    "building {what} warns, and no member is the reason:\n  {}",
                    warning.lines.trim_end()
                )));
            }
        }
        Ok(BTreeMap::new())
    }
}

/// Returns the warnings that the source did not cause before.
fn new_warnings(
    build: &Path,
    source: &Path,
    patched: &PatchedSource,
    warnings: &[Message],
) -> Result<Vec<Message>, Failure> {
    let mut new = Vec::new();
    for warning in warnings {
        let (file, _) = warning.place.split_once(':').unwrap_or((&warning.place, ""));
        let before = match file.strip_suffix(".c") {
            Some(stem) => compile_before(build, &format!("{stem}.o"), source, patched)?,
            None => String::new(),
        };
        if !messages::messages(&before, "warning").iter().any(|old| old.text == warning.text) {
            new.push(warning.clone());
        }
    }
    Ok(new)
}

/// Compiles a file of the unchanged source, and returns the messages.
fn compile_before(
    build: &Path,
    object: &str,
    source: &Path,
    patched: &PatchedSource,
) -> Result<String, Failure> {
    let Ok(words) = kbuild::recorded(build, object) else { return Ok(String::new()) };
    let (new, old) = (patched.dir().display().to_string(), source.display().to_string());
    let words: Vec<String> = words.iter().map(|word| word.replace(&new, &old)).collect();
    let mut command = Command::new(&words[0]);
    let output = command.current_dir(build).args(&words[1..]).args(["-c", "-o", "/dev/null"]).output()?;
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A copy of the source, as links to its files, except for the changed files.
struct PatchedSource {
    scratch: ScratchDir,
    dir: PathBuf,
    source: PathBuf,
    /// The files that the last patch changed.
    changed: Vec<String>,
}

impl PatchedSource {
    fn new(source: &Path, parent: &Path) -> Result<PatchedSource, Failure> {
        let scratch = ScratchDir::new_in(parent, ".kshrink-source-")
            .map_err(|error| Failure::job(format!("{}: {error}", parent.display())))?;
        let dir = scratch.path().join("source");
        // Links, if the file system is the same.
        let link = |option: &str| {
            kbuild::run(Command::new("cp").arg(option).arg(source).arg(&dir), "copying the source")
        };
        if link("-al").is_err() {
            kbuild::run(Command::new("rm").arg("-rf").arg(&dir), "removing an incomplete copy")?;
            link("-a")?;
        }
        Ok(PatchedSource { scratch, dir, source: source.to_owned(), changed: Vec::new() })
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes the files of a patch; files that an earlier patch changed get their old content. A file is replaced, never
    /// written to, because the copy shares files with the source. Files that stay the same keep their time.
    fn write(&mut self, patch: &Patch) -> Result<(), Failure> {
        for name in self.changed.iter().filter(|name| !patch.files.contains_key(*name)) {
            let old = fs::read_to_string(self.source.join(name)).ok();
            replace(&self.dir.join(name), old.as_deref())?;
        }
        for (name, (_, after)) in &patch.files {
            replace(&self.dir.join(name), Some(after))?;
        }
        self.changed = patch.files.keys().cloned().collect();
        Ok(())
    }

    fn keep(self, to: &Path) -> Result<(), Failure> {
        let moved = self.scratch.keep(&self.dir, to);
        moved
            .map_err(|error| Failure::job(format!("{}: cannot move the source there: {error}", to.display())))
    }
}

/// Replaces a file by one with another content, or removes it.
fn replace(path: &Path, text: Option<&str>) -> Result<(), Failure> {
    let is_same = text.is_some() && fs::read_to_string(path).ok().as_deref() == text;
    if is_same {
        return Ok(());
    }
    if fs::symlink_metadata(path).is_ok() {
        fs::remove_file(path)?;
    }
    if let Some(text) = text {
        fs::write(path, text)?;
    }
    Ok(())
}

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

/// Makes the patch for a plan, and takes members back until all builds succeed. `keep` gets the last build.
///
/// # Errors
/// Bad input as [`patch`]; a failed job if a kernel does not build, and no member is the reason.
pub fn check(
    fields: &mut Fields,
    source: &Path,
    facts: &Facts,
    options: &Options,
    builds: &[PathBuf],
    keep: Option<&Path>,
) -> Result<Patch, Failure> {
    if let Some(keep) = keep
        && fs::symlink_metadata(keep).is_ok()
    {
        return Err(Failure::bad_input(format!(
            "{}: exists; expected the name of a new directory",
            keep.display()
        )));
    }
    if keep.is_some() && builds.len() > 1 {
        return Err(Failure::bad_input(
            "--keep: keeps one build, but there are several --build; name one of them",
        ));
    }
    let mut excluded: BTreeMap<Name, String> = BTreeMap::new();
    let progress = Progress::spinner("building");
    let mut made = patch(fields, source, facts, options, &mut excluded)?;
    for build in builds {
        let kernel = KernelBuild::find(&fs::canonicalize(build)?.join("vmlinux")).map_err(Failure::of)?;
        // Beside the build, where there is room for another one; a kept build is moved to its place.
        let parent = match keep {
            Some(keep) => existing_ancestor(keep)?,
            None => std::env::temp_dir(),
        };
        if let Some(keep) = keep {
            check_output(&kernel, keep)?;
        }
        let mut patched = PatchedSource::new(source, &parent)?;
        let objects: Vec<String> = selected(fields, build)?.into_iter().map(|unit| unit.object).collect();
        let copy = BuildCopy::make(&kernel, &parent, Content::Everything)?;
        copy.redirect(patched.dir())?;
        let make = Make::new(&kernel, &[], copy)?;
        loop {
            patched.write(&made)?;
            let failed = build_once(&make, &objects, &progress, &made, source, &patched)?;
            if failed.is_empty() {
                break;
            }
            for (name, reason) in failed {
                progress.note(format!("{}.{} stays: {reason}", name.0, name.1));
                excluded.insert(name, reason);
            }
            made = patch(fields, source, facts, options, &mut excluded)?;
        }
        if let Some(keep) = keep {
            make.into_copy().keep(&kernel, &std::path::absolute(keep)?)?;
            patched.keep(&keep.with_extension("source"))?;
        }
    }
    Ok(made)
}

/// Builds a kernel: first the files that use members, then everything. Returns members that do not compile.
fn build_once(
    make: &Make<'_>,
    objects: &[String],
    progress: &Progress,
    made: &Patch,
    source: &Path,
    patched: &PatchedSource,
) -> Result<BTreeMap<Name, String>, Failure> {
    let image = make.boot_image()?;
    let image = image.file_name().and_then(|name| name.to_str()).unwrap_or("vmlinux").to_owned();
    let some: Vec<&str> = objects.iter().map(String::as_str).collect();
    for (targets, what) in [(&some[..], "the files that use members"), (&[image.as_str()][..], "the kernel")]
    {
        progress.message(format!("building {what}"));
        let output = make.attempt(targets)?;
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
        let new = new_warnings(make.dir(), source, patched, &messages::messages(&text, "warning"))?;
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

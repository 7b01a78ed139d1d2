//! The place of outputs.

use std::fs;
use std::path::{Path, PathBuf};

use kcli::Failure;
use kelf::KernelBuild;
use tempfile::TempDir;

/// Checks that an output is not inside the build directory.
///
/// # Errors
/// Bad input if it is.
pub fn check_apart(build: &KernelBuild, out: &Path) -> Result<(), Failure> {
    if out != Path::new("-") && existing_ancestor(out)?.starts_with(&build.dir) {
        return Err(Failure::bad_input(format!(
            "{}: is inside the build directory {}, which is never written to; name a place outside of it",
            out.display(),
            build.dir.display()
        )));
    }
    Ok(())
}

/// Checks that the output directory can be written and is not inside the build directory.
///
/// # Errors
/// Bad input if it is; a failed job if it cannot be written.
pub fn check_output(build: &KernelBuild, out: &Path) -> Result<(), Failure> {
    check_apart(build, out)?;
    let parent = existing_ancestor(out)?;
    if !parent.is_dir() {
        return Err(Failure::job(format!("{}: is not a directory", parent.display())));
    }
    TempDir::new_in(&parent)
        .map(drop)
        .map_err(|error| Failure::job(format!("{}: cannot write there: {}", parent.display(), error.kind())))
}

/// Returns the nearest existing ancestor of `out`, as an absolute path.
///
/// # Errors
/// The errors of the file system.
pub fn existing_ancestor(out: &Path) -> Result<PathBuf, Failure> {
    let absolute = std::path::absolute(out)?;
    let existing = absolute.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    Ok(fs::canonicalize(existing)?)
}

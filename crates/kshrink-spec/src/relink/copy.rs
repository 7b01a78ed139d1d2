//! The copy of a build directory.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use kcli::Failure;

use super::run;
use crate::scratch::ScratchDir;

/// The history of a source tree that is built in place. It is large, and is only used for the kernel's release, which
/// make gets as a variable.
const HISTORY: &str = ".git";

/// The unit of [`MetadataExt::blocks`] in bytes.
const BLOCK: u64 = 512;

/// The bytes of a megabyte in messages.
const MEGABYTE: u64 = 1_000_000;

/// A copy of a build directory.
pub struct BuildCopy {
    /// Removes the copy at the end.
    _scratch: ScratchDir,
    /// The copy, an absolute path without links.
    pub dir: PathBuf,
    /// Whether the build directory is directly in the source tree, which Kbuild then calls `..` in every command. In
    /// that case, the copy's parent directory has links to all of the source tree.
    pub is_below_source: bool,
}

impl BuildCopy {
    /// Copies a build directory into a new directory in `parent`.
    ///
    /// # Errors
    /// A failed job if something cannot be written; bad input if a link leads from the build to a directory elsewhere.
    pub fn make(build: &Path, parent: &Path) -> Result<BuildCopy, Failure> {
        let scratch = ScratchDir::new_in(parent, ".kshrink-relink-").map_err(|error| {
            Failure::job(format!("{}: cannot write there: {}", parent.display(), error.kind()))
        })?;
        // One level deeper: Kbuild would treat a copy directly in the source tree as a build below it.
        let name = build.file_name().unwrap_or(OsStr::new("build"));
        let dir = scratch.path().join(name);
        fs::create_dir(&dir)?;
        check_space(build, &dir, parent)?;
        copy(build, &dir)?;
        let is_below_source =
            fs::read_link(build.join("source")).is_ok_and(|source| source == Path::new(".."));
        if let (true, Some(source)) = (is_below_source, build.parent()) {
            link_entries(source, scratch.path(), name)?;
        }
        Ok(BuildCopy { _scratch: scratch, dir, is_below_source })
    }
}

/// Checks that the file system has room for the copy. A file system that shares the content of copied files needs none.
fn check_space(build: &Path, dir: &Path, parent: &Path) -> Result<(), Failure> {
    let probe = dir.join("probe");
    let mut clone = Command::new("cp");
    clone.arg("--reflink=always").arg(build.join("vmlinux")).arg(&probe);
    let is_shared = run(&mut clone, "cloning vmlinux").is_ok();
    fs::remove_file(&probe).or_else(|error| match error.kind() {
        ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;
    if is_shared {
        return Ok(());
    }
    let space = rustix::fs::statvfs(dir).map_err(std::io::Error::from)?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    let needed = size_of(build, Some(OsStr::new(HISTORY)))?;
    if needed <= free {
        return Ok(());
    }
    Err(Failure::job(format!(
        "{}: a copy of the build directory takes {} MB, and {} MB are free; name an output on another file system",
        parent.display(),
        needed.div_ceil(MEGABYTE),
        free / MEGABYTE
    )))
}

/// Returns the bytes on disk of the files in a directory, except one of its entries.
fn size_of(dir: &Path, except: Option<&OsStr>) -> std::io::Result<u64> {
    let mut size = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if Some(entry.file_name().as_os_str()) == except {
            continue;
        }
        let metadata = entry.metadata()?;
        size += metadata.blocks() * BLOCK;
        if metadata.is_dir() {
            size += size_of(&entry.path(), None)?;
        }
    }
    Ok(size)
}

/// Copies with `cp -a`, which preserves modification times, so that make does not rebuild everything. Links out of the
/// copy are replaced by their targets, so that nothing is written through them.
fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let mut command = Command::new("cp");
    command.args(["-a", "--reflink=auto", "-t"]).arg(to).arg("--");
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_name() != HISTORY {
            command.arg(entry.path());
        }
    }
    run(&mut command, "copying the build directory")?;
    replace_links(to, to)
}

fn replace_links(root: &Path, dir: &Path) -> Result<(), Failure> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            replace_links(root, &path)?;
        }
        // `source` leads to the kernel's source, which no build writes to.
        if !kind.is_symlink() || path == root.join("source") {
            continue;
        }
        let Ok(target) = fs::canonicalize(&path) else { continue };
        if target.starts_with(root) {
            continue;
        }
        if target.is_dir() {
            return Err(Failure::bad_input(format!(
                "{} is a link to the directory {}, into which the relink would write; build without such links",
                path.strip_prefix(root).unwrap_or(&path).display(),
                target.display()
            )));
        }
        let modified = fs::metadata(&target)?.modified()?;
        fs::remove_file(&path)?;
        fs::copy(&target, &path)?;
        fs::File::options().write(true).open(&path)?.set_modified(modified)?;
    }
    Ok(())
}

/// Makes a link in `to` to each entry of `from`, except one and the history.
fn link_entries(from: &Path, to: &Path, except: &OsStr) -> Result<(), Failure> {
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        if name != except && name != HISTORY {
            symlink(from.join(&name), to.join(&name))?;
        }
    }
    Ok(())
}

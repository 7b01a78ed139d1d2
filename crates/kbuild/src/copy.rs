//! The copy of a build directory.
//!
//! make compares the times of all files, but the link reads few of them. Objects that it does not read are empty files
//! with the time of the original in a copy for a link ([`Content::Link`]). They are most of a build with debugging
//! information.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use kcli::Failure;
use kcli::scratch::ScratchDir;
use kelf::KernelBuild;
use kelf::archive::{self, MemberContent};
use rustc_hash::FxHashSet;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

use crate::command::run;
use crate::tools;

/// The history of a source tree that is built in place. It is large, and is only used for the kernel's release, which
/// make gets as a variable.
const HISTORY: &str = ".git";

/// The unit of [`MetadataExt::blocks`] in bytes.
const BLOCK: u64 = 512;

/// The bytes of a megabyte in messages.
const MEGABYTE: u64 = 1_000_000;

/// The files of a copy that have their content. The others are empty, with the times of the originals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Files that the link of `vmlinux` and of the boot image reads.
    Link,
    /// All files.
    Everything,
}

/// A copy of a build directory.
pub struct BuildCopy {
    /// Removes the copy at the end.
    scratch: ScratchDir,
    /// The files with content.
    pub content: Content,
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
    pub fn make(build: &KernelBuild, parent: &Path, content: Content) -> Result<BuildCopy, Failure> {
        let scratch = ScratchDir::new_in(parent, ".kshrink-relink-").map_err(|error| {
            Failure::job(format!("{}: cannot write there: {}", parent.display(), error.kind()))
        })?;
        // One level deeper: Kbuild would treat a copy directly in the source tree as a build below it.
        let from = &build.dir;
        let name = from.file_name().unwrap_or(OsStr::new("build"));
        let dir = scratch.path().join(name);
        fs::create_dir(&dir)?;
        let mut entries = Vec::new();
        list(from, Path::new(""), &mut entries)?;
        let unread = match content {
            Content::Link => Unread::of(build, &entries)?,
            Content::Everything => Unread(FxHashSet::default()),
        };
        check_space(build, &entries, &unread, &dir, parent)?;
        copy(from, &entries, &unread, &dir)?;
        tools::rename(&dir)?;
        let is_below_source =
            fs::read_link(from.join("source")).is_ok_and(|source| source == Path::new(".."));
        if let (true, Some(source)) = (is_below_source, from.parent()) {
            link_entries(source, scratch.path(), name)?;
        }
        Ok(BuildCopy { scratch, content, dir, is_below_source })
    }

    /// Makes the copy a build of another source tree. make then compiles everything again.
    ///
    /// # Errors
    /// Bad input if the copy does not name its source tree; a failed job if a file cannot be written.
    pub fn redirect(&self, source: &Path) -> Result<(), Failure> {
        let link = self.dir.join("source");
        let old = fs::read_link(&link).ok().filter(|old| old.is_absolute()).ok_or_else(|| {
            Failure::bad_input(format!(
                "{}: does not name its source tree by an absolute path; expected a build in another directory (make \
                 O=DIR)",
                self.dir.display()
            ))
        })?;
        let makefile = self.dir.join("Makefile");
        let text = fs::read_to_string(&makefile)?;
        fs::remove_file(&makefile)?;
        fs::write(&makefile, text.replace(&old.display().to_string(), &source.display().to_string()))?;
        fs::remove_file(&link)?;
        Ok(symlink(source, &link)?)
    }

    /// Makes the records of how objects were compiled name another directory. Their times stay.
    ///
    /// # Errors
    /// A failed job if a record cannot be read or written.
    pub fn rename_in_records(&self, from: &Path, to: &Path) -> Result<(), Failure> {
        let (from, to) = (from.display().to_string(), to.display().to_string());
        for record in crate::records(&self.dir) {
            let (_, path) = record?;
            let text = fs::read_to_string(&path)?;
            let renamed = tools::renamed(&text, &from, &to);
            if renamed != text {
                let metadata = fs::metadata(&path)?;
                fs::remove_file(&path)?;
                fs::write(&path, renamed)?;
                set_times(&path, &metadata)?;
            }
        }
        Ok(())
    }

    /// Moves the copy to its final place, which does not exist yet. Its Makefile then names that place.
    ///
    /// # Errors
    /// A failed job if it cannot be moved.
    pub fn keep(self, build: &KernelBuild, to: &Path) -> Result<(), Failure> {
        let makefile = self.dir.join("Makefile");
        if self.dir.join("source").exists()
            && let Ok(text) = fs::read_to_string(&makefile)
        {
            let name = |path: &Path| path.display().to_string();
            let text = text.replace(&name(&self.dir), &name(to)).replace(&name(&build.dir), &name(to));
            fs::remove_file(&makefile)?;
            fs::write(&makefile, text)?;
        }
        let moved = self.scratch.keep(&self.dir, to);
        moved.map_err(|error| Failure::job(format!("{}: cannot move the build there: {error}", to.display())))
    }
}

/// An entry of a build directory.
struct Entry {
    /// Its path in the directory.
    path: PathBuf,
    /// Its own metadata, not that of a link's target.
    metadata: Metadata,
}

/// Lists everything in a directory of the build but the history; a directory precedes its entries.
fn list(build: &Path, inside: &Path, entries: &mut Vec<Entry>) -> io::Result<()> {
    for entry in fs::read_dir(build.join(inside))? {
        let entry = entry?;
        if entry.file_name() == HISTORY && inside == Path::new("") {
            continue;
        }
        let (path, metadata) = (inside.join(entry.file_name()), entry.metadata()?);
        let is_dir = metadata.is_dir();
        entries.push(Entry { path: path.clone(), metadata });
        if is_dir {
            list(build, &path, entries)?;
        }
    }
    Ok(())
}

/// The files of a build that the link of `vmlinux` and of the boot image does not read.
///
/// - Members of `vmlinux.a`, which the rewritten object replaces, unless a library has them too.
/// - What the link makes again: `vmlinux` and `vmlinux.o`.
/// - Modules and their objects, which `.mod` files list (scripts/Makefile.build). With `CONFIG_TRIM_UNUSED_KSYMS`, the
///   link reads them to find the exports that they use (scripts/mod/modpost.c).
struct Unread(FxHashSet<PathBuf>);

impl Unread {
    fn of(build: &KernelBuild, entries: &[Entry]) -> Result<Unread, Failure> {
        let mut unread = FxHashSet::default();
        unread.extend(["vmlinux", "vmlinux.o", "vmlinux.unstripped"].map(PathBuf::from));
        let modules = if build.is_enabled("CONFIG_TRIM_UNUSED_KSYMS") { &[] } else { entries };
        for Entry { path, .. } in modules {
            let name = path.to_string_lossy();
            if name.ends_with(".ko") || name.ends_with(".mod.o") {
                unread.insert(path.clone());
            } else if name.ends_with(".mod") {
                let objects = fs::read_to_string(build.dir.join(path)).unwrap_or_default();
                unread.extend(objects.split_whitespace().map(PathBuf::from));
                unread.insert(path.with_extension("o"));
            }
        }
        unread.extend(members(build, &build.archive)?);
        for library in &build.libraries {
            for member in members(build, library)? {
                unread.remove(&member);
            }
        }
        for object in &build.beside {
            unread.remove(object.strip_prefix(&build.dir).unwrap_or(object));
        }
        Ok(Unread(unread))
    }

    /// Whether an entry is a file of this kind.
    fn contains(&self, entry: &Entry) -> bool {
        entry.metadata.is_file() && self.0.contains(&entry.path)
    }
}

/// Returns the members of a thin archive, as paths in the build directory.
fn members(build: &KernelBuild, archive: &Path) -> Result<Vec<PathBuf>, Failure> {
    let bytes = fs::read(archive)?;
    let members = archive::members(archive, &bytes).map_err(Failure::of)?;
    let files = members.into_iter().filter_map(|member| match member.content {
        MemberContent::File(path) => Some(path.strip_prefix(&build.dir).ok()?.to_path_buf()),
        MemberContent::Inside(_) => None,
    });
    Ok(files.collect())
}

/// Checks that the file system has room for the copy. A file system that shares the content of copied files needs none.
fn check_space(
    build: &KernelBuild,
    entries: &[Entry],
    unread: &Unread,
    dir: &Path,
    parent: &Path,
) -> Result<(), Failure> {
    let probe = dir.join("probe");
    let mut clone = Command::new("cp");
    clone.arg("--reflink=always").arg(&build.vmlinux).arg(&probe);
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
    let copied = entries.iter().filter(|entry| !unread.contains(entry));
    let needed: u64 = copied.map(|entry| entry.metadata.blocks() * BLOCK).sum();
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

/// Copies the entries with their times, so that make does not rebuild everything. Links out of the build are replaced by
/// their targets, so that nothing is written through them.
fn copy(from: &Path, entries: &[Entry], unread: &Unread, to: &Path) -> Result<(), Failure> {
    for entry in entries {
        let (old, new) = (from.join(&entry.path), to.join(&entry.path));
        let kind = entry.metadata.file_type();
        if kind.is_dir() {
            fs::create_dir(&new)?;
            // Its times are set when it is complete.
        } else if kind.is_symlink() {
            symlink(fs::read_link(&old)?, &new)?;
        } else if unread.contains(entry) {
            File::create(&new)?;
            set_times(&new, &entry.metadata)?;
        } else if kind.is_file() {
            fs::copy(&old, &new)
                .map_err(|error| Failure::job(format!("cannot copy {}: {error}", old.display())))?;
            set_times(&new, &entry.metadata)?;
        }
    }
    for entry in entries.iter().filter(|entry| entry.metadata.is_symlink()) {
        replace_link(to, &entry.path)?;
    }
    for entry in entries.iter().rev().filter(|entry| entry.metadata.is_dir()) {
        let new = to.join(&entry.path);
        fs::set_permissions(&new, entry.metadata.permissions())?;
        set_times(&new, &entry.metadata)?;
    }
    Ok(())
}

/// Replaces a link of the copy that leads out of it by the file that it leads to.
fn replace_link(copy: &Path, path: &Path) -> Result<(), Failure> {
    let link = copy.join(path);
    let Ok(target) = fs::canonicalize(&link) else { return Ok(()) };
    // `source` leads to the kernel's source, which no build writes to.
    if target.starts_with(copy) || path == Path::new("source") {
        return Ok(());
    }
    if target.is_dir() {
        return Err(Failure::bad_input(format!(
            "{} is a link to the directory {}, into which the relink would write; build without such links",
            path.display(),
            target.display()
        )));
    }
    fs::remove_file(&link)?;
    fs::copy(&target, &link)?;
    Ok(set_times(&link, &fs::metadata(&target)?)?)
}

/// Sets the times of a file, which may be read-only.
pub(crate) fn set_times(path: &Path, metadata: &Metadata) -> io::Result<()> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: metadata.atime(), tv_nsec: metadata.atime_nsec() as _ },
        last_modification: Timespec { tv_sec: metadata.mtime(), tv_nsec: metadata.mtime_nsec() as _ },
    };
    Ok(utimensat(CWD, path, &times, AtFlags::empty())?)
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

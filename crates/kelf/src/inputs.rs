//! The bytes of all inputs of a link, read once and owned in one place.
//!
//! [`Program`](crate::Program) and all later stages borrow from here: no stage copies a section that it does not
//! change. The files are many and small (900 for a small kernel) and usually in the page cache, so they are read in
//! parallel into memory. Mapping them would cost a system call and a page fault for each, and `unsafe`.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::archive::{MemberContent, is_archive, members};
use crate::build_dir::KernelBuild;
use crate::error::Result;
use crate::headers::{read_if, read_object};
use crate::machine::Machine;

/// The files of one link.
#[derive(Debug)]
pub struct InputFiles {
    pub(crate) files: Vec<InputFile>,
    /// For a kernel, the linked file and its machine.
    pub(crate) linked: Option<(PathBuf, Machine)>,
    /// Further symbols that the link needs.
    pub(crate) entries: Vec<String>,
    pub(crate) wraps: Vec<Wrap>,
    /// Symbols of which the last object that defines them counts.
    pub(crate) overridden: Vec<String>,
}

/// The effect of `ld --wrap=NAME` on undefined symbols.
#[derive(Debug)]
pub(crate) struct Wrap {
    /// `NAME`; references to it become references to `wrapper`.
    pub name: String,
    /// `__wrap_NAME`.
    pub wrapper: String,
    /// `__real_NAME`; references to it become references to `NAME`.
    pub real: String,
    /// Whether references from the object that defines `NAME` are wrapped too.
    pub everywhere: bool,
    /// Whether weak definitions are treated as references.
    pub weak: bool,
}

/// One object file.
#[derive(Debug)]
pub(crate) struct InputFile {
    /// The name, for messages and reports.
    pub name: String,
    pub role: Role,
    /// Path of the source, if the build recorded it.
    pub source: Option<String>,
    bytes: Vec<u8>,
}

/// The role of an object in a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Always linked.
    Linked,
    /// A member of the library with this number, linked if needed.
    Library(usize),
    /// Added by the final link itself, and therefore not rewritten.
    Beside,
}

/// An object to read.
struct Job {
    name: String,
    role: Role,
    origin: Origin,
}

enum Origin {
    File(PathBuf),
    /// A member of an ordinary archive, which was read to find it.
    Member(Vec<u8>),
}

impl InputFiles {
    /// Reads the inputs of a kernel's final link. Names are relative to the build directory.
    ///
    /// # Errors
    /// [`crate::Error::Read`] if a file cannot be read, [`crate::Error::Damaged`] for an incomplete archive.
    pub fn of_kernel(build: &KernelBuild) -> Result<InputFiles> {
        let mut jobs = Vec::new();
        if build.links_vmlinux_o() {
            jobs.push(Job::whole(&build.archive, Role::Linked));
        } else {
            archive_jobs(&build.archive, Role::Linked, &mut jobs)?;
        }
        for path in &build.beside {
            jobs.push(Job::whole(path, Role::Beside));
        }
        for (number, path) in build.libraries.iter().enumerate() {
            archive_jobs(path, Role::Library(number), &mut jobs)?;
        }
        let prefix = format!("{}/", build.dir.display());
        for job in &mut jobs {
            if let Some(name) = job.name.strip_prefix(&prefix) {
                job.name = name.into();
            }
        }
        let linked = Some((build.vmlinux.clone(), build.machine));
        Ok(InputFiles { linked, ..InputFiles::read(jobs)? })
    }

    /// Reads objects and archives named by the user. Objects are linked in the given order; archives are libraries,
    /// searched together after all objects (as between `--start-group` and `--end-group`).
    ///
    /// # Errors
    /// As for [`InputFiles::of_kernel`].
    pub fn of_objects(paths: &[PathBuf]) -> Result<InputFiles> {
        let mut jobs = Vec::new();
        let mut libraries = 0;
        for path in paths {
            if starts_as_archive(path)? {
                archive_jobs(path, Role::Library(libraries), &mut jobs)?;
                libraries += 1;
            } else {
                jobs.push(Job::whole(path, Role::Linked));
            }
        }
        InputFiles::read(jobs)
    }

    /// Creates the inputs from objects in memory, each with a name for messages, in link order.
    pub fn of_bytes(objects: impl IntoIterator<Item = (String, Vec<u8>)>) -> InputFiles {
        let file = |(name, bytes)| InputFile { name, role: Role::Linked, source: None, bytes };
        InputFiles::of_files(objects.into_iter().map(file).collect())
    }

    /// Returns the number of object files, including library members that may not be needed.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there are no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the total size in bytes.
    pub fn total_size(&self) -> u64 {
        self.files.iter().map(|file| file.bytes.len() as u64).sum()
    }

    fn read(jobs: Vec<Job>) -> Result<InputFiles> {
        let files = jobs.into_par_iter().map(Job::run).collect::<Result<_>>()?;
        Ok(InputFiles::of_files(files))
    }

    fn of_files(files: Vec<InputFile>) -> InputFiles {
        InputFiles { files, linked: None, entries: Vec::new(), wraps: Vec::new(), overridden: Vec::new() }
    }

    /// Adds symbols that are referenced from outside (`ld --undefined`), as start-up code references `main`. They also
    /// pull in library members.
    pub fn entered_by(mut self, entries: &[String]) -> InputFiles {
        self.entries.extend_from_slice(entries);
        self
    }

    /// Adds objects in memory, each with a name for messages. They are linked after all other objects that are not
    /// library members.
    pub fn with_objects(mut self, objects: impl IntoIterator<Item = (String, Vec<u8>)>) -> InputFiles {
        self.files.extend(InputFiles::of_bytes(objects).files);
        self
    }

    /// Wraps these symbols like `ld --wrap=NAME`: in an object that refers to `NAME` and does not define it, `NAME`
    /// becomes `__wrap_NAME`, and `__real_NAME` becomes `NAME`. Unlike ld, this also renames a weak definition of
    /// `NAME`; another object must then define `NAME` strongly.
    pub fn wrapping(self, names: &[&str]) -> InputFiles {
        self.wrap(names, false, true)
    }

    /// Wraps these symbols also in the object that defines `NAME`, and for those who import it: `__wrap_NAME` becomes
    /// `NAME`, and the definition becomes `__real_NAME`.
    pub fn wrapping_everywhere(self, names: &[&str]) -> InputFiles {
        self.wrap(names, true, true)
    }

    /// Wraps these symbols exactly like `ld --wrap=NAME`.
    pub fn wrapping_as_ld(self, names: &[&str]) -> InputFiles {
        self.wrap(names, false, false)
    }

    /// Replaces the definitions of these symbols by those in the last file that defines them, which
    /// [`InputFiles::with_objects`] added: all others become weak.
    pub fn overriding(mut self, names: &[&str]) -> InputFiles {
        self.overridden.extend(names.iter().map(|&name| name.to_owned()));
        self
    }

    fn wrap(mut self, names: &[&str], everywhere: bool, weak: bool) -> InputFiles {
        self.wraps.extend(names.iter().map(|&name| Wrap {
            name: name.to_owned(),
            wrapper: format!("__wrap_{name}"),
            real: format!("__real_{name}"),
            everywhere,
            weak,
        }));
        self
    }
}

impl InputFile {
    /// Returns the content.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Job {
    fn whole(path: &Path, role: Role) -> Job {
        Job { name: path.display().to_string(), role, origin: Origin::File(path.into()) }
    }

    fn run(self) -> Result<InputFile> {
        let Job { name, role, origin } = self;
        let (bytes, source) = match origin {
            Origin::File(path) => (read_object(&path)?, recorded_source(&path)),
            Origin::Member(bytes) => (bytes, None),
        };
        Ok(InputFile { name, role, source, bytes })
    }
}

fn starts_as_archive(path: &Path) -> Result<bool> {
    Ok(is_archive(&read_if(path, |_| false)?))
}

fn archive_jobs(path: &Path, role: Role, jobs: &mut Vec<Job>) -> Result<()> {
    let bytes = read_if(path, is_archive)?;
    for member in members(path, &bytes)? {
        jobs.push(match member.content {
            MemberContent::File(file) => Job::whole(&file, role),
            MemberContent::Inside(content) => Job {
                name: format!("{}({})", path.display(), member.name),
                role,
                origin: Origin::Member(content.to_vec()),
            },
        });
    }
    Ok(())
}

/// Returns the source of object `path`, from the command that Kbuild recorded next to it: a line `source_kernel/fork.o
/// := /usr/src/linux/kernel/fork.c`.
///
/// Objects made of other objects have no such line. `x.pi.o` and `x.stub.o`, which objcopy makes of `x.o`, have the
/// source of `x.o`.
fn recorded_source(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let record = File::open(path.with_file_name(format!(".{name}.cmd"))).ok()?;
    // The line follows the command; the list of headers after it is long.
    for line in BufReader::new(record).lines() {
        let line = line.ok()?;
        if line.starts_with("source_") {
            return line.split_once(":=").map(|(_, source)| source.trim().into());
        }
        if line.starts_with("deps_") {
            break;
        }
    }
    let original = name.strip_suffix(".pi.o").or_else(|| name.strip_suffix(".stub.o"))?;
    recorded_source(&path.with_file_name(format!("{original}.o")))
}

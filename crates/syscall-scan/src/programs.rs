//! The programs to scan: named files, or all programs of a root file system.

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::Error;
use crate::image::{Object, Process};
use crate::loader::Loader;
use crate::sysroot::Sysroot;

/// Maximum depth of interpreters that are scripts themselves, as in Linux.
const MAX_SCRIPTS: usize = 4;

/// The directories in which `env` looks for a program by default.
const PATH: [&str; 6] = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Directories of a running system without files of its own.
const VIRTUAL: [&str; 4] = ["/dev", "/proc", "/run", "/sys"];

/// Returns the processes of an executed file: one, except for scripts that name their interpreter through `env`. `path`
/// is the path of the file in the root file system with links resolved, if it is there; reports call it `file`.
///
/// # Errors
/// If the file is neither a program nor a script, or a dependency is missing.
pub fn processes(loader: &Loader, bytes: &[u8], path: &Path, file: &str) -> Result<Vec<Process>, Error> {
    if !bytes.starts_with(b"#!") {
        return Ok(vec![loader.load(Object::read(bytes)?, path, file)?]);
    }
    let mut processes = Vec::new();
    let mut pending = interpreters(bytes).ok_or(Error::Script)?;
    for _ in 0..MAX_SCRIPTS {
        let mut next = Vec::new();
        for name in pending {
            let missing = || Error::Missing { name: name.display().to_string(), by: "the script".to_owned() };
            let path = find_program(loader.root(), &name).ok_or_else(missing)?;
            let bytes = loader.root().read_object(&path).map_err(|_| missing())?;
            match interpreters(&bytes) {
                Some(more) => next.extend(more),
                None => {
                    let file = path.display().to_string();
                    processes.push(loader.load(Object::read(&bytes)?, &path, &file)?);
                }
            }
        }
        if next.is_empty() {
            return Ok(processes);
        }
        pending = next;
    }
    Err(Error::Script)
}

/// Returns the programs in the first line of a script: its interpreter, and the program that `env` starts. `None` if
/// `bytes` is not a script.
fn interpreters(bytes: &[u8]) -> Option<Vec<PathBuf>> {
    let line = bytes.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let first = PathBuf::from(words.next()?);
    let is_env = first.file_name().is_some_and(|name| name == "env");
    let mut words = words.skip_while(|word| word.starts_with('-') || word.contains('='));
    let second = words.next().filter(|_| is_env).map(PathBuf::from);
    Some(std::iter::once(first).chain(second).collect())
}

fn find_program(root: &Sysroot, name: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return root.resolve(name);
    }
    PATH.iter().find_map(|directory| root.resolve(&Path::new(directory).join(name)))
}

/// The contents of a root file system.
#[derive(Debug, Default)]
pub struct RootContents {
    /// The programs, by path with links resolved.
    pub programs: Vec<PathBuf>,
    /// Scripts, whose interpreters are among the programs.
    pub scripts: usize,
    /// Scripts whose interpreters are missing.
    pub orphans: Vec<PathBuf>,
    /// Shared objects, which count if programs need them.
    pub libraries: usize,
    /// Programs that cannot be parsed, with the error.
    pub damaged: Vec<(PathBuf, Error)>,
    /// Files that cannot be read.
    pub unreadable: usize,
    /// Other files.
    pub others: usize,
}

/// Walks a root file system.
pub fn walk(root: &Sysroot) -> RootContents {
    let mut found = RootContents::default();
    let mut seen = BTreeSet::new();
    let mut pending = vec![PathBuf::from("/")];
    while let Some(directory) = pending.pop() {
        let outside = root.outside(&directory);
        let Ok(entries) = outside.read_dir() else {
            found.unreadable += 1;
            continue;
        };
        let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort_unstable();
        for name in names {
            let path = directory.join(&name);
            let Ok(metadata) = root.outside(&path).symlink_metadata() else {
                found.unreadable += 1;
                continue;
            };
            if metadata.is_dir() {
                if !VIRTUAL.iter().any(|skipped| path == Path::new(skipped)) {
                    pending.push(path);
                }
            } else if metadata.is_file() {
                let executable = metadata.permissions().mode() & 0o111 != 0;
                // A file may have several names.
                let new = metadata.nlink() == 1 || seen.insert((metadata.dev(), metadata.ino()));
                if new {
                    found.add(root, path, executable);
                }
            }
        }
    }
    found.programs.sort_unstable();
    found
}

impl RootContents {
    fn add(&mut self, root: &Sysroot, path: PathBuf, executable: bool) {
        let Ok(bytes) = root.read_object(&path) else {
            self.unreadable += 1;
            return;
        };
        if executable && bytes.starts_with(b"#!") {
            let interpreters = interpreters(&bytes).unwrap_or_default();
            if interpreters.iter().all(|name| find_program(root, name).is_some()) {
                self.scripts += 1;
            } else {
                self.orphans.push(path);
            }
            return;
        }
        match Object::read(&bytes) {
            Ok(object) if object.is_library() || !executable => self.libraries += 1,
            Ok(_) => self.programs.push(path),
            // Relocatable objects, kernel modules and objects for other machines are not programs.
            Err(Error::NotElf | Error::NotExecutable { .. } | Error::OtherMachine { .. }) => self.others += 1,
            Err(error) if executable => self.damaged.push((path, error)),
            Err(_) => self.others += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_lines() {
        let named = |line: &str| interpreters(line.as_bytes());
        assert_eq!(named("#!/bin/sh -e\necho"), Some(vec!["/bin/sh".into()]));
        assert_eq!(named("#! /usr/bin/env python3"), Some(vec!["/usr/bin/env".into(), "python3".into()]));
        assert_eq!(named("#!/usr/bin/env -S A=1 awk -f"), Some(vec!["/usr/bin/env".into(), "awk".into()]));
        assert_eq!(named("\x7fELF"), None);
    }
}

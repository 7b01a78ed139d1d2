//! The search paths of the dynamic linker.
//!
//! The order follows `ld.so(8)`: `DT_RPATH` of the requesting object and of its loaders, `DT_RUNPATH` of the requesting
//! object, the directories of `/etc/ld.so.conf`, and the built-in directories of the C library. The cache of `ldconfig`
//! is not read, because it may be out of date; the directories decide. Environment variables (`LD_LIBRARY_PATH`,
//! `LD_PRELOAD`) belong to the user, not to the system, and do not count.

use std::path::{Path, PathBuf};

use glob::Pattern;
use kelf::Machine;

use crate::image::Object;
use crate::sysroot::Sysroot;

/// The library directories of a root file system, independent of the requesting object.
#[derive(Debug)]
pub struct Directories {
    /// The directories of `/etc/ld.so.conf`.
    configured: Vec<PathBuf>,
}

impl Directories {
    /// Reads the configuration of a root file system.
    pub fn of(root: &Sysroot) -> Directories {
        let mut configured = Vec::new();
        read_configuration(root, Path::new("/etc/ld.so.conf"), &mut Vec::new(), &mut configured);
        Directories { configured }
    }

    /// Returns the library directories for a program with this C library.
    fn system(&self, root: &Sysroot, machine: Machine, musl: bool) -> Vec<PathBuf> {
        if musl {
            let name = machine.target().programs.musl;
            let text = root.text(&format!("/etc/ld-musl-{name}.path"));
            let listed: Vec<PathBuf> =
                text.split([':', '\n']).filter(|path| !path.is_empty()).map(PathBuf::from).collect();
            let usual = || ["/lib", "/usr/local/lib", "/usr/lib"].map(PathBuf::from).to_vec();
            return if listed.is_empty() { usual() } else { listed };
        }
        let mut directories = self.configured.clone();
        for name in library_names(machine) {
            directories.extend([format!("/{name}").into(), format!("/usr/{name}").into()]);
        }
        directories
    }
}

/// The requesting object and the objects that loaded it, itself first.
pub struct Asking<'a> {
    /// The objects, each with its directory.
    pub chain: Vec<(&'a Object, &'a Path)>,
    /// Whether the C library is musl.
    pub musl: bool,
}

/// Returns the paths to try for a library of this name, in order.
pub fn candidates(root: &Sysroot, directories: &Directories, name: &str, asking: &Asking) -> Vec<PathBuf> {
    let Some(&(object, origin)) = asking.chain.first() else { return Vec::new() };
    let machine = object.machine;
    if name.contains('/') {
        return expand(name, origin, machine);
    }
    let mut found = Vec::new();
    let paths_of = |object: &Object| {
        let dynamic = object.dynamic.as_ref();
        (dynamic.and_then(|d| d.rpath.clone()), dynamic.and_then(|d| d.runpath.clone()))
    };
    let (_, own_runpath) = paths_of(object);
    if own_runpath.is_none() || asking.musl {
        for &(object, origin) in &asking.chain {
            let (rpath, runpath) = paths_of(object);
            // musl does not distinguish the two.
            let path = if asking.musl { runpath.or(rpath) } else { rpath.filter(|_| runpath.is_none()) };
            found.extend(
                path.iter().flat_map(|path| path.split(':')).flat_map(|p| expand(p, origin, machine)),
            );
        }
    } else if let Some(path) = &own_runpath {
        found.extend(path.split(':').flat_map(|path| expand(path, origin, machine)));
    }
    found.extend(directories.system(root, machine, asking.musl));
    // An empty entry means the working directory, which is unknown.
    found.iter().filter(|directory| directory.is_absolute()).map(|directory| directory.join(name)).collect()
}

/// Returns the names of the directories with a machine's libraries, in order.
fn library_names(machine: Machine) -> impl Iterator<Item = String> {
    let triplets = machine.target().programs.triplets.iter().map(|triplet| format!("lib/{triplet}"));
    let bits = if machine.is_64() { "lib64" } else { "lib32" };
    triplets.chain([bits.to_owned(), "lib".to_owned()])
}

/// Returns a path with the tokens of the dynamic linker replaced (`$ORIGIN`, `$LIB`, `$PLATFORM`), in every way that a
/// system may replace them.
fn expand(path: &str, origin: &Path, machine: Machine) -> Vec<PathBuf> {
    let replace = |path: &str, token: &str, by: &str| {
        path.replace(&format!("${{{token}}}"), by).replace(&format!("${token}"), by)
    };
    let path = replace(path, "ORIGIN", &origin.to_string_lossy());
    let path = replace(&path, "PLATFORM", &machine.to_string());
    if replace(&path, "LIB", "") == path {
        return vec![path.into()];
    }
    library_names(machine).map(|name| replace(&path, "LIB", &name).into()).collect()
}

/// Reads a file and the files that it includes, each once.
fn read_configuration(root: &Sysroot, file: &Path, read: &mut Vec<PathBuf>, directories: &mut Vec<PathBuf>) {
    if read.iter().any(|other| other == file) {
        return;
    }
    read.push(file.to_owned());
    let text = root.text(&file.to_string_lossy());
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or("").trim();
        match line.strip_prefix("include").filter(|rest| rest.starts_with(char::is_whitespace)) {
            Some(patterns) => {
                for pattern in patterns.split_whitespace() {
                    let pattern = file.parent().unwrap_or(Path::new("/")).join(pattern);
                    let included = matching(root, &pattern);
                    included.iter().for_each(|file| read_configuration(root, file, read, directories));
                }
            }
            // `hwcap 0 nosegneg`, on old systems, and `directory=type`.
            None if line.starts_with('/') => {
                let directory = line.split(['=', ' ', '\t']).next().unwrap_or(line);
                directories.extend(directory.split([':', ',']).map(PathBuf::from));
            }
            None => {}
        }
    }
}

/// Returns the files whose names match the last component of a path.
fn matching(root: &Sysroot, pattern: &Path) -> Vec<PathBuf> {
    let (Some(directory), Some(name)) = (pattern.parent(), pattern.file_name()) else { return Vec::new() };
    let Ok(pattern) = Pattern::new(&name.to_string_lossy()) else { return Vec::new() };
    let names = root.names(directory).into_iter();
    let names = names.filter(|name| {
        pattern.matches(&name.to_string_lossy()) && !name.as_encoded_bytes().starts_with(b".")
    });
    names.map(|name| directory.join(name)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn configuration_with_includes() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("etc/ld.so.conf.d")).unwrap();
        let write =
            |name: &str, text: &str| fs::write(directory.path().join("etc").join(name), text).unwrap();
        write("ld.so.conf", "include ld.so.conf.d/*.conf\n/opt/lib # ours\n");
        write("ld.so.conf.d/a.conf", "/usr/local/lib\ninclude /etc/ld.so.conf\n");
        write("ld.so.conf.d/b.conf.bak", "/wrong\n");
        let found = Directories::of(&Sysroot::new(directory.path())).configured;
        assert_eq!(found[..2], ["/usr/local/lib", "/opt/lib"].map(PathBuf::from));
        assert!(!found.contains(&"/wrong".into()));
    }

    #[test]
    fn tokens() {
        let expanded = |path| expand(path, Path::new("/opt/a/bin"), Machine::X86_64);
        assert_eq!(expanded("$ORIGIN/../lib"), [PathBuf::from("/opt/a/bin/../lib")]);
        assert_eq!(expanded("${ORIGIN}"), [PathBuf::from("/opt/a/bin")]);
        assert!(expanded("/x/$LIB").contains(&"/x/lib/x86_64-linux-gnu".into()));
    }
}

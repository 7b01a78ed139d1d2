//! A root file system, as its programs see it: symbolic links lead to places inside.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use crate::image::Object;

/// Maximum number of symbolic links in a path, as in Linux.
const MAX_LINKS: usize = 40;

/// A directory that serves as `/` for programs.
#[derive(Clone, Debug)]
pub struct Sysroot {
    directory: PathBuf,
}

impl Sysroot {
    /// Creates the root file system in this directory.
    pub fn new(directory: impl Into<PathBuf>) -> Sysroot {
        Sysroot { directory: directory.into() }
    }

    /// Returns the outside path of an inside path, without resolving links.
    pub fn outside(&self, inside: &Path) -> PathBuf {
        self.directory.join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// Returns the path with all links resolved, from `/`. `None` if there is no such file.
    pub fn resolve(&self, inside: &Path) -> Option<PathBuf> {
        let mut done = PathBuf::from("/");
        let mut pending = components(inside);
        let mut links = 0;
        while let Some(component) = pending.pop() {
            if component == ".." {
                done.pop();
                continue;
            }
            let next = done.join(&component);
            let outside = self.outside(&next);
            let metadata = outside.symlink_metadata().ok()?;
            if !metadata.is_symlink() {
                done = next;
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return None;
            }
            let target = std::fs::read_link(outside).ok()?;
            if target.is_absolute() {
                done = PathBuf::from("/");
            }
            pending.extend(components(&target));
        }
        Some(done)
    }

    /// Returns whether a path, with links resolved, is a regular file.
    pub fn is_file(&self, inside: &Path) -> bool {
        self.resolve(inside).is_some_and(|path| self.outside(&path).is_file())
    }

    /// Returns the content of a program or a library; of any other file, only the head, which identifies its kind.
    ///
    /// # Errors
    /// If the file does not exist, is not a regular file, or cannot be read.
    pub fn read_object(&self, inside: &Path) -> io::Result<Vec<u8>> {
        self.read(inside, Object::is_object)
    }

    /// Returns the content of a file if `is_wanted` accepts its head, else the head.
    fn read(&self, inside: &Path, is_wanted: impl FnOnce(&[u8]) -> bool) -> io::Result<Vec<u8>> {
        let path = self.resolve(inside).ok_or(io::ErrorKind::NotFound)?;
        let outside = self.outside(&path);
        // Reading a device or a pipe may never end.
        if !outside.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        kelf::read_file_if(&outside, is_wanted)
    }

    /// Returns the content of a text file; empty if there is none.
    pub fn text(&self, inside: &str) -> String {
        let bytes = self.read(Path::new(inside), |_| true).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Returns the names in a directory, sorted; none if it cannot be read.
    pub fn names(&self, inside: &Path) -> Vec<OsString> {
        let Some(path) = self.resolve(inside) else { return Vec::new() };
        let Ok(entries) = std::fs::read_dir(self.outside(&path)) else { return Vec::new() };
        let mut names: Vec<OsString> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort_unstable();
        names
    }
}

/// Returns the components of a path, the last one first, so that they can be popped.
fn components(path: &Path) -> Vec<OsString> {
    let named = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let mut components: Vec<OsString> = named.collect();
    components.reverse();
    components
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_stay_inside() {
        let directory = tempfile::tempdir().unwrap();
        let root = Sysroot::new(directory.path());
        fs::create_dir_all(directory.path().join("usr/lib")).unwrap();
        fs::write(directory.path().join("usr/lib/libc.so"), "c").unwrap();
        symlink("/usr/lib", directory.path().join("lib")).unwrap();
        symlink("../../../../usr/lib/libc.so", directory.path().join("usr/lib/up")).unwrap();
        symlink("round", directory.path().join("round")).unwrap();
        let resolved = |path: &str| root.resolve(Path::new(path));
        assert_eq!(resolved("/lib/libc.so"), Some("/usr/lib/libc.so".into()));
        assert_eq!(resolved("lib/up"), Some("/usr/lib/libc.so".into()));
        assert_eq!(resolved("/round"), None);
        assert_eq!(resolved("/lib/nothing"), None);
        assert_eq!(root.read_object(Path::new("/lib/up")).unwrap(), b"c");
        assert!(root.read_object(Path::new("/lib")).is_err());
        assert!(root.is_file(Path::new("/lib/libc.so")) && !root.is_file(Path::new("/lib")));
        assert_eq!(root.names(Path::new("/lib")), ["libc.so", "up"]);
    }
}

//! Paths as seen by a program inside a root file system.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Maximum number of links to follow, as in the kernel; a link to itself is not a file.
const MAX_LINKS: usize = 40;

/// Returns the ELF file that runs when `path` is executed in the root, as a path in the root without links: the file,
/// or the interpreter of a script. `None` if it does not exist in the root, or is neither.
pub fn program(root: &Path, path: &Path) -> Option<PathBuf> {
    let file = resolve(root, path)?;
    let bytes = fs::read(host_path(root, &file)).ok()?;
    if bytes.starts_with(b"\x7fELF") {
        return Some(file);
    }
    let line = bytes.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let interpreter = std::str::from_utf8(line).ok()?.split_whitespace().next()?;
    let file = resolve(root, Path::new(interpreter))?;
    fs::read(host_path(root, &file)).ok()?.starts_with(b"\x7fELF").then_some(file)
}

/// Returns the path on this machine of a path of the root.
pub fn host_path(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Returns an absolute path of the root with all links resolved inside of it.
fn resolve(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut left: Vec<_> = components(path).rev().collect();
    let mut done = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = left.pop() {
        if name == ".." {
            done.pop();
            continue;
        }
        done.push(&name);
        let here = host_path(root, &done);
        if here.symlink_metadata().ok()?.is_symlink() {
            links += 1;
            if links > MAX_LINKS {
                return None;
            }
            let target = fs::read_link(here).ok()?;
            done.pop();
            if target.is_absolute() {
                done = PathBuf::from("/");
            }
            left.extend(components(&target).rev());
        }
    }
    host_path(root, &done).is_file().then_some(done)
}

fn components(path: &Path) -> impl DoubleEndedIterator<Item = String> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_string_lossy().into_owned()),
        Component::ParentDir => Some("..".to_owned()),
        _ => None,
    })
}

#[test]
fn links_stay_inside_and_scripts_are_their_interpreters() {
    use std::os::unix::fs::symlink;

    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("usr/bin");
    fs::create_dir_all(&dir).unwrap();
    symlink("usr/bin", root.path().join("bin")).unwrap();
    fs::write(dir.join("program"), b"\x7fELF...").unwrap();
    fs::write(dir.join("script"), b"#! /bin/name -x\n").unwrap();
    fs::write(dir.join("text"), b"hello").unwrap();
    symlink("/bin/../../usr/bin/program", dir.join("name")).unwrap();
    symlink("loop", dir.join("loop")).unwrap();
    let found = |path: &str| program(root.path(), Path::new(path));
    let expected = Some(PathBuf::from("/usr/bin/program"));
    for path in ["/bin/program", "/usr/bin/name", "/bin/script"] {
        assert_eq!(found(path), expected, "{path}");
    }
    for path in ["/bin/text", "/bin/loop", "/bin/absent", "/bin"] {
        assert_eq!(found(path), None, "{path}");
    }
}

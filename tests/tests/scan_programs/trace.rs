//! The calls that `strace -f -n` observed, by program.
//!
//! A call belongs to the program whose image its process runs. Calls before the tracer's own launcher has entered the
//! root and started the first program are left out.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use kshrink_tests::strace::replay;

use crate::root::program;

/// The calls that programs of a root made, by program: number and name.
pub type Seen = BTreeMap<PathBuf, BTreeMap<u32, String>>;

/// Reads a log.
pub fn seen(log: &str, root: &Path) -> Seen {
    let mut programs: HashMap<String, Option<PathBuf>> = HashMap::new();
    let mut seen = Seen::new();
    let inside = Cell::new(false);
    let enter = |path: &str, image: &Option<PathBuf>| match path {
        _ if !inside.get() => None,
        "/proc/self/exe" => image.clone(),
        // A relative path is relative to an unknown directory.
        path if !path.starts_with('/') => None,
        path => programs.entry(path.to_owned()).or_insert_with(|| program(root, Path::new(path))).clone(),
    };
    replay(log, None, enter, |call, image| {
        if let (Some(image), false) = (image, call.resumed) {
            let calls = seen.entry(image.clone()).or_default();
            calls.entry(call.number).or_insert_with(|| call.name.to_owned());
        }
        inside.set(inside.get() || call.name == "chroot");
    });
    seen
}

#[test]
fn calls_belong_to_programs_of_the_root() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("bin")).unwrap();
    for name in ["sh", "ls"] {
        std::fs::write(root.path().join("bin").join(name), b"\x7fELF").unwrap();
    }
    let log = "1 [  59] execve(\"/bin/ls\", [\"chroot\"], 0x7 /* 1 var */) = 0\n\
        1 [  12] brk(NULL) = 0x1\n\
        1 [ 161] chroot(\"/x\") = 0\n\
        1 [  59] execve(\"/bin/sh\", [\"sh\"], 0x7 /* 1 var */) = 0\n\
        1 [   0] read(0, \"\", 4) = 0\n\
        1 [  59] execve(\"/proc/self/exe\", [\"sh\"], 0x7 /* 1 var */) = 0\n\
        1 [  39] getpid() = 1\n\
        1 [  59] execve(\"/bin/ls\", [\"ls\"], 0x7 /* 1 var */) = 0\n\
        1 [ 102] getuid() = 0\n\
        1 [  59] execve(\"./ls\", [\"ls\"], 0x7 /* 1 var */) = 0\n\
        1 [ 104] getgid() = 0\n";
    let seen = seen(log, root.path());
    let numbers = |path: &str| seen[Path::new(path)].keys().copied().collect::<Vec<_>>();
    assert_eq!(numbers("/bin/sh"), [0, 39, 59]);
    assert_eq!(numbers("/bin/ls"), [59, 102]);
}

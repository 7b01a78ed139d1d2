//! What `strace -f -n` saw, by program.
//!
//! A call belongs to the program whose image its process runs: an `execve` that succeeds changes it, a new
//! process begins with its parent's. What happens before the tracer's own launcher has entered the root and
//! started the first program there is nobody's.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use crate::root::program;

/// The calls that programs of a root made, by program: number and name.
pub type Seen = BTreeMap<PathBuf, BTreeMap<u32, String>>;

/// The names of calls that make a process or thread.
const FORKS: [&str; 4] = ["clone", "clone3", "fork", "vfork"];

/// Reads a log.
pub fn seen(log: &str, root: &Path) -> Seen {
    let parents = parents(log);
    let mut programs = HashMap::new();
    let mut processes: HashMap<&str, Process> = HashMap::new();
    let mut seen = Seen::new();
    let mut inside = false;
    for line in log.lines() {
        let Some((id, call)) = Call::parse(line) else { continue };
        if !processes.contains_key(id) {
            let image = parents.get(id).and_then(|parent| processes.get(parent)?.image.clone());
            processes.insert(id, Process { image, next: None });
        }
        let process = processes.get_mut(id).expect("it was just put there");
        if let (Some(image), false) = (&process.image, call.resumed) {
            let calls = seen.entry(image.clone()).or_default();
            calls.entry(call.number).or_insert_with(|| call.name.to_owned());
        }
        match call.name {
            "chroot" => inside = true,
            "execve" if inside => {
                if let Some(path) = call.rest.strip_prefix("(\"").and_then(|rest| rest.split('"').next()) {
                    process.next = Some(path.to_owned());
                }
                if call.rest.ends_with(" = 0") {
                    process.enter(|path| {
                        let found =
                            programs.entry(path.to_owned()).or_insert_with(|| program(root, Path::new(path)));
                        found.clone()
                    });
                }
            }
            name if FORKS.contains(&name) => {
                // It keeps this image, even if its parent is seen to change before it is seen itself.
                let image = process.image.clone();
                if let Some(child) = call.child() {
                    processes.entry(child).or_insert(Process { image, next: None });
                }
            }
            // By a descriptor that nobody has followed.
            "execveat" if call.rest.ends_with(" = 0") => process.image = None,
            _ => {}
        }
    }
    seen
}

/// A process or thread.
struct Process {
    /// The program that it runs, if that is one of the root.
    image: Option<PathBuf>,
    /// The path that its `execve` has named.
    next: Option<String>,
}

impl Process {
    fn enter(&mut self, program: impl FnOnce(&str) -> Option<PathBuf>) {
        match self.next.take().as_deref() {
            Some("/proc/self/exe") => {}
            // A relative path is relative to a directory that nobody has followed.
            Some(path) if path.starts_with('/') => self.image = program(path),
            _ => self.image = None,
        }
    }
}

/// The parents of all processes that others have made. A process may be seen before its maker is seen to
/// return.
fn parents(log: &str) -> HashMap<&str, &str> {
    let forks = log.lines().filter_map(|line| {
        let (id, call) = Call::parse(line)?;
        Some((FORKS.contains(&call.name).then(|| call.child())??, id))
    });
    forks.collect()
}

/// A line of the log.
struct Call<'a> {
    number: u32,
    name: &'a str,
    /// The end of a call whose beginning was on a line before.
    resumed: bool,
    /// What follows the name.
    rest: &'a str,
}

impl<'a> Call<'a> {
    /// `1234  [  20] getpid() = 1234`. Signals and exits have another form.
    fn parse(line: &'a str) -> Option<(&'a str, Call<'a>)> {
        let (process, rest) = line.split_once(' ')?;
        let (number, rest) = rest.trim_start().strip_prefix('[')?.split_once("] ")?;
        let resumed = rest.starts_with("<... ");
        let rest = rest.trim_start_matches("<... ");
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        let (name, rest) = rest.split_at(length);
        let number = number.trim().parse().ok()?;
        (!name.is_empty()).then_some((process, Call { number, name, resumed, rest }))
    }

    /// The process that a call has made.
    fn child(&self) -> Option<&'a str> {
        let (_, child) = self.rest.rsplit_once(" = ")?;
        child.bytes().all(|byte| byte.is_ascii_digit()).then_some(child)
    }
}

#[test]
fn calls_belong_to_the_image_of_their_process() {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("bin")).unwrap();
    for name in ["sh", "ls"] {
        std::fs::write(root.path().join("bin").join(name), b"\x7fELF").unwrap();
    }
    let log = "1 [  59] execve(\"/bin/ls\", [\"chroot\"], 0x7 /* 1 var */) = 0\n\
        1 [  12] brk(NULL) = 0x1\n\
        1 [ 161] chroot(\"/x\") = 0\n\
        1 [  59] execve(\"/bin/sh\", [\"sh\"], 0x7 /* 1 var */) = 0\n\
        1 [  58] vfork( <unfinished ...>\n\
        2 [   3] close(3) = 0\n\
        2 [  59] execve(\"/bin/none\", [\"ls\"], 0x7 /* 1 var */) = -1 ENOENT (No such file)\n\
        2 [  59] execve(\"/bin/ls\", [\"ls\"], 0x7 /* 1 var */ <unfinished ...>\n\
        1 [  58] <... vfork resumed>) = 2\n\
        2 [  59] <... execve resumed>) = 0\n\
        2 [  39] getpid() = 2\n\
        2 [ 231] +++ exited with 0 +++\n\
        1 [  61] --- SIGCHLD {si_signo=SIGCHLD} ---\n\
        1 [   0] read(0, \" = 0\", 4) = 4\n";
    let seen = seen(log, root.path());
    let numbers = |path: &str| seen[Path::new(path)].keys().copied().collect::<Vec<_>>();
    assert_eq!(numbers("/bin/sh"), [0, 3, 58, 59]);
    assert_eq!(numbers("/bin/ls"), [39]);
}

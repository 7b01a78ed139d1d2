//! Logs of `strace -f -n`, with or without `-i`: the image that made every call.
//!
//! A successful `execve` changes the image of its process; a new process begins with its parent's.

use std::collections::HashMap;

/// The names of calls that make a process or thread.
const FORKS: [&str; 4] = ["clone", "clone3", "fork", "vfork"];

/// A line of a log: a call, its beginning or its end. Signals and exits of processes have another form.
pub struct Call<'a> {
    /// The process or thread.
    pub process: &'a str,
    /// The number of the call.
    pub number: u32,
    /// The address after the instruction, as shown by `-i`.
    pub behind: Option<u64>,
    /// Its name.
    pub name: &'a str,
    /// Whether this is the end of a call that began on an earlier line.
    pub resumed: bool,
    /// The text after the name.
    pub rest: &'a str,
}

impl<'a> Call<'a> {
    /// Parses `1234  [  20] getpid() = 1234`, or `1234  [  20] [f7f0a579] getpid() = 1234`.
    pub fn parse(line: &'a str) -> Option<Call<'a>> {
        let (process, rest) = line.split_once(' ')?;
        let (number, mut rest) = rest.trim_start().strip_prefix('[')?.split_once("] ")?;
        let mut behind = None;
        if let Some((address, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once("] ")) {
            behind = Some(u64::from_str_radix(address, 16).ok()?);
            rest = after;
        }
        let resumed = rest.starts_with("<... ");
        let rest = rest.trim_start_matches("<... ");
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        let (name, rest) = rest.split_at(length);
        let number = number.trim().parse().ok()?;
        (!name.is_empty()).then_some(Call { process, number, behind, name, resumed, rest })
    }

    /// Whether it makes a process or thread.
    fn forks(&self) -> bool {
        FORKS.contains(&self.name)
    }

    /// The process that it created.
    fn child(&self) -> Option<&'a str> {
        let (_, child) = self.rest.rsplit_once(" = ").filter(|_| self.forks())?;
        child.bytes().all(|byte| byte.is_ascii_digit()).then_some(child)
    }

    /// The first path in it.
    fn path(&self) -> Option<&'a str> {
        self.rest.strip_prefix("(\"")?.split('"').next()
    }

    fn succeeds(&self) -> bool {
        self.rest.ends_with(" = 0")
    }
}

/// A process or thread.
struct Process<'a, I> {
    image: I,
    /// The path of its last `execve`.
    next: Option<&'a str>,
}

/// Shows every call of a log to `see`, with the image of its process; the first process begins with `first`. `enter`
/// returns the new image, given the path of an `execve` (empty if it has none) and the previous image.
pub fn replay<'a, I: Clone>(
    log: &'a str,
    first: I,
    mut enter: impl FnMut(&str, &I) -> I,
    mut see: impl FnMut(&Call<'a>, &I),
) {
    let parents = parents(log);
    let mut processes: HashMap<&str, Process<I>> = HashMap::new();
    for call in log.lines().filter_map(Call::parse) {
        if !processes.contains_key(call.process) {
            let parent = parents.get(call.process).and_then(|parent| processes.get(parent));
            let image = parent.map_or(&first, |parent| &parent.image).clone();
            processes.insert(call.process, Process { image, next: None });
        }
        let process = processes.get_mut(call.process).expect("it was just put there");
        see(&call, &process.image);
        match call.name {
            "execve" => {
                process.next = call.path().or(process.next);
                if call.succeeds() {
                    process.image = enter(process.next.take().unwrap_or_default(), &process.image);
                }
            }
            // The path of the descriptor is not known.
            "execveat" if call.succeeds() => process.image = enter("", &process.image),
            _ => {
                // It keeps this image, even if the log shows a change of its parent before its own first call.
                let image = process.image.clone();
                if let Some(child) = call.child() {
                    processes.entry(child).or_insert(Process { image, next: None });
                }
            }
        }
    }
}

/// Returns the parents of all processes that others created. A process may occur before the end of its parent's call.
fn parents(log: &str) -> HashMap<&str, &str> {
    let calls = log.lines().filter_map(Call::parse);
    calls.filter_map(|call| Some((call.child()?, call.process))).collect()
}

#[test]
fn calls_belong_to_the_image_of_their_process() {
    let log = "1 [  59] execve(\"/bin/sh\", [\"sh\"], 0x7 /* 1 var */) = 0\n\
        1 [  58] vfork( <unfinished ...>\n\
        2 [   3] [08049006] close(3) = 0\n\
        2 [  59] execve(\"/bin/none\", [\"ls\"], 0x7 /* 1 var */) = -1 ENOENT (No such file)\n\
        2 [  59] execve(\"/bin/ls\", [\"ls\"], 0x7 /* 1 var */ <unfinished ...>\n\
        1 [  58] <... vfork resumed>) = 2\n\
        2 [  59] <... execve resumed>) = 0\n\
        2 [  39] getpid() = 2\n\
        2 [ 322] execveat(3, \"\", [\"x\"], 0x7 /* 1 var */, AT_EMPTY_PATH) = 0\n\
        2 [ 102] getuid() = 0\n\
        2 [ 231] +++ exited with 0 +++\n\
        1 [  61] --- SIGCHLD {si_signo=SIGCHLD} ---\n\
        1 [   0] read(0, \" = 0\", 4) = 4\n";
    let mut seen = Vec::new();
    replay(
        log,
        "start".to_owned(),
        |path, _| path.to_owned(),
        |call, image| {
            seen.extend((!call.resumed).then(|| (image.clone(), call.number, call.behind)));
        },
    );
    let expected = [
        ("start", 59, None),
        ("/bin/sh", 58, None),
        ("/bin/sh", 3, Some(0x8049006)),
        ("/bin/sh", 59, None),
        ("/bin/sh", 59, None),
        ("/bin/ls", 39, None),
        ("/bin/ls", 322, None),
        ("", 102, None),
        ("/bin/sh", 0, None),
    ];
    assert_eq!(seen, expected.map(|(image, number, behind)| (image.to_owned(), number, behind)));
}

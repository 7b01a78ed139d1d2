//! Commands only read a build directory, inside the source tree or outside of it. A relink that would write to the
//! build directory or compile the kernel is refused.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use kshrink_tests::{KernelTest, Run, command};

use super::{busybox_plan, link_build};

/// The time limit of a command that reads a whole kernel.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs the command "$@" with the directory $0 mounted read-only.
const READ_ONLY: &str = r#"
[ "$(id -u)" -eq 0 ] && map= || map=--map-root-user
exec unshare $map --mount sh -c 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"' "$0" "$@"
"#;

/// Runs the command "$@" with room for 20 MB in the directory $0. Prints the remaining entries of the directory.
const SMALL: &str = r#"
[ "$(id -u)" -eq 0 ] && map= || map=--map-root-user
exec unshare $map --mount sh -c 'mount -t tmpfs -o size=20m none "$0" && "$@"; status=$?; ls -A "$0"; exit $status' "$0" "$@"
"#;

/// All files and directories in a directory, with all properties that a command could change.
pub(super) struct Snapshot {
    dir: PathBuf,
    files: BTreeMap<PathBuf, State>,
}

/// Mode, time of modification in seconds and nanoseconds, and a hash of the bytes or of the target of a link.
type State = (u32, i64, i64, u64);

impl Snapshot {
    pub(super) fn of(dir: &Path) -> Snapshot {
        let mut files = BTreeMap::new();
        let mut pending = vec![dir.to_path_buf()];
        while let Some(path) = pending.pop() {
            let data = fs::symlink_metadata(&path).expect("metadata");
            let mut hasher = DefaultHasher::new();
            if data.is_dir() {
                let entries = fs::read_dir(&path).expect("a readable directory");
                pending.extend(entries.map(|entry| entry.expect("an entry").path()));
            } else if data.is_symlink() {
                fs::read_link(&path).expect("a link").hash(&mut hasher);
            } else {
                fs::read(&path).expect("a readable file").hash(&mut hasher);
            }
            files.insert(path, (data.mode(), data.mtime(), data.mtime_nsec(), hasher.finish()));
        }
        Snapshot { dir: dir.to_path_buf(), files }
    }

    /// Panics if the directory has changed.
    #[track_caller]
    pub(super) fn check(&self, what: &str) {
        let now = Snapshot::of(&self.dir).files;
        let all = self.files.keys().chain(now.keys());
        let changed = all.filter(|path| self.files.get(*path) != now.get(*path));
        let changed: Vec<String> = changed.map(|path| path.display().to_string()).collect();
        assert!(changed.is_empty(), "{what} changed {}", changed.join(", "));
    }
}

/// Makes a build directory of links whose Makefile begins with a line, and returns its path.
fn build_with(test: &mut KernelTest<'_>, line: impl Fn(&Path) -> String) -> PathBuf {
    let build = test.kernel("web-i386").build;
    link_build(test.chain, &build, "build");
    let dir = test.chain.dir().join("build");
    let makefile = fs::read_to_string(build.join("Makefile")).expect("a Makefile");
    let text = line(&dir) + "\n" + &makefile;
    replace(&dir.join("Makefile"), &text);
    dir
}

/// Replaces a link by a file.
fn replace(path: &Path, text: &str) {
    fs::remove_file(path).expect("a link");
    fs::write(path, text).expect("a file");
}

fn identity(build: &Path) -> Run {
    let run = Run::kshrink("kshrink-spec").arg(build.join("vmlinux"));
    run.args(["--passes", "none", "--output", "out"]).limit(LIMIT)
}

/// Since Linux 6.13, the Makefile of a build directory sets its own path.
#[test]
fn build_that_names_its_directory_is_only_read() {
    KernelTest::check("build_that_names_its_directory_is_only_read", |test| {
        let build = build_with(test, |dir| format!("export KBUILD_OUTPUT = {}", dir.display()));
        let before = Snapshot::of(&build);
        // As in a build that runs this command.
        let run = identity(&build).env("KBUILD_OUTPUT", &build).env("sub_make_done", "1");
        test.chain.succeed(run.env("MAKEFLAGS", "s"));
        before.check("the identity");
        assert!(test.chain.dir().join("out/bzImage").is_file());
    });
}

#[test]
fn relink_that_would_write_elsewhere_is_refused() {
    KernelTest::check("relink_that_would_write_elsewhere_is_refused", |test| {
        let build = build_with(test, |dir| format!("override KBUILD_OUTPUT := {}", dir.display()));
        let before = Snapshot::of(&build);
        refused(test, &build, &format!("make works in {} instead", build.display()));
        before.check("the refused relink");
    });
}

#[test]
fn relink_that_would_compile_is_refused() {
    KernelTest::check("relink_that_would_compile_is_refused", |test| {
        let build = build_with(test, |_| String::new());
        let recorded = build.join("kernel/.fork.o.cmd");
        let text = fs::read_to_string(&recorded).expect("a recorded command");
        replace(&recorded, &text.replacen(" -c ", " -DKSHRINK_TEST -c ", 1));
        let before = Snapshot::of(&build);
        // Make never reaches the archive of objects.
        refused(test, &build, "the kernel's build rebuilds kernel/fork.o");
        before.check("the refused relink");
    });
}

/// Checks that a rewrite without passes is refused with a message, and leaves nothing.
fn refused(test: &mut KernelTest<'_>, build: &Path, words: &str) {
    let outcome = test.chain.attempt(identity(build));
    assert_eq!(outcome.status, Some(2), "{outcome}");
    assert!(outcome.stderr.contains(words), "{outcome}");
    assert_eq!(leftovers(test.chain.dir()), Vec::<PathBuf>::new());
    assert!(!test.chain.dir().join("out").exists());
}

/// The copies of build directories in a directory.
fn leftovers(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry").path());
    entries.filter(|path| path.to_string_lossy().contains("/.kshrink-relink-")).collect()
}

#[test]
fn signals_remove_the_copy_of_the_build() {
    KernelTest::check("signals_remove_the_copy_of_the_build", |test| {
        let build = test.kernel("web-i386").build;
        let dir = test.chain.dir().to_path_buf();
        for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
            // A shell ignores SIGINT in background commands.
            let mut relink = Command::new("env");
            relink.arg("--default-signal=INT,TERM,HUP").arg(command("kshrink-spec"));
            relink.arg(build.join("vmlinux")).args(["--passes", "none", "--output"]).arg(dir.join("out"));
            relink.stdin(Stdio::null()).stderr(Stdio::null());
            let mut child = relink.spawn().expect("it runs");
            let copy = wait_for_link(&mut child, &dir);
            let signal = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status();
            assert!(signal.expect("sh runs").success());
            let status = child.wait().expect("it ends");
            assert_eq!(status.signal(), Some(number), "SIG{name}: {status}");
            assert_eq!(leftovers(&dir), Vec::<PathBuf>::new(), "SIG{name}");
            assert_eq!(working_in(&copy), Vec::<PathBuf>::new(), "SIG{name}");
            assert!(!dir.join("out").exists(), "SIG{name}");
        }
    });
}

/// Waits until make has started to link in the copy of the build, and returns its directory.
fn wait_for_link(child: &mut Child, dir: &Path) -> PathBuf {
    let start = Instant::now();
    loop {
        let copy = leftovers(dir).pop();
        if let Some(copy) = copy
            && !working_in(&copy).is_empty()
        {
            return copy;
        }
        assert!(start.elapsed() < LIMIT, "no link");
        assert_eq!(child.try_wait().expect("a child"), None, "it ended by itself");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the processes whose working directory is in a directory, as entries of `/proc`.
fn working_in(dir: &Path) -> Vec<PathBuf> {
    let processes = fs::read_dir("/proc").expect("/proc").filter_map(|entry| Some(entry.ok()?.path()));
    let works_there =
        |process: &PathBuf| fs::read_link(process.join("cwd")).is_ok_and(|place| place.starts_with(dir));
    processes.filter(works_there).collect()
}

#[test]
fn a_disk_without_room_for_the_copy_is_refused() {
    KernelTest::check("a_disk_without_room_for_the_copy_is_refused", |test| {
        let kernel = test.kernel("web-i386");
        let small = test.chain.dir().join("small");
        fs::create_dir(&small).expect("a directory");
        let run = Run::new("sh").args(["-c", SMALL]).arg(&small).arg(command("kshrink-spec"));
        let run = run.arg(&kernel.vmlinux).args(["--passes", "none", "-o", "small/out"]);
        let outcome = test.chain.attempt(run.limit(LIMIT));
        let error = &outcome.stderr;
        assert_eq!((outcome.status, outcome.text().as_str()), (Some(1), ""), "{error}");
        assert!(error.contains("a copy of the build directory takes "), "{error}");
        assert!(error.contains("small: ") && error.contains(" MB are free; "), "{error}");
    });
}

#[test]
#[ignore = "builds three more kernels"]
fn no_command_writes_to_builds_of_linux_6_1() {
    KernelTest::check("no_command_writes_to_builds_of_linux_6_1", |test| {
        commands_only_read(test, ["web-i386-6.1", "tiny-i386-tree-6.1", "tiny-i386-below-6.1"]);
    });
}

#[test]
#[ignore = "builds two more kernels"]
fn no_command_writes_to_builds_of_linux_6_12() {
    KernelTest::check("no_command_writes_to_builds_of_linux_6_12", |test| {
        commands_only_read(test, ["web-i386", "tiny-i386-tree", "tiny-i386-below"]);
    });
}

#[test]
#[ignore = "builds three more kernels"]
fn no_command_writes_to_builds_of_linux_7_2() {
    KernelTest::check("no_command_writes_to_builds_of_linux_7_2", |test| {
        commands_only_read(test, ["web-i386-7.2", "tiny-i386-tree-7.2", "tiny-i386-below-7.2"]);
    });
}

/// Runs all commands with a build directory on builds outside of the source tree, in it, and directly below it.
fn commands_only_read(test: &mut KernelTest<'_>, names: [&str; 3]) {
    test.chain.write("plan.json", busybox_plan());
    for name in names {
        let kernel = test.kernel(name);
        let before = Snapshot::of(&kernel.build);
        let same = test.rewritten(&kernel, &format!("{name}-same"), "", &["--passes", "none"]);
        before.check("the identity");
        assert_eq!(same.size("before", "text"), same.size("after", "text"), "{name}");
        // The file system refuses any write.
        let vmlinux = &*kernel.vmlinux.to_string_lossy();
        let small = format!("{name}-small");
        let run = Run::new("sh").args(["-c", READ_ONLY]).arg(&kernel.build).arg(command("kshrink-spec"));
        let run = run.args([vmlinux, "--plan", "plan.json", "-o", &small]).limit(LIMIT);
        test.chain.succeed(run);
        assert!(test.chain.dir().join(&small).join("vmlinux").is_file());

        let trace = trace(&kernel.build);
        test.chain.write("trace", trace);
        for (command, arguments) in [
            ("kshrink-spec", &[vmlinux, "--emit-object", "small.o"][..]),
            ("kshrink-spec", &[vmlinux, "--explain", "start_kernel"]),
            ("kshrink-spec", &[vmlinux, "--retained", "start_kernel"]),
            ("cmdline-spec", &[vmlinux, "--cmdline", "console=ttyS0"]),
            ("kcfg", &[vmlinux, "--summary"]),
            ("kelf", &["size", vmlinux]),
            ("coverage", &["qemu", vmlinux, "trace"]),
        ] {
            let run = Run::kshrink(command).args(arguments).limit(LIMIT);
            let run = if command == "kshrink-spec" { run.args(["--plan", "plan.json"]) } else { run };
            let output = test.chain.succeed(run);
            before.check(command);
            if command == "coverage" {
                test.chain.write("coverage.json", output.stdout);
            }
        }
        let reorder = ["--vmlinux", vmlinux, "coverage.json"];
        test.chain.succeed(Run::kshrink("reorder").args(reorder).limit(LIMIT));
        test.chain.succeed(Run::kshrink("reorder").args(["pages", vmlinux, "coverage.json"]).limit(LIMIT));
        before.check("reorder");
        // Some configurations cannot be frozen, but the runtime is still compiled with the headers of the build.
        let run = Run::kshrink("frozen-pack").args(["plan", "--everything", vmlinux]).limit(LIMIT);
        let plan = test.chain.attempt(run.stdin(busybox_plan().as_str()));
        before.check("frozen-pack");
        if plan.status == Some(0) {
            test.chain.write("frozen.json", plan.stdout);
            let frozen = [vmlinux, "--plan", "frozen.json", "-o", "frozen"];
            test.chain.attempt(Run::kshrink("kshrink-spec").args(frozen).limit(LIMIT));
            before.check("kshrink-spec that freezes");
        }
    }
}

/// Returns a trace of one instruction, the first of `start_kernel`, in the format of QEMU's `in_asm` log.
fn trace(build: &Path) -> String {
    let map = fs::read_to_string(build.join("System.map")).expect("System.map");
    let line = map.lines().find(|line| line.ends_with(" start_kernel")).expect("start_kernel");
    format!("----------------\nIN: \n0x{}:  55                       pushl    %ebp\n", &line[..8])
}

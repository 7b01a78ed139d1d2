/*!
The relink: the kernel's own build, in a copy of its build directory, with one object in place of all.

`vmlinux.a` of the copy becomes an archive of the rewritten object alone. The command that Kbuild recorded for
it has not changed, nor has anything that it depends on, so that `make vmlinux` goes on from there: linker
script, kallsyms, table sorting, boot image. The user's directory is only read.
*/

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kcli::{Failure, Output};
use kelf::{KernelBuild, Machine};
use kplan::BlockMap;
use tempfile::TempDir;

/// The end of make's output that an error message quotes.
const QUOTED_LINES: usize = 15;

/// A copy of a build directory in which the kernel is linked anew; it is removed when this is dropped.
pub struct Staged<'b> {
    build: &'b KernelBuild,
    variables: &'b [String],
    dir: TempDir,
    boot_image: PathBuf,
}

/// How far a link goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// `vmlinux` and `System.map`.
    Vmlinux,
    /// These and the boot image.
    BootImage,
}

/// Checks that what is to be written is not part of the build directory.
pub fn check_apart(build: &KernelBuild, out: &Path) -> Result<(), Failure> {
    if out != Path::new("-") && existing_ancestor(out)?.starts_with(&build.dir) {
        return Err(Failure::bad_input(format!(
            "{}: lies in the build directory {}, which is never written to; name a place elsewhere",
            out.display(),
            build.dir.display()
        )));
    }
    Ok(())
}

/// Checks that the output directory can be written and is not part of the build directory.
pub fn check_output(build: &KernelBuild, out: &Path) -> Result<(), Failure> {
    check_apart(build, out)?;
    let parent = existing_ancestor(out)?;
    if !parent.is_dir() {
        return Err(Failure::job(format!("{}: is not a directory", parent.display())));
    }
    TempDir::new_in(&parent)
        .map(drop)
        .map_err(|error| Failure::job(format!("{}: cannot write there: {}", parent.display(), error.kind())))
}

impl<'b> Staged<'b> {
    /// Copies the build directory to where `out` will be. `variables` are for make.
    pub fn copy(build: &'b KernelBuild, variables: &'b [String], out: &Path) -> Result<Staged<'b>, Failure> {
        let parent = existing_ancestor(out)?;
        let dir =
            tempfile::Builder::new().prefix(".kshrink-relink-").tempdir_in(&parent).map_err(|error| {
                Failure::job(format!("{}: cannot write there: {}", parent.display(), error.kind()))
            })?;
        copy(&build.dir, dir.path())?;
        let boot_image = image_name(build, dir.path(), variables)?;
        Ok(Staged { build, variables, dir, boot_image })
    }

    /// Puts an object in the place of all others, and runs make. It can be done again with another object.
    pub fn link(&self, object: &[u8], goal: Goal) -> Result<(), Failure> {
        let archive = replace_archive(self.build, self.dir.path(), object)?;
        let before = fs::read(&archive)?;
        let targets = match goal {
            Goal::Vmlinux => vec!["vmlinux"],
            Goal::BootImage => vec!["vmlinux", image_target(&self.boot_image)],
        };
        make(self.build, self.dir.path(), self.variables, &targets)?;
        if fs::read(&archive)? != before {
            return Err(Failure::bad_input(format!(
                "{}: the kernel's build compiled objects anew instead of linking those that are there; run `make` \
                 there until it has nothing to do, and pass the variables that you give to make with --make",
                self.build.dir.display()
            )));
        }
        Ok(())
    }

    /// The copy.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The relinked kernel; its boot image lies where the build puts it.
    pub fn vmlinux(&self) -> PathBuf {
        self.dir.path().join("vmlinux")
    }

    /// Its symbols by address, as `nm -n` prints them.
    pub fn system_map(&self) -> PathBuf {
        self.dir.path().join("System.map")
    }

    /// Moves the results to the output directory, each one complete or not at all.
    pub fn publish(self, out: &Path, report: &[u8], blocks: &BlockMap) -> Result<(), Failure> {
        fs::create_dir_all(out).map_err(|error| Failure::job(format!("{}: {error}", out.display())))?;
        let image = self.boot_image.file_name().expect("make named a file");
        let results = [
            (self.vmlinux(), "vmlinux".into()),
            (self.system_map(), "System.map".into()),
            (self.dir.path().join(&self.boot_image), PathBuf::from(image)),
        ];
        for (from, name) in results {
            let to = out.join(name);
            fs::rename(&from, &to).map_err(|error| {
                Failure::job(format!("{}: cannot move it to {}: {error}", from.display(), to.display()))
            })?;
        }
        let mut output = Output::create(&out.join("blocks.json"))?;
        blocks.write(&mut output)?;
        output.commit()?;
        let mut output = Output::create(&out.join("report.json"))?;
        std::io::Write::write_all(&mut output, report)?;
        Ok(output.commit()?)
    }
}

/// The nearest directory on the way to `out` that exists, as an absolute path.
fn existing_ancestor(out: &Path) -> Result<PathBuf, Failure> {
    let absolute = std::path::absolute(out)?;
    let existing = absolute.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    Ok(fs::canonicalize(existing)?)
}

/// `cp -a`: times of modification have to stay, or make would build everything anew. Links that lead
/// out of the copy are replaced by what they lead to, so that nothing is written through them.
fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    let mut command = Command::new("cp");
    command.args(["-a", "--reflink=auto"]).arg(from.join(".")).arg(to);
    run(&mut command, "copying the build directory")?;
    replace_links(to, to)
}

fn replace_links(root: &Path, dir: &Path) -> Result<(), Failure> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            replace_links(root, &path)?;
        }
        // `source` leads to the kernel's source, which no build writes to.
        if !kind.is_symlink() || path == root.join("source") {
            continue;
        }
        let Ok(target) = fs::canonicalize(&path) else { continue };
        if target.starts_with(fs::canonicalize(root)?) {
            continue;
        }
        if target.is_dir() {
            return Err(Failure::bad_input(format!(
                "{} is a link to the directory {}, into which the relink would write; build without such links",
                path.strip_prefix(root).unwrap_or(&path).display(),
                target.display()
            )));
        }
        let modified = fs::metadata(&target)?.modified()?;
        fs::remove_file(&path)?;
        fs::copy(&target, &path)?;
        fs::File::options().write(true).open(&path)?.set_modified(modified)?;
    }
    Ok(())
}

/// Makes `vmlinux.a` of the copy an archive with nothing but the object in it.
fn replace_archive(build: &KernelBuild, dir: &Path, object: &[u8]) -> Result<PathBuf, Failure> {
    let archive = dir.join(build.archive.file_name().expect("an archive has a name"));
    let member = dir.join("kshrink.o");
    fs::write(&member, object)?;
    fs::remove_file(&archive)?;
    let mut command = Command::new("ar");
    command.current_dir(dir).arg("cDPrS").arg(&archive).arg("kshrink.o");
    run(&mut command, "making an archive of the rewritten object")?;
    Ok(archive)
}

/// Where the build puts the boot image, relative to the build directory.
fn image_name(build: &KernelBuild, dir: &Path, variables: &[String]) -> Result<PathBuf, Failure> {
    let output = command(build, dir, variables, &["-s", "image_name"])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::job(format!("cannot run make: {error}")))?;
    let name = String::from_utf8_lossy(&output.stdout);
    match name.lines().last().map(str::trim) {
        Some(name) if output.status.success() && !name.is_empty() => Ok(PathBuf::from(name)),
        _ => Err(Failure::job("`make image_name` does not name a boot image")),
    }
}

fn image_target(image: &Path) -> &str {
    image.file_name().and_then(|name| name.to_str()).unwrap_or("vmlinux")
}

fn make(build: &KernelBuild, dir: &Path, variables: &[String], targets: &[&str]) -> Result<(), Failure> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut command = command(build, dir, variables, targets);
    run(command.arg(format!("-j{jobs}")), "relinking the kernel")
}

/// `make` with the variables that the build was made with, as far as it recorded them.
fn command(build: &KernelBuild, dir: &Path, variables: &[String], targets: &[&str]) -> Command {
    let mut command = Command::new("make");
    command.arg("-C").arg(dir).arg(format!("ARCH={}", architecture(build)));
    for (name, value) in recorded_identity(&build.dir) {
        command.arg(format!("{name}={value}"));
    }
    command.args(variables).args(targets);
    command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    command
}

fn architecture(build: &KernelBuild) -> &'static str {
    match build.machine {
        Machine::I386 => "i386",
        Machine::X86_64 => "x86_64",
        Machine::Arm => "arm",
        Machine::Aarch64 => "arm64",
    }
}

/// Who built the kernel, when and where, as far as it was set by variables: part of its banner, which is
/// compiled in anew if it changes.
fn recorded_identity(dir: &Path) -> Vec<(&'static str, String)> {
    let quoted = |header: &str, macro_name: &str| {
        let text = fs::read_to_string(dir.join(header)).ok()?;
        let line = text.lines().find(|line| line.split_whitespace().nth(1) == Some(macro_name))?;
        line.split('"').nth(1).map(str::to_owned)
    };
    let compile = "include/generated/compile.h";
    let mut identity = Vec::new();
    identity.extend(quoted(compile, "LINUX_COMPILE_BY").map(|by| ("KBUILD_BUILD_USER", by)));
    identity.extend(quoted(compile, "LINUX_COMPILE_HOST").map(|host| ("KBUILD_BUILD_HOST", host)));
    // Only what variables set is in this one: "#3 SMP PREEMPT Thu Jan  1 00:00:00 UTC 1970", or "# ".
    if let Some(version) = quoted("init/utsversion-tmp.h", "UTS_VERSION") {
        let mut words = version.split(' ').peekable();
        let number = words.next().and_then(|word| word.strip_prefix('#')).unwrap_or_default();
        while words.next_if(|word| word.starts_with("SMP") || word.starts_with("PREEMPT")).is_some() {}
        let timestamp = words.collect::<Vec<_>>().join(" ");
        identity.push(("KBUILD_BUILD_VERSION", number.to_owned()));
        identity.push(("KBUILD_BUILD_TIMESTAMP", timestamp));
    }
    identity.retain(|(_, value)| !value.is_empty());
    identity
}

fn run(command: &mut Command, what: &str) -> Result<(), Failure> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| {
        let program = command.get_program().to_string_lossy().into_owned();
        Failure::job(format!("{what}: cannot run {program}: {error}"))
    })?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::job(format!("{what} failed ({}):{}", output.status, last_lines(&output))))
}

/// The last lines of a command's output, to be quoted in a message.
pub fn last_lines(output: &std::process::Output) -> String {
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(QUOTED_LINES)..].iter().map(|line| format!("\n  {line}")).collect()
}

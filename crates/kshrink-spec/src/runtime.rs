//! Code that is linked into rewritten kernels: compiled by the kernel's own compiler, as the build recorded it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use kcli::Failure;
use kelf::KernelBuild;
use kplan::OnMismatch;

use crate::relink::last_lines;

/// Compares the command line at boot with the one that the kernel was made for.
const COMMAND_LINE: &str = include_str!("../runtime/cmdline.c");
/// The object whose recorded command is used: one of every kernel, and of code that is freed after the start.
const MODEL: &str = "init/main.o";

/// Compiles the check of the command line. Returns the object, and the name of its source.
///
/// # Errors
/// A failed job if the compiler fails, bad input if the build has not recorded how it called it.
pub fn command_line_check(
    build: &KernelBuild,
    on_mismatch: OnMismatch,
) -> Result<(&'static str, Vec<u8>), Failure> {
    let panics = match on_mismatch {
        OnMismatch::Warn => "-DKSHRINK_PANIC=0",
        OnMismatch::Panic => "-DKSHRINK_PANIC=1",
    };
    Ok(("kshrink_cmdline.c", compile(build, "kshrink_cmdline", COMMAND_LINE, panics)?))
}

fn compile(build: &KernelBuild, name: &str, source: &str, define: &str) -> Result<Vec<u8>, Failure> {
    let dir = tempfile::tempdir()?;
    let (input, output) = (dir.path().join(format!("{name}.c")), dir.path().join(format!("{name}.o")));
    fs::write(&input, source)?;
    let words = recorded_command(&build.dir)?;
    let (compiler, flags) = words.split_first().ok_or_else(|| unusable(&build.dir))?;
    let mut command = Command::new(compiler);
    command.current_dir(&build.dir).stdin(Stdio::null());
    command.args(flags).arg(define).arg("-c").arg(&input).arg("-o").arg(&output);
    let what = format!("compiling {name}.c for the kernel");
    let outcome = command
        .output()
        .map_err(|error| Failure::job(format!("{what}: cannot run {compiler}, which built it: {error}")))?;
    if !outcome.status.success() {
        return Err(Failure::job(format!("{what} failed ({}):{}", outcome.status, last_lines(&outcome))));
    }
    Ok(fs::read(&output)?)
}

/// The compiler and its flags, without what they read and write, as in the first line of `init/.main.o.cmd`:
/// `savedcmd_init/main.o := gcc -Wp,-MMD,init/.main.o.d … -c -o init/main.o …/init/main.c ; …`.
fn recorded_command(dir: &Path) -> Result<Vec<String>, Failure> {
    let text = fs::read_to_string(dir.join("init/.main.o.cmd")).map_err(|_| unusable(dir))?;
    let line = text.lines().find(|line| line.starts_with("savedcmd_") || line.starts_with("cmd_"));
    let command = line.and_then(|line| Some(line.split_once(":=")?.1)).ok_or_else(|| unusable(dir))?;
    // `make` reads the record: a dollar sign is doubled. What follows the compiler looks at the object that it made.
    let words = shlex::split(&command.replace("$$", "$")).ok_or_else(|| unusable(dir))?;
    let mut words = words.into_iter().take_while(|word| word != ";");
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-o" => drop(words.next()),
            "-c" => {}
            _ if word.starts_with("-Wp,-M") || word.ends_with("/main.c") => {}
            _ => kept.push(word),
        }
    }
    Ok(kept)
}

fn unusable(dir: &Path) -> Failure {
    Failure::bad_input(format!(
        "{}: does not record how {MODEL} was compiled; build the kernel there again with `make vmlinux`",
        dir.join("init/.main.o.cmd").display()
    ))
}

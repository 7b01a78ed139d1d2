//! Compiles C for a kernel with the flags of its own build, which Kbuild recorded.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use kcli::Failure;
use kcli::scratch::last_lines;
use kelf::KernelBuild;
use tracing::info_span;

use crate::record;

/// The object whose recorded command is used; every kernel has it.
const MODEL: &str = "init/main.o";

/// Flags for the function tracer (`CC_FLAGS_FTRACE` of the kernel's Makefile), which must not run while a fault is
/// handled.
const TRACER: [&str; 4] = ["-pg", "-mfentry", "-mrecord-mcount", "-mnop-mcount"];

/// The option that shortens the names of source files (`KBUILD_CPPFLAGS` of the kernel's Makefile).
const PREFIX_MAP: &str = "-fmacro-prefix-map=";

/// A source file for the kernel: name and text.
pub type Source<'a> = (&'a str, &'a str);

/// A source file, and flags besides those of the kernel.
pub type Unit<'a> = (Source<'a>, &'a [&'a str]);

/// Flags for an object that is compiled for its debugging information alone, with all types.
pub const WITH_TYPES: &[&str] = &["-g", "-fno-eliminate-unused-debug-types", "-w"];

/// The flags that Kbuild passes for assembly.
pub const ASSEMBLY: &[&str] = &["-D__ASSEMBLY__"];

/// The compiler of a kernel's build, and its flags.
pub struct KernelCompiler {
    dir: PathBuf,
    /// The compiler and its flags, except the names of inputs and outputs, and the flags for the function tracer.
    words: Vec<String>,
}

impl KernelCompiler {
    /// Finds the compiler command of a build. The build directory is only read.
    ///
    /// # Errors
    /// Bad input if the build has not recorded how it called the compiler.
    pub fn of(build: &KernelBuild) -> Result<KernelCompiler, Failure> {
        Ok(KernelCompiler { dir: build.dir.clone(), words: for_own_files(recorded(&build.dir, MODEL)?) })
    }

    /// The compiler, as Kbuild called it.
    pub(crate) fn program(&self) -> &str {
        &self.words[0]
    }

    /// Compiles units that include headers, all with further flags. Returns objects with names for messages.
    ///
    /// # Errors
    /// A failed job if the compiler fails.
    pub fn compile_all(
        &self,
        headers: &[Source<'_>],
        units: &[Unit<'_>],
        flags: &[&str],
    ) -> Result<Vec<(String, Vec<u8>)>, Failure> {
        let dir = tempfile::tempdir()?;
        for (name, text) in headers.iter().chain(units.iter().map(|(source, _)| source)) {
            fs::write(dir.path().join(name), text)?;
        }
        let compile = |((source, _), own): &Unit<'_>| {
            let (name, _) = source.split_once('.').unwrap_or((source, ""));
            let flags: Vec<&str> = flags.iter().chain(*own).copied().collect();
            Ok((format!("kshrink/{name}.o"), self.compile(dir.path(), source, &flags)?))
        };
        units.iter().map(compile).collect()
    }

    /// Compiles a source file in a directory, C or assembly, with flags besides those of the kernel. Returns the
    /// object.
    ///
    /// # Errors
    /// A failed job if the compiler fails.
    pub fn compile(&self, dir: &Path, name: &str, flags: &[&str]) -> Result<Vec<u8>, Failure> {
        let source = dir.join(name);
        let object = source.with_extension("o");
        let mut command = Command::new(&self.words[0]);
        command.current_dir(&self.dir).stdin(Stdio::null());
        command.args(&self.words[1..]).args(flags).arg("-I").arg(dir);
        // The kernel prints names of source files (`BUG`, `WARN`) relative to its source directory. Compilers without
        // this option print full paths.
        if self.words.iter().any(|word| word.starts_with(PREFIX_MAP)) {
            command.arg(format!("{PREFIX_MAP}{}/=kshrink/", dir.display()));
        }
        command.arg("-c").arg("-o").arg(&object).arg(&source);
        run(
            &mut command,
            &format!("compiling {name} for the kernel"),
            &format!("with the flags of {MODEL} in {}", self.dir.display()),
            "its headers and the kernel's source have to be where they were when it was built",
        )?;
        Ok(fs::read(&object)?)
    }
}

/// Compiles the source of an object of the build in the directory `build` again, such as `fs/inode.o`, by its recorded
/// command with further flags. Returns the object. The build directory is only read.
///
/// # Errors
/// Bad input if the build has not recorded how it compiled the object. A failed job if the compiler fails.
pub fn compile_again(build: &Path, object: &str, flags: &[&str]) -> Result<Vec<u8>, Failure> {
    let words = recorded(build, object)?;
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("again.o");
    let mut command = Command::new(&words[0]);
    command.current_dir(build).stdin(Stdio::null()).args(&words[1..]).args(flags);
    command.arg("-c").arg("-o").arg(&file);
    run(
        &mut command,
        &format!("compiling {object} again"),
        &format!("in {}", build.display()),
        "the kernel's source has to be where it was when it was built",
    )?;
    Ok(fs::read(&file)?)
}

/// Runs a compiler that built the kernel. `what`, `place` and `advice` are for the message.
fn run(command: &mut Command, what: &str, place: &str, advice: &str) -> Result<(), Failure> {
    let _span = info_span!("command", line = ?command).entered();
    let output = command.output().map_err(|error| {
        let program = command.get_program().to_string_lossy();
        Failure::job(format!("{what}: cannot run {program}, which built it: {error}"))
    })?;
    if !output.status.success() {
        return Err(Failure::job(format!(
            "{what} {place} failed ({}); {advice}:{}",
            output.status,
            last_lines(&output)
        )));
    }
    Ok(())
}

/// Returns the compiler and its arguments that a build recorded for an object, such as `fs/inode.o`, without the names of
/// outputs.
///
/// # Errors
/// Bad input if the build has not recorded how it compiled the object.
pub fn recorded(build: &Path, object: &str) -> Result<Vec<String>, Failure> {
    let path = record::path_of(build, object);
    let words = fs::read_to_string(&path).ok().and_then(|text| recorded_command(&text));
    words.ok_or_else(|| {
        Failure::bad_input(format!(
            "{}: does not record how {object} was compiled; build the kernel there again with `make vmlinux`",
            path.display()
        ))
    })
}

/// Returns the compiler and its arguments in what Kbuild records in `.NAME.o.cmd`, without the names of outputs:
/// `savedcmd_init/main.o := gcc -Wp,-MMD,init/.main.o.d … -c -o init/main.o …/init/main.c ; …`.
pub fn recorded_command(text: &str) -> Option<Vec<String>> {
    let mut words = record::steps(text)?.into_iter().next()?.into_iter();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-o" => drop(words.next()),
            "-c" => {}
            _ if word.starts_with("-Wp,-M") => {}
            _ => kept.push(word),
        }
    }
    (kept.len() > 1).then_some(kept)
}

/// Returns the command of [`MODEL`] for files of this program: without its source and the flags of the function
/// tracer.
fn for_own_files(words: Vec<String>) -> Vec<String> {
    let is_kept = |word: &String| !TRACER.contains(&word.as_str()) && !word.ends_with("init/main.c");
    let own = |word: String| match word.starts_with("-DKBUILD_") || word.starts_with("-D__KBUILD_") {
        true => word.replace("init/main", "main").replace("main", "kshrink"),
        false => word,
    };
    words.into_iter().filter(is_kept).map(own).collect()
}

//! The runtime: fault handler and decoder, compiled as the kernel's own build compiles.

use std::fs;
use std::path::Path;
use std::process::Command;

use kcli::Failure;
use kelf::{InputFiles, KernelBuild, Object, Place};

use crate::relink::last_lines;
use crate::rewrite::of_elf;

/// A source file: name and text.
type Source = (&'static str, &'static str);

macro_rules! source {
    ($name:literal, $path:literal) => {
        ($name, include_str!(concat!("../../../../kdecomp-rt/", $path)))
    };
}

const HEADERS: [Source; 3] =
    [source!("decode.h", "decode.h"), source!("symbols.h", "symbols.h"), source!("tables.h", "tables.h")];

/// What is compiled, with flags besides those of the kernel: decoding is worth the bytes that speed takes.
const UNITS: [(Source, &[&str]); 3] = [
    (source!("decode.c", "decode.c"), &["-O2"]),
    (source!("open.c", "open.c"), &[]),
    (source!("runtime.c", "kernel/runtime.c"), &[]),
];

/// The kernel's functions that the runtime wraps, as `ld --wrap` does.
const WRAPPED: [&str; 9] = [
    "start_kernel",
    "early_fixup_exception",
    "exc_page_fault",
    "vmalloc_init",
    "kernel_text_address",
    "__kernel_text_address",
    "func_ptr_is_kernel_text",
    "kfree_const",
    "kstrdup_const",
];

/// The object whose command Kbuild has recorded in every kernel.
const MODEL: &str = "init/main.o";

/// The variable of the runtime that holds the end of the addresses that can be frozen.
const LIMIT: &str = "kshrink_range_limit";

/// The compiled runtime.
pub struct Runtime {
    objects: Vec<(String, Vec<u8>)>,
    /// The address at which the frozen range has to end.
    pub limit: u32,
}

impl Runtime {
    /// Compiles it for a kernel. The build directory is only read.
    ///
    /// # Errors
    /// If the build does not say how it compiles, or its headers do not fit.
    pub fn compile(build: &KernelBuild) -> Result<Runtime, Failure> {
        let recorded = recorded_command(&build.dir)?;
        let dir = tempfile::tempdir()?;
        for (name, text) in HEADERS.iter().chain(UNITS.iter().map(|(source, _)| source)) {
            fs::write(dir.path().join(name), text)?;
        }
        let mut objects = Vec::new();
        for ((name, _), flags) in UNITS {
            let object = dir.path().join(name).with_extension("o");
            let mut command = Command::new(&recorded[0]);
            command.current_dir(&build.dir).args(&recorded[1..]).args(flags).arg("-I").arg(dir.path());
            command.arg("-o").arg(&object).arg(dir.path().join(name));
            let output = command.output().map_err(|error| {
                Failure::job(format!("compiling the runtime: cannot run {}: {error}", recorded[0]))
            })?;
            if !output.status.success() {
                return Err(Failure::job(format!(
                    "compiling the runtime ({name}) with the flags of {MODEL} in {} failed ({}); its headers and the \
                     kernel's source have to be where they were when it was built:{}",
                    build.dir.display(),
                    output.status,
                    last_lines(&output)
                )));
            }
            objects.push((format!("kshrink/{}", name.replace(".c", ".o")), fs::read(&object)?));
        }
        let limit = limit(&objects)?;
        Ok(Runtime { objects, limit })
    }

    /// Adds the runtime to a kernel's objects.
    pub fn join(self, files: InputFiles) -> InputFiles {
        files.with_objects(self.objects).wrapping(&WRAPPED)
    }
}

/// The command that compiled [`MODEL`], without its source, its output and its list of headers.
fn recorded_command(dir: &Path) -> Result<Vec<String>, Failure> {
    let path = dir.join("init/.main.o.cmd");
    let bad = |problem: &str| {
        Failure::bad_input(format!("{}: {problem}; build the kernel there again with `make`", path.display()))
    };
    let text = fs::read_to_string(&path).map_err(|error| bad(&format!("cannot be read: {error}")))?;
    let first = text.lines().next().and_then(|line| line.split_once(":="));
    let (_, command) = first.ok_or_else(|| bad("records no command"))?;
    let mut words = shlex::split(command).ok_or_else(|| bad("records a command that is no list of words"))?;
    // objtool and others come behind the compiler.
    if let Some(end) = words.iter().position(|word| matches!(word.as_str(), ";" | "&&" | "||" | "|")) {
        words.truncate(end);
    }
    let mut kept = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-o" => drop(words.next()),
            "-c" => kept.push(word),
            _ if word.starts_with("-Wp,-MMD") || word.starts_with("-Wp,-MD") => {}
            _ if word.ends_with("/init/main.c") || word == "init/main.c" => {}
            _ if word.starts_with("-DKBUILD_") || word.starts_with("-D__KBUILD_") => {
                kept.push(word.replace("init/main", "main").replace("main", "kshrink"));
            }
            _ => kept.push(word),
        }
    }
    if kept.len() < 2 || !kept.iter().any(|word| word == "-c") {
        return Err(bad("does not record how init/main.c is compiled"));
    }
    Ok(kept)
}

/// The value of [`LIMIT`].
fn limit(objects: &[(String, Vec<u8>)]) -> Result<u32, Failure> {
    for (name, bytes) in objects {
        let object = Object::read(name, bytes).map_err(of_elf)?;
        let Some(symbol) = object.symbols.iter().find(|symbol| symbol.name == LIMIT) else { continue };
        if let Place::Section(section) = symbol.place
            && let Some(value) = object.section(section).data.get(symbol.value as usize..)
            && let Some(value) = value.first_chunk()
        {
            return Ok(u32::from_le_bytes(*value));
        }
    }
    Err(Failure::job(format!("the compiled runtime has no variable {LIMIT} with a value")))
}

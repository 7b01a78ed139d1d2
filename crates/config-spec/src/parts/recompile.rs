//! The source lines of the objects of a build, by compiling them once more with debugging information.
//!
//! `-g` does not change the code that gcc makes. Whether that holds is checked for each object: its sections in memory
//! have to be those of the build's object, and its code the same to the byte.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use kbuild::recorded_command;
use kcli::scratch::last_lines;
use object::{Object, ObjectSection, SectionKind};

use super::debug::{SourceLines, is_in_memory};
use crate::cache::Cache;

/// Returns the lines of an object, `name` relative to the build directory, that was made from `files`; from the cache if
/// it has them.
///
/// # Errors
/// The reason why its lines are not known, for people.
pub fn lines(build: &Path, name: &str, files: &[&str]) -> Result<SourceLines, String> {
    let path = build.join(name);
    let built = fs::read(&path).map_err(|error| format!("cannot be read: {error}"))?;
    if let Some(lines) = own_lines(&built)? {
        let changed = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
        let is_newer = |file: &&&str| changed(&build.join(file)) > changed(&path);
        return match files.iter().find(is_newer) {
            Some(file) => Err(format!("{file} is newer than the object")),
            None => Ok(lines),
        };
    }
    let (directory, file) = name.rsplit_once('/').unwrap_or(("", name));
    let record = fs::read(build.join(directory).join(format!(".{file}.cmd"))).unwrap_or_default();
    let words = recorded_command(&String::from_utf8_lossy(&record));
    let words = words.ok_or("no record tells how it was compiled")?;
    let source = words.iter().rev().find(|word| word.ends_with(".c") || word.ends_with(".S"));
    let source =
        source.and_then(|source| fs::read(build.join(source)).ok()).ok_or("its source is not there")?;
    let cache = Cache::file("lines", &[&built, words.join("\0").as_bytes(), &source, &state(build, files)]);
    if let Some(lines) = cache.as_ref().and_then(Cache::load).filter(SourceLines::is_whole) {
        return Ok(lines);
    }
    let object = compile(build, &words)?;
    if let Some(difference) = difference(&built, &object)? {
        return Err(difference);
    }
    let lines = SourceLines::read(&object)?;
    cache.iter().for_each(|cache| cache.save(&lines));
    Ok(lines)
}

/// Returns the sizes and times of files, as bytes.
fn state(build: &Path, files: &[&str]) -> Vec<u8> {
    let mut files = files.to_vec();
    files.sort_unstable();
    let state = |file: &str| {
        let metadata = fs::metadata(build.join(file)).ok();
        let changed = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
        format!("{file} {:?} {changed:?}\n", metadata.map(|metadata| metadata.len()))
    };
    files.into_iter().map(state).collect::<String>().into_bytes()
}

/// Returns the lines in an object of a build with debugging information.
fn own_lines(built: &[u8]) -> Result<Option<SourceLines>, String> {
    let file = object::File::parse(built).map_err(|error| format!("is no object: {error}"))?;
    let has_lines =
        file.section_by_name(".debug_line").is_some_and(|_| file.section_by_name(".debug_info").is_some());
    has_lines.then(|| SourceLines::read(built)).transpose()
}

/// Runs a compiler command with `-g`. Returns the object.
fn compile(build: &Path, words: &[String]) -> Result<Vec<u8>, String> {
    let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
    let object = scratch.path().join("object.o");
    let mut command = Command::new(&words[0]);
    command.current_dir(build).stdin(Stdio::null()).args(&words[1..]);
    command.args(["-g", "-w", "-c", "-o"]).arg(&object);
    let output = command.output().map_err(|error| format!("cannot run {}: {error}", words[0]))?;
    if !output.status.success() {
        return Err(format!("cannot be compiled again:{}", last_lines(&output)));
    }
    fs::read(&object).map_err(|error| error.to_string())
}

/// Returns how a compiled object differs from that of the build. Kbuild may have added sections to the latter.
fn difference(built: &[u8], compiled: &[u8]) -> Result<Option<String>, String> {
    let parse = |bytes| object::File::parse(bytes).map_err(|error: object::Error| error.to_string());
    let (built, compiled) = (parse(built)?, parse(compiled)?);
    let mut own = built.sections().filter(is_in_memory);
    for section in compiled.sections().filter(is_in_memory) {
        let name = section.name().unwrap_or_default();
        let is_same = own.next().is_some_and(|own| {
            let is_code = section.kind() == SectionKind::Text;
            own.name() == section.name()
                && own.size() == section.size()
                && (!is_code || own.data().ok() == section.data().ok())
        });
        if !is_same {
            return Ok(Some(format!("is another one if compiled with -g, from section {name} on")));
        }
    }
    Ok(None)
}

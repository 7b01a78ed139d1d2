//! The commands that Kbuild records in `.TARGET.cmd` beside each target.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Directories whose objects are programs of the build, not of the kernel.
const PROGRAMS: [&str; 2] = ["scripts", "tools"];

/// Words between the steps of a command.
const SEPARATORS: [&str; 4] = [";", "&&", "||", "|"];

/// Returns the words of each step of a recorded command, such as the compiler's and objtool's; `None` if the text is no
/// record.
pub(crate) fn steps(record: &str) -> Option<Vec<Vec<String>>> {
    let line = record.lines().find(|line| line.starts_with("savedcmd_") || line.starts_with("cmd_"))?;
    // The record is for `make`, which doubles dollar signs.
    let words = shlex::split(&line.split_once(":=")?.1.replace("$$", "$"))?;
    let steps = words.split(|word| SEPARATORS.contains(&word.as_str())).map(<[String]>::to_vec);
    Some(steps.filter(|words| !words.is_empty()).collect())
}

/// Returns the path of the record of a target, which is relative to the build directory.
pub(crate) fn path_of(build: &Path, target: &str) -> PathBuf {
    let target = build.join(target);
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.cmd"))
}

/// Iterates over the objects of the kernel in a build directory, in no order: the path of each, such as `fs/inode.o`, and
/// that of its record. A directory that cannot be read is an error.
pub fn records(build: &Path) -> impl Iterator<Item = io::Result<(String, PathBuf)>> {
    let mut pending = vec![String::new()];
    let next = move || {
        let below = pending.pop()?;
        let found = records_in(build, &below, &mut pending);
        Some(found.unwrap_or_else(|error| vec![Err(error)]))
    };
    std::iter::from_fn(next).flatten()
}

/// Returns the records of one directory, and adds the directories in it to `pending`.
fn records_in(
    build: &Path,
    below: &str,
    pending: &mut Vec<String>,
) -> io::Result<Vec<io::Result<(String, PathBuf)>>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(build.join(below))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = |name: &str| if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
        // `source` is a link to the source tree; links are not followed.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let directory = path(&name);
            if !PROGRAMS.contains(&directory.as_str()) {
                pending.push(directory);
            }
        } else if let Some(object) = name.strip_prefix('.').and_then(|name| name.strip_suffix(".cmd"))
            && object.ends_with(".o")
        {
            found.push(Ok((path(object), entry.path())));
        }
    }
    Ok(found)
}

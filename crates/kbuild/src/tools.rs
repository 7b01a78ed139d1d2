//! The records of tools that a build makes for itself (`tools/objtool/`).
//!
//! Their build (tools/build/Build.include) works on absolute paths, and records these. With the paths of another
//! directory, make compiles the tools anew, and then every object that they have checked.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use kcli::Failure;

use crate::copy::set_times;

/// The directory of these tools, relative to the build directory.
const TOOLS: &str = "tools";

/// The start of a record: the name of a variable, which ends with the path of the target.
const COMMAND: &str = "cmd_";

/// Makes the records of the tools in a copy name the copy. The times of their files stay.
///
/// # Errors
/// A failed job if a record cannot be read or written.
pub(crate) fn rename(copy: &Path) -> Result<(), Failure> {
    rename_in(copy, &copy.join(TOOLS))
}

fn rename_in(copy: &Path, dir: &Path) -> Result<(), Failure> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let (path, metadata) = (entry.path(), entry.metadata()?);
        if metadata.is_dir() {
            rename_in(copy, &path)?;
        } else if path.extension().is_some_and(|extension| extension == "cmd") && metadata.is_file() {
            let place = path.strip_prefix(copy).expect("a directory of the copy").parent();
            let text = fs::read_to_string(&path)?;
            if let Some(built_in) = place.and_then(|place| directory(&text, place)) {
                fs::write(&path, renamed(&text, built_in, &copy.display().to_string()))?;
                set_times(&path, &metadata)?;
            }
        }
    }
    Ok(())
}

/// Returns the build directory that a record names, from the path of its target in `place`, a directory of the build.
fn directory<'t>(record: &'t str, place: &Path) -> Option<&'t str> {
    let target = record.strip_prefix(COMMAND)?.split_once(" :=")?.0;
    let parent = Path::new(target).parent()?.to_str()?;
    let directory = parent.strip_suffix(place.to_str()?)?.strip_suffix('/')?;
    directory.starts_with('/').then_some(directory)
}

/// Returns a record with the paths in one directory replaced by those in another.
pub(crate) fn renamed(record: &str, from: &str, to: &str) -> String {
    record.replace(&format!("{from}/"), &format!("{to}/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_name_the_copy() {
        let record = "cmd_/a/b/tools/objtool/check.o := gcc -I/a/b/tools/objtool/include -I/a/b-c/include -o \
                      /a/b/tools/objtool/check.o check.c\n";
        let place = Path::new("tools/objtool");
        let from = directory(record, place).expect("a record");
        assert_eq!(from, "/a/b");
        assert_eq!(
            renamed(record, from, "/copy"),
            "cmd_/copy/tools/objtool/check.o := gcc -I/copy/tools/objtool/include -I/a/b-c/include -o \
             /copy/tools/objtool/check.o check.c\n"
        );
        for other in [
            "savedcmd_tools/objtool/check.o := gcc",
            "cmd_tools/objtool/check.o := gcc",
            "",
            "cmd_/a/check.o",
        ] {
            assert_eq!(directory(other, place), None);
        }
    }
}

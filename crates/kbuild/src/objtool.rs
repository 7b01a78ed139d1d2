//! objtool, the build's own tool that checks machine code and makes the tables for unwinding it (`CONFIG_UNWINDER_ORC`).

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

use kcli::Failure;
use kcli::scratch;
use kelf::{KernelBuild, Object};
use tracing::info_span;

use crate::command::{failed, succeeded};
use crate::record::steps;

/// The object whose recorded command is used; every kernel has it.
const MODEL: &str = "init/.main.o.cmd";

/// The prefix of sections with annotations.
const ANNOTATIONS: &str = ".discard.";

/// Sections of read-only data, with the names that they have for objtool, which finds tables of jumps in `.rodata` alone.
const DATA: [[&str; 2]; 2] = [
    [".kshrink.frozen.rodata", ".rodata.kshrink.frozen"],
    [".kshrink.frozen.rodata.boot", ".rodata.kshrink.frozen.boot"],
];

/// Sections that objtool looks up by name (tools/objtool/special.c).
const TABLES: [&str; 3] = [".altinstructions", "__ex_table", "__jump_table"];

/// The end of a message about a section that an object already has.
const SKIPPED: &str = "section, skipping";

/// How a build calls objtool for each object.
pub struct Objtool {
    /// objtool and its options.
    words: Vec<String>,
}

impl Objtool {
    /// Finds the recorded command of a build. Returns `None` if the build makes no unwind tables, or makes them in
    /// `vmlinux.o`, which the relink makes anew.
    ///
    /// # Errors
    /// Bad input if the build has not recorded the commands.
    pub fn of(build: &KernelBuild) -> Result<Option<Objtool>, Failure> {
        if !build.is_enabled("CONFIG_UNWINDER_ORC") || build.delays_objtool() {
            return Ok(None);
        }
        let path = build.dir.join(MODEL);
        let words = fs::read_to_string(&path).ok().and_then(|record| objtool(&record));
        let words = words.ok_or_else(|| {
            Failure::bad_input(format!(
                "{}: does not record how objtool was called; build the kernel there again with `make vmlinux`",
                path.display()
            ))
        })?;
        Ok(Some(Objtool { words }))
    }

    /// Has objtool check the code of an object and add unwind tables. `dir` is the build directory or a copy. Returns the
    /// new object, whose sections and symbols begin with those of the old one, and objtool's messages. Sections that
    /// objtool looks up by name are joined, and in the file, frozen data has another name ([`Objtool::restore_names`]).
    ///
    /// # Errors
    /// A failed job if the object cannot be written, or objtool fails.
    pub fn add_tables(&self, dir: &Path, object: &mut Object<'_>) -> Result<(Vec<u8>, Vec<String>), Failure> {
        rename(object, |[own, known]| [own, known]);
        object.join_sections(|name| name.starts_with(ANNOTATIONS) || TABLES.contains(&name));
        let file = dir.join("kshrink.o");
        fs::write(&file, object.write().map_err(Failure::of)?)?;
        Objtool::restore_names(object);
        let what = "making unwind tables";
        let mut command = Command::new(&self.words[0]);
        command.current_dir(dir).args(&self.words[1..]).arg("--link").arg(&file);
        let _span = info_span!("command", line = ?command).entered();
        let output = scratch::run(&mut command, |_| ControlFlow::Continue(()));
        let output = output.map_err(|error| failed(&command, what, &error))?;
        succeeded(&output, what)?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let messages = text.lines().filter(|line| !line.ends_with(SKIPPED)).map(str::to_owned).collect();
        Ok((fs::read(&file)?, messages))
    }

    /// Gives frozen data of an object for objtool its own name again.
    pub fn restore_names(object: &mut Object<'_>) {
        rename(object, |[own, known]| [known, own]);
    }
}

/// Renames the sections of [`DATA`], from one name to the other.
fn rename(object: &mut Object<'_>, names: impl Fn([&'static str; 2]) -> [&'static str; 2]) {
    for section in &mut object.sections {
        let known = DATA.iter().map(|&pair| names(pair)).find(|[from, _]| *from == section.name);
        if let Some([_, to]) = known {
            section.name = to;
        }
    }
}

/// Returns the call of objtool in the record of an object, without the object.
fn objtool(record: &str) -> Option<Vec<String>> {
    let mut steps = steps(record)?.into_iter();
    let mut words = steps.find(|words| words.first().is_some_and(|word| word.ends_with("/objtool")))?;
    words.pop()?;
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_hold_the_calls() {
        let record = "savedcmd_init/main.o := gcc -DX='\"a\"' -c -o init/main.o main.c   ; ./tools/objtool/objtool \
                      --hacks=noinstr --orc   init/main.o\n\nsource_init/main.o := main.c\n";
        assert_eq!(objtool(record).unwrap(), ["./tools/objtool/objtool", "--hacks=noinstr", "--orc"]);
        assert_eq!(objtool("savedcmd_init/main.o := gcc -c -o init/main.o main.c\n"), None);
    }
}

//! objtool, the build's own tool that checks machine code and makes the tables for unwinding it (`CONFIG_UNWINDER_ORC`).

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

use kcli::Failure;
use kcli::scratch;
use kelf::KernelBuild;
use tracing::info_span;

use crate::command::{failed, run, succeeded};
use crate::record::steps;

/// The object whose recorded command is used; every kernel has it.
const MODEL: &str = "init/.main.o.cmd";

/// The record of the object that a kernel consists of.
const LINKED: &str = ".vmlinux.o.cmd";

/// Options of the linker for sections that are not merged: code and data, whose alignment would become that of their
/// largest part.
const APART: [&str; 3] = ["--unique=*text*", "--unique=*data*", "--unique=*bss*"];

/// The end of a message about a section that an object already has.
const SKIPPED: &str = "section, skipping";

/// How a build calls objtool for each object.
pub struct Objtool {
    /// The linker and its flags for a relocatable object.
    linker: Vec<String>,
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
        let recorded = |name: &str, step: fn(&str) -> Option<Vec<String>>| {
            let path = build.dir.join(name);
            fs::read_to_string(&path).ok().and_then(|text| step(&text)).ok_or_else(|| {
                Failure::bad_input(format!(
                    "{}: does not record how objtool and the linker were called; build the kernel there again with \
                     `make vmlinux`",
                    path.display()
                ))
            })
        };
        Ok(Some(Objtool { linker: recorded(LINKED, linker)?, words: recorded(MODEL, objtool)? }))
    }

    /// Merges the sections of one name in an object, because objtool looks sections up by name, and has objtool check
    /// its code and add unwind tables. `dir` is the build directory or a copy. Returns objtool's messages.
    ///
    /// # Errors
    /// A failed job if the linker or objtool fails, or objtool adds no tables.
    pub fn add_tables(&self, dir: &Path, object: &Path) -> Result<Vec<String>, Failure> {
        let merged = object.with_extension("merged.o");
        let mut command = Command::new(&self.linker[0]);
        command.current_dir(dir).args(&self.linker[1..]).args(APART).arg("-o").arg(&merged).arg(object);
        run(&mut command, "merging the sections of the rewritten object")?;
        fs::rename(&merged, object)?;
        let what = "making unwind tables";
        let mut command = Command::new(&self.words[0]);
        command.current_dir(dir).args(&self.words[1..]).arg("--link").arg(object);
        let _span = info_span!("command", line = ?command).entered();
        let output = scratch::run(&mut command, |_| ControlFlow::Continue(()));
        let output = output.map_err(|error| failed(&command, what, &error))?;
        succeeded(&output, what)?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        Ok(text.lines().filter(|line| !line.ends_with(SKIPPED)).map(str::to_owned).collect())
    }
}

/// Returns the call of objtool in the record of an object, without the object.
fn objtool(record: &str) -> Option<Vec<String>> {
    let mut steps = steps(record)?.into_iter();
    let mut words = steps.find(|words| words.first().is_some_and(|word| word.ends_with("/objtool")))?;
    words.pop()?;
    Some(words)
}

/// Returns the call of the linker in the record of `vmlinux.o`, up to its inputs and outputs.
fn linker(record: &str) -> Option<Vec<String>> {
    let words = steps(record)?.into_iter().next()?;
    let end = words.iter().position(|word| word == "-r")?;
    Some(words[..=end].to_vec())
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
        let record = "savedcmd_vmlinux.o := ld -m elf_x86_64 -z noexecstack -r -o vmlinux.o --whole-archive vmlinux.a\n";
        assert_eq!(linker(record).unwrap(), ["ld", "-m", "elf_x86_64", "-z", "noexecstack", "-r"]);
    }
}

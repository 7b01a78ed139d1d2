/*!
Passes shown by small programs, one file each: assembly, what the passes are told, and what comes of it.

`filetests/PASS/CASE.test` is a comment that says what the case shows, settings, and parts that begin with `=== NAME`:

```text
# One to three sentences.
entries: main            functions that enter a user program, or
modules: yes             a kernel has loadable modules
passes: syscalls, reach  those to run; without this line, the one that the directory is named after
assume-complete: yes     as the option of kshrink-spec; so are
merge: all
optimize-for: image

=== a.s                  assembly of i386; each part of this kind is an object
=== kernel.lds           the linker script: the objects are those of a kernel
=== plan.json            the plan
=== expected             what the passes report, a listing of the graph, the sizes of the sections once lowered, the
                         bytes of what the section `params` of the plan is about
```

An object without `.file` counts as written by hand, and its code is not taken apart. `KSHRINK_BLESS=1` writes the last
part of every file anew.
*/

mod case;
mod run;

use std::fs;
use std::panic;
use std::path::{Path, PathBuf};

use case::Case;
use kopt::Pass;
use similar::TextDiff;

const BLESS: &str = "KSHRINK_BLESS=1 cargo test -p kopt --test filetests";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests")
}

/// The names in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().expect("a name in UTF-8")).collect();
    names.sort();
    names
}

/// Runs every file of a pass. With `KSHRINK_BLESS=1`, writes what comes of each into it.
fn check(pass: Pass) {
    let bless = std::env::var_os("KSHRINK_BLESS").is_some_and(|value| value == "1");
    let directory = root().join(pass.name());
    let mut failures = Vec::new();
    for name in names(&directory) {
        let path = directory.join(&name);
        match check_file(&path, pass, bless) {
            Ok(()) => {}
            Err(message) => failures.push(format!("{}/{name}: {message}", pass.name())),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn check_file(path: &Path, pass: Pass, bless: bool) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let case = Case::parse(&text, pass)?;
    // A pass that panics shall not hide which file made it do so.
    let found = panic::catch_unwind(|| run::run(&case)).map_err(|_| "panicked, as printed above")??;
    let found = case.with(&found);
    if found == text {
        return Ok(());
    }
    if bless {
        return fs::write(path, found).map_err(|error| error.to_string());
    }
    let diff = TextDiff::from_lines(&text, &found);
    let diff = diff.unified_diff().context_radius(5).header("expected", "found").to_string();
    Err(format!("not what is expected; if it is right, bless it with `{BLESS}`\n{diff}"))
}

#[test]
fn syscalls() {
    check(Pass::Syscalls);
}

#[test]
fn sysargs() {
    check(Pass::SysArgs);
}

#[test]
fn keys() {
    check(Pass::Keys);
}

#[test]
fn params() {
    check(Pass::Params);
}

#[test]
fn reach() {
    check(Pass::Reach);
}

#[test]
fn exports() {
    check(Pass::Exports);
}

#[test]
fn icf() {
    check(Pass::Icf);
}

#[test]
fn initmotion() {
    check(Pass::InitMotion);
}

#[test]
fn merge() {
    check(Pass::Merge);
}

#[test]
fn fold() {
    check(Pass::Fold);
}

#[test]
fn exercise() {
    check(Pass::Exercise);
}

#[test]
fn layout() {
    check(Pass::Layout);
}

#[test]
fn freeze() {
    check(Pass::Freeze);
}

#[test]
fn instrument() {
    check(Pass::Instrument);
}

#[test]
fn every_pass_has_a_directory() {
    let directories: Vec<String> = names(&root()).into_iter().filter(|name| !name.ends_with(".rs")).collect();
    let mut passes: Vec<&str> = Pass::ALL.iter().map(|pass| pass.name()).collect();
    passes.sort_unstable();
    assert_eq!(directories, passes);
    for pass in passes {
        let names = names(&root().join(pass));
        assert!(names.len() >= 10, "{pass} is shown by {} files only", names.len());
        assert!(names.iter().all(|name| name.ends_with(".test")), "{names:?}");
    }
}

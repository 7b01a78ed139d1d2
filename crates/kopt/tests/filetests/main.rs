/*!
Passes shown by small programs, one file each: assembly, settings, and the expected output.

`filetests/PASS/CASE.test` is a comment that explains the case, followed by settings, and by parts that begin with
`=== NAME`:

```text
# One to three sentences.
entries: main            functions that enter a user program, or
modules: yes             a kernel has loadable modules
passes: syscalls, reach  the passes to run; by default, the pass that the directory is named after
assume-complete: yes     as the option of kshrink-spec; so are
merge: all
optimize-for: image

=== a.s                  assembly of i386; each part of this kind is an object
=== kernel.lds           the linker script: the objects are those of a kernel
=== plan.json            the plan
=== expected             the reports of the passes, a listing of the graph, the sizes of the sections after lowering,
                         and the bytes of variables and records for the section `params` of the plan
```

Programs for 32-bit ARM are in `filetests_arm`, with the setting `machine: arm`.

An object without `.file` counts as hand-written, and its code is opaque. `KSHRINK_BLESS=1` rewrites the last part of
every file.
*/

mod case;
mod check;
mod run;

use check::{names, root};
use kopt::Pass;

/// The directory of the cases.
const CASES: &str = "tests/filetests";

/// Runs every file of a pass.
fn check(pass: Pass) {
    check::directory(CASES, pass);
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
    let directories: Vec<String> =
        names(&root(CASES)).into_iter().filter(|name| !name.ends_with(".rs")).collect();
    let mut passes: Vec<&str> = Pass::ALL.iter().map(|pass| pass.name()).collect();
    passes.sort_unstable();
    assert_eq!(directories, passes);
    for pass in passes {
        let names = names(&root(CASES).join(pass));
        assert!(names.len() >= 10, "{pass} is shown by {} files only", names.len());
        assert!(names.iter().all(|name| name.ends_with(".test")), "{names:?}");
    }
}

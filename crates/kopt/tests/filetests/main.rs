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

Programs for 32-bit ARM are in `filetests_arm`, with the setting `machine: arm`, and those for x86-64 in
`filetests_x86_64`, with `machine: x86_64`.

An object without `.file` counts as hand-written, and its code is opaque.

Each file is a trial: `cargo test -p kopt --test filetests fold/case_of` runs those with `fold/case_of` in their names.
`KSHRINK_BLESS=1` rewrites the last part of every file that runs.
*/

mod case;
mod check;
mod run;

use std::process::ExitCode;

use kopt::PASSES;
use libtest_mimic::{Arguments, Failed, Trial};

use check::{directories, names, root};

/// The directory of the cases.
const CASES: &str = "tests/filetests";

/// Minimum number of cases for each pass.
const MIN_CASES: usize = 10;

fn main() -> ExitCode {
    let mut trials = check::trials(CASES);
    trials.push(Trial::test("every_pass_has_a_directory", every_pass_has_a_directory));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Compares the directories with the registered passes, and counts the cases of each.
fn every_pass_has_a_directory() -> Result<(), Failed> {
    let mut passes: Vec<&str> = PASSES.iter().map(|pass| pass.name()).collect();
    passes.sort_unstable();
    let directories = directories(CASES);
    if directories != passes {
        return Err(format!("{CASES} has {directories:?}, and the passes are {passes:?}").into());
    }
    match passes.into_iter().find(|pass| names(&root(CASES).join(pass)).len() < MIN_CASES) {
        Some(pass) => Err(format!("{CASES}/{pass} has fewer than {MIN_CASES} files").into()),
        None => Ok(()),
    }
}

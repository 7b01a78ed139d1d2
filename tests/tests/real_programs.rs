/*!
Real programs, compiled from Debian's sources for i386, and for 32-bit ARM in ARM code and in Thumb code, are rewritten
as lists of objects and must behave as before: zlib, bzip2, Lua, SQLite and BusyBox. A script of
`fixtures/programs/workloads/` exercises each, with the project's own test suite if there is one. Emulated programs
(for ARM) and slow programs get smaller workloads.

The programs are built once and kept in the cache (`fixtures/programs/build.sh`). Each is linked six times: from its
objects, from the results of `--passes none`, `--passes reach` and a further `icf`, and with all of its code shuffled
and instrumented, and edited in every way. The results of the first three must not change when they are rewritten
again.
*/

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use kshrink_tests::elf::Contents;
use kshrink_tests::{
    Chain, DEDUPLICATED, EXERCISED, FROZEN, INSTRUMENTED, Machine, Outcome, PROPAGATED, Rewritten, Run,
    fixture, parallel, recipe,
};

/// BusyBox's test suite takes 40 s on a quiet machine, the others less.
const WORKLOAD_LIMIT: Duration = Duration::from_secs(400);
/// The extent of workloads: complete, or a part that takes seconds.
const AT_LENGTH: &[&str] = &[];
const BRIEFLY: &[&str] = &["brief"];
/// The same as for the objects.
const LINK: &[&str] = &["-static", "-no-pie"];
const ORIGINAL: &str = "original";
/// A directory for each variant, with its object lists and passes.
const VARIANTS: [&str; 8] =
    [ORIGINAL, "none", "reach", DEDUPLICATED, PROPAGATED, INSTRUMENTED, EXERCISED, FROZEN];

#[test]
fn zlib() {
    does_what_it_did_before("zlib", Machine::I386, AT_LENGTH, 20);
}

#[test]
fn zlib_for_arm() {
    for machine in Machine::ARM {
        does_what_it_did_before("zlib", machine, BRIEFLY, 20);
    }
}

#[test]
fn bzip2() {
    does_what_it_did_before("bzip2", Machine::I386, AT_LENGTH, 100);
}

#[test]
fn bzip2_for_arm() {
    for machine in Machine::ARM {
        does_what_it_did_before("bzip2", machine, BRIEFLY, 100);
    }
}

#[test]
fn lua() {
    does_what_it_did_before("lua", Machine::I386, AT_LENGTH, 2000);
}

#[test]
fn lua_for_arm() {
    for machine in Machine::ARM {
        does_what_it_did_before("lua", machine, BRIEFLY, 2000);
    }
}

#[test]
fn sqlite() {
    does_what_it_did_before("sqlite", Machine::I386, BRIEFLY, 380);
}

#[test]
#[ignore = "minutes: make test-rest"]
fn sqlite_at_length() {
    does_what_it_did_before("sqlite", Machine::I386, AT_LENGTH, 400);
}

#[test]
#[ignore = "minutes: make test-rest"]
fn sqlite_for_arm() {
    for machine in Machine::ARM {
        does_what_it_did_before("sqlite", machine, BRIEFLY, 380);
    }
}

#[test]
fn busybox() {
    does_what_it_did_before("busybox", Machine::I386, BRIEFLY, 150);
}

#[test]
#[ignore = "minutes: make test-rest"]
fn busybox_at_length() {
    does_what_it_did_before("busybox", Machine::I386, AT_LENGTH, 700);
}

#[test]
#[ignore = "minutes: make test-rest"]
fn busybox_for_arm() {
    for machine in Machine::ARM {
        does_what_it_did_before("busybox", machine, BRIEFLY, 150);
    }
}

/// Links and runs all variants of the programs of a build, and compares. `length` is an option of the workload, which
/// has to print some lines, or it tests nothing.
fn does_what_it_did_before(name: &str, machine: Machine, length: &[&str], least_lines: usize) {
    let build = recipe("programs/build.sh", &[name, machine.name()]);
    let what = format!("{name} for {}", machine.name());
    let mut chain = Chain::new(&what).on(machine);
    let result = link_all(&mut chain, &what, machine, &build).and_then(|()| {
        let outcomes =
            parallel(VARIANTS.len(), |i| (i, work(chain.dir(), VARIANTS[i], name, length, &build)));
        compare(outcomes, least_lines)
    });
    if let Err(why) = result {
        panic!("{}", chain.failed(&what, &why));
    }
}

/// Links every program of a build in every variant.
fn link_all(chain: &mut Chain, what: &str, machine: Machine, build: &Path) -> Result<(), String> {
    for variant in VARIANTS {
        for dir in ["bin", "work"] {
            fs::create_dir_all(chain.dir().join(variant).join(dir)).map_err(|error| error.to_string())?;
        }
    }
    let mut programs: Vec<String> = fs::read_dir(build)
        .map_err(|error| format!("{}: {error}", build.display()))?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".objects").map(str::to_owned))
        .collect();
    programs.sort_unstable();
    assert!(!programs.is_empty(), "{} holds no list of objects", build.display());
    for program in programs {
        let figures = link(chain, build, &program).map_err(|why| format!("{program}: {why}"))?;
        for variant in VARIANTS {
            machine.make_runnable(&chain.dir().join(variant).join("bin").join(&program));
        }
        // Directly, because the test harness shows what a test prints only if it fails.
        let _ = writeln!(std::io::stderr(), "real programs: {what}: {program}: {figures}");
    }
    Ok(())
}

/// Links a program in every variant, and returns the changes of its code size.
fn link(chain: &mut Chain, build: &Path, program: &str) -> Result<String, String> {
    let list = |suffix: &str| {
        let path = build.join(format!("{program}.{suffix}"));
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let objects: Vec<String> =
        list("objects")?.lines().map(|line| build.join(line).display().to_string()).collect();
    let (libraries, entry) = (list("libraries")?, list("entry")?);
    let flags: Vec<&str> = LINK.iter().copied().chain(libraries.split_whitespace()).collect();
    let path = |variant: &str| format!("{variant}/bin/{program}");
    let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
    let warnings = chain.link(&path(ORIGINAL), &objects, &flags)?;

    let mut rewrite = |passes: &str| -> Result<(Contents, Rewritten), String> {
        let object = format!("{program}-{passes}.o");
        let rewritten = chain.rewrite(&object, &objects, entry.trim(), passes)?;
        let now = chain.link(&path(passes), &[&object], &flags)?;
        match now.difference(&warnings).next() {
            Some(warning) => Err(format!("--passes {passes} made the linker warn: {warning}")),
            None => Ok((Contents::of(&chain.dir().join(&object)), rewritten)),
        }
    };
    let (before, rewritten) = rewrite("none")?;
    let (after, reached) = rewrite("reach")?;
    let (folded, once) = rewrite(DEDUPLICATED)?;
    rewrite(INSTRUMENTED)?;
    rewrite(EXERCISED)?;
    rewrite(PROPAGATED)?;
    rewrite(FROZEN)?;
    for (passes, once) in [("none", &rewritten), ("reach", &reached), (DEDUPLICATED, &once)] {
        chain.rewrites_to_itself(&format!("{program}-{passes}.o"), entry.trim(), passes, once)?;
    }
    if after.code_bytes > before.code_bytes {
        return Err(format!(
            "reach made the code larger: {} B, then {} B",
            before.code_bytes, after.code_bytes
        ));
    }
    if folded.code_bytes > after.code_bytes {
        return Err(format!(
            "icf made the code larger: {} B, then {} B",
            after.code_bytes, folded.code_bytes
        ));
    }
    let removed = before.code_bytes - after.code_bytes;
    let mut text = format!(
        "{} functions, {} jump tables, {} B of code, of which reach removed {removed} B ({:.1} %), {} functions; then icf {} B",
        before.functions.len(),
        before.jump_tables,
        before.code_bytes,
        100.0 * removed as f64 / before.code_bytes as f64,
        before.functions.len() - after.functions.len(),
        after.code_bytes - folded.code_bytes,
    );
    for (reason, count) in &rewritten.opaque {
        text += &format!("; opaque: {count} × {reason}");
    }
    Ok(text)
}

/// Runs the workload with the programs of one variant, under the same paths for every variant.
fn work(dir: &Path, variant: &str, name: &str, length: &[&str], build: &Path) -> Outcome {
    let script = fixture(&format!("programs/workloads/{name}.sh"));
    let run = Run::new("sh").arg(script).arg("../bin").arg(build).args(length);
    run.dir(&dir.join(variant).join("work")).limit(WORKLOAD_LIMIT).outcome()
}

fn compare(mut outcomes: Vec<(usize, Outcome)>, least_lines: usize) -> Result<(), String> {
    outcomes.sort_by_key(|(variant, _)| *variant);
    let (_, original) = &outcomes[0];
    let lines = original.text().lines().count();
    if original.status != Some(0) || lines < least_lines {
        return Err(format!("the original does not do its work, {least_lines} lines of it: {original}"));
    }
    for (variant, outcome) in &outcomes[1..] {
        if !outcome.equals(original) {
            let passes = VARIANTS[*variant];
            let difference = original.difference(outcome);
            return Err(format!("--passes {passes} changed what it does: {difference}\n  after: {outcome}"));
        }
    }
    Ok(())
}

/*!
For any damage to a program, the scanner ends soon, in bounded memory, and without a panic: with a plan, or with the
status for bad input and one line that names the file.

The undamaged programs are small ones for all machines (`fixtures/programs/scan/small.sh`). A fixed seed determines the
damage, so that a failure can be repeated. The file that caused it is kept.
*/

use std::fs;
use std::path::Path;
use std::time::Duration;

use kshrink_tests::{Damage, Outcome, Run, command, parallel, recipe};

/// Number of damaged copies of each program.
const VARIANTS: usize = 45;
/// An undamaged program of this size takes some milliseconds.
const TIME_LIMIT: Duration = Duration::from_secs(20);
/// The address space of the scanner, in KiB. A size from a header, if trusted, would need more.
const MEMORY_LIMIT_KIB: u32 = 1 << 20;
/// The status for bad input.
const BAD: i32 = 2;

#[test]
fn damaged_programs_are_scanned_or_refused() {
    recipe("install.sh", &["scan"]);
    let dir = tempfile::Builder::new().prefix("kshrink-damaged-").tempdir().expect("a temporary directory");
    // A root file system, so that the libraries of dynamic programs are found.
    let whole = dir.path().join("lib");
    Run::new(kshrink_tests::fixture("programs/scan/small.sh")).arg(&whole).succeed();
    let mut programs: Vec<_> =
        fs::read_dir(&whole).expect("the programs").map(|entry| entry.expect("a program").path()).collect();
    programs.sort();
    assert!(programs.len() >= 20, "only {} programs to damage", programs.len());
    let outcomes = parallel(programs.len() * VARIANTS, |job| {
        let program = &programs[job / VARIANTS];
        let bytes = fs::read(program).expect("a program");
        let name = program.file_name().expect("a name").to_string_lossy();
        let damaged = format!("{name}.{job}");
        let path = dir.path().join(&damaged);
        fs::write(&path, Damage::new(job as u64).to_program(bytes)).expect("a damaged program");
        let outcome = scan(dir.path(), &damaged);
        let result = check(&damaged, &outcome);
        if result.is_ok() {
            fs::remove_file(&path).expect("the damaged program");
        }
        result.map(|()| outcome.status == Some(0))
    });
    let failures: Vec<&String> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    if !failures.is_empty() {
        let kept = dir.keep();
        let listed: Vec<&str> = failures.iter().take(10).map(|failure| failure.as_str()).collect();
        panic!("{} failures, kept in {}:\n{}", failures.len(), kept.display(), listed.join("\n"));
    }
    // If all damage were refused, only the reading of headers would be tested; if none were, it would not be tested.
    let scanned = outcomes.iter().filter(|outcome| matches!(outcome, Ok(true))).count();
    assert!(scanned * 10 > outcomes.len(), "only {scanned} of {} were scanned", outcomes.len());
    assert!(scanned * 10 < outcomes.len() * 9, "as many as {scanned} of {} were scanned", outcomes.len());
}

fn scan(root: &Path, name: &str) -> Outcome {
    let limited = format!("ulimit -c 0; ulimit -v {MEMORY_LIMIT_KIB}; exec \"$0\" \"$@\"");
    let run = Run::new("sh").args(["-c", &limited]).arg(command("syscall-scan"));
    let run = run.arg("--root").arg(root).arg(format!("/{name}"));
    run.limit(TIME_LIMIT).outcome()
}

fn check(name: &str, outcome: &Outcome) -> Result<(), String> {
    let refused = format!("syscall-scan: error: /{name}: ");
    let fine = match outcome.status {
        Some(0) => !outcome.stdout.is_empty(),
        Some(BAD) => {
            let message = outcome.stderr.trim_end();
            outcome.stdout.is_empty() && message.starts_with(&refused) && message.lines().count() == 1
        }
        _ => false,
    };
    if fine { Ok(()) } else { Err(outcome.to_string()) }
}

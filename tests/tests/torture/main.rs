/*!
GCC's own execution tests are rewritten, and must behave as before.

They are C programs that exit with 0 if they were compiled correctly. Most of them are regression tests for rare cases
of the language. `fixtures/programs/torture.sh` unpacks them. Each is compiled for a [`Target`] at all of its levels,
with the options of its directives ([`Case`]), and has to behave the same after each of [`PASSES`], and at each level
after two of [`PASSES_IN_TURN`]. A program that the rewriter refuses with a clear error is counted by the reason, and is
not a failure; a difference is one.

It takes most of an hour on two cores, so `make study-torture` runs it, and `make test` does not. The last results are
in docs/torture.md. `KSHRINK_TORTURE=TEXT` runs only the tests with TEXT in their path.
*/

mod cases;
mod table;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kshrink_tests::{
    Chain, EXERCISED, FROZEN, INSTRUMENTED, Machine, Outcome, PROPAGATED, Random, Run, SHUFFLED, parallel,
    recipe,
};

use cases::Case;
use table::Table;

const PASSES: [&str; 2] = ["none", "reach"];
/// Over the levels, each test is rewritten with all of these.
const PASSES_IN_TURN: [&str; 5] = [SHUFFLED, INSTRUMENTED, EXERCISED, PROPAGATED, FROZEN];
/// What the tests are compiled for.
struct Target {
    machine: Machine,
    levels: [&'static [&'static str]; 3],
    /// With a shared C library: linking takes half the time that it takes with `-static`, and is most of the work. The
    /// load address is fixed, as the stores of [`INSTRUMENTED`] require on i386.
    link: &'static [&'static str],
    /// Parts of the conditions of directives that hold.
    conditions: &'static [&'static str],
}

const I386: Target = Target {
    machine: Machine::I386,
    levels: [&["-Os"], &["-O2"], &["-O3", "-msse2"]],
    link: &[
        "-no-pie",
        "-Wl,--dynamic-linker=/usr/i686-linux-gnu/lib/ld-linux.so.2",
        "-Wl,-rpath=/usr/i686-linux-gnu/lib",
    ],
    conditions: &["i?86-", "*-*-linux", "*-*-gnu", "ia32", "ilp32", "*-*-*"],
};

const X86_64: Target = Target {
    machine: Machine::X86_64,
    levels: [&["-Os"], &["-O2"], &["-O3", "-mavx2"]],
    link: &["-no-pie"],
    conditions: &["x86_64-", "*-*-linux", "*-*-gnu", "lp64", "*-*-*"],
};

/// A test that takes longer never ends, or tests the machine.
const ORIGINAL_LIMIT: Duration = Duration::from_secs(10);
/// Generous, because the verdict should not depend on the load of the machine.
const REWRITTEN_LIMIT: Duration = Duration::from_secs(60);
/// Number of tests after which the table so far is printed.
const REPORTED: usize = 250;
/// Exit status of a command with bad input.
const BAD_INPUT: i32 = 2;

/// The result of a test at a level.
enum TestResult {
    /// There is no original for comparison, for this reason.
    Skipped(&'static str),
    /// The compiler made the same objects as at an earlier level.
    Repeated,
    /// It behaves the same after all passes.
    Same,
    /// The rewriter refuses it with a clear error.
    Refused(String),
    /// It behaves differently, or a command failed.
    Different(String),
}

#[test]
#[ignore = "takes most of an hour; run by make study-torture"]
fn tests_of_gcc_for_i386_do_what_they_did_before() {
    do_what_they_did_before(&I386);
}

#[test]
#[ignore = "takes most of an hour; run by make study-torture ARCH=x86_64"]
fn tests_of_gcc_for_x86_64_do_what_they_did_before() {
    do_what_they_did_before(&X86_64);
}

/// Runs the tests for a target.
fn do_what_they_did_before(target: &Target) {
    recipe("install.sh", &["torture"]);
    let suite = recipe("programs/torture.sh", &[]);
    let filter = std::env::var("KSHRINK_TORTURE").unwrap_or_default();
    let mut cases = cases::all(&suite, target.conditions);
    cases.retain(|case| case.name.contains(&filter));
    assert!(!cases.is_empty(), "no test of {} has {filter:?} in its path", suite.display());

    // In random order, the finished tests are always a fair sample.
    let mut random = Random::new(0);
    for last in (1..cases.len()).rev() {
        cases.swap(last, random.range(0, last as u32) as usize);
    }

    let start = Instant::now();
    let table = Mutex::new(Table::new(&target.levels));
    parallel(cases.len(), |i| {
        let (name, verdicts) = (&cases[i].name, verdicts(&cases[i], target));
        let mut table = table.lock().expect("no thread panics with the table");
        table.add(name, verdicts);
        if table.tests() % REPORTED == 0 || table.tests() == cases.len() {
            let (of, time) = (cases.len(), start.elapsed().as_secs_f64());
            // Directly, because the test harness shows what a test prints only if it fails.
            let _ = writeln!(std::io::stderr(), "\nafter {time:.0} s, of {of} tests:\n{table}");
        }
    });
    let table = table.into_inner().expect("no thread panics with the table");
    assert!(table.same() > 0, "nothing was compared");
    assert_eq!(table.different(), 0, "tests do something else once they are rewritten");
}

/// Returns the results of one test at every level.
fn verdicts(case: &Case, target: &Target) -> Vec<TestResult> {
    let mut earlier: Vec<Vec<Vec<u8>>> = Vec::new();
    let mut in_turn = PASSES_IN_TURN.into_iter().cycle();
    let mut verdict = |level: &&[&str]| {
        let passes = PASSES.into_iter().chain(in_turn.by_ref().take(2));
        verdict(case, target, level, &passes.collect::<Vec<_>>(), &mut earlier)
    };
    target.levels.iter().map(&mut verdict).collect()
}

/// Returns the result of one test at one level. Objects of earlier levels need not be tested again.
fn verdict(
    case: &Case,
    target: &Target,
    level: &[&str],
    passes: &[&str],
    earlier: &mut Vec<Vec<Vec<u8>>>,
) -> TestResult {
    if !case.runs {
        return TestResult::Skipped("is not to be run");
    }
    let what = format!("torture {} {} {}", target.machine.name(), case.name, level.join(" "));
    let mut chain = Chain::new(&what).on(target.machine);
    let options: Vec<&str> = level
        .iter()
        .copied()
        .chain(["-w", "-fno-pie"])
        .chain(case.options.iter().map(String::as_str))
        .collect();
    let mut objects = Vec::new();
    for (number, source) in case.sources.iter().enumerate() {
        let object = format!("test{number}.o");
        if chain.compile(source, &object, &options).is_err() {
            return TestResult::Skipped("does not compile");
        }
        objects.push(object);
    }
    let contents: Vec<Vec<u8>> = objects.iter().map(|object| read(&chain.dir().join(object))).collect();
    if earlier.contains(&contents) {
        return TestResult::Repeated;
    }
    earlier.push(contents);

    let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
    let link: Vec<&str> = target.link.iter().chain(&options).copied().chain(["-lm"]).collect();
    let Ok(warnings) = chain.link("original", &objects, &link) else {
        return TestResult::Skipped("does not link");
    };
    let original = chain.attempt(Run::new("./original").limit(ORIGINAL_LIMIT));
    if original.status != Some(0) {
        return TestResult::Skipped("does not end with 0 within 10 s");
    }
    // For instance, addresses of allocated memory.
    if !chain.attempt(Run::new("./original").limit(ORIGINAL_LIMIT)).equals(&original) {
        return TestResult::Skipped("prints something else each time");
    }
    for passes in passes {
        match compare(&mut chain, passes, &objects, &link, &warnings, &original) {
            Ok(None) => {}
            Ok(Some(refusal)) => return TestResult::Refused(refusal),
            Err(why) => {
                let _ = writeln!(std::io::stderr(), "{}\n", chain.failed(&what, &why));
                return TestResult::Different(format!(
                    "--passes {passes}: {}",
                    why.lines().next().unwrap_or_default()
                ));
            }
        }
    }
    TestResult::Same
}

/// Rewrites, links and runs a program. Returns the reason if it is refused.
///
/// # Errors
/// The difference from the original.
fn compare(
    chain: &mut Chain,
    passes: &str,
    objects: &[&str],
    link: &[&str],
    warnings: &BTreeSet<String>,
    original: &Outcome,
) -> Result<Option<String>, String> {
    let object = format!("{passes}.o");
    let rewritten = chain.attempt_rewrite(&object, objects, "main", passes);
    let error = rewritten.stderr.lines().find_map(|line| line.split_once("error: "));
    match (rewritten.status, error) {
        (Some(0), _) => {}
        (Some(BAD_INPUT), Some((_, error))) => return Ok(Some(error.to_owned())),
        _ => return Err(format!("the rewriter failed: {rewritten}")),
    }
    let now = chain.link(passes, &[&object], link).map_err(|why| format!("it does not link: {why}"))?;
    if let Some(warning) = now.difference(warnings).next() {
        return Err(format!("the linker warns: {warning}"));
    }
    let outcome = chain.attempt(Run::new(format!("./{passes}")).limit(REWRITTEN_LIMIT));
    if outcome.equals(original) { Ok(None) } else { Err(original.difference(&outcome)) }
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

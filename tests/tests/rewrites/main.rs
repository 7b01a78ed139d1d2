/*!
Many small programs, each compiled in one way of many, rewritten with several lists of passes, and compared.

One *rewrite* is a program, compiled with some options, that goes through `kshrink-spec` with some passes, is linked and run,
and has to print what it printed before. Each program goes through [`PASSES`], and in turn through as many of
[`PASSES_IN_TURN`] as make [`REWRITES`]. A program that the rewriter refuses with one error is counted by the reason, and
is no failure; a difference is one.

The programs are those of [`generator`], aimed at calling conventions, and those of csmith with options that the other
random tests do not use ([`csmith`]). `make test` runs a few; `make study-rewrites` runs 20,000 rewrites of the first and 4,000 of
the second, and docs/torture.md has its figures. `KSHRINK_SEED=N` runs program N alone, and a failure keeps its files.
*/

mod csmith;
mod generator;
mod ways;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::time::{Duration, Instant};

use kshrink_tests::order::{all_passes, shuffled};
use kshrink_tests::{
    Chain, DEDUPLICATED, EXERCISED, FROZEN, INSTRUMENTED, Outcome, Random, Run, SHUFFLED, parallel,
    random_programs, recipe,
};

use ways::{Runtime, Way};

/// Programs of the generator, unless `KSHRINK_PROGRAMS` says otherwise.
const PROGRAMS: usize = 60;
/// How often each program is rewritten.
const REWRITES: usize = 5;
/// Every program goes through these.
const PASSES: [&str; 2] = ["fold", "merge"];
/// Every program goes through some of these, the next one through the next, besides all passes in a random order.
const PASSES_IN_TURN: [&str; 9] = [
    "none",
    "reach",
    "reach,fold,icf,merge",
    DEDUPLICATED,
    SHUFFLED,
    INSTRUMENTED,
    EXERCISED,
    FROZEN,
    "fold,merge,exercise",
];
const RUN_LIMIT: Duration = Duration::from_secs(20);
/// Exit status of a command whose input is wrong.
const BAD_INPUT: i32 = 2;

/// Results by what became of rewrites.
#[derive(Default)]
struct Figures {
    programs: usize,
    /// Programs that the compiler refuses, by its error.
    not_compiled: BTreeMap<String, usize>,
    same: usize,
    refused: BTreeMap<String, usize>,
    failures: Vec<String>,
}

#[test]
fn rewritten_programs_print_the_same() {
    recipe("install.sh", &["programs", "cross", "clang"]);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let runtimes = [false, true].map(|arm| Runtime::new(arm, dir.path()));
    let (_, numbers) = random_programs(PROGRAMS);
    let all = all_passes();
    let start = Instant::now();
    let results = parallel(numbers.len(), |i| {
        let way = Way::new(numbers[i] as u64);
        let mut chain = Chain::new(&format!("rewrites-{}", numbers[i]));
        let mut figures = Figures { programs: 1, ..Figures::default() };
        let what = format!("program {}, {}", numbers[i], way.name());
        if let Err(why) =
            program(&mut chain, numbers[i], &way, &runtimes[usize::from(way.arm)], &all, &mut figures)
        {
            figures.failures.push(chain.failed(&what, &why));
        }
        figures
    });
    let figures = results.into_iter().fold(Figures::default(), Figures::with);
    figures.judge("programs of the generator", start.elapsed());
}

/// Takes a program of the generator through all of its rewrites.
fn program(
    chain: &mut Chain,
    number: usize,
    way: &Way,
    runtime: &Runtime,
    all: &[String],
    figures: &mut Figures,
) -> Result<(), String> {
    chain.write("program.c", generator::program(number as u64, way.dialect()));
    let compiled = chain.attempt(way.compile("program.c", "program.o"));
    if compiled.status != Some(0) {
        let error = compiled.stderr.lines().find(|line| line.contains("error")).unwrap_or("no error");
        let (_, error) = error.split_once("error: ").unwrap_or(("", error));
        *figures.not_compiled.entry(error.to_owned()).or_default() += 1;
        return Ok(());
    }
    runtime.prepare(chain);
    let passes = passes(number, all, REWRITES);
    let link = |program: &str, object: &str| runtime.link(program, object);
    compare(chain, &["program.o"], "program", &passes, link, |program| runtime.run(program), figures)
}

/// The lists of passes for a program.
fn passes(number: usize, all: &[String], count: usize) -> Vec<String> {
    let turn = number * (count - PASSES.len());
    let in_turn = (turn..).map(|turn| match PASSES_IN_TURN.get(turn % (PASSES_IN_TURN.len() + 1)) {
        Some(passes) => (*passes).to_owned(),
        None => shuffled(&mut Random::new(turn as u64), all),
    });
    PASSES.iter().map(|&passes| passes.to_owned()).chain(in_turn).take(count).collect()
}

/// Links and runs the original, and compares it with what becomes of it after each list of passes.
///
/// # Errors
/// The first difference.
fn compare(
    chain: &mut Chain,
    objects: &[&str],
    entry: &str,
    passes: &[String],
    link: impl Fn(&str, &str) -> Run,
    run: impl Fn(&str) -> Run,
    figures: &mut Figures,
) -> Result<(), String> {
    chain.step(link("original", objects[0]))?;
    let original = chain.attempt(run("original").limit(RUN_LIMIT));
    if original.status != Some(0) || original.stdout.is_empty() {
        return Err(format!("the original does not end with 0: {original}"));
    }
    for passes in passes {
        let rewritten = chain.attempt_rewrite("rewritten.o", objects, entry, passes);
        match refusal(&rewritten)? {
            Some(reason) => *figures.refused.entry(reason).or_default() += 1,
            None => {
                let linked = chain.attempt(link("rewritten", "rewritten.o"));
                if linked.status != Some(0) || !linked.stderr.is_empty() {
                    return Err(format!("--passes {passes}: the linker complains: {linked}"));
                }
                let outcome = chain.attempt(run("rewritten").limit(RUN_LIMIT));
                if !outcome.equals(&original) {
                    let difference = original.difference(&outcome);
                    return Err(format!("--passes {passes} changed what it does: {difference}"));
                }
                figures.same += 1;
            }
        }
    }
    Ok(())
}

/// Why a program is refused, without the places that tell one program from another; `None` if it is rewritten.
///
/// # Errors
/// The outcome of a rewriter that neither rewrites nor refuses.
fn refusal(rewritten: &Outcome) -> Result<Option<String>, String> {
    match (rewritten.status, rewritten.stderr.lines().find_map(|line| line.split_once("error: "))) {
        (Some(0), _) => Ok(None),
        (Some(BAD_INPUT), Some((_, error))) => {
            let word = |word: &str| if word.contains("0x") { "…".to_owned() } else { word.to_owned() };
            Ok(Some(error.split(' ').map(word).collect::<Vec<_>>().join(" ")))
        }
        _ => Err(format!("the rewriter failed: {rewritten}")),
    }
}

impl Figures {
    /// These and others together.
    fn with(mut self, other: Figures) -> Figures {
        self.programs += other.programs;
        self.same += other.same;
        self.failures.extend(other.failures);
        for (mine, others) in
            [(&mut self.not_compiled, other.not_compiled), (&mut self.refused, other.refused)]
        {
            for (reason, count) in others {
                *mine.entry(reason).or_default() += count;
            }
        }
        self
    }

    /// Prints the figures, and panics if a program does something else, or if too few could be compared.
    fn judge(&self, what: &str, time: Duration) {
        // Directly, because the test harness shows what a test prints only if it fails.
        let _ = writeln!(std::io::stderr(), "{what}, in {:.0} s: {self}", time.as_secs_f64());
        let failures = &self.failures;
        assert!(
            failures.is_empty(),
            "{} of {} failed\n\n{}",
            failures.len(),
            self.programs,
            failures.join("\n\n")
        );
        let refused: usize = self.refused.values().sum();
        assert!(refused * 20 <= self.same, "{refused} are refused, and only {} compared", self.same);
        let skipped: usize = self.not_compiled.values().sum();
        assert!(skipped * 10 <= self.programs, "the compiler refuses {skipped} of {}", self.programs);
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { programs, same, failures, not_compiled, refused } = self;
        write!(f, "{programs} programs, {same} rewrites do the same, {} programs do not", failures.len())?;
        for (what, reasons) in [("not compiled", not_compiled), ("refused", refused)] {
            for (reason, count) in reasons {
                write!(f, "\n  {what}: {count} × {reason}")?;
            }
        }
        Ok(())
    }
}

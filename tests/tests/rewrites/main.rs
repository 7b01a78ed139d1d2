/*!
Many small programs, each compiled in one of many ways, rewritten with several lists of passes, and compared.

One *rewrite* is a program, compiled with some options, that is rewritten with some passes, linked and run, and has to
print the same output. Each program is rewritten with [`PASSES`], and in turn with some of [`PASSES_IN_TURN`], up to
[`REWRITES`]. A program that the rewriter refuses with one error is counted by the reason, and is not a failure; a
difference is one.

The programs are those of [`generator`], aimed at calling conventions, and those of csmith with options that the other
random tests do not use ([`csmith`]). `make test` runs a few; `make study-rewrites` runs 20,000 rewrites of the first
and 4,000 of the second, with figures in docs/torture.md. `KSHRINK_SEED=N` runs program N alone, and a failure keeps
its files.
*/

mod csmith;
mod generator;
mod ways;

use std::collections::BTreeMap;
use std::fmt;
use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use kshrink_tests::order::{all_passes, shuffled};
use kshrink_tests::{
    Chain, DEDUPLICATED, EXERCISED, FROZEN, INSTRUMENTED, Outcome, Random, Run, SHUFFLED, parallel,
    random_programs, recipe,
};

use ways::{Runtime, Way};

/// Number of programs of the generator, unless `KSHRINK_PROGRAMS` sets another.
const PROGRAMS: usize = 60;
/// Number of rewrites of each program.
const REWRITES: usize = 5;
/// Passes for every program.
const PASSES: [&str; 2] = ["fold", "merge"];
/// Further passes, assigned to programs in turn, in addition to all passes in a random order.
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
/// Exit status of a command with bad input.
const BAD_INPUT: i32 = 2;

/// Number of programs after which the figures are printed.
const REPORTED: usize = 250;

/// The figures of many programs, which are printed from time to time.
struct AllPrograms {
    what: &'static str,
    start: Instant,
    figures: Mutex<Figures>,
}

/// Results by outcome.
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
    let all_programs = AllPrograms::new("programs of the generator");
    parallel(numbers.len(), |i| {
        let way = Way::new(numbers[i] as u64);
        let mut chain = Chain::new(&format!("rewrites-{}", numbers[i]));
        let mut figures = Figures { programs: 1, ..Figures::default() };
        let what = format!("program {}, {}", numbers[i], way.name());
        let runtime = &runtimes[usize::from(way.arm)];
        if let Err(why) = program(&mut chain, numbers[i], &way, runtime, &all, &mut figures) {
            figures.failures.push(chain.failed(&what, &why));
        }
        all_programs.add(figures);
    });
    all_programs.judge();
}

/// Tests all rewrites of a program of the generator.
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

/// Returns the lists of passes for a program.
fn passes(number: usize, all: &[String], count: usize) -> Vec<String> {
    let turn = number * (count - PASSES.len());
    let in_turn = (turn..).map(|turn| match PASSES_IN_TURN.get(turn % (PASSES_IN_TURN.len() + 1)) {
        Some(passes) => (*passes).to_owned(),
        None => shuffled(&mut Random::new(turn as u64), all),
    });
    PASSES.iter().map(|&passes| passes.to_owned()).chain(in_turn).take(count).collect()
}

/// Links and runs the original, and compares it with the rewrite by each list of passes.
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

/// Returns the reason why a program is refused, without details of the program; `None` if it is rewritten.
///
/// # Errors
/// The outcome if the rewriter neither rewrites nor refuses.
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

impl AllPrograms {
    fn new(what: &'static str) -> AllPrograms {
        AllPrograms { what, start: Instant::now(), figures: Mutex::default() }
    }

    /// Adds a program's figures.
    fn add(&self, program: Figures) {
        let mut figures = self.figures.lock().expect("no thread panics with the figures");
        for failure in &program.failures {
            self.print(failure);
        }
        figures.add(program);
        if figures.programs % REPORTED == 0 {
            self.print(&*figures);
        }
    }

    /// Prints the figures, and panics if a program behaves differently, or if too few could be compared.
    fn judge(self) {
        let figures = self.figures.lock().expect("no thread panics with the figures");
        self.print(&*figures);
        let failed = figures.failures.len();
        assert_eq!(failed, 0, "{failed} of {} failed\n\n{}", figures.programs, figures.failures.join("\n\n"));
        let refused: usize = figures.refused.values().sum();
        assert!(refused * 20 <= figures.same, "{refused} are refused, and only {} compared", figures.same);
        let skipped: usize = figures.not_compiled.values().sum();
        assert!(skipped * 10 <= figures.programs, "the compiler refuses {skipped} of {}", figures.programs);
    }

    /// Prints directly, because the test harness shows a test's output only if it fails.
    fn print(&self, text: &dyn fmt::Display) {
        let seconds = self.start.elapsed().as_secs_f64();
        let _ = writeln!(std::io::stderr(), "{}, after {seconds:.0} s: {text}", self.what);
    }
}

impl Figures {
    /// Adds other figures.
    fn add(&mut self, other: Figures) {
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

/*!
Paths through random programs.

Each of [`PROGRAMS`] programs of [`generator`] (`KSHRINK_PROGRAMS` sets another number) is rewritten with a copy of a path
through it, and must behave as before, whether the path's facts hold, do not hold, or change while it runs. The blocks that
the path copies are chosen at random, so that it is left anywhere. `KSHRINK_SEED=N` runs program N alone.
*/

mod generator;

use std::collections::BTreeMap;
use std::io::Write;

use kshrink_tests::{Chain, Random, Run, elf, parallel, random_programs, recipe};
use serde_json::{Value, json};

use super::{ORIGINAL_LIMIT, REWRITTEN_LIMIT, STATIC, assert_none_failed};
use generator::{Program, generate};

/// Number of programs, unless `KSHRINK_PROGRAMS` sets another.
const PROGRAMS: usize = 40;

/// Options of the compiler, in turn.
const WAYS: &[&[&str]] = &[
    &["-O2"],
    &["-Os"],
    &["-O1", "-fno-omit-frame-pointer"],
    &["-O2", "-mpreferred-stack-boundary=2", "-fno-ipa-ra"],
    &["-O3", "-fno-tree-vectorize"],
    &["-O2", "-fno-omit-frame-pointer", "-ffunction-sections"],
];

/// Lines of the rewriter's reports, `specialize: COUNT WHAT`, with the sums of their numbers.
#[derive(Default)]
struct Figures(BTreeMap<String, u64>);

impl Figures {
    fn add(&mut self, report: &str) {
        for line in report.lines().filter_map(|line| line.strip_prefix("specialize: ")) {
            let Some((count, what)) = line.split_once(' ') else { continue };
            // In groups of three digits.
            let Ok(count) = count.replace(',', "").parse::<u64>() else { continue };
            *self.0.entry(what.to_owned()).or_default() += count;
        }
    }

    fn get(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }
}

#[test]
fn paths_through_random_programs_do_what_the_programs_did() {
    recipe("install.sh", &["programs"]);
    let (_, numbers) = random_programs(PROGRAMS);
    let (mut figures, mut failures) = (Figures::default(), Vec::new());
    for result in parallel(numbers.len(), |i| program(numbers[i])) {
        match result {
            Ok(report) => figures.add(&report),
            Err(failure) => failures.push(failure),
        }
    }
    // Directly, because the test harness shows what a test prints only if it fails.
    let _ = writeln!(std::io::stderr(), "random paths: {:?}", figures.0);
    assert_none_failed(&failures, numbers.len());
    let paths = figures.get("paths") as usize;
    assert!(numbers.len() == 1 || paths * 3 >= numbers.len() * 2, "only {paths} paths test little");
    assert!(numbers.len() == 1 || figures.get("words in code that exits share") > 0, "exits share nothing");
}

/// Tests one program. Returns the rewriter's report.
fn program(number: usize) -> Result<String, String> {
    let mut chain = Chain::new(&format!("random-path-{number}"));
    let ways = WAYS[number % WAYS.len()];
    let made = generate(number as u64);
    attempt(&mut chain, number, ways, &made)
        .map_err(|why| chain.failed(&format!("program {number}, {}", ways.join(" ")), &why))
}

fn attempt(chain: &mut Chain, number: usize, ways: &[&str], made: &Program) -> Result<String, String> {
    chain.write("program.c", &made.text);
    let flags = [&["-w", "-fno-pie", "-fno-strict-aliasing"], ways].concat();
    chain.compile("program.c", "program.o", &flags)?;
    chain.link("original", &["program.o"], STATIC)?;
    let original = chain.attempt(Run::new("./original").limit(ORIGINAL_LIMIT));
    if original.status != Some(0) {
        return Err(format!("the original fails: {original}"));
    }
    let functions = made.functions.each_ref().map(String::as_str);
    let sizes = elf::globals(&chain.dir().join("program.o"), functions).map(|(_, size)| size);
    let mut random = Random::new(number as u64);
    let plan = json!({
        "schema": "kshrink/1",
        "coverage": {"runs": [], "functions": ran(&mut random, &functions, &sizes)},
        "paths": made.paths,
    });
    chain.write("plan.json", plan.to_string());
    let run = Run::kshrink("kshrink-spec").args([
        "--objects",
        "program.o",
        "--entry",
        "main",
        "--plan",
        "plan.json",
    ]);
    let rewritten = chain.step(run.args(["--passes", "specialize", "--emit-object", "path.o"]))?;
    chain.link("path", &["path.o"], STATIC)?;
    let outcome = chain.attempt(Run::new("./path").limit(REWRITTEN_LIMIT));
    if !outcome.equals(&original) {
        return Err(format!("the path changed what it does\n  before: {original}\n  after: {outcome}"));
    }
    Ok(rewritten.stderr)
}

/// Returns coverage in which random parts of the functions ran, often most of them, or all.
fn ran(random: &mut Random, functions: &[&str], sizes: &[u64]) -> Vec<Value> {
    let (all, most) = (random.once_in(6), random.once_in(2));
    let mut covered = Vec::new();
    for (number, (name, &size)) in functions.iter().zip(sizes).enumerate() {
        let (mut ranges, mut at) = (Vec::new(), 0);
        while at < size {
            let part = if most { random.range(40, 400) } else { random.range(8, 120) };
            let end = if all { size } else { size.min(at + u64::from(part)) };
            ranges.push(json!({"offset": at, "size": end - at, "first": number}));
            at = end + u64::from(if most { random.range(4, 16) } else { random.range(4, 64) });
        }
        covered.push(json!({"name": name, "section": ".text", "size": size, "first": number, "ran": ranges}));
    }
    covered
}

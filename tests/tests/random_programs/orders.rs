/*!
Passes in random order.

Each of [`PROGRAMS`] random programs (`KSHRINK_PROGRAMS` sets another number) is rewritten with all passes in an order
from its seed, and with some of them in another order, and must behave as before. Removing passes run first and in
rounds, whatever the order (`kopt::rounds`). `KSHRINK_SEED=N` runs program N alone.
*/

use kshrink_tests::order::{all_passes, shuffled};
use kshrink_tests::{Chain, Machine, Random, parallel, random_programs, recipe};

use super::{REWRITTEN_LIMIT, STATIC, TRIES, Variant, assert_none_failed, objects, originals, run};

/// Number of programs, unless `KSHRINK_PROGRAMS` sets another.
const PROGRAMS: usize = 15;
/// The first seed of these programs, so that they differ from the programs for fixed passes.
const FIRST_SEED: usize = 100_000;

/// Levels of optimization, each with further options for compiling a program.
const WAYS: &[(&str, Variant)] = &[
    ("-O2", variant(&["-fno-pie"], &["--float"])),
    ("-O3", variant(&["-fno-pie"], &["--max-funcs", "16"])),
    ("-O2", variant(&["-fPIC", "-fno-plt"], &["--inline-function"])),
    ("-O3", variant(&["-fPIC"], &[])),
    ("-O3", variant(&["-fno-pie", "-ffunction-sections", "-fdata-sections"], &[])),
    (
        "-O2",
        Variant {
            link: &["-static", "-no-pie", "-nostdlib"],
            freestanding: true,
            ..variant(&["-fno-pic", "-mregparm=3", "-mpreferred-stack-boundary=2", "-ffreestanding"], &[])
        },
    ),
];

const fn variant(compile: &'static [&'static str], csmith: &'static [&'static str]) -> Variant {
    Variant { machine: Machine::I386, compile, link: STATIC, freestanding: false, finds_dead: false, csmith }
}

#[test]
fn random_programs_go_through_passes_in_any_order() {
    recipe("install.sh", &["programs"]);
    let (_, numbers) = random_programs(PROGRAMS);
    let all = all_passes();
    assert!(all.len() > 10, "few passes: {all:?}");
    let results = parallel(numbers.len(), |i| program(numbers[i], &all).err());
    let failures: Vec<String> = results.into_iter().flatten().collect();
    assert_none_failed(&failures, numbers.len());
}

/// Tests one program with two random orders.
fn program(number: usize, all: &[String]) -> Result<(), String> {
    let (level, variant) = &WAYS[number % WAYS.len()];
    for attempt in 0..TRIES {
        let seed = FIRST_SEED + number * TRIES + attempt;
        let mut chain = Chain::new(&format!("random-order-{number}"));
        let before = |why: String| format!("program {number} (seed {seed}), before rewriting: {why}");
        let original = match originals(&mut chain, seed, variant, &[*level]) {
            Ok(Some(outcomes)) => outcomes.into_iter().next(),
            Ok(None) => None,
            Err(why) => return Err(chain.failed(&before(String::new()), &why)),
        };
        let Some(original) = original else { continue };
        let mut random = Random::new(seed as u64);
        let orders = [shuffled(&mut random, all), some(&mut random, all)];
        for (index, passes) in orders.iter().enumerate() {
            let what = format!(
                "program {number} (seed {seed}), {level} {}, passes {passes}",
                variant.compile.join(" ")
            );
            let rewritten = (|| {
                let objects = objects(level, variant);
                let paths: Vec<&str> = objects.iter().map(String::as_str).collect();
                let (object, program) = (format!("order-{index}.o"), format!("order-{index}"));
                let entry = if variant.freestanding { "_start" } else { "main" };
                chain.rewrite(&object, &paths, entry, passes)?;
                chain.link(&program, &[&object], variant.link)?;
                let outcome = run(&mut chain, &program, REWRITTEN_LIMIT);
                if outcome.equals(&original) {
                    return Ok(());
                }
                Err(format!("it does something else\n  before: {original}\n  after: {outcome}"))
            })();
            if let Err(why) = rewritten {
                return Err(chain.failed(&what, &why));
            }
        }
        return Ok(());
    }
    Err(format!("program {number}: none of {TRIES} seeds gave a program that ends"))
}

/// Returns some passes, at least one, in a random order.
fn some(random: &mut Random, all: &[String]) -> String {
    let shuffled = shuffled(random, all);
    let count = random.range(1, all.len() as u32) as usize;
    shuffled.split(',').take(count).collect::<Vec<_>>().join(",")
}

//! Programs of csmith, with options that the other random tests do not use.

use std::time::Duration;

use kshrink_tests::order::all_passes;
use kshrink_tests::{Chain, Machine, Random, Run, parallel, random_programs, recipe};

use crate::{AllPrograms, Figures, compare, passes};

/// Number of programs, unless `KSHRINK_PROGRAMS` sets another. Program N has the seed N, or if that does not end, the
/// next of [`TRIES`].
const PROGRAMS: usize = 8;
const TRIES: u64 = 8;
/// Number of rewrites of each program.
const REWRITES: usize = 4;
/// csmith occasionally makes a program that takes the compiler minutes.
const BUILD_LIMIT: Duration = Duration::from_secs(30);
/// Most programs that end take less than 0.01 s.
const ORIGINAL_LIMIT: Duration = Duration::from_secs(2);
/// Different from the seeds of the other random tests.
const FIRST_SEED: u64 = 1_000_000;

/// Options for csmith, one from each line.
const OPTIONS: &[&[&str]] = &[
    &["--no-packed-struct --max-struct-fields 4", "--packed-struct --max-struct-fields 20"],
    &["--bitfields --max-union-fields 12", "--no-bitfields", "--no-unions", "--no-structs --no-unions"],
    &["--builtins", "--no-builtins", "--builtins --builtin-function-prob 60"],
    &["--no-volatiles", "--volatiles --no-volatile-pointers", "--no-consts --no-const-pointers"],
    &["--no-argc", "--argc --no-jumps", "--no-embedded-assigns --no-comma-operators"],
    &["--no-global-variables", "--no-pointers", "--max-pointer-depth 5", "--no-arrays", "--max-array-dim 1"],
    &["--no-longlong --no-math64", "--float", "--no-divs --no-muls", "--no-int8 --no-uint8"],
    &["--max-funcs 3 --max-block-size 8", "--max-funcs 30 --max-block-depth 2", "--max-expr-complexity 25"],
    &["--inline-function --inline-function-prob 90", "--no-inline-function"],
];

/// Options for the compiler, one from each line.
const FLAGS: &[&[&str]] = &[
    &["-O1", "-O2", "-O3", "-Os"],
    &["-fno-pie", "-fPIC", "-fPIE"],
    &["", "-ffunction-sections -fdata-sections", "-fno-inline", "-fno-omit-frame-pointer"],
    &["", "-fno-ipa-cp -fno-ipa-ra", "-fno-jump-tables", "-fno-strict-aliasing -fno-tree-ccp"],
];

/// Uses the shared C library of a cross compiler, because that links twice as fast as `-static`.
fn link_flags(machine: Machine) -> [&'static str; 3] {
    match machine {
        // This machine has it in its place.
        Machine::X86_64 => ["-no-pie"; 3],
        Machine::I386 => [
            "-no-pie",
            "-Wl,--dynamic-linker=/usr/i686-linux-gnu/lib/ld-linux.so.2",
            "-Wl,-rpath=/usr/i686-linux-gnu/lib",
        ],
        Machine::Arm | Machine::Thumb => [
            "-no-pie",
            "-Wl,--dynamic-linker=/usr/arm-linux-gnueabihf/lib/ld-linux-armhf.so.3",
            "-Wl,-rpath=/usr/arm-linux-gnueabihf/lib",
        ],
    }
}

#[test]
fn rewritten_csmith_programs_print_the_same() {
    recipe("install.sh", &["programs", "cross", "torture"]);
    let (_, numbers) = random_programs(PROGRAMS);
    let all = all_passes();
    let all_programs = AllPrograms::new("programs of csmith");
    parallel(numbers.len(), |i| {
        let machine = *Random::new(numbers[i] as u64).pick(&[
            Machine::I386,
            Machine::I386,
            Machine::Arm,
            Machine::Thumb,
        ]);
        let mut figures = Figures { programs: 1, ..Figures::default() };
        let mut chain = Chain::new(&format!("rewrites-csmith-{}", numbers[i])).on(machine);
        let lists = passes(numbers[i], &all, REWRITES);
        if let Err(why) = program(&mut chain, numbers[i] as u64, machine, &lists, &mut figures) {
            let what = format!("csmith's program {} for {}", numbers[i], machine.name());
            figures.failures.push(chain.failed(&what, &why));
        }
        all_programs.add(figures);
    });
    all_programs.judge();
}

/// Makes a program that ends, and tests all of its rewrites.
fn program(
    chain: &mut Chain,
    number: u64,
    machine: Machine,
    passes: &[String],
    figures: &mut Figures,
) -> Result<(), String> {
    let mut random = Random::new(number);
    let mut pick = |groups: &[&[&'static str]]| -> Vec<&'static str> {
        groups.iter().flat_map(|group| random.pick(group).split_whitespace()).collect()
    };
    let (options, flags) = (pick(OPTIONS), pick(FLAGS));
    let link = |program: &str, object: &str| {
        machine.gcc().args(["-o", program, object]).args(link_flags(machine)).arg("-lm")
    };
    let run = |program: &str| machine.run(&format!("./{program}")).arg("1");
    for attempt in 0..TRIES {
        let seed = (FIRST_SEED + number * TRIES + attempt).to_string();
        let csmith = Run::new("csmith").args(["--seed", &seed, "--output", "program.c"]).args(&options);
        if chain.attempt(csmith.limit(BUILD_LIMIT)).status != Some(0) {
            continue;
        }
        let compile = machine.gcc().args(["-w", "-fcommon", "-I/usr/include/csmith"]).args(&flags);
        let compile = compile.args(["-c", "program.c", "-o", "program.o"]).limit(BUILD_LIMIT);
        if chain.attempt(compile).status != Some(0) {
            continue;
        }
        // Some built-in functions belong to another machine.
        if chain.attempt(link("original", "program.o")).status != Some(0) {
            continue;
        }
        if chain.attempt(run("original").limit(ORIGINAL_LIMIT)).status == Some(0) {
            return compare(chain, &["program.o"], "main", passes, link, run, figures);
        }
    }
    *figures.not_compiled.entry(format!("none of {TRIES} seeds ends")).or_default() += 1;
    Ok(())
}

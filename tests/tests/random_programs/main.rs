/*!
Random programs, compiled in many ways, are rewritten and must behave as before.

Each of [`PROGRAMS`] programs (`KSHRINK_PROGRAMS` sets another number) is made of two files: one by csmith (Yang et
al., PLDI 2011), free of undefined behaviour, which prints a checksum of all its variables, and one full of `switch`
statements, which csmith does not make ([`switches`]). Both are compiled once for each of [`LEVELS`] with the flags of
one of [`VARIANTS`]. They are rewritten with `--passes none`, `--passes reach`, `icf` after it, and passes that shuffle
all code ([`SHUFFLED`]), are linked like the original, and have to print the same with the same exit status.

`KSHRINK_SEED=N` runs program N alone. A failure keeps its files and prints every command that led to it. Other random
programs are rewritten with all passes in random order ([`orders`]).
*/

mod orders;
mod paths;
mod switches;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use kshrink_tests::elf::Contents;
use kshrink_tests::{
    Chain, DEDUPLICATED, EXERCISED, FROZEN, INSTRUMENTED, Machine, Outcome, PROPAGATED, Rewritten, Run,
    SHUFFLED, fixture, parallel, random_programs, recipe,
};
use serde_json::Value;

/// Number of programs, counted from 0, unless `KSHRINK_PROGRAMS` sets another. Program N has the seed N, or if that
/// does not end, N + this number, and so on.
const PROGRAMS: usize = 25;
/// Maximum number of seeds for one program.
const TRIES: usize = 8;
/// Nearly all programs take less than 0.01 s; most others never end.
const ORIGINAL_LIMIT: Duration = Duration::from_secs(2);
/// Generous, because the verdict should not depend on the load of the machine.
const REWRITTEN_LIMIT: Duration = Duration::from_secs(20);
/// csmith occasionally makes a program that takes the compiler minutes.
const BUILD_LIMIT: Duration = Duration::from_secs(30);
const LEVELS: [&str; 2] = ["-Os", "-O2"];

/// A way to compile and link a program.
struct Variant {
    machine: Machine,
    compile: &'static [&'static str],
    link: &'static [&'static str],
    /// Whether it has its own runtime in place of the C library.
    freestanding: bool,
    /// Whether `reach` finds all dead functions. Jump tables of position-independent code stay data, which keeps its
    /// targets.
    finds_dead: bool,
    /// The options of csmith in addition to the seed.
    csmith: &'static [&'static str],
}

const STATIC: &[&str] = &["-static", "-no-pie"];

const VARIANTS: &[Variant] = &[
    Variant {
        machine: Machine::I386,
        compile: &["-fno-pie"],
        link: STATIC,
        freestanding: false,
        finds_dead: true,
        csmith: &["--float"],
    },
    Variant {
        machine: Machine::I386,
        compile: &["-fno-pie", "-ffunction-sections", "-fdata-sections"],
        link: STATIC,
        freestanding: false,
        finds_dead: true,
        csmith: &["--max-funcs", "20"],
    },
    Variant {
        machine: Machine::I386,
        compile: &["-fPIE"],
        link: &["-static-pie"],
        freestanding: false,
        finds_dead: false,
        csmith: &["--inline-function"],
    },
    // Like a 32-bit kernel.
    Variant {
        machine: Machine::I386,
        compile: &[
            "-fno-pic",
            "-mregparm=3",
            "-freg-struct-return",
            "-mpreferred-stack-boundary=2",
            "-ffreestanding",
            "-fno-strict-aliasing",
            "-fno-asynchronous-unwind-tables",
            "-fno-delete-null-pointer-checks",
        ],
        link: &["-static", "-no-pie", "-nostdlib"],
        freestanding: true,
        finds_dead: true,
        csmith: &[],
    },
    // Every function in a section of its own, and aligned.
    Variant {
        machine: Machine::I386,
        compile: &["-fno-pie", "-fno-inline", "-falign-functions=16", "-fcf-protection=branch"],
        link: STATIC,
        freestanding: false,
        finds_dead: true,
        csmith: &["--max-funcs", "16"],
    },
];

/// The same on x86-64.
const VARIANTS_OF_X86_64: &[Variant] = &[
    Variant { machine: Machine::X86_64, ..VARIANTS[0] },
    Variant { machine: Machine::X86_64, ..VARIANTS[1] },
    Variant { machine: Machine::X86_64, ..VARIANTS[2] },
    // Like a 64-bit kernel: sign-extended absolute addresses, and no data below the stack pointer.
    Variant {
        machine: Machine::X86_64,
        compile: &[
            "-mcmodel=kernel",
            "-mno-red-zone",
            "-fno-pic",
            "-fno-strict-aliasing",
            "-fno-asynchronous-unwind-tables",
            "-fno-delete-null-pointer-checks",
        ],
        csmith: &[],
        ..VARIANTS[0]
    },
    Variant { machine: Machine::X86_64, ..VARIANTS[4] },
    // Vectors, and a table of global offsets.
    Variant {
        machine: Machine::X86_64,
        compile: &["-fPIC", "-fno-plt", "-fno-inline", "-march=x86-64-v3"],
        finds_dead: false,
        csmith: &["--inline-function"],
        ..VARIANTS[0]
    },
];

/// Counts over the programs that passed.
#[derive(Default)]
struct Figures {
    builds: usize,
    functions: usize,
    jump_tables: usize,
    /// Jumps through tables with targets that `kcfg` found. Functions with other table jumps are opaque.
    resolved: u64,
    code_bytes: u64,
    code_bytes_after_reach: u64,
    seeds_skipped: usize,
    opaque: BTreeMap<String, usize>,
}

/// Panics with a list of the failures, if there are any.
fn assert_none_failed(failures: &[String], of: usize) {
    assert!(failures.is_empty(), "{} of {of} programs failed\n\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn random_programs_do_what_they_did_before() {
    do_what_they_did_before("random-program", VARIANTS);
}

#[test]
fn random_programs_of_x86_64_do_what_they_did_before() {
    do_what_they_did_before("random-program-x86_64", VARIANTS_OF_X86_64);
}

/// Runs all tests with programs of these variants. The name is for failures.
fn do_what_they_did_before(name: &str, variants: &[Variant]) {
    recipe("install.sh", &["programs"]);
    let start = Instant::now();
    let (programs, numbers) = random_programs(PROGRAMS);
    let mut figures = Figures::default();
    let mut failures = Vec::new();
    for result in parallel(numbers.len(), |i| program(numbers[i], programs, name, variants)) {
        match result {
            Ok(program) => figures.add(&program),
            Err(failure) => failures.push(failure),
        }
    }
    // Directly, because the test harness shows what a test prints only if it fails.
    let _ = writeln!(std::io::stderr(), "{}", figures.text(numbers.len(), start.elapsed()));
    assert_none_failed(&failures, numbers.len());
    let few = figures.jump_tables < 10 * numbers.len();
    assert!(!few, "so few jump tables test little: {}", figures.jump_tables);
}

/// Runs all tests of one program out of `programs`.
fn program(number: usize, programs: usize, name: &str, variants: &[Variant]) -> Result<Figures, String> {
    let variant = &variants[number % variants.len()];
    for attempt in 0..TRIES {
        let seed = number + attempt * programs;
        let mut chain = Chain::new(&format!("{name}-{number}")).on(variant.machine);
        match originals(&mut chain, seed, variant, &LEVELS) {
            Ok(Some(originals)) => {
                let mut figures = Figures { seeds_skipped: attempt, ..Figures::default() };
                for (level, original) in LEVELS.iter().zip(&originals) {
                    if let Err(why) = rewrite_all(&mut chain, level, variant, original, &mut figures) {
                        let what =
                            format!("program {number} (seed {seed}), {level} {}", variant.compile.join(" "));
                        return Err(chain.failed(&what, &why));
                    }
                }
                return Ok(figures);
            }
            Ok(None) => {}
            Err(why) => {
                return Err(chain.failed(&format!("program {number} (seed {seed}), before rewriting"), &why));
            }
        }
    }
    Err(format!("program {number}: none of {TRIES} seeds gave a program that ends"))
}

/// Makes, compiles and runs the original programs, one for each level; `None` if csmith fails with this seed, or the
/// program does not end.
fn originals(
    chain: &mut Chain,
    seed: usize,
    variant: &Variant,
    levels: &[&str],
) -> Result<Option<Vec<Outcome>>, String> {
    let csmith = Run::new("csmith").args(["--seed", &seed.to_string(), "--output", "csmith.c"]);
    if chain.attempt(csmith.args(variant.csmith).limit(BUILD_LIMIT)).status != Some(0) {
        return Ok(None);
    }
    chain.write("switches.c", switches::generate(seed as u64));
    let text = fs::read_to_string(chain.dir().join("csmith.c")).map_err(|error| error.to_string())?;
    chain.write("random.c", with_switches(&text)?);
    let mut outcomes = Vec::new();
    for &level in levels {
        let flags: Vec<&str> =
            [level, "-w", "-I/usr/include/csmith"].iter().chain(variant.compile).copied().collect();
        let runtime = fixture("programs/random/runtime.c");
        let mut sources = vec![("random.c".into(), "random"), ("switches.c".into(), "switches")];
        sources.extend(variant.freestanding.then_some((runtime, "runtime")));
        for (source, name) in &sources {
            chain.compile(source, &format!("{name}{level}.o"), &flags)?;
        }
        let program = format!("original{level}");
        let objects = objects(level, variant);
        let warnings =
            chain.link(&program, &objects.iter().map(String::as_str).collect::<Vec<_>>(), variant.link)?;
        assert!(warnings.is_empty(), "the original must link without warnings: {warnings:?}");
        let outcome = run(chain, &program, ORIGINAL_LIMIT);
        if outcome.status.is_none() {
            return Ok(None);
        }
        outcomes.push(outcome);
    }
    Ok(Some(outcomes))
}

/// Changes csmith's program to call the other file and to add the result to its checksum.
fn with_switches(program: &str) -> Result<String, String> {
    let end = "    platform_main_end(crc32_context";
    let call = "    transparent_crc(kshrink_switches(crc32_context), \"switches\", print_hash_value);\n";
    let (before, after) = program.rsplit_once(end).ok_or("csmith's program does not end as expected")?;
    Ok(format!("extern unsigned kshrink_switches(unsigned);\n{before}{call}{end}{after}"))
}

fn objects(level: &str, variant: &Variant) -> Vec<String> {
    let names: &[&str] =
        if variant.freestanding { &["runtime", "random", "switches"] } else { &["random", "switches"] };
    names.iter().map(|name| format!("{name}{level}.o")).collect()
}

/// With the argument 1, a program prints the checksum after each variable, not only the last.
fn run(chain: &mut Chain, program: &str, limit: Duration) -> Outcome {
    chain.attempt(Run::new(format!("./{program}")).arg("1").limit(limit))
}

/// Rewrites a program by every pass, and compares.
fn rewrite_all(
    chain: &mut Chain,
    level: &str,
    variant: &Variant,
    original: &Outcome,
    figures: &mut Figures,
) -> Result<(), String> {
    let objects = objects(level, variant);
    let paths: Vec<&str> = objects.iter().map(String::as_str).collect();
    let before: Vec<Contents> = objects.iter().map(|name| Contents::of(&chain.dir().join(name))).collect();
    let entry = if variant.freestanding { "_start" } else { "main" };
    let summary =
        Run::kshrink("kcfg").arg("--objects").args(&paths).args(["--entry", entry, "--summary", "--json"]);
    let summary: Value =
        serde_json::from_slice(&chain.step(summary)?.stdout).map_err(|error| error.to_string())?;
    figures.resolved += summary["jump_tables"].as_u64().ok_or("kcfg counts no jump tables")?;
    let is_pie = variant.link.contains(&"-static-pie");
    let shuffled: &[&str] = match (variant.machine, is_pie) {
        (Machine::X86_64, _) => &[DEDUPLICATED, PROPAGATED, SHUFFLED, INSTRUMENTED, EXERCISED, FROZEN],
        (_, true) => &[DEDUPLICATED, PROPAGATED, SHUFFLED, FROZEN],
        (_, false) => &[DEDUPLICATED, PROPAGATED, INSTRUMENTED, EXERCISED, FROZEN],
    };
    let merged = format!("{}{level}.o", if shuffled.contains(&EXERCISED) { EXERCISED } else { SHUFFLED });
    let builds = ["none", "reach"].iter().chain(shuffled).map(|&passes| (passes, format!("{passes}{level}")));
    // The merged object is rewritten again.
    for (passes, program) in builds.chain([(PROPAGATED, format!("again{level}"))]) {
        let object = format!("{program}.o");
        let again = [&*merged];
        let inputs = if program.starts_with("again") { &again[..] } else { &paths };
        let rewritten = chain.rewrite(&object, inputs, entry, passes)?;
        let after = Contents::of(&chain.dir().join(&object));
        check_contents(passes, variant, &before, &after)?;
        let warnings = chain.link(&program, &[&object], variant.link)?;
        if !warnings.is_empty() {
            return Err(format!("--passes {passes} made the linker warn: {warnings:?}"));
        }
        let outcome = run(chain, &program, REWRITTEN_LIMIT);
        if !outcome.equals(original) {
            return Err(format!(
                "--passes {passes} changed what it does\n  before: {original}\n  after: {outcome}"
            ));
        }
        match passes {
            "reach" => figures.code_bytes_after_reach += after.code_bytes,
            "none" => figures.add_build(&before, &after, &rewritten),
            _ => {}
        }
    }
    Ok(())
}

/// Checks properties without running it: without passes, every function remains, and `reach` has removed the uncalled
/// ones.
fn check_contents(
    passes: &str,
    variant: &Variant,
    before: &[Contents],
    after: &Contents,
) -> Result<(), String> {
    let sorted = |mut names: Vec<String>| {
        names.sort_unstable();
        names.dedup();
        names
    };
    let remaining = sorted(after.functions.clone());
    if passes == "none" {
        let functions = sorted(before.iter().flat_map(|object| object.functions.clone()).collect());
        if functions != remaining {
            return Err(format!("--passes none: functions before {functions:?}, after {remaining:?}"));
        }
    } else if variant.finds_dead
        && let Some(dead) = switches::dead_functions().find(|dead| remaining.contains(dead))
    {
        return Err(format!("--passes {passes} kept {dead}, which nothing calls"));
    }
    Ok(())
}

impl Figures {
    fn add_build(&mut self, before: &[Contents], after: &Contents, rewritten: &Rewritten) {
        self.builds += 1;
        self.functions += before.iter().map(|object| object.functions.len()).sum::<usize>();
        self.jump_tables += before.iter().map(|object| object.jump_tables).sum::<usize>();
        self.code_bytes += after.code_bytes;
        for (reason, count) in &rewritten.opaque {
            *self.opaque.entry(reason.clone()).or_default() += count;
        }
    }

    fn add(&mut self, other: &Figures) {
        self.builds += other.builds;
        self.functions += other.functions;
        self.jump_tables += other.jump_tables;
        self.resolved += other.resolved;
        self.code_bytes += other.code_bytes;
        self.code_bytes_after_reach += other.code_bytes_after_reach;
        self.seeds_skipped += other.seeds_skipped;
        for (reason, count) in &other.opaque {
            *self.opaque.entry(reason.clone()).or_default() += count;
        }
    }

    fn text(&self, programs: usize, time: Duration) -> String {
        let opaque: String = self.opaque.iter().map(|(why, n)| format!("\n  opaque: {n} × {why}")).collect();
        format!(
            "random programs: {programs} (and {} that do not end) in {} builds, in {:.0} s: {} functions, {} jump \
             tables (kcfg resolves {}), {} KiB of code, of which reach keeps {} KiB{opaque}",
            self.seeds_skipped,
            self.builds,
            time.as_secs_f64(),
            self.functions,
            self.jump_tables,
            self.resolved,
            self.code_bytes / 1024,
            self.code_bytes_after_reach / 1024,
        )
    }
}

/*!
32-bit ARM programs, in Thumb code and in ARM code: the small ones of `fixtures/programs/features/` without x86
instructions, the ARM-only ones of `fixtures/programs/arm/`, and random ones. Each has to behave the same after
`--passes none`, after `--passes reach`, with identical functions merged, with all of its code shuffled, instrumented
and edited, with constants propagated, with random parts frozen, and after all passes in a random order; `none` keeps
the size of its code. `KSHRINK_PROGRAMS` sets the number of random programs, `KSHRINK_SEED=N` runs program N alone.
*/

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kshrink_tests::{
    Chain, DEDUPLICATED, EXERCISED, FROZEN, INSTRUMENTED, Machine, Outcome, PROPAGATED, Random, Run,
    SHUFFLED, elf, fixture, order, parallel, random_programs, recipe,
};

const LINK: &[&str] = &["-static", "-no-pie"];
const LEVELS: [&str; 2] = ["-Os", "-O2"];
/// In ARM code, every second program has APCS frames, like kernels with frame pointers.
const APCS_FRAMES: &str = "-mapcs-frame";
const PASSES: [&str; 8] =
    ["none", "reach", DEDUPLICATED, SHUFFLED, INSTRUMENTED, EXERCISED, PROPAGATED, FROZEN];

/// Programs with x86 instructions in their sources, or that cannot be linked with the C library for ARM.
const NOT_FOR_ARM: &[&str] = &[
    "assembler_distance",
    "call_at_end",
    "call_pop",
    "data_in_front",
    "comdat",
    "distance_beside_entry",
    "distance_from_entry",
    "global_register",
    "inline_retpolines",
    "list_entry_of_large_head",
    "patchable_entries",
    "resumed_trap",
    "return_to_computed_place",
    "tagged_short_function",
    "zeros_in_text",
];

/// Programs that crash even in the original, in Thumb code: one tags a function's address in the Thumb bit, and GNU ld
/// 2.40 resolves two-byte jumps to indirect functions (`R_ARM_THM_JUMP11`) to a wrong place.
const NOT_FOR_THUMB: &[&str] = &["indirect_functions", "tagged_function_pointer"];

/// Number of random programs. Program N has the seed N, or if that does not end, N + this number, and so on.
const PROGRAMS: usize = 6;
/// Maximum number of seeds for one program.
const TRIES: usize = 8;
/// On this machine, all programs that end take less than 0.01 s.
const NATIVE_LIMIT: Duration = Duration::from_secs(2);
const RUN_LIMIT: Duration = Duration::from_secs(20);

#[test]
fn features_survive() {
    recipe("install.sh", &["cross"]);
    let dir = fixture("programs/features");
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut programs: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    programs.retain(|program| !is_one_of(program, NOT_FOR_ARM));
    programs.sort_unstable();
    assert!(programs.len() > 20, "{} programs", programs.len());
    survive(&programs.iter().map(|program| sources(program)).collect::<Vec<_>>());
}

/// Each line of a program's file `flags` has the compiler flags of one variant.
#[test]
fn programs_for_arm_survive() {
    recipe("install.sh", &["cross"]);
    let dir = fixture("programs/arm");
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut ways = Vec::new();
    for program in entries.map(|entry| entry.expect("an entry").path()) {
        let path = program.join("flags");
        let flags = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        ways.extend(flags.lines().map(|line| (sources(&program), line.to_owned())));
    }
    assert!(ways.len() > 5, "{} ways", ways.len());
    run_all(ways.len(), |i| {
        let (program, flags) = &ways[i];
        (program.as_slice(), Machine::Thumb, flags.split_whitespace().collect())
    });
}

#[test]
fn random_programs_survive() {
    recipe("install.sh", &["cross", "programs"]);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (programs, numbers) = random_programs(PROGRAMS);
    survive(&parallel(numbers.len(), |i| {
        let mut seeds = (numbers[i]..).step_by(programs).take(TRIES);
        vec![seeds.find_map(|seed| random_program(dir.path(), seed)).expect("a program that ends")]
    }));
}

/// Makes a random program; `None` if it does not end.
fn random_program(dir: &Path, seed: usize) -> Option<PathBuf> {
    let [source, program] = ["c", "native"].map(|kind| dir.join(format!("{seed}.{kind}")));
    let csmith = Run::new("csmith").args(["--seed", &seed.to_string(), "--max-funcs", "6", "-o"]);
    csmith.arg(&source).limit(RUN_LIMIT).result().ok()?;
    let compile = Run::new("gcc").args(["-w", "-I/usr/include/csmith", "-o"]).arg(&program);
    compile.arg(&source).limit(RUN_LIMIT).result().ok()?;
    Run::new(&program).limit(NATIVE_LIMIT).outcome().status?;
    Some(source)
}

/// Whether a source, or a program's directory, belongs to one of these programs.
fn is_one_of(path: &Path, programs: &[&str]) -> bool {
    path.iter().any(|part| programs.iter().any(|name| part == *name))
}

/// The sources in a directory.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let files = entries.map(|entry| entry.expect("an entry").path());
    let mut sources: Vec<PathBuf> =
        files.filter(|path| path.extension().is_some_and(|end| end == "c" || end == "s")).collect();
    sources.sort_unstable();
    sources
}

fn survive(programs: &[Vec<PathBuf>]) {
    let ways: Vec<(&[PathBuf], Machine, Vec<&str>)> = programs
        .iter()
        .enumerate()
        .flat_map(|(number, program)| Machine::ARM.map(|machine| (number, program.as_slice(), machine)))
        .filter(|(_, program, machine)| *machine != Machine::Thumb || !is_one_of(&program[0], NOT_FOR_THUMB))
        .flat_map(|(number, program, machine)| {
            let frames = (machine == Machine::Arm && number % 2 == 1).then_some(APCS_FRAMES);
            LEVELS.map(|level| (program, machine, [level].into_iter().chain(frames).collect()))
        })
        .collect();
    run_all(ways.len(), |i| ways[i].clone());
}

/// Rewrites this many programs; `way` returns the sources, the machine and the flags of each.
fn run_all<'w>(ways: usize, way: impl Fn(usize) -> (&'w [PathBuf], Machine, Vec<&'w str>) + Sync) {
    let all = order::all_passes();
    let failures: Vec<String> = parallel(ways, |i| {
        let (program, machine, ref flags) = way(i);
        let name = program[0].parent()?.file_name()?.to_string_lossy().into_owned();
        let stem = program[0].file_stem()?.to_string_lossy();
        let what = format!("{name} {stem} for {} {}", machine.name(), flags.join(" "));
        let mut chain = Chain::new(&what).on(machine);
        let in_random_order = order::shuffled(&mut Random::new(i as u64), &all);
        let why = check(&mut chain, program, machine, flags, &in_random_order).err()?;
        Some(chain.failed(&what, &why))
    })
    .into_iter()
    .flatten()
    .collect();
    assert!(failures.is_empty(), "{} of {ways} failed\n\n{}", failures.len(), failures.join("\n\n"));
}

fn check(
    chain: &mut Chain,
    program: &[PathBuf],
    machine: Machine,
    flags: &[&str],
    in_random_order: &str,
) -> Result<(), String> {
    let mut objects = Vec::new();
    for (i, source) in program.iter().enumerate() {
        let object = format!("{i}.o");
        let all = ["-w", "-fcommon", "-fno-pie", "-I/usr/include/csmith"];
        chain.compile(source, &object, &[&all, flags].concat())?;
        objects.push(object);
    }
    let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
    chain.link("original", &objects, LINK)?;
    let run = |chain: &mut Chain, program: &str| -> Outcome {
        chain.attempt(machine.run(&format!("./{program}")).limit(RUN_LIMIT))
    };
    let original = run(chain, "original");
    if original.stdout.is_empty() || original.status.is_none_or(|status| status > 128) {
        return Err(format!("the original does nothing: {original}"));
    }
    for passes in PASSES.into_iter().chain([in_random_order]) {
        let object = format!("{passes}.o");
        chain.rewrite(&object, &objects, "main", passes)?;
        chain.link(passes, &[&object], LINK)?;
        let outcome = run(chain, passes);
        if !outcome.equals(&original) {
            let difference = original.difference(&outcome);
            return Err(format!("--passes {passes} changed what it does: {difference}\n  after: {outcome}"));
        }
    }
    let code = |name: &str| elf::code_bytes(&chain.dir().join(name));
    let before: u64 = objects.iter().map(|object| code(object)).sum();
    // Padding at the end of a section to four bytes is not emitted again: `.text` and `.text.startup` of each object.
    let padding = 2 * 2 * objects.len() as u64;
    if !(before - padding..=before).contains(&code("none.o")) {
        return Err(format!("--passes none: {} bytes of code, {before} before", code("none.o")));
    }
    Ok(())
}

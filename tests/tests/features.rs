/*!
Small programs, one for each feature of objects that a rewriter can get wrong: thread-local variables, tables that the
linker assembles, labels as values, merged strings, section groups, and so on.

Each directory of `fixtures/programs/features/` is a program. It is compiled in all of [`WAYS`] at all of [`LEVELS`],
or with the flags in its file `flags`, one variant per line. It has to behave the same after `--passes none`, after
`--passes reach`, with identical functions folded, with constants propagated, and with all of its code shuffled,
instrumented, and edited in every way. The results of `none`, `reach` and `icf` must not change when they are rewritten
again.
*/

use std::fs;
use std::path::{Path, PathBuf};

use kshrink_tests::{
    Chain, DEDUPLICATED, EXERCISED, FROZEN, INSTRUMENTED, Machine, PROPAGATED, Run, SHUFFLED, fixture,
    parallel, recipe,
};

const LEVELS: [&str; 3] = ["-O0", "-Os", "-O2"];
const PASSES: [&str; 8] =
    ["none", "reach", DEDUPLICATED, PROPAGATED, SHUFFLED, INSTRUMENTED, EXERCISED, FROZEN];

/// Flags for the compiler, and for the linker.
const WAYS: &[(&[&str], &[&str])] = &[
    (&["-fno-pie"], STATIC),
    (&["-fno-pie", "-ffunction-sections", "-fdata-sections"], STATIC),
    (&["-fPIE"], &["-static-pie"]),
    (&["-fPIC", "-fno-plt"], STATIC),
    (&["-fPIC", "-ftls-model=initial-exec", "-Wa,-mrelax-relocations=no"], STATIC),
];
const STATIC: &[&str] = &["-static", "-no-pie"];

/// Flags that the compiler has for i386 only.
const FLAGS_OF_I386: &[&str] = &["-mregparm=3", "-mpreferred-stack-boundary=2"];

#[test]
fn features_survive() {
    survive(Machine::I386);
}

#[test]
fn features_survive_on_x86_64() {
    survive(Machine::X86_64);
}

fn survive(machine: Machine) {
    recipe("install.sh", &["programs"]);
    let programs = entries(&fixture("programs/features"));
    assert!(!programs.is_empty(), "no programs");
    let is_i386 = machine == Machine::I386;
    let can_compile = |way: &Way| !way.compile.iter().any(|flag| FLAGS_OF_I386.contains(&flag.as_str()));
    let cases: Vec<(&Path, Way)> = programs
        .iter()
        .flat_map(|program| ways(program).into_iter().map(|way| (program.as_path(), way)))
        .filter(|(_, way)| is_i386 || can_compile(way))
        .collect();
    let failures: Vec<String> = parallel(cases.len(), |i| {
        let (program, way) = &cases[i];
        let flags: Vec<&str> = ["-w"].into_iter().chain(way.compile.iter().map(String::as_str)).collect();
        let name = program.file_name()?.to_string_lossy();
        let what = format!("{}, {name}, {}", machine.name(), flags.join(" "));
        let mut chain = Chain::new(&what).on(machine);
        let why = check(&mut chain, machine, program, &flags, way.link).err()?;
        Some(chain.failed(&what, &why))
    })
    .into_iter()
    .flatten()
    .collect();
    assert!(failures.is_empty(), "{} of {} failed\n\n{}", failures.len(), cases.len(), failures.join("\n\n"));
}

/// A way to make a program.
struct Way {
    compile: Vec<String>,
    link: &'static [&'static str],
}

/// Returns the ways in which a program is made.
fn ways(program: &Path) -> Vec<Way> {
    if let Ok(lines) = fs::read_to_string(program.join("flags")) {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        return lines.lines().map(|line| Way { compile: words(line), link: STATIC }).collect();
    }
    let all = WAYS.iter().flat_map(|way| LEVELS.map(|level| (level, way)));
    let flags = |level, compile: &[&str]| {
        [&[level, "-fcommon"], compile].concat().into_iter().map(str::to_owned).collect()
    };
    all.map(|(level, (compile, link))| Way { compile: flags(level, compile), link }).collect()
}

fn check(
    chain: &mut Chain,
    machine: Machine,
    program: &Path,
    flags: &[&str],
    link: &[&str],
) -> Result<(), String> {
    let mut objects = Vec::new();
    for source in
        entries(program).iter().filter(|path| path.extension().is_some_and(|extension| extension == "c"))
    {
        let object = format!("{}.o", source.file_stem().unwrap_or_default().to_string_lossy());
        chain.compile(source, &object, flags)?;
        objects.push(object);
    }
    let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
    let warnings = chain.link("original", &objects, link)?;
    let original = chain.attempt(Run::new("./original"));
    if original.stdout.is_empty() || original.status.is_none_or(|status| status > 128) {
        return Err(format!("the original does nothing: {original}"));
    }
    let is_pie = link.contains(&"-static-pie");
    let is_possible = |passes: &&str| match machine {
        // Stores are relative to their own place.
        Machine::X86_64 => true,
        _ => !is_pie || ![INSTRUMENTED, EXERCISED].contains(passes),
    };
    for passes in PASSES.into_iter().filter(is_possible) {
        let object = format!("{passes}.o");
        let rewritten = chain.rewrite(&object, &objects, "main", passes)?;
        // The other passes need a plan, which describes the original code.
        if ["none", "reach", DEDUPLICATED].contains(&passes) {
            chain.rewrites_to_itself(&object, "main", passes, &rewritten)?;
        }
        let now = chain.link(passes, &[&object], link)?;
        if let Some(warning) = now.difference(&warnings).next() {
            return Err(format!("--passes {passes} made the linker warn: {warning}"));
        }
        let outcome = chain.attempt(Run::new(format!("./{passes}")));
        if !outcome.equals(&original) {
            let difference = original.difference(&outcome);
            return Err(format!("--passes {passes} changed what it does: {difference}\n  after: {outcome}"));
        }
    }
    Ok(())
}

/// Returns the entries of a directory, in order.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort_unstable();
    paths
}

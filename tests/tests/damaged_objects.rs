/*!
For any damage to an object, `kcfg` and `kshrink-spec` end soon, in bounded memory, and without a panic: with the whole
output, or with the status for bad input, one line with the error, and no output at all.

The undamaged objects are those of `fixtures/cfg/small.sh`. A fixed seed determines the damage, so that a failure can
be repeated. The file that caused it is kept.
*/

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use goblin::elf::Elf;
use goblin::elf::sym::STB_LOCAL;
use kshrink_tests::{Damage, Outcome, Run, command, parallel, recipe};

/// Number of damaged copies of each object.
const VARIANTS: usize = 15;
/// An undamaged object takes some milliseconds.
const TIME_LIMIT: Duration = Duration::from_secs(20);
/// The address space of a command, in KiB. A size from a header, if trusted, would need more.
const MEMORY_LIMIT_KIB: u32 = 1 << 20;
/// The status for bad input.
const BAD: i32 = 2;
/// Errors about the whole input, which name no file.
const OF_ALL: [&str; 3] =
    ["no object defines the entry point", "cannot lift ", "cannot rewrite objects for "];

/// An object to damage.
struct Intact {
    name: String,
    bytes: Vec<u8>,
    /// A symbol that it defines, as the entry of the program.
    entry: String,
}

#[test]
fn damaged_objects_are_rewritten_or_refused() {
    recipe("install.sh", &["kernel"]);
    let dir = tempfile::Builder::new().prefix("kshrink-damaged-").tempdir().expect("a temporary directory");
    let objects = whole_objects(&dir.path().join("whole"));
    assert!(objects.len() >= 70, "only {} objects to damage", objects.len());
    let outcomes = parallel(objects.len() * VARIANTS, |job| {
        let object = &objects[job / VARIANTS];
        let work = dir.path().join(job.to_string());
        fs::create_dir(&work).expect("a directory");
        let name = format!("{}.o", object.name);
        let bytes = Damage::new(job as u64).to_object(object.bytes.clone());
        fs::write(work.join(&name), bytes).expect("a damaged object");
        let printed = run(&work, &["kcfg", "--objects", &name, "-o", "out"]);
        let rewritten = run(
            &work,
            &["kshrink-spec", "--objects", &name, "--entry", &object.entry, "--emit-object", "out"],
        );
        if printed.is_ok() && rewritten.is_ok() {
            fs::remove_dir_all(&work).expect("the directory of the damaged object");
        }
        Ok((printed?, rewritten?))
    });
    let failures: Vec<&String> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    if !failures.is_empty() {
        let kept = dir.keep();
        let listed: Vec<&str> = failures.iter().take(10).map(|failure| failure.as_str()).collect();
        panic!("{} failures, kept in {}:\n{}", failures.len(), kept.display(), listed.join("\n"));
    }
    // If all damage were refused, only the reader would be tested; if none were, the reader would not be tested.
    let count =
        |which: fn(&(bool, bool)) -> bool| outcomes.iter().flatten().filter(|done| which(done)).count();
    for (what, count) in [("printed", count(|done| done.0)), ("rewritten", count(|done| done.1))] {
        assert!(count * 10 > outcomes.len(), "only {count} of {} were {what}", outcomes.len());
        assert!(count * 10 < outcomes.len() * 9, "as many as {count} of {} were {what}", outcomes.len());
    }
}

fn whole_objects(dir: &Path) -> Vec<Intact> {
    Run::new(kshrink_tests::fixture("cfg/small.sh")).arg(dir).succeed();
    let mut paths: Vec<PathBuf> =
        fs::read_dir(dir).expect("the objects").map(|entry| entry.expect("an object").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "o"));
    paths.sort();
    let whole = |path: PathBuf| {
        let bytes = fs::read(&path).expect("an object");
        let elf = Elf::parse(&bytes).expect("an object");
        let mut defined =
            elf.syms.iter().filter(|symbol| symbol.st_shndx != 0 && symbol.st_bind() != STB_LOCAL);
        // An object without a global definition has no entry.
        let entry = defined.next().and_then(|symbol| elf.strtab.get_at(symbol.st_name))?.to_owned();
        Some(Intact { name: path.file_stem().expect("a name").to_string_lossy().into_owned(), bytes, entry })
    };
    paths.into_iter().filter_map(whole).collect()
}

/// Runs a command that writes `out`, and returns whether it succeeded.
fn run(work: &Path, words: &[&str]) -> Result<bool, String> {
    let limited = format!("ulimit -c 0; ulimit -v {MEMORY_LIMIT_KIB}; exec \"$0\" \"$@\"");
    let run = Run::new("sh").dir(work).args(["-c", &limited]).arg(command(words[0])).args(&words[1..]);
    let outcome = run.limit(TIME_LIMIT).outcome();
    check(work, words[0], words[2], &outcome).map_err(|problem| format!("{problem}: {outcome}"))
}

fn check(work: &Path, command: &str, object: &str, outcome: &Outcome) -> Result<bool, String> {
    let mut left: Vec<String> = fs::read_dir(work)
        .expect("the directory")
        .map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned())
        .filter(|name| name != object)
        .collect();
    left.sort();
    match outcome.status {
        Some(0) => {
            if left != ["out"] {
                return Err(format!("left {left:?}"));
            }
            let out = work.join("out");
            let bytes = fs::read(&out).expect("the output");
            fs::remove_file(&out).expect("the output");
            match command {
                "kcfg" => serde_json::from_slice::<serde_json::Value>(&bytes)
                    .map(drop)
                    .map_err(|error| error.to_string())?,
                _ => Elf::parse(&bytes).map(drop).map_err(|error| error.to_string())?,
            }
            Ok(true)
        }
        Some(BAD) => {
            let message = outcome.stderr.trim_end();
            let plain = message.strip_prefix(&format!("{command}: error: ")).unwrap_or_default();
            let about = plain.contains(object) || OF_ALL.iter().any(|start| plain.starts_with(start));
            if !left.is_empty() || !outcome.stdout.is_empty() {
                return Err(format!("left {left:?} and {} bytes of output", outcome.stdout.len()));
            }
            if message.lines().count() != 1 || !about {
                return Err("no clear error".to_owned());
            }
            Ok(false)
        }
        _ => Err("neither success nor the status for bad input".to_owned()),
    }
}

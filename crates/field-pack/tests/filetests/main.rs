//! Small C files and the patch that `field-pack` makes for a plan of them.
//!
//! A case begins with its purpose, then has the plan, a line for each member: `narrow 1 flags`. The parts `== FILE`
//! are the source. The last part is the result: the members that stay as they are, with the reasons, and the patch of
//! these files. `KSHRINK_BLESS=1` rewrites it.
//!
//! Each patched source compiles. A case with the line `must exclude` breaks a rule: there, the source must not compile
//! if the tool does not see the use that breaks it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use field_pack::document::Fields;
use field_pack::patch::{self, Patch};
use field_pack::scan::{Facts, Form};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::{Value, json};

/// The headers of the kernel that the side table includes; the shim replaces them.
const HEADERS: [&str; 6] = [
    "asm/barrier.h",
    "linux/build_bug.h",
    "linux/compiler.h",
    "linux/limits.h",
    "linux/types.h",
    "linux/bug.h",
];

/// The parts of the slab allocator that the patch changes.
const SLUB: &str = "\
#include <linux/kmemleak.h>
static void __free_slab(struct kmem_cache *s, struct slab *slab)
{
	int pages = 1 << order;

}
static __fastpath_inline
void slab_free(
{
	alloc_tagging_slab_free_hook(s, slab, &object, 1);
}
static __fastpath_inline
void slab_free_bulk(
{
	alloc_tagging_slab_free_hook(s, slab, p, cnt);
}
static void free_large_kmalloc(
{
	kmsan_kfree_large(object);
}
";

/// The part of its header that the patch changes.
const SLAB_HEADER: &str = "\
struct kmem_cache {
	slab_flags_t flags;
};
";

fn main() -> ExitCode {
    // The library starts this program to parse files.
    if std::env::args().nth(1).as_deref() == Some(field_pack::scan::WORKER) {
        let done = field_pack::scan::worker(std::io::stdin().lock(), std::io::stdout().lock());
        return if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let arguments = Arguments::from_args();
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/filetests/cases");
    let mut paths: Vec<PathBuf> = fs::read_dir(cases).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let trials = paths.into_iter().map(|path| {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        Trial::test(name, move || run(&path).map_err(Failed::from))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// A case: its head, and its parts by name.
struct Case {
    head: String,
    sources: Vec<(String, String)>,
    expected: String,
}

fn parse(text: &str) -> Case {
    let mut parts = text.split("\n== ");
    let head = parts.next().unwrap_or_default().to_owned();
    let mut sources = Vec::new();
    let mut expected = String::new();
    for part in parts {
        let (name, content) = part.split_once('\n').unwrap_or((part, ""));
        match name {
            "result" => expected = content.to_owned(),
            name => sources.push((name.to_owned(), format!("{content}\n"))),
        }
    }
    Case { head, sources, expected }
}

fn run(path: &Path) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let case = parse(&text);
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let root = fs::canonicalize(dir.path()).map_err(|error| error.to_string())?;
    let (source, build) = (root.join("source"), root.join("build"));
    write_tree(&case, &source, &build);
    let fields = plan(&case);
    let builds = [build.clone()];
    let facts =
        patch::facts(&fields, &source, &builds, None).map_err(|failure| failure.message().to_owned())?;
    let made = make(&fields, &source, &facts)?;
    let printed = print(&made, &case);
    if std::env::var_os("KSHRINK_BLESS").is_some() {
        let kept = text.find("\n== result\n").map_or(text.trim_end(), |at| &text[..at]);
        fs::write(path, format!("{kept}\n== result\n{printed}")).map_err(|error| error.to_string())?;
    } else if printed != case.expected {
        let diff = similar::TextDiff::from_lines(case.expected.as_str(), printed.as_str());
        return Err(format!("other result than expected:\n{}", diff.unified_diff()));
    }
    compile(&made, &source, &build).map_err(|errors| format!("does not compile:\n{errors}"))?;
    if case.head.lines().any(|line| line == "must exclude") {
        if made.excluded.is_empty() {
            return Err("excludes nothing".to_owned());
        }
        let blind = without_reasons(&facts);
        let forced = make(&fields, &source, &blind)?;
        if compile(&forced, &source, &build).is_ok() {
            return Err("compiles although the use that breaks the rule was not seen".to_owned());
        }
    }
    Ok(())
}

fn make(fields: &Fields, source: &Path, facts: &Facts) -> Result<Patch, String> {
    patch::patch(&mut fields.clone(), source, facts, &patch::Options::default(), &mut BTreeMap::new())
        .map_err(|failure| failure.message().to_owned())
}

/// The facts without the uses that exclude members: other uses than reads and writes, and uses in macros at places with
/// several forms or structures.
fn without_reasons(facts: &Facts) -> Facts {
    let mut blind = facts.clone();
    blind.uses.retain(|found| {
        let there =
            facts.uses.iter().filter(|other| (&other.file, other.offset) == (&found.file, found.offset));
        let mut there = there.filter(|other| other.form != Form::Type);
        !found.is_hidden
            && matches!(found.form, Form::Read | Form::Type | Form::Store | Form::Compound | Form::Step)
            && there.all(|other| other.form == found.form && other.of == found.of)
    });
    blind
}

/// Writes the source, the shim of the kernel, and the record of a build.
fn write_tree(case: &Case, source: &Path, build: &Path) {
    let write = |path: PathBuf, text: &str| {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for header in HEADERS {
        write(build.join("include").join(header), "#include \"shim.h\"\n");
    }
    write(build.join("include/shim.h"), include_str!("../runtime/shim.h"));
    write(source.join("mm/slub.c"), SLUB);
    write(source.join("mm/slab.h"), SLAB_HEADER);
    write(source.join("mm/Makefile"), "obj-y += slub.o\n");
    for (name, text) in &case.sources {
        write(source.join(name), text);
        let Some(stem) = name.strip_suffix(".c") else { continue };
        let headers: String = case
            .sources
            .iter()
            .filter(|(name, _)| name.ends_with(".h"))
            .map(|(name, _)| format!("  {} \\\n", source.join(name).display()))
            .collect();
        let command = command(source, build, &source.join(name)).join(" ");
        let record = format!(
            "savedcmd_{stem}.o := gcc {command} -c -o {stem}.o\n\nsource_{stem}.o := {name}\n\ndeps_{stem}.o := \\\n{headers}\n"
        );
        write(build.join(format!(".{stem}.o.cmd")), &record);
    }
    std::os::unix::fs::symlink(source, build.join("source")).unwrap();
}

/// The options of the compiler.
fn command(source: &Path, build: &Path, file: &Path) -> Vec<String> {
    vec![
        "-std=gnu11".to_owned(),
        format!("-I{}", build.join("include").display()),
        format!("-I{}", source.join("include").display()),
        file.display().to_string(),
    ]
}

/// The plan in the head of a case.
fn plan(case: &Case) -> Fields {
    let mut types: BTreeMap<String, Value> = BTreeMap::new();
    for line in case.head.lines().filter(|line| line.starts_with("- ")) {
        let words: Vec<&str> = line[2..].split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        let (of, member) = words[0].split_once('.').unwrap_or((words[0], ""));
        let of_type = types
            .entry(of.to_owned())
            .or_insert_with(|| json!({"type": of, "size": [0, 0], "order": [], "members": []}));
        let form = match words[1] {
            "order" => {
                of_type["order"] = words[2..].iter().copied().collect();
                continue;
            }
            "narrow" => json!({"width": number(2), "signed": words.get(3) == Some(&"signed")}),
            "absent" => json!({"value": number(2)}),
            "table" => json!({"width": 1, "values": [], "slots": number(2)}),
            "page-table" => json!({"width": 2, "bits": 9, "shift": 3, "slots": number(2)}),
            other => panic!("unknown scheme {other:?}"),
        };
        let mut form = form;
        for (name, value) in [
            ("name", json!(member)),
            ("scheme", json!(words[1])),
            ("offset", json!(0)),
            ("bytes", json!(0)),
            ("loads", json!(0)),
            ("stores", json!(0)),
        ] {
            form[name] = value;
        }
        of_type["members"].as_array_mut().unwrap().push(form);
    }
    let types: Vec<Value> = types.into_values().collect();
    let document = json!({
        "schema": "kshrink-fields/1", "kernel": "6.12", "threshold": 0.0, "types": types, "caches": [],
    });
    serde_json::from_value(document).unwrap()
}

/// The members that stay as they are, and the changed source without the accessors.
fn print(made: &Patch, case: &Case) -> String {
    let mut text = String::new();
    for ((of, member), reason) in &made.excluded {
        let name = if member.is_empty() { format!("the order of {of}") } else { format!("{of}.{member}") };
        let _ = writeln!(text, "{name} stays: {reason}");
    }
    for (name, _) in &case.sources {
        let Some((before, after)) = made.files.get(name) else { continue };
        let diff = similar::TextDiff::from_lines(before.as_str(), after.as_str());
        for change in diff.iter_all_changes().filter(|change| change.tag() != similar::ChangeTag::Equal) {
            let _ = write!(text, "{}{change}", change.tag());
        }
    }
    text
}

/// Compiles all files of a patched source.
fn compile(made: &Patch, source: &Path, build: &Path) -> Result<(), String> {
    let patched = tempfile::tempdir().map_err(|error| error.to_string())?;
    let status =
        Command::new("cp").arg("-a").arg(format!("{}/.", source.display())).arg(patched.path()).status();
    assert!(status.is_ok_and(|status| status.success()));
    for (name, (_, after)) in &made.files {
        let path = patched.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, after).unwrap();
    }
    for entry in fs::read_dir(patched.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "c") {
            continue;
        }
        let mut gcc = Command::new("gcc");
        gcc.args(command(patched.path(), build, &path)).args(["-Wall", "-Wno-unused", "-fsyntax-only"]);
        let output = gcc.output().map_err(|error| error.to_string())?;
        if !output.status.success() || !output.stderr.is_empty() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
    }
    Ok(())
}

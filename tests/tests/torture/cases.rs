//! The tests of GCC's testsuite that are programs, and the effect of their directives ("Directives used within DejaGnu
//! tests", GCC Internals, chapter 7).

use std::fs;
use std::path::{Path, PathBuf};

/// A folder of the testsuite.
struct Folder {
    path: &'static str,
    /// Whether a test is run by default, and not only compiled.
    runs: bool,
    /// The options that the folder's `.exp` file passes to every test, except optimization levels.
    options: &'static [&'static str],
}

/// Folders are read recursively; the last one that contains a test counts.
const FOLDERS: &[Folder] = &[
    Folder { path: "gcc.c-torture/execute", runs: true, options: &[] },
    Folder {
        path: "gcc.c-torture/execute/builtins",
        runs: true,
        options: &[
            "-fno-tree-dse",
            "-fno-tree-loop-distribute-patterns",
            "-fno-tracer",
            "-fno-ipa-ra",
            "-fno-inline-functions",
        ],
    },
    Folder { path: "gcc.dg/torture", runs: false, options: &[] },
    Folder {
        path: "gcc.dg/vect",
        runs: true,
        options: &[
            "-msse2",
            "-ftree-vectorize",
            "-fno-tree-loop-distribute-patterns",
            "-fno-vect-cost-model",
            "-fno-common",
        ],
    },
];

/// A test of the testsuite.
pub struct Case {
    /// Its path in the testsuite.
    pub name: String,
    /// The C files of the program.
    pub sources: Vec<PathBuf>,
    /// Options for the compiler, which also links.
    pub options: Vec<String>,
    /// Whether it is to be run.
    pub runs: bool,
}

/// Returns all tests of a testsuite, sorted by name. `ours` are parts of the conditions of directives that hold.
pub fn all(suite: &Path, ours: &[&str]) -> Vec<Case> {
    let mut paths = Vec::new();
    for folder in FOLDERS {
        c_files(&suite.join(folder.path), &mut paths);
    }
    paths.sort_unstable();
    paths.dedup();
    paths.iter().filter_map(|path| case(suite, path, ours)).collect()
}

/// Adds the C files below a folder.
fn c_files(folder: &Path, paths: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            c_files(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "c") {
            paths.push(path);
        }
    }
}

/// Returns a test; `None` for a file that belongs to other tests.
fn case(suite: &Path, path: &Path, ours: &[&str]) -> Option<Case> {
    let inside = path.strip_prefix(suite).expect("it was found there");
    let folder = FOLDERS.iter().rfind(|folder| inside.starts_with(folder.path)).expect("it was found in one");
    let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let text = String::from_utf8_lossy(&text);
    let mut case = Case {
        name: inside.display().to_string(),
        sources: vec![path.to_owned()],
        options: folder.options.iter().map(|&option| option.to_owned()).collect(),
        runs: folder.runs,
    };
    let dir = path.parent().expect("it is in a folder");
    if folder.path.ends_with("builtins") {
        // builtins.exp: a test, its replacement of the C library's functions, and common code.
        let stem = path.file_stem().expect("it has a name").to_string_lossy();
        if stem.ends_with("-lib") || dir.ends_with("lib") {
            return None;
        }
        case.sources.extend([path.with_file_name(format!("{stem}-lib.c")), dir.join("lib/main.c")]);
    }
    for line in text.lines() {
        let Some((name, rest)) = directive(line) else { continue };
        match name {
            "dg-do" => case.runs = rest.split_whitespace().next() == Some("run"),
            "dg-options" | "dg-additional-options" if holds(rest, ours) => case.options.extend(words(rest)),
            "dg-additional-sources" => case.sources.extend(words(rest).map(|source| dir.join(source))),
            _ => {}
        }
    }
    Some(case)
}

/// Returns the name and the arguments of the directive in a line: `{ dg-NAME ARGUMENTS }`.
fn directive(line: &str) -> Option<(&str, &str)> {
    let start = line.find("{ dg-").or_else(|| line.find("{dg-"))?;
    let inner = line[start + 1..].trim_start();
    inner[..inner.rfind('}')?].split_once(char::is_whitespace)
}

/// Returns the words of a directive's first argument, which may be quoted.
fn words(arguments: &str) -> impl Iterator<Item = String> {
    let arguments = arguments.trim();
    let argument = match arguments.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => arguments.split_whitespace().next(),
    };
    // The name of dump files does not concern the program.
    let words = argument.unwrap_or_default().split_whitespace().filter(|word| !word.starts_with("-fdump-"));
    words.map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// Whether the condition of a directive holds, as far as can be determined without DejaGnu: there is none, or it names
/// the machine, by one of the words in `ours`, without negation.
fn holds(arguments: &str, ours: &[&str]) -> bool {
    let Some((_, condition)) = arguments.split_once("{ target") else { return true };
    !condition.contains('!') && ours.iter().any(|name| condition.contains(name))
}

#[test]
fn directives_are_read() {
    let arguments = |line| directive(line).expect("a directive").1;
    assert_eq!(
        directive("/* { dg-do run { target int32plus } } */"),
        Some(("dg-do", "run { target int32plus } "))
    );
    assert_eq!(directive("int dg;"), None);
    let options = arguments(r#"/* { dg-options "-O3 -fdump-tree-vect -w" } */"#);
    assert_eq!(words(options).collect::<Vec<_>>(), ["-O3", "-w"]);
    assert_eq!(
        words(arguments("/* { dg-additional-sources pr68661-1b.c } */")).collect::<Vec<_>>(),
        ["pr68661-1b.c"]
    );
    let holds = |arguments: &str| holds(arguments, &["i?86-", "*-*-linux"]);
    assert!(holds(options));
    assert!(holds(arguments(r#"{ dg-options "-msse2" { target { i?86-*-* x86_64-*-* } } }"#)));
    assert!(!holds(arguments(r#"{ dg-options "-mavx" { target avx_runtime } }"#)));
    assert!(!holds(arguments(r#"{ dg-options "-m" { target { i?86-*-* && { ! ia32 } } } }"#)));
}

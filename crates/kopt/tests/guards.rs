//! The list of assumptions: the tests that guard them exist, and the documentation lists all of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use kopt::assumptions::ALL;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Whether a source has a test of this name that is not ignored, or a directory of cases has a case in this directory.
fn has_test(place: &str, name: &str) -> bool {
    if repository().join(place).is_dir() {
        let cases = fs::read_dir(repository().join(place).join(name));
        return cases.is_ok_and(|mut cases| cases.next().is_some());
    }
    let source = read(place);
    let Some((before, _)) = source.split_once(&format!("\nfn {name}() {{")) else { return false };
    let attributes = before.lines().rev().take_while(|line| line.starts_with("#["));
    attributes.eq(["#[test]"])
}

#[test]
fn every_assumption_is_guarded_by_tests_that_exist() {
    let mut names = BTreeSet::new();
    for assumption in ALL {
        let name = assumption.name;
        assert!(names.insert(name), "two are called {name}");
        assert!(repository().join(assumption.applied_in).is_file(), "{name}: {}", assumption.applied_in);
        assert!(!assumption.guards.is_empty(), "{name} has no guard");
        for guard in assumption.guards {
            let (file, test) = guard.split_once(": ").expect("FILE: FUNCTION");
            assert!(has_test(file, test), "{name}: there is no test {guard}");
        }
    }
}

#[test]
fn the_documentation_lists_every_assumption() {
    let rows: Vec<String> = ALL
        .iter()
        .map(|assumption| {
            let guards: Vec<&str> = assumption
                .guards
                .iter()
                .map(|guard| guard.split_once(": ").expect("FILE: FUNCTION").1)
                .collect();
            format!("| {} | {} | {} |", assumption.name, assumption.says, guards.join(", "))
        })
        .collect();
    let document = read("docs/assumptions.md");
    let found: Vec<&str> = document
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .filter(|line| !line.starts_with("| ---"))
        .collect();
    assert_eq!(found, rows, "docs/assumptions.md should have these rows:\n{}", rows.join("\n"));
}

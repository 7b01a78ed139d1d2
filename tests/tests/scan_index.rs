//! The index of the programs in `fixtures/programs/scan/` has exactly one line for each of them.

use std::collections::BTreeSet;
use std::fs;

use kshrink_tests::fixture;

const INDEX: &str = "README.md";

#[test]
fn every_program_is_in_the_index() {
    let directory = fixture("programs/scan");
    let index = fs::read_to_string(directory.join(INDEX)).expect("the index");
    let rows = index.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let mut listed = BTreeSet::new();
    for (name, what) in rows {
        assert!(what.ends_with(". |"), "{name}: no sentence says what it proves");
        assert!(listed.insert(name.to_owned()), "{name} is listed twice");
    }
    let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("UTF-8");
    let files = fs::read_dir(&directory).expect("the programs").map(|entry| name(entry.expect("a file")));
    let files: BTreeSet<String> = files.filter(|name| name != INDEX).collect();
    let missing: Vec<_> = files.difference(&listed).collect();
    assert!(missing.is_empty(), "not in {INDEX}: {missing:?}");
    let gone: Vec<_> = listed.difference(&files).collect();
    assert!(gone.is_empty(), "in {INDEX}, but gone: {gone:?}");
}

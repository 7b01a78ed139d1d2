//! Comparing the output of the cases with the expected output.

use std::fs;
use std::panic;
use std::path::{Path, PathBuf};

use kopt::Pass;
use similar::TextDiff;

use crate::case::Case;
use crate::run;

/// The directory of cases, given its path in the package.
pub fn root(cases: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(cases)
}

/// The names in a directory, sorted.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().expect("a name in UTF-8")).collect();
    names.sort();
    names
}

/// Runs every file of a pass. With `KSHRINK_BLESS=1`, writes the new output into each file.
pub fn directory(cases: &str, pass: Pass) {
    let bless = std::env::var_os("KSHRINK_BLESS").is_some_and(|value| value == "1");
    let directory = root(cases).join(pass.name());
    let target = Path::new(cases).file_name().unwrap_or_default().to_string_lossy();
    let advice = format!("KSHRINK_BLESS=1 cargo test -p kopt --test {target}");
    let mut failures = Vec::new();
    for name in names(&directory) {
        if let Err(message) = file(&directory.join(&name), pass, bless, &advice) {
            failures.push(format!("{}/{name}: {message}", pass.name()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn file(path: &Path, pass: Pass, bless: bool, advice: &str) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let case = Case::parse(&text, pass)?;
    // If a pass panics, the file that caused it must still be reported.
    let found = panic::catch_unwind(|| run::run(&case)).map_err(|_| "panicked, as printed above")??;
    let found = case.with(&found);
    if found == text {
        return Ok(());
    }
    if bless {
        return fs::write(path, found).map_err(|error| error.to_string());
    }
    let diff = TextDiff::from_lines(&text, &found);
    let diff = diff.unified_diff().context_radius(5).header("expected", "found").to_string();
    Err(format!("not what is expected; if it is right, bless it with `{advice}`\n{diff}"))
}
